"""The part of the Avalanche plug-in that does the work, without Avalanche."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, TensorDataset

import equable
from equable.errors import InputError, MissingExtraError, NotFittedError
from equable.integrations.incremental import IncrementalCalibration, stratified_share
from equable.metrics import compare_tasks
from messages import raises_naming
from planted import make_incremental

# Classes of the three tasks in the model's own numbering; column 4 is never learnt.
TASKS = ([5, 0], [8, 1], [2, 7])
N_COLUMNS = 9


def same_columns():
    """A model that passes its inputs on as logits, so that a test can compute every number."""
    model = nn.Linear(N_COLUMNS, N_COLUMNS, bias=False)
    nn.init.eye_(model.weight)
    return model


def planted(seed=0, n_per_class=40):
    """One dataset a task; the labels of a task are drawn from its logits at a temperature of its own."""
    data = make_incremental(n_per_class, classes_per_task=2, temperatures=(4.0, 2.5, 1.2), seed=seed)
    ids = np.concatenate(TASKS)
    # columns of unseen classes have large logits
    x = np.random.default_rng(seed).normal(size=(len(data.y), N_COLUMNS)) * 30
    x[:, ids] = data.logits
    x = torch.from_numpy(x).float()
    y = torch.from_numpy(ids[data.y])
    return [TensorDataset(x[data.tasks == t], y[data.tasks == t]) for t in range(3)]


def softmax(z):
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def finished(calibrator, datasets, **settings):
    calibration = IncrementalCalibration(calibrator, **settings)
    for dataset in datasets:
        calibration.end_task(same_columns(), dataset)
    return calibration


class TestTheCalibrationBuffer:
    def test_a_share_of_each_class_is_kept_and_never_changes(self):
        calibration = IncrementalCalibration(equable.ARC(), percent=25)
        drawn = []
        for dataset in planted():
            calibration.end_task(same_columns(), dataset)
            drawn.append(calibration.calibration_buffer[-1].rows)
        for part, first in zip(calibration.calibration_buffer, drawn, strict=True):
            labels = part.validation.tensors[1][part.rows].numpy()
            assert np.unique(labels, return_counts=True)[1].tolist() == [10, 10]
            assert part.rows is first

    def test_at_least_one_row_of_a_class(self):
        labels = [3] * 100 + [4] * 2
        rows = stratified_share(labels, 10, seed=0)
        assert np.bincount(np.array(labels)[rows])[3:].tolist() == [10, 1]

    def test_the_seed_decides(self):
        labels = np.repeat([0, 1], 50)
        first, again, other = (stratified_share(labels, 20, seed=s) for s in (0, 0, 1))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)
        assert np.array_equal(first, np.unique(first))

    def test_every_row_is_drawn_as_often(self):
        counts = np.zeros(20)
        for seed in range(400):
            counts[stratified_share(np.repeat([0, 1], 10), 50, seed=seed)] += 1
        assert abs(counts - 200).max() < 5 * np.sqrt(400 * 0.25)


class TestTheFit:
    @pytest.mark.parametrize("percent", [100, 30])
    def test_temperature_scaling_sees_the_whole_calibration_buffer(self, percent):
        calibration = finished(equable.TemperatureScaling(), planted(), percent=percent)
        columns = calibration.classes
        parts = [(part.validation[part.rows], part) for part in calibration.calibration_buffer]
        x = np.concatenate([rows[0].numpy()[:, columns] for rows, _ in parts])
        y = np.concatenate([np.searchsorted(columns, rows[1].numpy()) for rows, _ in parts])
        expected = equable.TemperatureScaling().fit(x, y)
        assert len(y) == 240 * percent // 100
        assert calibration.calibrator.temperature_ == pytest.approx(expected.temperature_, rel=1e-6)

    def test_dats_gets_features_tasks_and_the_whole_current_validation_set(self):
        calibration = finished(equable.DATS(), planted(), percent=50)
        columns = calibration.classes
        assert columns == [0, 1, 2, 5, 7, 8]
        kept = [part.validation[part.rows] for part in calibration.calibration_buffer]
        x = np.concatenate([rows[0].numpy() for rows in kept])
        y = np.concatenate([np.searchsorted(columns, rows[1].numpy()) for rows in kept])
        tasks = np.repeat([0, 1, 2], [len(rows[1]) for rows in kept])
        newest_x, newest_y = calibration.calibration_buffer[-1].validation.tensors
        current = (newest_x.numpy(), np.searchsorted(columns, newest_y.numpy()))
        expected = equable.DATS().fit(x[:, columns], y, features=x, tasks=tasks, current=current)
        for name in ("base_temperature_", "distance_weights_", "prototypes_"):
            np.testing.assert_allclose(
                getattr(calibration.calibrator, name), getattr(expected, name), rtol=1e-6
            )

    def test_task_mix_gets_the_tasks(self):
        calibration = finished(equable.TaskMix(), planted())
        # columns are the classes 0, 1, 2, 5, 7, 8
        assert calibration.calibrator.class_tasks_.tolist() == [0, 1, 2, 0, 2, 1]
        found = calibration.evaluate(same_columns(), planted(seed=1))
        assert found.nll < found.nll_before
        assert found.accuracy > found.accuracy_before

    def test_earlier_rows_pass_through_the_new_model(self):
        # without a prior, which does not scale with the logits
        exact = equable.TemperatureScaling(prior_strength=0)
        calibration = IncrementalCalibration(exact, percent=100)
        first, second, _ = planted()
        calibration.end_task(same_columns(), first)
        before = calibration.calibrator.temperature_
        louder = same_columns()
        louder.weight.data.mul_(3.0)
        calibration.end_task(louder, second)
        loud = calibration.calibrator.temperature_
        calm = finished(exact, [first, second], percent=100).calibrator.temperature_
        assert loud == pytest.approx(3 * calm, rel=1e-5)
        assert before != calm

    def test_classes_without_features_need_no_penultimate_layer(self):
        class Odd(nn.Module):
            def forward(self, x):
                return x * 1.0

        calibration = IncrementalCalibration(equable.ARC())
        calibration.end_task(Odd(), planted()[0])
        with raises_naming(InputError, "features must", "penultimate layer"):
            IncrementalCalibration(equable.DATS()).end_task(Odd(), planted()[0])

    def test_a_failed_fit_changes_nothing(self):
        first, second, _ = planted()
        calibration = finished(equable.TemperatureScaling(), [first])
        temperature = calibration.calibrator.temperature_
        x, y = second.tensors
        with pytest.raises(InputError, match="logits must be finite"):
            calibration.end_task(same_columns(), TensorDataset(x * torch.nan, y))
        assert calibration.classes == sorted(TASKS[0])
        assert len(calibration.calibration_buffer) == 1
        assert calibration.calibrator.temperature_ == temperature

    def test_a_class_learnt_again_belongs_to_its_newest_task(self):
        first, second, _ = planted()
        calibration = finished(equable.TemperatureScaling(), [first, second, first])
        assert calibration.task_of_class == {0: 2, 1: 1, 5: 2, 8: 1}


class TestTheComparison:
    def test_it_is_compare_tasks_on_the_seen_columns(self):
        datasets = planted()
        calibration = finished(equable.TemperatureScaling(), datasets[:2], percent=100)
        result = calibration.evaluate(same_columns(), datasets[:2])
        x, labels = (
            torch.cat(parts).numpy() for parts in zip(*(d.tensors for d in datasets[:2]), strict=True)
        )
        z = x[:, [0, 1, 5, 8]].astype(np.float64)
        y = np.searchsorted([0, 1, 5, 8], labels)
        p, q = (softmax(z / t) for t in (1.0, calibration.calibrator.temperature_))
        expected = compare_tasks(y, np.isin(y, [1, 3]).astype(int), p, q)
        assert result.average_ece == pytest.approx(expected.average_ece)
        assert result.nll_before == pytest.approx(expected.nll_before)
        assert result.max_delta_ece == pytest.approx(expected.max_delta_ece)
        assert result.nll < result.nll_before

    def test_rows_of_classes_to_come_are_left_out(self):
        datasets = planted()
        calibration = finished(equable.TemperatureScaling(), datasets[:1])
        result = calibration.evaluate(same_columns(), datasets)
        assert [task.count for task in result.tasks] == [80]

    def test_each_test_set_is_one_batch(self):
        datasets = planted()
        calibration = finished(equable.ARC(), datasets, percent=100)
        one = calibration.evaluate(same_columns(), [ConcatDataset(datasets)])
        apart = calibration.evaluate(same_columns(), datasets)
        assert apart.average_ece < one.average_ece

    def test_accuracy_never_changes(self):
        datasets = planted()
        result = finished(equable.DATS(), datasets).evaluate(same_columns(), datasets)
        assert result.accuracy == result.accuracy_before

    def test_before_the_first_task(self):
        calibration = IncrementalCalibration(equable.ARC())
        with pytest.raises(NotFittedError, match="no task has ended"):
            calibration.evaluate(same_columns(), planted())

    def test_labels_beyond_a_head_that_grows_are_of_classes_to_come(self):
        torch.manual_seed(0)
        x = torch.randn(60, N_COLUMNS)
        model = nn.Linear(N_COLUMNS, 2)
        calibration = IncrementalCalibration(equable.Uncalibrated())
        calibration.end_task(model, TensorDataset(x[:40], torch.arange(2).repeat(20)))
        tests = [TensorDataset(x, torch.arange(4).repeat(15)), TensorDataset(x, torch.full((60,), 3))]
        seen = TensorDataset(x[torch.arange(60) % 4 < 2], torch.arange(2).repeat(15))
        found = calibration.evaluate(model, tests)
        expected = calibration.evaluate(model, [seen])
        assert found.nll == pytest.approx(expected.nll, abs=1e-6)
        assert [task.count for task in found.tasks] == [30]
        with raises_naming(InputError, "classes seen so far", "no class seen"):
            calibration.evaluate(model, tests[1:])
        with pytest.raises(InputError, match="with classes seen so far; got none"):
            calibration.evaluate(model, [])

    @pytest.mark.parametrize("columns", [1, 4])
    def test_calibration_begins_with_the_second_class(self, columns):
        torch.manual_seed(0)
        x = torch.randn(60, 3)
        calibration = IncrementalCalibration(equable.Uncalibrated(), percent=50)
        for _ in range(2):  # a class learnt twice counts once
            calibration.end_task(nn.Linear(3, columns), TensorDataset(x, torch.zeros(60, dtype=torch.long)))
            with pytest.raises(NotFittedError, match="only class 0 has been seen so far"):
                calibration.evaluate(nn.Linear(3, 4), [TensorDataset(x, torch.arange(60) % 2)])
        assert [len(rows) for _, rows in calibration.calibration_buffer] == [30, 30]
        model = nn.Linear(3, 4)
        calibration.end_task(model, TensorDataset(x, torch.full((60,), 2)))
        assert calibration.classes == [0, 2]
        assert calibration.evaluate(model, [TensorDataset(x, torch.arange(60) % 4)]).tasks

    def test_labels_that_the_head_has_no_column_for(self):
        calibration = IncrementalCalibration(equable.Uncalibrated())
        with pytest.raises(InputError, match="labels must lie in 0 … 1"):
            calibration.end_task(nn.Linear(3, 2), TensorDataset(torch.randn(6, 3), torch.arange(6) % 3))
        assert calibration.classes == []


class Untidy(nn.Module):
    """Batch norm, dropout and a frozen part, whose state a forward pass could change."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(N_COLUMNS, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(16, N_COLUMNS)

    def forward(self, x):
        return self.head(self.body(x))


