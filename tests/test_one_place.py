"""A capability is one file, or one function, and one row of a table.

A toy of each kind is added to a copy of the package, as CONTRIBUTING describes; the commands then offer it.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import equable
from calling import UNDRAWN
from run_fixtures import finished_run, tiny_config, tiny_run  # noqa: F401

pytest.importorskip("torch")

SOURCE = Path(equable.__file__).parent

CALIBRATOR = '''
"""A temperature that is always two."""

import numpy as np

from equable.calibrators.base import Calibrator


class Halved(Calibrator):
    """softmax(z / 2)."""

    def _fit(self, rows):
        return {}

    def _temperatures(self, rows):
        return np.full(len(rows.logits), 2.0)
'''

NETWORK = '''

class Flat(nn.Module):
    """Pixels as features."""

    def __init__(self, n_classes, image_shape):
        super().__init__()
        height, width, channels = image_shape
        self.head = nn.Linear(height * width * channels, n_classes)

    def features(self, x):
        return x.flatten(1)

    def forward(self, x):
        features = self.features(x)
        return self.head(features), features


#: Name in the settings'''

LEARNER = '''
"""Experience replay with a scaled loss."""

from equable.training.learners import er


class Learner(er.Learner):
    def __init__(self, network, inputs, memory, settings):
        super().__init__(network, inputs, memory, settings)
        self.factor = settings.loss_factor

    def loss(self, logits, labels, rows):
        return self.factor * super().loss(logits, labels, rows)
'''

DATASET = '''
"""The first four digits."""

from dataclasses import replace

from equable.datasets.digits import load_digits


def load_few():
    data = load_digits()
    rows = data.labels < 4
    return replace(
        data, images=data.images[rows], labels=data.labels[rows], split=data.split[rows],
        class_names=data.class_names[:4],
    )
'''

#: file → text of a new file, or (marker, text before the marker) for a row of a table.
ADDITIONS = {
    "calibrators/halved.py": CALIBRATOR,
    "calibrators/__init__.py": [
        ("from equable.calibrators.serialization", "from equable.calibrators.halved import Halved\n"),
        ('    "taskmix": TaskMix,\n', '    "halved": Halved,\n'),
    ],
    "benchmark/methods.py": [
        ('    "bic": Method(', '    "halved": Method("Halved", "none", CALIBRATORS["halved"]),\n'),
        ("    DATS,\n", "    CALIBRATORS,\n"),
    ],
    "training/networks.py": [("\n#: Name in the settings", NETWORK.removesuffix("#: Name in the settings"))],
    "training/learners/scaled.py": LEARNER,
    "training/learners/__init__.py": [('"er": "Experience replay"', '"scaled": "Scaled replay", ')],
    "training/settings.py": [
        ('    "resnet32": Network(', '    "flat": Network("Flat"),\n'),
        ("    max_epochs: Count", "    loss_factor: Annotated[float, Field(gt=0)] = 1.0\n"),
    ],
    "datasets/few.py": DATASET,
    "datasets/registry.py": [
        ("from equable.datasets.npz", "from equable.datasets.few import load_few\n"),
        (
            '    Source(\n        "digits", load_digits',
            '    Source("few", load_few, (), 4, 720, 2, 8, {}, "", "scikit-learn", "BSD"),\n',
        ),
    ],
    "benchmark/main_metrics.py": [
        (
            '    "delta_last_ece": MainMetric(',
            '    "brier": MainMetric("Brier", "", "low", "", 3, brier_score),\n',
        ),
        ("\n\n@dataclass(frozen=True)\nclass MainMetric", "from equable.metrics import brier_score\n"),
    ],
}

SETTINGS = """
seeds = [0]
data.source = "few"
scenario.tasks = 2
network.name = "flat"
training = {learner = "scaled", loss_factor = 0.5, max_epochs = 2, memory_size = 8}
score.n_bootstrap = 0
"""


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """The folder of a package with a toy of each kind."""
    root = tmp_path_factory.mktemp("extended")
    package = root / "equable"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, added in ADDITIONS.items():
        if isinstance(added, str):
            (package / name).write_text(added.lstrip(), encoding="utf-8")
            continue
        text = (package / name).read_text(encoding="utf-8")
        for marker, row in added:
            assert text.count(marker) == 1, (name, marker)
            text = text.replace(marker, row + marker)
        (package / name).write_text(text, encoding="utf-8")
    (root / "undrawn.py").write_text(UNDRAWN, encoding="utf-8")
    return root


def run(extended, *words):
    environment = {**os.environ, "PYTHONPATH": str(extended), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "undrawn.py", *map(str, words)]
    done = subprocess.run(command, env=environment, cwd=extended, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_metric_is_added_to_the_scores_of_an_older_run(extended, tiny_run):  # noqa: F811
    run(extended, "report", tiny_run.path)
    assert {row["brier"] for row in scores_of(tiny_run.path)} == {""}
    run(extended, "score", tiny_run.path, "--jobs", 1)
    run(extended, "report", tiny_run.path)
    assert all(0 < float(row["brier"]) < 2 for row in scores_of(tiny_run.path))


def scores_of(folder):
    text = (folder / "tables" / "scores.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def test_commands_know_a_toy_of_each_kind(extended):
    (extended / "toy.toml").write_text(SETTINGS, encoding="utf-8")
    found = json.loads(run(extended, "run", "toy.toml", "--out", "out", "--json"))
    assert "few" in run(extended, "datasets", "list")
    halved = found["methods"]["halved"]
    assert 0 < halved["brier"]["mean"] < 2
    assert halved["nll"]["mean"] != found["methods"]["uncalibrated"]["nll"]["mean"]
    config = (extended / "out" / "config.toml").read_text(encoding="utf-8")
    assert 'learner = "scaled"' in config
    assert "loss_factor = 0.5" in config
    page = (extended / "out" / "report.html").read_text(encoding="utf-8")
    assert "Brier" in page
    assert "Halved" in page
    assert "Flat" in page
    assert {row["method"] for row in scores_of(extended / "out")} >= {"halved", "taskmix"}
