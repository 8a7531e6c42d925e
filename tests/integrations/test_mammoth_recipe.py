"""The recipe of docs/how-to/mammoth.md, run on a small stand-in for Mammoth's interface."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from test_documents import blocks

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "mammoth.md"
CLASSES, TASKS = 6, 3


class Er(nn.Module):
    """What the recipe uses of Mammoth's ContinualModel: `net`, `end_task`, a constructor with arguments."""

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__()
        self.net = backbone
        self.loss = loss
        self.ended = []

    def end_task(self, dataset):
        self.ended.append(dataset.c_task)


class Backbone(nn.Module):
    """As Mammoth's: a linear `classifier` over all classes, returns logits by default."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1))
        self.classifier = nn.Linear(32, CLASSES)

    def forward(self, x, returnt="out"):
        return self.classifier(self.body(x))


def held_out(task, generator):
    """A test loader in Mammoth's form: (x, y) rows and `targets`, classes in order of arrival."""
    y = torch.arange(2 * task, 2 * task + 2).repeat_interleave(60)
    dataset = TensorDataset(torch.eye(CLASSES, 8)[y] + torch.randn(len(y), 8, generator=generator), y)
    dataset.targets = y.numpy()
    return DataLoader(dataset, 32)


@pytest.fixture
def recipe(monkeypatch):
    """The page's names, with `models.er` in place."""
    package = ModuleType("models")
    module = ModuleType("models.er")
    module.Er = Er
    monkeypatch.setitem(sys.modules, "models", package)
    monkeypatch.setitem(sys.modules, "models.er", module)
    names = {}
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        if block.language == "python":
            exec(compile(block.code, PAGE.name, "exec"), names)
    return names


def fit(net, x, y, steps=60):
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()


def test_the_recipe_calibrates_after_each_task(recipe, capsys):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = recipe["ErCalibrated"](Backbone(), nn.CrossEntropyLoss(), SimpleNamespace(), None)
    dataset = SimpleNamespace(c_task=-1, test_loaders=[])
    for task in range(TASKS):
        dataset.c_task = task
        dataset.test_loaders.append(held_out(task, generator))
        x, y = held_out(task, generator).dataset.tensors
        fit(model.net, x[::6], y[::6])  # few rows and many steps: overconfident
        weights = [p.clone() for p in model.parameters()]
        model.end_task(dataset)
        assert all(map(torch.equal, weights, model.parameters()))
        assert model.net.training
    assert model.ended == [0, 1, 2]
    assert model.calibration.classes == list(range(CLASSES))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 * TASKS
    before, after = map(float, re.match(r"NLL ([\d.]+) → ([\d.]+)", lines[-3]).groups())
    assert after < before


def test_rows_to_test_with_are_not_calibrated_on(recipe):
    torch.manual_seed(0)
    model = recipe["ErCalibrated"](Backbone(), None, None, None)
    loader = held_out(0, torch.Generator().manual_seed(1))
    x, y = held_out(0, torch.Generator().manual_seed(2)).dataset.tensors
    fit(model.net, x, y)
    model.end_task(SimpleNamespace(c_task=0, test_loaders=[loader]))
    (part,) = model.calibration.calibration_buffer
    (tests,) = model.kept_for_tests
    used = {part.validation.indices[row] for row in part.rows}
    assert len(used) == len(tests) == 60
    assert not used & set(tests.indices)


def test_the_model_says_what_mammoth_asks(recipe):
    assert recipe["ErCalibrated"].NAME == "er_calibrated"
    assert "class-il" in recipe["ErCalibrated"].COMPATIBILITY