class Noisy(TensorDataset):
    """A dataset that draws from torch's generator, as augmentation does."""

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + 0 * torch.randn(()), y


@pytest.mark.filterwarnings("ignore::equable.errors.ConvergenceWarning")  # it has learnt nothing
def test_the_model_is_only_read():
    torch.manual_seed(0)
    model = Untidy()
    model.train()
    model.body[1].eval()
    model(torch.randn(8, N_COLUMNS)).sum().backward()
    modes = {name: module.training for name, module in model.named_modules()}
    state = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    identities = {name: id(p) for name, p in model.named_parameters()}
    generator = torch.get_rng_state()
    calibration = IncrementalCalibration(equable.DATS())
    for dataset in planted():
        calibration.end_task(model, Noisy(*dataset.tensors))
    calibration.evaluate(model, planted()[:1])
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert {name: id(p) for name, p in model.named_parameters()} == identities
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(p.grad, gradients[name]) for name, p in model.named_parameters())
    assert all(p.requires_grad for p in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(torch.get_rng_state(), generator)


class TestRefusals:
    @pytest.mark.parametrize("percent", [0, -1, 101, float("nan")])
    def test_percent(self, percent):
        with pytest.raises(InputError, match=r"percent must be in \(0, 100\]"):
            IncrementalCalibration(equable.ARC(), percent=percent)

    @pytest.mark.parametrize("percent", [0, 150, "half", None])
    def test_share(self, percent):
        with pytest.raises(InputError, match=r"percent must be in \(0, 100\]; got"):
            stratified_share([0, 1], percent, seed=0)

    def test_share_of_nothing(self):
        with raises_naming(InputError, "labels must", "at least one row"):
            stratified_share([], 50, seed=0)

    @pytest.mark.parametrize("calibrator", ["dats", equable.ARC, None])
    def test_calibrator(self, calibrator):
        with raises_naming(InputError, "calibrator must", "equable calibrator"):
            IncrementalCalibration(calibrator)

    def test_rows_without_labels(self):
        with pytest.raises(InputError, match=r"must give \(x, y\)"):
            IncrementalCalibration(equable.ARC()).end_task(same_columns(), TensorDataset(torch.ones(4, 9)))


def test_the_plugin_says_what_it_needs(monkeypatch):
    for name in ("avalanche", "avalanche.evaluation.metric_results"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "equable.integrations.avalanche", raising=False)
    with pytest.raises(MissingExtraError, match="pip install avalanche-lib"):
        importlib.import_module("equable.integrations.avalanche")
