"""Scores: the numbers are those of the metrics, and nothing is computed twice."""

import json
import warnings

import numpy as np
import pytest

import equable
from equable.benchmark import score as score_module
from equable.benchmark.methods import METHODS, Method
from equable.benchmark.oracles import TaskTemperatures
from equable.benchmark.run_folder import outputs_digest
from equable.benchmark.score import score_run
from equable.benchmark.score_method import StepTestRows, forward_seconds, score_method
from equable.benchmark.score_record import Score
from equable.benchmark.task_outputs import load_step
from equable.errors import ConvergenceWarning, InputError
from equable.files import read_json, read_sealed, write_sealed
from equable.metrics import accepted_share, compare_tasks, expected_calibration_error, noise_floor

LAST = 2


def files(folder):
    return {path.name: path.read_bytes() for path in folder.scores.iterdir()}


def timeless(data):
    return {key: value for key, value in json.loads(data).items() if key not in ("seconds", "sha256")}


@pytest.fixture(scope="module")
def step(finished_run):
    return load_step(finished_run / "seed-0" / f"task-{LAST}")


@pytest.fixture(scope="module")
def rows(step, tiny_config):
    return StepTestRows(step, 0, tiny_config.score, "digest")


@pytest.mark.parametrize("name", METHODS)
def test_a_score_says_what_the_metrics_say(finished_run, step, name):
    found = Score.load(finished_run / "scores" / f"seed-0_task-{LAST}_{name}.json")
    test = step.test
    before = np.exp(test.logits - test.logits.max(axis=1, keepdims=True).astype(np.float64))
    before /= before.sum(axis=1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        calibrator = METHODS[name].fit(step)
    after = calibrator.predict_proba(test.logits, features=test.features, groups=test.tasks)
    truth = compare_tasks(test.labels, test.tasks, before, after, n_bootstrap=20, random_state=[0, LAST])
    for key in ("accuracy", "nll", "average_ece", "delta_last_ece", "max_delta_ece"):
        assert found.comparison[key] == pytest.approx(getattr(truth, key), abs=1e-12)
    assert found.comparison["intervals"]["average_ece"] == pytest.approx(list(truth.intervals["average_ece"]))
    if calibrator.keeps_prediction:
        assert found.comparison["accuracy"] == found.comparison["accuracy_before"]
    assert found.pooled == {
        strategy: pytest.approx(expected_calibration_error(test.labels, after, strategy=strategy))
        for strategy in ("uniform", "quantile")
    }
    inside = [test.tasks == task for task in range(LAST + 1)]
    assert found.confidence == pytest.approx([after[rows].max(axis=1).mean() for rows in inside])
    shares = [accepted_share(test.labels[rows], after[rows]) for rows in inside]
    assert found.accepted == pytest.approx([*shares, accepted_share(test.labels, after)])
    assert [sum(curve["count"]) for curve in found.reliability] == [rows.sum() for rows in inside]
    assert found.outputs == outputs_digest(finished_run / "seed-0" / f"task-{LAST}")


def test_referral_curves_are_thin_and_end_with_all_rows(finished_run, step):
    found = Score.load(finished_run / "scores" / f"seed-0_task-{LAST}_dats.json")
    assert len(found.referral) == LAST + 2
    for curve in found.referral:
        assert len(curve["share"]) == len(curve["error"]) <= 100
        assert curve["share"] == sorted(curve["share"])
        assert curve["share"][-1] == 1.0
    assert found.referral[-1]["error"][-1] == pytest.approx(
        (step.test.logits.argmax(axis=1) != step.test.labels).mean()
    )


def test_temperatures(finished_run):
    def of(name):
        return Score.load(finished_run / "scores" / f"seed-0_task-{LAST}_{name}.json").temperatures

    assert of("uncalibrated") == [1.0, 1.0, 1.0]
    assert of("ets") == [None, None, None]
    assert len(set(of("rc"))) == 1
    assert len(set(of("oracle_task"))) == 3


def test_noise_floor_is_that_of_the_temperature_per_task(finished_run, step):
    record = read_json(finished_run / "scores" / f"seed-0_task-{LAST}_noise_floor.json")
    test = step.test
    after = METHODS["oracle_task"].fit(step).predict_proba(test.logits, groups=test.tasks)
    floors = [
        noise_floor(after[test.tasks == task], random_state=[0, LAST, task]) for task in range(LAST + 1)
    ]
    assert record["noise_floor"] == pytest.approx(floors)
    assert record["average"] == pytest.approx(np.mean(floors))
    assert (record["schema"], record["seed"], record["task"]) == (1, 0, LAST)


def test_present_scores_are_never_made_again(tiny_run, monkeypatch):
    before = files(tiny_run)
    monkeypatch.setattr(score_module, "score_method", lambda *_: pytest.fail("scored again"))
    counts = score_run(tiny_run)
    assert (counts.made, counts.kept) == (0, 3 * (len(METHODS) + 1))
    assert files(tiny_run) == before


@pytest.mark.parametrize("damage", [None, "", "{}", '{"schema": 1}', "[]", "not json"])
@pytest.mark.parametrize("name", ["rc", "noise_floor"])
def test_a_lost_or_damaged_score_is_made_again_alone(tiny_run, name, damage):
    path = tiny_run.score(0, 1, name)
    before = files(tiny_run)
    original = path.read_bytes()
    path.unlink() if damage is None else path.write_text(damage)
    assert score_run(tiny_run).made == 1
    after = files(tiny_run)
    assert timeless(after.pop(path.name)) == timeless(original)
    before.pop(path.name)
    assert after == before


def test_scores_of_other_outputs_are_made_again(tiny_run):
    path = tiny_run.score(0, 1, "rc")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "outputs": "other"}))
    assert score_run(tiny_run).made == 1
    assert json.loads(path.read_text())["outputs"] == record["outputs"]


