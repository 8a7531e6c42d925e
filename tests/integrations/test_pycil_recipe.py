"""The recipe of docs/how-to/pycil.md, run on a small stand-in for PyCIL's interface."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

from test_documents import blocks

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "pycil.md"
TASKS, NEW = 3, 2


class Head(nn.Module):
    """As PyCIL's SimpleLinear: no nn.Linear, and logits in a dictionary."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return {"logits": x @ self.weight.T + self.bias}


class IncrementalNet(nn.Module):
    """As PyCIL's: logits, features and maps in one dictionary, and a head that grows."""

    def __init__(self):
        super().__init__()
        self.convnet = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1))
        self.fc = None

    def update_fc(self, n_classes):
        grown = Head(32, n_classes)
        if self.fc is not None:
            grown.weight.data[: len(self.fc.weight)] = self.fc.weight.data
            grown.bias.data[: len(self.fc.bias)] = self.fc.bias.data
        self.fc = grown

    def forward(self, x):
        features = self.convnet(x)
        return {**self.fc(features), "features": features, "fmaps": [features]}


class Rows:
    """As PyCIL's DummyDataset: `labels`, and rows (index, image, label)."""

    def __init__(self, classes, generator):
        self.labels = np.repeat(classes, 60)
        noise = torch.randn(len(self.labels), 8, generator=generator)
        self.images = torch.eye(6, 8)[torch.from_numpy(self.labels)] + noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        return row, self.images[row], self.labels[row]


class DataManager:
    def get_dataset(self, indices, source, mode):
        return Rows(indices, torch.Generator().manual_seed(int(indices[0]) + 100 * (source == "test")))


class Replay:
    """What the recipe uses of PyCIL's BaseLearner; the trainer calls `after_task` after each task."""

    def __init__(self, args):
        self._network = IncrementalNet()
        self._known_classes = self._total_classes = 0

    def incremental_train(self, data_manager):
        self._total_classes = self._known_classes + NEW
        self._network.update_fc(self._total_classes)
        rows = data_manager.get_dataset(np.arange(self._known_classes, self._total_classes), "train", "train")
        few = slice(None, None, 6)  # few rows and many steps: overconfident
        optimiser = torch.optim.SGD(self._network.parameters(), lr=0.5)
        for _ in range(60):
            optimiser.zero_grad()
            logits = self._network(rows.images[few])["logits"]
            nn.functional.cross_entropy(logits, torch.from_numpy(rows.labels[few])).backward()
            optimiser.step()

    def after_task(self):
        self._known_classes = self._total_classes


@pytest.fixture
def recipe(monkeypatch):
    """The page's names, with `models.replay` in place."""
    module = ModuleType("models.replay")
    module.Replay = Replay
    monkeypatch.setitem(sys.modules, "models", ModuleType("models"))
    monkeypatch.setitem(sys.modules, "models.replay", module)
    names = {}
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        if block.language == "python":
            exec(compile(block.code, PAGE.name, "exec"), names)
    return names


def test_the_recipe_calibrates_after_each_task(recipe, capsys):
    torch.manual_seed(0)
    model = recipe["ReplayCalibrated"]({})
    for _ in range(TASKS):
        model.incremental_train(DataManager())
        model.after_task()
    assert model.calibration.classes == list(range(NEW * TASKS))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 * TASKS
    before, after = map(float, re.match(r"NLL ([\d.]+) → ([\d.]+)", lines[-2]).groups())
    assert after < before


def test_rows_to_test_with_are_not_calibrated_on(recipe):
    torch.manual_seed(0)
    model = recipe["ReplayCalibrated"]({})
    model.incremental_train(DataManager())
    (part,) = model.calibration.calibration_buffer
    (tests,) = model.kept_for_tests
    used = {part.validation.indices[row] for row in part.rows}
    assert len(used) == len(tests) == 60
    assert not used & set(tests.indices)
