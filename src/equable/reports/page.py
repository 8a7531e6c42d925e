"""The report page: one HTML file that holds everything it shows and loads nothing.

Whatever comes from outside (titles, paths, settings) is escaped by the template; the script is allowed by
its hash alone.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import equable
from equable.errors import MissingExtraError
from equable.reports.figures.style import DARK_CSS

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

    from equable.reports.tables import Table


@dataclass(frozen=True)
class PageFigure:
    """A drawn figure, ready to stand in a page."""

    svg: Markup
    caption: str


@dataclass(frozen=True)
class PageSection:
    """A heading and what stands below it, in this order; `folded` tables are closed until opened."""

    key: str
    title: str
    texts: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[PageFigure] = ()
    folded: Sequence[Table] = ()
    facts: Sequence[tuple[str, str]] = ()
    code: str = ""


@dataclass(frozen=True)
class Page:
    """All of a page but its looks. `tiles` are (name, value, detail)."""

    title: str
    kicker: str
    lead: str
    sentences: Sequence[str]
    tiles: Sequence[tuple[str, str, str]]
    sections: Sequence[PageSection]


def render_page(page: Page) -> str:
    """The page as HTML; equal pages give equal text."""
    from markupsafe import Markup

    script = _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _template().render(
        page=page,
        css=Markup(_asset("page.css") + DARK_CSS),
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
    head, mark, tail = text.partition(" ± ")
    if mark:
        return head, f"± {tail}"
    if text.endswith("]"):
        head, mark, tail = text.partition(" [")
        return head, f"[{tail}" if mark else ""
    return text, ""


def _breakable(key: str) -> Markup:
    """A dotted key that a narrow screen may break where its words end."""
    from markupsafe import Markup, escape

    return Markup(str(escape(key)).replace(".", ".<wbr>").replace("_", "_<wbr>"))


def page_figure(name: str, svg: bytes, caption: str, alt: str) -> PageFigure:
    """An SVG file as part of the page: ids made unique, its words as label, its colours left to the page."""
    from markupsafe import Markup, escape

    text = svg.decode("utf-8")
    body = text[text.index("<svg") :]
    body = re.sub(r"<style>.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'href="#', f'href="#{name}-', body)
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    opening, rest = body.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None
    return PageFigure(
        Markup(f'<svg {box.group()} role="img" aria-label="{escape(alt)}">{rest.strip()}'), caption
    )


def section_of(
    key: str,
    title: str,
    tables: Mapping[str, Table],
    figures: Mapping[str, PageFigure],
    *,
    texts: Sequence[str] = (),
    open_tables: Sequence[str] = (),
    folded: Sequence[str] = (),
    drawn: Sequence[str] = (),
) -> PageSection:
    """A section of those named tables and figures that the run has."""
    return PageSection(
        key,
        title,
        texts,
        [tables[name] for name in open_tables if name in tables],
        [figures[name] for name in drawn if name in figures],
        [tables[name] for name in folded if name in tables],
    )
