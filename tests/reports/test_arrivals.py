"""How rows arrive: planted regimes come back as tables, figure and page section."""

from __future__ import annotations

import csv
import io
import re
from xml.etree import ElementTree

import pytest

from equable.errors import FileFormatError
from equable.files import write_json
from equable.reports.figures import build_plots, render
from equable.reports.figures.arrivals import draw_regimes, drawn_methods
from equable.reports.figures.style import DARK, LOOKS, drawing
from equable.reports.report import write_report
from equable.reports.results import load_results
from equable.reports.tables import build_tables
from equable.reports.tables.arrivals import (
    arrival_interval,
    arrival_value,
    arrivals,
    distinct_arrivals,
    regimes_table,
    takes_no_notice,
)
from equable.reports.tables.render import csv_text, latex, markdown
from planted_run import ARRIVALS, make_run, plant_regimes

METHODS = {"arc": (-0.23, -0.02), "dats_no_prior": (-0.23, -0.02)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = make_run(tmp_path_factory.mktemp("arrivals") / "run", changes=METHODS)
    plant_regimes(folder)
    return folder


@pytest.fixture(scope="module")
def run(folder):
    return load_results(folder)


def sections_of(table):
    return {s.title: {row.label: row.cells for row in s.rows} for s in table.sections}


def test_values_are_those_of_the_files(run):
    assert set(arrivals(run)) == set(ARRIVALS)
    assert arrivals(run)[:3] == [("pure", 1), ("pure", 8), ("pure", 0)]
    assert len(distinct_arrivals(run)) == 6  # a single row is a single row in any regime
    for way, values in ARRIVALS.items():
        found = arrival_value(run, "dats", way)
        assert (found.mean, found.std, found.n) == pytest.approx((values["dats"] + 0.01, 0.01, 2))
        assert arrival_value(run, "dats", way, "nll").mean == pytest.approx(10 * values["dats"] + 0.1)
    low, high = arrival_interval(run, "arc", ("pure", 0), "pooled_ece")
    assert (low, high) == pytest.approx((0.03 - 0.01, 0.03 + 0.01))
    assert [m for m in ("rc", "tcil", "dats", "arc") if takes_no_notice(run, m)] == ["rc", "tcil"]


def test_full_table(run):
    table = regimes_table(run)
    sections = sections_of(table)
    assert list(sections) == [
        *("However rows arrive", "Single rows", "One task, 8 a batch", "One task, whole set"),
        *("Shuffled, 8 a batch", "Drifting, 8 a batch", "Stream, 8 at a time"),
    ]
    assert set(sections["However rows arrive"]) == {"Uncalibrated", "RC", "T-CIL"}
    assert list(sections["Single rows"]) == ["DATS", "ARC", "DATS, no prior"]
    texts = [c.text for c in sections["One task, whole set"]["ARC"]]
    assert texts == [
        *("6.00 ± 1.00", "[5.00, 7.00]", "3.00 ± 0.50", "[2.00, 4.00]", "0.600 ± 0.100", "[0.590, 0.610]"),
    ]
    assert sections["One task, whole set"]["ARC"][0].best
    # better than DATS, but not than RC; and a variant wins nothing
    assert not sections["Shuffled, 8 a batch"]["ARC"][0].best
    assert not any(c.best for rows in sections.values() for c in rows.get("DATS, no prior", ()))
    for print_ in (markdown, latex, csv_text):
        assert print_(table)
    heading, *rows = csv.reader(io.StringIO(csv_text(table)))
    assert "Average ECE (%): 95 % interval low" in heading
    assert len(rows) == 3 + 6 * 3


def test_compact_table(run):
    table = next(t for t in build_tables(run) if t.name == "arrivals")
    assert [name for name, _ in table.groups] == [
        *("One task a batch", "Tasks shuffled", "Drifting from task to task"),
    ]
    sections = sections_of(table)
    assert [c.text for c in sections[""]["DATS"]][:3] == ["14.0 ± 1.0", "10.0 ± 1.0", "8.0 ± 1.0"]
    assert [c.best for c in sections[""]["RC"]] == [False] * 4 + [True] + [False] * 3  # shuffled by 8
    assert "DATS, no prior" in sections["Variants, not ranked"]


def test_without_bootstrap_there_are_no_intervals(tmp_path):
    folder = make_run(tmp_path, changes=METHODS, half_width=None)
    plant_regimes(folder, half_width=None)
    assert len(regimes_table(load_results(folder)).columns) == 3


def test_a_run_without_regimes_has_no_such_pieces(tmp_path):
    run = load_results(make_run(tmp_path))
    assert {"regimes", "arrivals"}.isdisjoint(t.name for t in build_tables(run))
    assert "regimes" not in {plot.name for plot in build_plots(run)}


def test_outdated_regimes_are_left_out_and_damaged_ones_refused(tmp_path):
    folder = make_run(tmp_path, changes=METHODS)
    plant_regimes(folder, outputs="1" * 64)
    assert load_results(folder).regimes == ()
    write_json(folder / "regimes" / "seed-0.json", [])
    with pytest.raises(FileFormatError, match=r"seed-0\.json must hold regimes"):
        load_results(folder)


def test_figure_draws_the_planted_numbers(run):
    with drawing():
        figure = draw_regimes(run)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        *("One task a batch", "Tasks shuffled", "Drifting from task to task"),
    ]
    pure, _, drift = figure.axes
    lines = {c.get_label(): c.lines[0] for c in pure.containers}
    assert set(lines) == {"DATS", "ARC"}
    assert lines["ARC"].get_ydata() == pytest.approx([10, 7, 6])
    assert lines["ARC"].get_color() == LOOKS["arc"].color
    lone = [c.lines[0] for c in drift.containers if c.get_label() == "_"]
    assert [line.get_ydata()[0] for line in lone] == pytest.approx([9, 8])
    flat = {line.get_label(): line.get_ydata()[0] for line in pure.lines if len(set(line.get_ydata())) == 1}
    assert flat["RC"] == pytest.approx(11)


