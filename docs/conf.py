"""Sphinx configuration; the build needs no network."""

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

from equable import __version__

project = "equable"
author = "The equable authors"
copyright = author
release = version = __version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_parser"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["equable.css"]
html_title = f"equable {__version__}"
# single backticks in docstrings are code
default_role = "code"
smartquotes = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
# documented without being installed
autodoc_mock_imports = ["avalanche"]
napoleon_google_docstring = False
# entries are plain lists, because one entry can have several names
napoleon_use_param = False
napoleon_attr_annotations = False
napoleon_custom_sections = [("Attributes", "params_style")]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
html_math_renderer = "mathml"
# the tests check links to files outside docs/
suppress_warnings = ["myst.xref_missing"]


def visit_math(self, node):
    """Write an equation as MathML, which browsers render without scripts."""
    self.body.append(tex2mathml(node.astext(), as_block=node.tagname == "math_block"))
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer(
        "mathml", inline_renderers=(visit_math, None), block_renderers=(visit_math, None)
    )
