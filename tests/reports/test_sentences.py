"""The sentences state the planted numbers, and no difference that is within the noise."""

from __future__ import annotations

import pytest

from equable.reports.report import write_report
from equable.reports.results import load_results
from equable.reports.sentences import (
    ASSUMPTION,
    IN_A_RUN,
    RECOMMENDED,
    featured,
    harmed_tasks,
    lead_method,
    summarise,
)
from equable.reports.tables import build_tables
from planted_run import make_run, plant_arrivals


def told(tmp_path, **options):
    return summarise(load_results(make_run(tmp_path, **options)))


BEFORE = "accuracy 65.0 %; average ECE 22.2 → "


def test_changes_and_harm_are_told(tmp_path):
    first, *others = told(tmp_path)
    assert first == f"DATS: {BEFORE}6.8 %; worst change of a task −2.0 points."
    harm = "worst change of a task +8.0 points; harmed beyond noise: task 3."
    assert f"RC: {BEFORE}11.5 %; {harm}" in others
    several = told(tmp_path / "b", changes={"tcil": (0.04, 0.07)})
    assert any(s.endswith("+7.0 points; harmed beyond noise: tasks 1, 2, 3.") for s in several)


def test_a_rise_within_noise_is_no_harm(tmp_path):
    first = told(tmp_path, changes={"dats": (-0.22, 0.005)})[0]
    assert first.endswith("worst change of a task +0.5 points.")


def test_a_change_within_noise_is_no_change(tmp_path):
    first = told(tmp_path, half_width=0.5)[0]
    assert first.startswith(f"DATS: {BEFORE}6.8 %, within noise; ")


def test_no_bootstrap_claims_no_certainty(tmp_path):
    sentences = told(tmp_path, half_width=None)
    assert "harmed" not in " ".join(sentences)
    assert sentences[-1].startswith("Differences cannot be separated from noise: this needs 40 bootstrap")


@pytest.mark.parametrize("change", [{"n_bootstrap": 39}, {"intervals": {}}])
def test_a_bootstrap_that_cannot_tell_claims_no_certainty(tmp_path, change):
    results = load_results(make_run(tmp_path))
    for score in results.scores.values():
        score.comparison.update(change)
        for task in score.comparison["tasks"] if "intervals" in change else ():
            task["delta_ece_interval"] = None
    sentences = summarise(results)
    assert "harmed" not in " ".join(sentences)
    assert f"(here {results.n_bootstrap}) and 20 rows per task that are not identical." in sentences[-1]
    assert "intervals" not in {table.name for table in build_tables(results)}


def test_the_uncalibrated_network_may_be_best(tmp_path):
    worse = dict.fromkeys(("ts", "rc", "tcil", "dats"), (0.1, 0.1))
    run = load_results(make_run(tmp_path, changes=worse))
    assert run.best == "uncalibrated"
    assert summarise(run)[0] == "Uncalibrated: accuracy 65.0 %; average ECE 22.2 %; no method lowers it."


def test_one_seed_is_said(tmp_path):
    assert "One seed was run" in told(tmp_path, seeds=(0,))[-1]


@pytest.mark.parametrize(("rise", "harmed"), [(0.011, []), (0.014, [2])])
def test_harm_must_hold_for_all_tasks_at_once(tmp_path, rise, harmed):
    # ±1 point is 95 % for one task; for three at once it is 2.394 / 1.960 = ±1.22 points
    run = load_results(make_run(tmp_path, changes={"dats": (-0.1, rise)}))
    assert harmed_tasks(run, "dats") == harmed


# The recommended method ------------------------------------------------------------------------------

TASKMIX = {"taskmix": (-0.25, -0.03), "bias": (-0.20, 0.01), "arc": (-0.21, -0.02)}


def test_the_recommended_method_leads_and_its_assumption_follows(tmp_path):
    first, second, third, fourth, *_ = told(tmp_path, changes=TASKMIX)
    numbers = "accuracy 65.0 → 85.0 %; average ECE 22.2 → 4.5 %; worst change of a task −3.0 points"
    assert first == f"TaskMix: {numbers}."
    assert second == ASSUMPTION.format(here=IN_A_RUN)
    for assumed in ("few tasks", "calibration buffer (label shift)", "bias correction", "predicted classes"):
        assert assumed in second
    assert third.startswith(f"DATS: {BEFORE}6.8 %;")  # the best that keeps the predicted class
    assert fourth.startswith(f"ARC: {BEFORE}7.5 %;")


def test_the_recommended_method_leads_even_where_another_is_best(tmp_path):
    run = load_results(make_run(tmp_path, changes=TASKMIX | {"taskmix": (-0.10, 0.05)}))
    assert (run.best, lead_method(run)) == ("dats", RECOMMENDED)
    assert featured(run)[:2] == ["taskmix", "dats"]
    first, _, third, *_ = summarise(run)
    assert first.endswith("22.2 → 17.2 %; worst change of a task +5.0 points; harmed beyond noise: task 3.")
    assert third.startswith("DATS: ")


def test_without_the_recommended_method_the_best_leads(tmp_path):
    sentences = told(tmp_path, changes={"bias": (-0.25, 0.03)})
    assert sentences[0].startswith("Bias correction: accuracy 65.0 → 75.0 %; average ECE 22.2 → 6.5 %; worst")
    assert sentences[1].startswith("DATS: ")
    assert not any("It assumes" in sentence for sentence in sentences)


def test_page_opens_with_the_recommended_method(tmp_path, blank_figures):
    folder = make_run(tmp_path / "run", changes=TASKMIX)
    plant_arrivals(folder, taskmix=True)
    text = write_report([folder]).read_text(encoding="utf-8")
    assert '<p class="lead">TaskMix: accuracy 65.0 → 85.0 %' in text
    tiles = text[text.index('<dl class="tiles">') : text.index("</dl>")]
    places = [tiles.index(s) for s in ("65.0 → 85.0 %", "60.0 → 80.0 %", "22.2 → 4.5 %", "−3.0 points")]
    assert places == sorted(places)
    plain = write_report([make_run(tmp_path / "plain")]).read_text(encoding="utf-8")
    assert '<p class="lead">DATS: accuracy 65.0 %; average ECE 22.2 → 6.8 %; ' in plain
    assert "TaskMix" not in plain[: plain.index("<main")]
    both = write_report([folder, tmp_path / "plain"], tmp_path / "both").read_text(encoding="utf-8")
    assert both.count("on shuffled or single rows it is reduced to the bias correction.") == 1
