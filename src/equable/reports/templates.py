"""Files of ``assets/``, and templates among them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equable.errors import MissingExtraError

if TYPE_CHECKING:
    from jinja2 import Template

ASSETS = Path(str(files("equable.reports"))) / "assets"


def read_asset(name: str) -> str:
    """The text of a file of ``assets/``."""
    return (ASSETS / name).read_text(encoding="utf-8")


def load_template(name: str, filters: dict[str, Any] | None = None, **options: Any) -> Template:
    """A template of ``assets/`` with filters of its own; `options` are those of jinja2's environment."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("the page needs jinja2: pip install 'equable[report]'") from error
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, **options)
    environment.filters |= filters or {}
    return environment.from_string(read_asset(name))
