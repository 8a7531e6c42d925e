"""Decisions of a step are those of the library, row by row; they are stored beside the arrivals."""

import numpy as np
import pytest

import equable
from equable.benchmark import batching as module
from equable.benchmark.batching import STANDARD_ARRIVALS, batches_of, measure_arrivals, standard_decisions
from equable.benchmark.task_outputs import Step
from equable.files import read_sealed, write_sealed
from equable.outputs import Outputs
from planted import make_incremental

pytestmark = pytest.mark.filterwarnings("ignore::equable.errors.EquableWarning")


def outputs(data, kept=slice(None)):
    return Outputs(data.logits[kept], data.y[kept], data.features[kept], data.tasks[kept])


def test_records_are_those_of_sets_and_referral():
    buffer = make_incremental()
    test = make_incremental(n_per_class=15, seed=1)
    step = Step(2, outputs(buffer), outputs(buffer), outputs(test), None, {})
    records = standard_decisions(step, seed=3)
    assert {(r["arrival"], r["batch"]) for r in records} == set(STANDARD_ARRIVALS)
    assert {(r["method"], *r["sets"]) for r in records} == {("rc", "batch"), ("taskmix", "task", "batch")}
    (record,) = [r for r in records if (r["method"], r["arrival"]) == ("taskmix", "mixed")]
    groups = batches_of(test.tasks, 3)["mixed", 32]
    fit = {"y": buffer.y, "tasks": buffer.tasks}
    for guarantee in ("task", "batch"):
        sets = equable.PredictionSets(equable.TaskMix(), 0.9, guarantee).fit(buffer.logits, **fit)
        inside = sets.predict_set(test.logits, groups=groups)
        hit = inside[np.arange(len(test.y)), test.y]
        covered = [hit[test.tasks == t].mean() for t in range(3)]
        assert record["sets"][guarantee]["coverage"] == pytest.approx([*covered, hit.mean()])
        assert record["sets"][guarantee]["size"] == pytest.approx(inside.sum(axis=1).mean())
    referral = equable.Referral(equable.TaskMix(), 0.05).fit(buffer.logits, **fit)
    accepted = referral.accept(test.logits, groups=groups)
    p = referral.cross_fit_.calibrator.predict_proba(test.logits, groups=groups)
    assert record["answered"] == accepted.mean()
    wrong = p.argmax(axis=1) != test.y
    assert record["error"] == (wrong[accepted].mean() if accepted.any() else None)
    assert record["hindsight"] == equable.metrics.accepted_share(test.y, p, 0.05)


def test_a_single_row_of_every_class_gives_no_decisions():
    data = make_incremental()
    one = np.sort(np.unique(data.y, return_index=True)[1])
    step = Step(2, outputs(data, one), outputs(data, one), outputs(data), None, {})
    assert standard_decisions(step, seed=0) == []


def test_an_error_of_cross_fitting_is_not_hidden():
    data = make_incremental()
    data.tasks[0] += 1  # a class of two tasks
    step = Step(2, outputs(data), outputs(data), outputs(make_incremental()), None, {})
    with pytest.raises(equable.errors.InputError, match="every class must lie in one task"):
        standard_decisions(step, seed=0)


def test_arrivals_without_decisions_get_them_and_keep_their_records(tiny_run, monkeypatch):
    path = tiny_run.arrivals / "seed-0.json"
    whole = read_sealed(path)
    assert whole["decisions"]
    write_sealed(path, {key: value for key, value in whole.items() if key != "decisions"})
    monkeypatch.setattr(module, "measure", lambda *words: [] if not words[-1] else pytest.fail("again"))
    assert measure_arrivals(tiny_run) == whole["records"]
    assert read_sealed(path) == whole
