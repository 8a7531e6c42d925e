"""Ablations from stored outputs are repeatable; their default settings give the stored scores."""

import numpy as np
import pytest

from equable.benchmark.ablate import CHOICES, DRAWS, INCLUSIONS, MEASURES, ablate_run, with_inclusion
from equable.benchmark.score_record import Score
from equable.benchmark.task_outputs import load_step
from equable.files import read_json

DEFAULTS = {
    "coverage": 0.6,
    "weights": "per_class",
    "aggregate": "mean",
    "distance": "class",
    "metric": "cosine",
}
LAST = 2


@pytest.fixture(scope="module")
def ablated(finished_run, tmp_path_factory):
    import shutil

    from equable.benchmark.run_folder import RunFolder

    folder = tmp_path_factory.mktemp("ablated") / "run"
    shutil.copytree(finished_run, folder)
    run = RunFolder(folder)
    return run, ablate_run(run)


def scored(run, method):
    comparison = Score.load(run.score(0, LAST, method)).comparison
    return {name: comparison[name] for name in MEASURES}


def only(records, **wanted):
    chosen = [r for r in records if all(r[key] == value for key, value in wanted.items())]
    assert len(chosen) == 1
    return {name: chosen[0][name] for name in MEASURES}


@pytest.mark.parametrize("name", CHOICES)
def test_the_default_setting_is_the_score(ablated, name):
    run, records = ablated
    assert only(records[name], setting=DEFAULTS[name]) == pytest.approx(scored(run, "dats"), abs=1e-12)
    assert [r["setting"] for r in records[name] if r["setting"] != "rc"] == list(CHOICES[name])


@pytest.mark.parametrize(
    ("name", "setting", "method"),
    [
        ("weights", "shared", "dats_shared"),
        ("aggregate", "literal", "dats_literal"),
        ("distance", "sample", "dats_sample"),
        ("metric", "euclidean", "dats_euclidean"),
        ("metric", "rc", "rc"),
    ],
)
def test_variants_are_those_of_the_table(ablated, name, setting, method):
    run, records = ablated
    assert only(records[name], setting=setting) == pytest.approx(scored(run, method), abs=1e-12)


def test_files_hold_what_is_returned_and_repeat(ablated):
    run, records = ablated
    for name, rows in records.items():
        assert read_json(run.ablations / f"{name}.json") == rows
    before = {path: path.read_bytes() for path in run.ablations.iterdir()}
    ablate_run(run)
    assert before == {path: path.read_bytes() for path in run.ablations.iterdir()}


def test_inclusion_has_several_draws_beside_rc(ablated):
    _, records = ablated
    for name in ("inclusion", "inclusion_rc"):
        found = [(r["setting"], r["draw"]) for r in records[name]]
        assert found == [(percent, draw) for percent in INCLUSIONS for draw in range(DRAWS)]
        assert len({r["average_ece"] for r in records[name]}) > len(INCLUSIONS)
    assert {"ablation", "setting", "seed", "draw", "outputs", *MEASURES} == set(records["inclusion"][0])


@pytest.mark.parametrize("percent", [1, 20, 100])
def test_inclusion_draws_from_the_whole_validation_set(finished_run, percent):
    step = load_step(finished_run / "seed-0" / f"task-{LAST}")
    drawn = with_inclusion(step, percent, [0, 0]).calibration_buffer
    whole = {tuple(row) for row in step.validation.logits.tolist()}
    assert {tuple(row) for row in drawn.logits.tolist()} <= whole
    assert set(drawn.labels) == set(range(10))
    for task in range(LAST + 1):
        total = (step.validation.tasks == task).sum()
        classes = len(np.unique(step.validation.labels[step.validation.tasks == task]))
        assert (drawn.tasks == task).sum() == max(round(total * percent / 100), classes)
    again = with_inclusion(step, percent, [0, 0]).calibration_buffer
    assert np.array_equal(drawn.logits, again.logits)
    if percent == 20:
        assert not np.array_equal(
            drawn.logits, with_inclusion(step, percent, [0, 1]).calibration_buffer.logits
        )
