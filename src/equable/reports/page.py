"""The report page: one HTML file that contains everything it shows and loads nothing.

Titles, paths and settings are escaped by the template; the script is allowed by its hash alone.
"""

from __future__ import annotations

import base64
import hashlib

import equable
from equable.reports.figures import build_plots
from equable.reports.page_sections import Page, run_page
from equable.reports.results import Results
from equable.reports.tables import build_tables
from equable.reports.templates import load_template, read_asset


def file_page(results: Results) -> str:
    """The page of the results of one file of outputs."""
    return render_page(run_page(results, build_tables(results), build_plots(results)))


def render_page(page: Page) -> str:
    """The page as HTML; equal pages give equal text."""
    script = read_asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return load_template("page.html.jinja", autoescape=True).render(
        page=page, css=read_asset("page.css"), script=script, script_hash=digest, version=equable.__version__
    )
