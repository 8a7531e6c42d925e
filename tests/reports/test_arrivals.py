"""How rows arrive: planted arrivals come back as tables, figure and page section."""

from __future__ import annotations

import csv
import io

import pytest

from equable.errors import FileFormatError
from equable.files import write_json
from equable.reports.figures import build_plots
from equable.reports.figures.arrivals import draw_arrivals, drawn_methods
from equable.reports.figures.style import STYLES, drawing
from equable.reports.report import write_report
from equable.reports.results import load_results
from equable.reports.tables import build_tables
from equable.reports.tables.arrivals import all_arrivals_table
from equable.reports.tables.render import csv_text
from planted_run import ARRIVALS, make_run, plant_arrivals

METHODS = {"arc": (-0.23, -0.02), "dats_no_prior": (-0.23, -0.02)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = make_run(tmp_path_factory.mktemp("arrivals") / "run", changes=METHODS)
    plant_arrivals(folder)
    return folder


@pytest.fixture(scope="module")
def run(folder):
    return load_results(folder)


def test_values_are_those_of_the_files(run):
    assert set(run.arrivals_measured) == set(ARRIVALS)
    assert run.arrivals_measured[:4] == [("pure", 1), ("pure", 8), ("pure", 32), ("pure", 0)]
    assert len(run.distinct_arrivals) == 8  # a single row is a single row in any arrival
    for way, values in ARRIVALS.items():
        found = run.arrival_value("dats", way)
        assert (found.mean, found.std, found.n) == pytest.approx((values["dats"] + 0.01, 0.01, 2))
        assert run.arrival_value("dats", way, "nll").mean == pytest.approx(10 * values["dats"] + 0.1)
    assert run.arrival_interval("arc", ("pure", 0), "pooled_ece") == pytest.approx((0.02, 0.04))
    assert [m for m in ("rc", "tcil", "dats", "arc") if run.ignores_batches(m)] == ["rc", "tcil"]


def test_four_arrivals_stand_side_by_side(run):
    table = next(t for t in build_tables(run) if t.name == "arrivals")
    assert table.groups == [
        *(("One task, whole set", 3), ("One task, 32 per batch", 3)),
        *(("Shuffled, 32 per batch", 6), ("Single rows", 3)),
    ]
    ranked, variants = table.sections
    cells = {row.label: row.cells for row in ranked.rows}
    assert [c.text for c in cells["ARC"][:3]] == ["70.00 ± 0.00", "0.600 ± 0.100", "6.00 ± 1.00"]
    assert [c.text for c in cells["DATS"][6:12]] == [
        *("70.00 ± 0.00", "1.250 ± 0.100", "12.50 ± 1.00", "60.00 ± 0.00", "0.625 ± 0.050", "6.25 ± 0.50"),
    ]
    assert cells["ARC"][2].best
    assert cells["RC"][8].best  # shuffled: RC has 11.00, ARC 11.50
    assert not any(c.best for row in variants.rows for c in row.cells)
    assert "DATS, no prior" in {row.label for row in variants.rows}


def test_every_arrival_is_in_the_csv(run):
    heading, *rows = csv.reader(io.StringIO(csv_text(all_arrivals_table(run))))
    assert {"Average ECE (%) std", "Average ECE (%) low", "Pooled accuracy (%)"} <= set(heading)
    assert len(rows) == 8 * 6
    lines = {(row[0], row[1]): dict(zip(heading, row, strict=True)) for row in rows}
    assert float(lines["Stream, 8 at a time", "ARC"]["Average ECE (%)"]) == pytest.approx(8)


def test_without_bootstrap_there_are_no_intervals(tmp_path):
    folder = make_run(tmp_path, changes=METHODS, half_width=None)
    plant_arrivals(folder, half_width=None)
    assert "low" not in csv_text(all_arrivals_table(load_results(folder))).splitlines()[0]


def test_a_run_without_arrivals_has_no_such_pieces(tmp_path):
    run = load_results(make_run(tmp_path))
    assert "arrivals" not in {t.name for t in build_tables(run)}
    assert "arrivals" not in {plot.name for plot in build_plots(run)}
    assert all_arrivals_table(run) is None


def test_outdated_arrivals_are_left_out_and_damaged_ones_refused(tmp_path):
    folder = make_run(tmp_path, changes=METHODS)
    plant_arrivals(folder, outputs="1" * 64)
    assert load_results(folder).arrivals == ()
    write_json(folder / "arrivals" / "seed-0.json", [])
    with pytest.raises(FileFormatError, match=r"seed-0\.json must hold records"):
        load_results(folder)


def test_figure_draws_the_planted_numbers(run):
    with drawing():
        figure = draw_arrivals(run)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        *("One task per batch", "Tasks shuffled", "Drifting from task to task"),
    ]
    pure, _, drift = figure.axes
    lines = {c.get_label(): c.lines[0] for c in pure.containers}
    assert set(lines) == {"DATS", "ARC"}
    assert lines["ARC"].get_ydata() == pytest.approx([10, 7, 6.5, 6])
    assert lines["ARC"].get_color() == STYLES["arc"].color
    lone = [c.lines[0] for c in drift.containers if c.get_label() == "_"]
    assert [line.get_ydata()[0] for line in lone] == pytest.approx([9, 8])
    flat = {line.get_label(): line.get_ydata()[0] for line in pure.lines if len(set(line.get_ydata())) == 1}
    assert flat["RC"] == pytest.approx(11)


def test_a_line_far_above_the_others_lies_beyond_the_axis(run):
    assert drawn_methods(run) == ["uncalibrated", "rc", "tcil", "dats", "arc"]
    with drawing():
        (panel, *_) = draw_arrivals(run).axes
    assert 14 < panel.get_ylim()[1] < 41  # DATS at its worst, uncalibrated
    plot = next(p for p in build_plots(run) if p.name == "arrivals")
    assert "RC 11.0 to 11.0 %; " in plot.alt
    assert "ARC 6.0 to 12.0 %" in plot.alt


def test_one_seed_can_be_drawn(tmp_path):
    folder = make_run(tmp_path, seeds=(0,), changes=METHODS)
    plant_arrivals(folder, seeds=(0,), half_width=None)
    plot = next(p for p in build_plots(load_results(folder)) if p.name == "arrivals")
    assert plot.svg


def test_new_arrivals_renew_the_page(tmp_path, blank_figures):
    folder = make_run(tmp_path / "run", changes=METHODS)
    assert "How rows arrive" not in write_report([folder]).read_text(encoding="utf-8")
    plant_arrivals(folder)
    text = write_report([folder]).read_text(encoding="utf-8")
    assert "How rows arrive" in text
    assert 'id="table-arrivals"' in text
    assert (folder / "figures" / "arrivals.svg").is_file()
    assert (folder / "tables" / "all_arrivals.csv").is_file()
    assert "equable arrivals run" in text
