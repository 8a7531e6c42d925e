"""Arrivals: every row is in exactly one batch, of the stated size and kind."""

import numpy as np
import pytest

from equable.benchmark import batching as module
from equable.benchmark.batching import (
    BATCHES,
    NOT_STREAMED,
    batches_of,
    drifting,
    measure,
    measure_arrivals,
    measured_methods,
)
from equable.benchmark.run_folder import outputs_digest
from equable.benchmark.task_outputs import Step, load_step
from equable.files import read_json, read_sealed, write_json, write_sealed
from equable.outputs import Outputs
from planted import make_incremental
from rewrites import add_line_end, rewritten


@pytest.fixture
def tasks():
    return np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [100, 37, 250]))


def test_batches_have_their_size_and_kind(tasks):
    groups = batches_of(tasks, seed=0)
    for size in BATCHES:
        for arrival in ("pure", "mixed", "drift"):
            _, counts = np.unique(groups[arrival, size], return_counts=True)
            assert counts.max() <= size
            assert counts.sum() == len(tasks)
        assert (np.unique(groups["mixed", size], return_counts=True)[1] < size).sum() <= 1
        for g in np.unique(groups["pure", size]):
            assert len(np.unique(tasks[groups["pure", size] == g])) == 1
        short = np.unique(groups["pure", size], return_counts=True)[1] < size
        assert short.sum() <= 3
    np.testing.assert_array_equal(groups["pure", 0], tasks)


def test_drift_passes_from_the_first_task_to_the_last(tasks):
    order = drifting(tasks, seed=0)
    assert sorted(order) == list(range(len(tasks)))
    thirds = [tasks[order[i]].mean() for i in np.array_split(np.arange(len(order)), 3)]
    assert thirds[0] < thirds[1] < thirds[2]
    assert not np.array_equal(order, drifting(tasks, seed=1))
    np.testing.assert_array_equal(order, drifting(tasks, seed=0))


def outputs(data):
    return Outputs(data.logits, data.y, data.features, data.tasks)


@pytest.mark.filterwarnings("ignore::equable.errors.EquableWarning")
def test_every_method_in_every_arrival():
    calibration = make_incremental(n_per_class=10)
    test = make_incremental(n_per_class=12, seed=1)
    step = Step(2, outputs(calibration), outputs(calibration), outputs(test), outputs(calibration), {})
    records = list(measure(step, 0, 10, 0))
    kinds = {(r["arrival"], r["batch"]) for r in records}
    assert kinds == {("pure", 0), ("stream", 8)} | {
        (k, b) for k in ("pure", "mixed", "drift") for b in BATCHES
    }
    methods = {r["method"] for r in records}
    assert {"uncalibrated", "ts", "rc", "tcil", "dats", "arc", "lascal"} <= methods
    assert not any(name.startswith("oracle") for name in methods)
    # one temperature for all rows cannot depend on how they arrive
    rc = {r["nll"] for r in records if r["method"] == "rc"}
    assert max(rc) - min(rc) < 1e-9
    arc = {r["nll"] for r in records if r["method"] == "arc"}
    assert len(arc) > 5


def test_a_run_holds_arrivals_of_its_outputs(tiny_run):
    value = read_json(tiny_run.arrivals / "seed-0.json")
    assert (value["schema"], value["outputs"]) == (2, outputs_digest(tiny_run.task(0, 2)))
    assert {record["method"] for record in value["records"]} == set(measured_methods())
    assert len(value["records"]) == 14 * len(measured_methods()) - len(NOT_STREAMED)
    # the paper's protocol is what the scores hold
    scored = read_json(tiny_run.score(0, 2, "dats"))["comparison"]
    (pure,) = [r for r in value["records"] if (r["arrival"], r["batch"], r["method"]) == ("pure", 0, "dats")]
    for name in ("average_ece", "pooled_ece", "nll"):
        assert pure[name] == pytest.approx(scored[name], abs=1e-12)
        assert pure["intervals"][name] == pytest.approx(scored["intervals"][name], abs=1e-12)
    assert pure["accuracy"] == pytest.approx(scored["accuracy"])
    rows = load_step(tiny_run.task(0, 2)).test
    assert pure["pooled_accuracy"] == pytest.approx((rows.logits.argmax(axis=1) == rows.labels).mean())


def test_finished_arrivals_are_never_measured_again(tiny_run, monkeypatch):
    path = tiny_run.arrivals / "seed-0.json"
    before = add_line_end([path])
    monkeypatch.setattr(module, "measure", lambda *_: pytest.fail("measured again"))
    assert measure_arrivals(tiny_run) == read_json(path)["records"]
    assert rewritten(before) == []


@pytest.mark.parametrize(
    "damage", ["lost", "text", "list", "other outputs", "n_bins", "n_bootstrap", "a method missing"]
)
def test_lost_damaged_or_outdated_arrivals_are_measured_again(tiny_run, monkeypatch, damage):
    path = tiny_run.arrivals / "seed-0.json"
    whole = read_json(path)
    if damage == "lost":
        path.unlink()
    elif damage == "text":
        path.write_text("{")
    elif damage == "list":
        write_json(path, whole["records"])
    elif damage == "other outputs":
        write_sealed(path, {**read_sealed(path), "outputs": "other"})
    elif damage in ("n_bins", "n_bootstrap"):
        records = [{**record, "average_ece": 0.5} for record in whole["records"]]
        write_sealed(path, {**read_sealed(path), damage: 15, "records": records})
    else:
        records = [record for record in whole["records"] if record["method"] != "arc"]
        write_sealed(path, {**read_sealed(path), "records": records})
    made = [dict(record) for record in whole["records"]]
    monkeypatch.setattr(module, "measure", lambda *words: [r for r in made if r["method"] in words[-1]])
    measure_arrivals(tiny_run)
    assert read_json(path) == whole
