"""Tables of prediction sets and bounded referral: planted records come back by arrival, means over seeds."""

from dataclasses import replace

import pytest

from equable.files import read_sealed, write_sealed
from equable.reports.page import render_page
from equable.reports.page_sections import run_page
from equable.reports.results import load_results
from equable.reports.tables import build_tables
from planted_run import make_run, plant_arrivals


def record(arrival, batch, method, seed, sets, answered, error):
    found = {g: {"coverage": [0.8 + 0.1 * seed, 0.9, 1.0, 0.9], "size": size} for g, size in sets.items()}
    place = {"arrival": arrival, "batch": batch, "method": method, "seed": seed}
    return {**place, "sets": found, "answered": answered, "error": error, "hindsight": 0.8}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = make_run(tmp_path_factory.mktemp("decisions") / "run", changes={"taskmix": (-0.2, -0.01)})
    plant_arrivals(folder, taskmix=True)
    for seed in (0, 1):
        path = folder / "arrivals" / f"seed-{seed}.json"
        made = [
            record("pure", 0, "rc", seed, {"batch": 3.0}, 0.25 * seed, None if seed == 0 else 0.02),
            record("mixed", 32, "rc", seed, {"batch": 3.0}, 0.25 * seed, None),
            record("pure", 0, "taskmix", seed, {"task": 2.0, "batch": 1.0 + seed}, 0.5, 0.04),
            record("mixed", 32, "taskmix", seed, {"task": 2.0, "batch": 1.5}, 0.5, 0.04),
        ]
        write_sealed(path, {**read_sealed(path), "decisions": made})
    return load_results(folder)


def test_sets_and_answered_rows_by_arrival(run):
    tables = {table.name: table for table in build_tables(run)}
    pure, mixed = tables["sets"].sections
    assert (pure.title, mixed.title) == ("One task, whole set", "Shuffled, 32 per batch")
    assert [row.label for row in pure.rows] == [
        *("RC, batch guarantee", "TaskMix, task guarantee", "TaskMix, batch guarantee"),
    ]
    assert [c.text for c in pure.rows[2].cells] == [
        *("85.0 ± 5.0", "90.0 ± 0.0", "100.0 ± 0.0", "90.0 ± 0.0", "1.50 ± 0.50"),
    ]
    pure, mixed = tables["answered"].sections
    assert [c.text for c in pure.rows[0].cells] == ["12.5 ± 12.5", "2.0", "80.0 ± 0.0"]
    assert mixed.rows[0].cells[1].text == "–"  # nothing answered, no errors
    page = render_page(run_page(run, list(tables.values()), []))
    assert 'id="table-sets"' in page
    assert 'id="table-answered"' in page


def test_a_run_without_decisions_has_no_such_tables(tmp_path):
    run = load_results(make_run(tmp_path / "run"))
    assert not {"sets", "answered"} & {table.name for table in build_tables(run)}


def test_the_note_counts_the_seeds_that_were_measured(run):
    one = replace(run, decisions=tuple(found for found in run.decisions if found["seed"] == 1))
    tables = {table.name: table for table in build_tables(one)}
    for name in ("sets", "answered"):
        assert tables[name].notes[0].startswith("One seed (1)")
    assert tables["main"].notes[0].startswith("Mean ± standard deviation over 2 seeds")