def test_what_would_squash_the_figure_is_told(run):
    drawn, above = drawn_methods(run)
    assert (drawn, above) == (["rc", "tcil", "dats", "arc"], ["uncalibrated"])
    plot = next(p for p in build_plots(run) if p.name == "regimes")
    assert plot.caption.endswith("Above the axis: Uncalibrated at 41.0 %.")
    assert "TS, ETS and PTS, which take none either, are not drawn" in plot.caption
    assert "table" not in plot.caption  # which of them stands beside the figure, the caption cannot know
    assert "RC: 11.0 % however rows arrive" in plot.alt
    assert "batches of 8 of shuffled tasks 12.0 %" in plot.alt


def test_figure_is_well_formed_and_repeatable(run, folder):
    plot = next(p for p in build_plots(run) if p.name == "regimes")
    svg = render(plot, "svg")
    again = next(p for p in build_plots(load_results(folder)) if p.name == "regimes")
    assert render(again, "svg") == svg
    ElementTree.fromstring(svg)
    body = re.sub(r"<style>.*?</style>", "", svg.decode(), flags=re.DOTALL)
    assert set(re.findall(r"#[0-9a-f]{6}\b", body)) <= set(DARK)


def test_one_seed_can_be_drawn(tmp_path):
    folder = make_run(tmp_path, seeds=(0,), changes=METHODS)
    plant_regimes(folder, seeds=(0,), half_width=None)
    plot = next(p for p in build_plots(load_results(folder)) if p.name == "regimes")
    assert render(plot, "svg")


def test_page_has_the_section_and_new_regimes_renew_it(tmp_path, monkeypatch):
    def only_regimes(results):  # drawing the others takes seconds and tells nothing here
        return [plot for plot in build_plots(results) if plot.name == "regimes"]

    monkeypatch.setattr("equable.reports.figures.build_plots", only_regimes)
    folder = make_run(tmp_path / "run", changes=METHODS)
    assert "How rows arrive" not in write_report([folder]).read_text(encoding="utf-8")
    plant_regimes(folder)
    text = write_report([folder]).read_text(encoding="utf-8")
    assert "How rows arrive" in text
    assert 'id="table-regimes"' in text
    assert "ARC&#39;s average ECE is 6.0 % at best" in text
    assert (folder / "figures" / "regimes.svg").is_file()
    assert "equable regimes run" in text