@pytest.mark.parametrize(
    ("name", "setting"), [("rc", "n_bins"), ("rc", "n_bootstrap"), ("noise_floor", "n_bins")]
)
def test_scores_of_other_settings_are_made_again(tiny_run, name, setting):
    path = tiny_run.score(0, 1, name)
    before = path.read_bytes()
    record = read_sealed(path)
    holder = record if name == "noise_floor" else record["comparison"]
    holder[setting] += 1
    write_sealed(path, record)
    assert score_run(tiny_run).made == 1
    assert timeless(path.read_bytes()) == timeless(before)
    assert score_run(tiny_run).made == 0


def test_scoring_twice_gives_the_same(tiny_run):
    before = files(tiny_run)
    for path in tiny_run.scores.iterdir():
        path.unlink()
    score_run(tiny_run, jobs=1)
    after = files(tiny_run)
    assert {name: timeless(data) for name, data in after.items()} == {
        name: timeless(data) for name, data in before.items()
    }


def test_forward_seconds_are_sums_of_parts():
    parts = {"buffer_earlier": 1, "buffer_current": 2, "current_rest": 4, "earlier_rest": 8}
    facts = {
        "forward": {
            "validation": {name: {"rows": 1, "seconds": seconds} for name, seconds in parts.items()},
            "test": {"0": {"rows": 1, "seconds": 100}},
        },
        "tcil": {"seconds": 1000},
    }
    expected = {
        "uncalibrated": 0, "ts": 6, "ets": 6, "pts": 6, "rc": 3, "rc_brier": 3, "tcil": 1006,
        "dats": 7, "dats_shared": 7, "oracle_task": 15, "oracle_single": 15, "oracle_test": 100,
    }  # fmt: skip
    for name, seconds in expected.items():
        assert forward_seconds(METHODS[name], METHODS[name].make(), facts) == seconds


def test_a_part_without_rows_costs_nothing():
    facts = {"forward": {"validation": {"buffer_current": {"rows": 1, "seconds": 2}}, "test": {}}}
    assert forward_seconds(METHODS["dats"], equable.DATS(), facts) == 2


