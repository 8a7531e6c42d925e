"""Sphinx configuration: pages come from this folder and the package, nothing from the network."""

import re

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

from equable import __version__

project = "equable"
author = "The equable authors"
copyright = author
release = version = __version__

extensions = ["sphinx.ext.autodoc", "myst_parser"]
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
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
html_math_renderer = "mathml"
# links out of the documentation, to the README and its neighbours, are checked by the tests
suppress_warnings = ["myst.xref_missing"]

# what docstrings mean literally and reStructuredText would read as markup: |x|, *_before, temperature_
MARKUP = re.compile(r"``.*?``|`.*?`|[|*]|(?<=\w)_(?!\w)")
ENTRY = re.compile(r"(\w[\w, *]*) : (.+)")
LISTS = ("Parameters", "Attributes")


def prepare_docstring(app, what, name, obj, options, lines):
    """Headings in bold, entries ("name : what it is") as lists, and no markup but code and examples."""
    prepared, in_list = [], False
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if below and not below.strip("-"):
            in_list = line in LISTS
            prepared += [f"**{line}**", ""]
        elif entry := ENTRY.fullmatch(line):
            prepared.append(f"- ``{entry[1]}``: {escaped(entry[2])}")
        elif line.strip("-") or not line:
            prepared.append("  " + escaped(line.strip()) if in_list and line else escaped(line))
    lines[:] = prepared


def escaped(text):
    """The text with its markup taken literally; examples and names in backticks stay as they are."""
    if text.lstrip().startswith((">>>", "...")):
        return text
    return MARKUP.sub(lambda match: match[0] if match[0].startswith("`") else "\\" + match[0], text)


def visit_math(self, node):
    """An equation as MathML: browsers draw it themselves, without scripts from elsewhere."""
    self.body.append(tex2mathml(node.astext(), as_block=node.tagname == "math_block"))
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer(
        "mathml", inline_renderers=(visit_math, None), block_renderers=(visit_math, None)
    )
    app.connect("autodoc-process-docstring", prepare_docstring)
