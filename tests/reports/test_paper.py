"""The paper's printed numbers, typed here a second time from its tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from equable.benchmark.config import load_config
from equable.benchmark.settings_layers import default_layer
from equable.reports.paper import (
    FIXED,
    MISPRINTS,
    SETTINGS,
    is_paper_preset,
    printed_ablation,
    printed_score,
    printed_seconds,
    settings_apart,
)

SLIM, DEEP = "slim_resnet18", "resnet32"


@pytest.mark.parametrize(
    ("backbone", "preset", "method", "metric", "mean", "std"),
    [
        (SLIM, "cifar10", "uncalibrated", "nll", 3.38, 0.54),
        (SLIM, "cifar10", "uncalibrated", "average_ece", 30.77, 3.01),
        (SLIM, "cifar10", "ets", "nll", 2.31, 0.34),
        (SLIM, "cifar10", "rc", "delta_last_ece", 7.68, 1.24),
        (SLIM, "cifar10", "tcil", "average_ece", 12.33, 2.68),
        (SLIM, "cifar10", "dats", "delta_last_ece", -2.31, 0.75),
        (SLIM, "cifar100", "ts", "delta_last_ece", 0.08, 1.93),
        (SLIM, "cifar100", "pts", "nll", 5.96, 1.50),
        (SLIM, "cifar100", "rc", "average_ece", 10.03, 0.32),
        (SLIM, "cifar100", "dats", "average_ece", 7.63, 0.84),
        (SLIM, "tinyimagenet", "pts", "delta_last_ece", -0.09, 0.31),
        (SLIM, "tinyimagenet", "tcil", "average_ece", 10.48, 0.78),
        (SLIM, "tinyimagenet", "tcil", "delta_last_ece", 16.77, 3.84),
        (SLIM, "tinyimagenet", "dats", "nll", 3.50, 0.02),
        (SLIM, "bloodcell", "rc", "delta_last_ece", 12.53, 1.63),
        (SLIM, "bloodcell", "dats", "average_ece", 9.87, 1.40),
        (SLIM, "skinlesions", "uncalibrated", "average_ece", 16.48, 0.88),
        (SLIM, "skinlesions", "tcil", "nll", 1.43, 0.03),
        (SLIM, "skinlesions", "dats", "delta_last_ece", -1.90, 1.81),
        (DEEP, "cifar10", "rc", "average_ece", 10.70, 1.42),
        (DEEP, "cifar100", "tcil", "delta_last_ece", 10.05, 7.17),
        (DEEP, "cifar100", "dats", "average_ece", 8.38, 0.64),
        (DEEP, "tinyimagenet", "uncalibrated", "average_ece", 41.41, 0.30),
        (DEEP, "tinyimagenet", "dats", "delta_last_ece", -4.17, 1.66),
    ],
)
def test_scores_are_those_printed(backbone, preset, method, metric, mean, std):
    assert printed_score(preset, method, metric, backbone) == (mean, std)


@pytest.mark.parametrize(
    ("backbone", "preset", "mean", "std"),
    [
        (SLIM, "cifar10", 63.58, 2.86),
        (SLIM, "cifar100", 45.19, 0.89),
        (SLIM, "tinyimagenet", 22.79, 0.38),
        (SLIM, "bloodcell", 77.90, 4.46),
        (SLIM, "skinlesions", 49.14, 0.67),
        (DEEP, "cifar10", 65.43, 2.09),
        (DEEP, "cifar100", 44.81, 2.43),
        (DEEP, "tinyimagenet", 20.53, 1.45),
    ],
)
def test_accuracy_is_one_number_for_all_methods(backbone, preset, mean, std):
    for method in ("uncalibrated", "rc", "dats"):
        assert printed_score(preset, method, "accuracy", backbone) == (mean, std)


@pytest.mark.parametrize(
    ("preset", "method", "metric"),
    [
        ("cifar10", "pts", "nll"),
        ("cifar10", "uncalibrated", "delta_last_ece"),
        ("bloodcell", "ts", "nll"),
        ("bloodcell", "ets", "average_ece"),
        ("skinlesions", "pts", "average_ece"),
        ("cifar10", "dats", "max_delta_ece"),
        ("cifar10", "arc", "nll"),
        ("digits", "dats", "nll"),
    ],
)
def test_what_the_paper_leaves_out_is_none(preset, method, metric):
    assert printed_score(preset, method, metric) is None


def test_every_method_of_a_table_has_all_its_metrics():
    for preset in SETTINGS:
        for method in ("rc", "tcil", "dats"):
            assert all(
                printed_score(preset, method, metric) for metric in ("nll", "average_ece", "delta_last_ece")
            )


def test_settings():
    assert list(SETTINGS["cifar10"].values()) == [10, 60000, 5, 32, 20, 1000, 10, 10]
    assert list(SETTINGS["cifar100"].values()) == [100, 60000, 10, 32, 32, 4000, 20, 40]
    assert list(SETTINGS["tinyimagenet"].values()) == [200, 100000, 10, 64, 64, 1000, 50, 20]
    assert list(SETTINGS["skinlesions"].values()) == [7, 10015, 3, 64, 64, 200, 20, 50]
    assert list(SETTINGS["bloodcell"].values()) == [8, 17092, 4, 28, 20, 200, 50, 50]


def test_ablations_and_runtimes():
    assert printed_ablation("coverage", "cifar10", 0.8) == (12.49, 2.04)
    assert printed_ablation("coverage", "cifar100", 0.4) == (6.52, 0.62)
    assert printed_ablation("coverage", "tinyimagenet", 0.7) == (11.97, 0.40)
    assert printed_ablation("inclusion", "cifar10", 20) == (8.85, 0.81)
    assert printed_ablation("inclusion", "cifar10", 20.0) == (8.85, 0.81)
    assert printed_ablation("inclusion", "tinyimagenet", 50) == (11.46, 0.82)
    assert printed_ablation("inclusion", "cifar10", 60) is None
    assert printed_ablation("weights", "cifar10", "shared") is None
    assert printed_seconds("tinyimagenet", "tcil") == (1949.55, 55.38)
    assert printed_seconds("skinlesions", "dats") == (9.88, 0.04)
    assert printed_seconds("cifar10", "rc") == (19.09, 2.06)
    assert printed_seconds("cifar10", "ts") is None


def test_the_copying_error_is_kept_and_noted():
    key = (DEEP, "cifar100", "uncalibrated", "average_ece")
    assert printed_score("cifar100", "uncalibrated", "average_ece", DEEP) == (4.63, 0.07)
    assert printed_score("tinyimagenet", "uncalibrated", "nll", DEEP) == (4.63, 0.07)
    assert list(MISPRINTS) == [key]


def test_which_runs_are_the_papers():
    assert is_paper_preset("cifar10")
    assert is_paper_preset("cifar10", DEEP)
    assert not is_paper_preset("bloodcell", DEEP)
    assert not is_paper_preset("")


def test_a_paper_preset_has_nothing_apart():
    for preset in SETTINGS:
        assert settings_apart(load_config(preset).model_dump()) == []


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("scenario.order='size'", "scenario.order size (paper: random)"),
        ("scenario.validation_fraction=0.1", "scenario.validation_fraction 0.1 (preset: 0.2)"),
        ("score.n_bins=15", "score.n_bins 15 (paper: 10)"),
        ("network.nf=8", "network.nf 8 (paper: 20)"),
        ("training.memory_size=500", "training.memory_size 500 (paper: 1000)"),
        ("training.momentum=0.9", "training.momentum 0.9 (preset: 0.0)"),
        ("training.settle_batch_norm=false", "training.settle_batch_norm False (preset: True)"),
        ("data.image_size=16", "data.image_size 16 (paper: 32)"),
    ],
)
def test_a_setting_of_ones_own_is_named_with_the_papers(setting, said):
    assert settings_apart(load_config("cifar10", settings=[setting]).model_dump()) == [said]


def test_a_new_setting_is_not_attributed_to_the_paper(monkeypatch):
    layer = default_layer()
    with_new = replace(layer, values={**layer.values, "training.warm_up": 0})
    monkeypatch.setattr("equable.reports.paper.default_layer", lambda: with_new)
    config = load_config("cifar10").model_dump()
    config["training"]["warm_up"] = 5
    assert settings_apart(config) == ["training.warm_up 5 (preset: 0)"]
    assert set(FIXED) < set(layer.values)


def test_copies_and_seeds_are_named():
    config = load_config("cifar10", settings=["training.threads=1", "network.name=resnet32"]).model_dump()
    environment = {"data": {"origin": "unofficial copy of cifar10"}}
    found = settings_apart(config, environment, seeds=[0, 1])
    assert found == ["unofficial copy of cifar10", "2 seeds (paper: 3)"]