def test_warnings_become_facts(rows, recwarn):
    # All rows right: the likelihood grows without end as T falls, and the fit warns of its bound.
    right = rows.step.validation[rows.step.validation.logits.argmax(axis=1) == rows.step.validation.labels]

    class Sure(Method):
        def fit(self, step):
            return self.make().fit(right.logits, right.labels)

    exact = Sure("Sure", "validation", lambda: equable.TemperatureScaling(prior_strength=0))
    record = score_method(rows, "sure", exact)
    assert any("bound" in text for text in record.facts["warnings"])
    assert not recwarn.list
    assert "warnings" not in score_method(rows, "uncalibrated", METHODS["uncalibrated"]).facts


@pytest.mark.parametrize(
    ("temperature", "at_bound"), [(0.05, True), (0.0501, False), (99.9, False), (100.0, True)]
)
def test_a_temperature_at_a_bound_is_a_fact(rows, temperature, at_bound):
    class Planted(equable.TemperatureScaling):
        def _fit(self, rows):
            return {**super()._fit(rows), "temperature_": temperature}

    assert (
        score_method(rows, "planted", Method("Planted", "validation", Planted)).facts["at_bound"] is at_bound
    )
    assert score_method(rows, "uncalibrated", METHODS["uncalibrated"]).facts["at_bound"] is False


def test_a_task_or_class_at_a_bound_is_a_fact_too(rows):
    class Planted(TaskTemperatures):
        def _fit(self, rows):
            found = super()._fit(rows)["temperatures_"].clip(0.1, 10)
            found[0] = 100
            return {"temperatures_": found}

    assert score_method(rows, "planted", Method("Planted", "validation", Planted)).facts["at_bound"] is True


#: Tasks are counted from 1 where people read them.
SHUFFLED = r"'shuffled' must leave accuracy as it is; on task 1 it went from 0\.\d{4} to 0\.\d{4}$"


def test_a_method_that_changes_decisions_is_refused(rows):
    class Shuffled(equable.Uncalibrated):
        def _probabilities(self, rows, out):
            return super()._probabilities(rows, out)[:, ::-1]

    with pytest.raises(InputError, match=SHUFFLED):
        score_method(rows, "shuffled", Method("Shuffled", "none", Shuffled))
    Shuffled.keeps_prediction = False  # as methods do that correct the predicted class
    found = score_method(rows, "shuffled", Method("Shuffled", "none", Shuffled)).comparison
    assert found["accuracy"] != found["accuracy_before"]


def test_a_task_without_rows_is_counted_from_1():
    with pytest.raises(InputError, match="every task needs rows; task 2 has none"):
        TaskTemperatures().fit([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1], tasks=[0, 0, 2])


def test_facts_hold_what_was_learnt(finished_run):
    def facts(name):
        return Score.load(finished_run / "scores" / f"seed-0_task-{LAST}_{name}.json").facts

    assert facts("rc")["temperature"] > 0
    assert facts("dats")["base_temperature"] > 0
    assert 0 <= facts("tcil")["epsilon"] <= 1
    assert facts("tcil")["rows"] == 20
    assert all(not isinstance(value, dict) for value in facts("dats").values())


def test_facts_hold_what_arc_believed(finished_run, step):
    def score(name):
        return Score.load(finished_run / "scores" / f"seed-0_task-{LAST}_{name}.json")

    found = score("arc")
    explained = METHODS["arc"].fit(step).explain(step.test.logits, groups=step.test.tasks)
    assert [batch["task"] for batch in found.facts["batches"]] == [0, 1, 2]
    assert [batch["temperature"] for batch in found.facts["batches"]] == pytest.approx(found.temperatures)
    for task, (batch, truth) in enumerate(zip(found.facts["batches"], explained, strict=True)):
        classes = sorted(set(step.test.labels[step.test.tasks == task].tolist()))
        assert batch["own_classes"] == pytest.approx(sum(truth.mix[c] for c in classes))
        assert batch["effective_rows"] == pytest.approx(truth.effective_rows)
    assert "batches" not in score("rc").facts
