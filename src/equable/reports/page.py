"""The report page: one HTML file that contains everything it shows and loads nothing.

Titles, paths and settings are escaped by the template; the script is allowed by its hash alone.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import equable
from equable.errors import MissingExtraError
from equable.reports import figures
from equable.reports.page_sections import Page, run_page
from equable.reports.results import Results
from equable.reports.tables import build_tables

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup


def file_page(results: Results) -> str:
    """The page of the results of one file of outputs."""
    drawn = [figures.draw(plot) for plot in figures.build_plots(results)]
    return render_page(run_page(results, build_tables(results), drawn))


def render_page(page: Page) -> str:
    """The page as HTML; equal pages give equal text."""
    from markupsafe import Markup

    script = _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _template().render(
        page=page,
        css=Markup(_asset("page.css")),
        script=Markup(script),
        script_hash=digest,
        version=equable.__version__,
    )


@cache
def _template() -> Template:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("the page needs jinja2: pip install 'equable[report]'") from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters |= {"parts": _parts, "breakable": _breakable}
    return environment.from_string(_asset("page.html.jinja"))


def _asset(name: str) -> str:
    return (files("equable.reports") / "assets" / name).read_text(encoding="utf-8")


def _parts(text: str) -> tuple[str, str]:
    """The number, and the spread or interval behind it, which is printed smaller."""
    number, *rest = re.split(r" (?=± |\[.*\]$)", text, maxsplit=1)
    return number, "".join(rest)


def _breakable(key: str) -> Markup:
    """A dotted key that a narrow screen may break where its words end."""
    from markupsafe import Markup, escape

    return Markup(str(escape(key)).replace(".", ".<wbr>").replace("_", "_<wbr>"))
