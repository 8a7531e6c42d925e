"""Rows of unknown classes: the two measures against definitions, planted outputs, runs without such rows."""

import numpy as np
import pytest

from equable import Outputs
from equable.benchmark.score import score_run
from equable.benchmark.task_outputs import Step, load_step
from equable.benchmark.unknown import area_under_roc, false_positive_rate, measure_unknown
from equable.files import write_sealed
from equable.reports.results import load_results
from equable.reports.tables.unknown import unknown_table
from planted_run import make_run, make_score


def test_the_area_is_that_of_scikit_learn():
    roc_auc_score = pytest.importorskip("sklearn.metrics").roc_auc_score
    rng = np.random.default_rng(0)
    known = rng.integers(0, 30, 400).astype(float)  # with ties
    unknown = rng.integers(0, 25, 300).astype(float)
    truth = roc_auc_score(np.repeat([1, 0], [400, 300]), np.concatenate([known, unknown]))
    assert area_under_roc(known, unknown) == pytest.approx(truth, abs=1e-12)


def test_the_rate_keeps_at_least_95_percent_and_no_higher_threshold_does():
    rng = np.random.default_rng(1)
    known = rng.normal(size=137)
    unknown = rng.normal(-1, 1, 500)
    kept = [t for t in known if (known >= t).mean() >= 0.95]
    assert false_positive_rate(known, unknown) == pytest.approx((unknown >= max(kept)).mean())


def outputs(labels, rng):
    """Rows of class c lie at 5 · unit vector c; logits are three times the features."""
    features = 5 * np.eye(4)[labels] + rng.normal(size=(len(labels), 4))
    return Outputs(3 * features, labels, features, labels // 2)


def test_rows_between_the_classes_are_told_by_both_scores():
    rng = np.random.default_rng(2)
    buffer, test = (outputs(np.repeat(np.arange(4), 50), rng) for _ in range(2))
    elsewhere = Outputs(buffer.logits, buffer.labels, np.ones_like(buffer.features), buffer.tasks)
    step = Step(1, elsewhere, buffer, test, None, {})  # prototypes are those of the buffer
    near = rng.normal(scale=0.1, size=(200, 4)) + 5 / 4  # the same distance to all prototypes
    found = measure_unknown(step, Outputs(3 * near, features=near))
    assert list(found) == [
        "Top probability, Uncalibrated",
        "Top probability, RC",
        "Distance to the nearest prototype",
    ]
    assert all(values["auroc"] > 0.95 and values["fpr95"] < 0.2 for values in found.values())
    as_known = measure_unknown(step, Outputs(test.logits, features=test.features))
    assert all(values["auroc"] == pytest.approx(0.5) for values in as_known.values())
    assert all(values["fpr95"] == pytest.approx(0.95) for values in as_known.values())


def test_a_run_without_such_rows_has_no_table(tmp_path):
    assert unknown_table(load_results(make_run(tmp_path / "run"))) is None


def test_records_of_these_outputs_are_read_and_the_note_counts_their_seeds(tmp_path):
    folder = make_run(tmp_path / "run", seeds=(0, 1))
    for seed, digest in ((0, "of another training"), (1, make_score(1, 2, "rc").outputs)):
        records = [{"seed": seed, "score": "Top probability, RC", "auroc": 0.9, "fpr95": 0.2}]
        path = folder / "unknown" / f"seed-{seed}.json"
        write_sealed(path, {"schema": 1, "outputs": digest, "records": records})
    table = unknown_table(load_results(folder))
    assert table.notes[0].startswith("One seed (1)")
    (row,) = table.sections[0].rows
    assert [cell.text for cell in row.cells] == ["90.0", "20.0"]


def test_scoring_measures_unknown_rows_once_and_the_report_reads_the_record(tiny_run):
    task = tiny_run.task(0, 2)
    test = Outputs.load(task / "test.npz")
    unknown = Outputs(test.logits[:50], features=test.features[:50])
    unknown.save(task / "unknown.npz")
    assert load_results(tiny_run.path).unknown == ()
    assert score_run(tiny_run).made == 1
    assert score_run(tiny_run).made == 0
    expected = measure_unknown(load_step(task), unknown)
    records = load_results(tiny_run.path).unknown
    assert records == tuple({"seed": 0, "score": name, **values} for name, values in expected.items())
    (task / "unknown.npz").unlink()
    assert load_results(tiny_run.path).unknown == records
