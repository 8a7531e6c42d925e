"""Sentences of the page's sections and estimates of a batch: planted numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from equable.benchmark.methods import METHODS
from equable.benchmark.score_record import Score
from equable.benchmark.task_outputs import load_step
from equable.reports.report import write_report
from equable.reports.results import load_results
from equable.reports.sentences import accepted_sentence, featured, summarise
from equable.reports.tables import build_tables
from planted_run import make_run, plant_estimates

CHANGES = {"arc": (-0.23, -0.02), "dats_no_prior": (-0.22, -0.02)}
#: Share accepted at 5 % error on three tasks and all rows.
ACCEPTED = {"rc": [0.5, 0.6, 0.7, 0.6], "arc": [0.5, 0.65, 0.69, 0.64], "dats": [0.5, 0.6, 0.7, 0.61]}


@pytest.fixture
def folder(tmp_path):
    folder = make_run(tmp_path / "run", changes=CHANGES)
    for path in folder.glob("scores/seed-*_task-2_*.json"):
        name = path.stem.split("_", 2)[2]
        if name in ACCEPTED:
            score = Score.load(path)
            more = 0.02 * score.seed if name == "arc" else 0.0
            replace(score, accepted=[share + more for share in ACCEPTED[name]]).save(path)
    return folder


def rows_of(run, name):
    table = next(table for table in build_tables(run) if table.name == name)
    return {row.label: [c.text for c in row.cells] for section in table.sections for row in section.rows}


def test_accepted_shares_of_all_rows(folder):
    sentence = accepted_sentence(load_results(folder))
    assert sentence.startswith("Rows acceptable at ≤ 5 % error, threshold chosen in hindsight: Uncalibrated")
    assert sentence.endswith("RC 60.0 %, T-CIL 30.0 %, DATS 61.0 %, ARC 65.0 %.")


def test_estimates_of_a_batch_are_tabulated(folder):
    assert "batch_estimates" not in {table.name for table in build_tables(load_results(folder))}
    plant_estimates(folder, "arc")
    rows = rows_of(load_results(folder), "batch_estimates")
    assert list(rows) == ["Task 1", "Task 2", "Task 3"]
    assert rows["Task 2"] == ["90.0 ± 0.0", "2.50 ± 0.50", "50 ± 0"]


def test_estimates_of_taskmix_stand_beside_those_of_arc(tmp_path):
    folder = make_run(tmp_path, changes={**CHANGES, "taskmix": (-0.25, -0.03)})
    plant_estimates(folder, "taskmix")
    rows = rows_of(load_results(folder), "batch_estimates")
    assert rows["Task 1"] == ["85.0 ± 5.0", "25.0 ± 0.0", "40 ± 0"]
    plant_estimates(folder, "arc")
    (table,) = (t for t in build_tables(load_results(folder)) if t.name == "batch_estimates")
    assert table.groups == [("TaskMix", 3), ("ARC", 3)]


def test_estimates_of_taskmix_are_those_of_its_explanation(finished_run):
    step = load_step(finished_run / "seed-0" / "task-2")
    score = Score.load(finished_run / "scores" / "seed-0_task-2_taskmix.json")
    explained = METHODS["taskmix"].fit(step).explain(step.test.logits, groups=step.test.tasks)
    assert [batch["task"] for batch in score.facts["batches"]] == [0, 1, 2]
    for task, (batch, truth) in enumerate(zip(score.facts["batches"], explained, strict=True)):
        assert batch["own_task"] == pytest.approx(truth.mix[task])
        assert batch["reference_probability"] == pytest.approx(truth.reference_probability)
        assert batch["effective_rows"] == pytest.approx(truth.effective_rows)


def test_arc_is_ranked_and_its_variants_are_not(folder):
    run = load_results(folder)
    assert run.ranked == ("uncalibrated", "ts", "rc", "tcil", "dats", "arc")
    assert featured(run) == ["arc", "dats", "rc"]
    first, second, *_ = summarise(run)
    assert first.startswith("ARC: ")
    assert second.startswith("DATS: ")
    main = next(table for table in build_tables(run) if table.name == "main")
    assert [row.label for row in main.sections[1].rows] == ["DATS, no prior", "DATS, one weight"]


def test_arc_is_spoken_of_where_another_is_best(tmp_path):
    run = load_results(make_run(tmp_path, changes={"arc": (-0.21, -0.02)}))
    assert [sentence.split(":")[0] for sentence in summarise(run)[:2]] == ["DATS", "ARC"]


def test_page_says_it_all(folder, blank_figures):
    plant_estimates(folder, "arc")
    text = write_report([folder]).read_text(encoding="utf-8")
    assert "Estimates of a batch" in text
    assert "Rows acceptable at ≤ 5 % error, threshold chosen in hindsight: " in text
    assert 'id="table-referral"' in text
