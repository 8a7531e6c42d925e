"""The pages about TaskMix: the ablation starts from `equable.TaskMix`, and the pages print stored numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from published.taskmix import arrivals
from published.taskmix_ablation import DEFAULT, NO_MIX, PAGE_FILE, VARIANTS, Variant, cell, page, predict
from published.taskmix_limits import FILE as LIMITS
from published.taskmix_limits import table as limits_table

import equable
from equable.files import read_json

METHODS = Path(__file__).parents[1] / "docs" / "methods"


@pytest.fixture(scope="module")
def rows():
    """Planted logits: three tasks of two classes, those of newer tasks too large."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 100)
    logits = 2.5 * np.eye(6)[y] + rng.normal(size=(600, 6)) + 0.8 * (np.arange(6) // 2)
    return equable.Outputs(logits, y, tasks=y // 2)


def fitted(rows, **settings):
    base = equable.BiasCorrection(by=settings.pop("by", "task"))
    return equable.TaskMix(base=base, **settings).fit(rows.logits, rows.labels, tasks=rows.tasks)


@pytest.mark.filterwarnings("ignore::equable.errors.EquableWarning")
@pytest.mark.parametrize(
    "settings", [{}, {"odds": 1.0}, {"odds": float("inf")}, {"by": "newest"}, {"by": "class"}]
)
def test_variants_of_the_package_agree_with_it(rows, settings):
    variant = Variant(**settings)
    calibrator = fitted(rows, **settings)
    for groups in (*arrivals(rows.tasks, 0).values(), np.zeros(600, dtype=int)):
        ours = predict(variant, calibrator, rows.logits, groups)
        np.testing.assert_allclose(ours, calibrator.predict_proba(rows.logits, groups=groups), atol=1e-9)


def test_each_variant_is_another_method(rows):
    groups = arrivals(rows.tasks, 0)["task batches of 32"]
    answers = [predict(v, fitted(rows, by=v.by), rows.logits, groups) for v in VARIANTS.values()]
    for i, p in enumerate(answers):
        np.testing.assert_allclose(p.sum(axis=1), 1)
        assert all(np.abs(p - other).max() > 1e-6 for other in answers[:i])


def test_the_ablation_page_prints_its_numbers():
    numbers = read_json(PAGE_FILE.with_suffix(".json"))
    assert page(numbers) == PAGE_FILE.read_text(encoding="utf-8")


def test_the_likelihood_of_the_em_fails_with_many_tasks():
    shuffled = read_json(PAGE_FILE.with_suffix(".json"))["many_tasks"]["CIFAR-100 after task 6, 60 tasks"][
        "shuffled batches of 32"
    ]
    em = shuffled["evidence: likelihood of the EM"]
    assert shuffled[DEFAULT]["nll"] < shuffled[NO_MIX]["nll"] + 0.01
    assert em["nll"] > shuffled[DEFAULT]["nll"] + 0.3
    assert em["accuracy"] < shuffled[DEFAULT]["accuracy"] - 0.03


RUNS = {
    "BloodCell slim": "bloodcell-slim",
    "BloodCell ResNet32": "bloodcell-resnet32",
    "SkinLesions slim": "skinlesions-slim",
    "SkinLesions ResNet32": "skinlesions-resnet32",
    "digits": "digits",
    "task 3": "20 rows per class, after task 3",
    "task 6": "20 rows per class, after task 6",
}
COLUMNS = ("Uncalibrated", "DATS", "ARC", "Bias correction", "TaskMix")


def test_the_tables_of_taskmix_are_those_of_the_json_files():
    files = ("taskmix-stored-runs.json", "taskmix-er-cifar100.json")
    means = {name: found for file in files for name, found in read_json(METHODS / file)["means"].items()}
    text = (METHODS / "taskmix.md").read_text(encoding="utf-8")
    section = text.partition("## On real outputs")[2].partition("\n## ")[0]
    lines = [
        line.strip("| ").split(" | ") for line in section.splitlines() if " / " in line and line[0] == "|"
    ]
    assert len(lines) == 4 * len(RUNS)
    for first, *cells in lines:
        if not first.startswith("· "):
            run, _, arrival = first.rpartition(", ")
        else:
            arrival = first.removeprefix("· ")
        assert cells == [cell(means[RUNS[run]][arrival][method]) for method in COLUMNS]


def test_taskmix_quotes_its_limits():
    text = (METHODS / "taskmix.md").read_text(encoding="utf-8")
    assert limits_table(read_json(LIMITS)) in text
    runs = read_json(METHODS / "taskmix-stored-runs.json")["means"]["skinlesions-slim"]
    shuffled = runs["shuffled batches of 32"]
    words = " ".join(text.split())
    for measure, scale, digits in (("pooled_accuracy", 100, 1), ("pooled_nll", 1, 3), ("accuracy", 100, 1)):
        before, now = (f"{scale * shuffled[m][measure]:.{digits}f}" for m in ("Bias correction", "TaskMix"))
        assert f"from {before} to {now}" in words
    before, now = (f"{100 * shuffled[m]['class_accuracy']:.1f}" for m in ("Uncalibrated", "Bias correction"))
    assert f"from {before} to {now} %" in words
