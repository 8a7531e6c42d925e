"""Sphinx configuration: pages come from this folder and the package, nothing from the network."""

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
# a name in single backticks, as docstrings write it, is code
default_role = "code"
smartquotes = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
# described without being installed
autodoc_mock_imports = ["avalanche"]
napoleon_google_docstring = False
# lists of names with what they are, not objects of their own: one entry may have several names
napoleon_use_param = False
napoleon_attr_annotations = False
napoleon_custom_sections = [("Attributes", "params_style")]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
html_math_renderer = "mathml"
# links out of the documentation, to the README and its neighbours, are checked by the tests
suppress_warnings = ["myst.xref_missing"]


def visit_math(self, node):
    """An equation as MathML: browsers draw it themselves, without scripts from elsewhere."""
    self.body.append(tex2mathml(node.astext(), as_block=node.tagname == "math_block"))
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer(
        "mathml", inline_renderers=(visit_math, None), block_renderers=(visit_math, None)
    )
