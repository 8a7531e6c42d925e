"""Mutants of calibrators, metrics, splits and training: each must fail the tests named beside it.

``python tests/mutants.py [--write] [WORDS]`` copies ``src`` to a temporary folder, changes one snippet, runs
the tests and prints "killed" or "survived". The test that fails must pass without the mutant. The script
exits with 1 if a mutant survives or its snippet is not found exactly once. A snippet is searched in all
files of the package, so that it is found after a move. WORDS select mutants by name; ``--write`` stores the
verdicts in ``tests/mutants.md``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
ROOT = TESTS.parent
CIFAR10 = 'source = "cifar10"\n\n[scenario]\ntasks = 5\n\n[training]\nmax_epochs = 200\npatience = 10\n'
SKIN = 'source = "dermamnist_64"\n\n[scenario]\norder = "size"\ntasks = [3, 2, 2]\n'


class Mutant(NamedTuple):
    """A snippet that occurs once in the package, its replacement, and where a test must fail."""

    name: str
    snippet: str
    replacement: str
    folder: str
    names: str = ""  # expression for ``pytest -k``


MUTANTS = [
    Mutant(
        "early stopping on test rows",
        "self._hits(self.task.validation)",
        "self._hits(self.task.test)",
        "training",
        "score or early",
    ),
    Mutant(
        "T-CIL's T* from all tasks' validation rows",
        "current = validation.outputs[validation.outputs.tasks == index]\n        perturbed",
        "current = validation.outputs\n        perturbed",
        "training",
        "target_temperature",
    ),
    Mutant(
        "training without augmentation",
        "x = self.images.augmented_batch(rows, self.settings.augmentation, self.generator)\n        mixed",
        "x = self.images.batch(rows)\n        mixed",
        "training",
        "sees_every_form",
    ),
    Mutant(
        "cifar10 without early stopping on the current task",
        CIFAR10 + 'early_stopping = "current"\n',
        CIFAR10,
        "benchmark",
        "papers_values",
    ),
    Mutant("cifar10 with momentum 0.9", CIFAR10, CIFAR10 + "momentum = 0.9\n", "benchmark", "papers_values"),
    Mutant(
        "SkinLesions in tasks [2, 2, 3]",
        SKIN,
        SKIN.replace("[3, 2, 2]", "[2, 2, 3]"),
        "benchmark",
        "papers_values or medical",
    ),
    Mutant(
        "current prototypes from the calibration buffer",
        'current=(current.features, current.labels) if self.rows == "calibration_buffer" else None',
        "current=None",
        "benchmark",
        "whole_validation_set",
    ),
    Mutant(
        "ECE: a bin open below",
        "index += (confidence >= edge).view(np.int8)",
        "index += (confidence > edge).view(np.int8)",
        "metrics",
    ),
    Mutant(
        "ECE: the last bin not closed",
        "(confidence >= edge).view(np.int8)\n    return index",
        "(confidence >= edge).view(np.int8)\n    index[confidence >= 1] = 0\n    return index",
        "metrics",
    ),
    Mutant(
        "ECE: bin centre for mean confidence",
        "return self.hits - self.confidence",
        "return self.hits - self.count * (np.arange(len(self.count)) + 0.5) / len(self.count)",
        "metrics",
    ),
    Mutant(
        "debiasing left out",
        "_debiased(sums) if debias else plug_in_error(sums)",
        "plug_in_error(sums)",
        "metrics",
    ),
    Mutant("NLL clipped at 1e-6", "LOWEST_PROBABILITY = 1e-12", "LOWEST_PROBABILITY = 1e-6", "metrics"),
    Mutant(
        "quantile bins by the first rank of a tie",
        "return (first + end - 1) * n_bins // (2 * len(confidence))",
        "return first * n_bins // len(confidence)",
        "metrics",
    ),
    Mutant(
        "ΔECE with the sign turned",
        "self.delta_ece = self.ece - self.ece_before",
        "self.delta_ece = self.ece_before - self.ece",
        "metrics",
    ),
    Mutant(
        "max ΔECE as a mean",
        '"max_delta_ece": self.delta_ece.max(axis=0)',
        '"max_delta_ece": self.delta_ece.mean(axis=0)',
        "metrics",
    ),
    Mutant(
        "bootstrap not paired",
        "    return totals[0], totals[1]\n",
        "    return totals[0], rng.permutation(totals[1])\n",
        "metrics",
    ),
    Mutant(
        "DATS: distances not scaled to [0, 1]",
        "np.clip((values - low) / (high - low), 0.0, 1.0)",
        "np.asarray(values)",
        "calibrators",
        "distances or min_max or batch or prototypes",
    ),
    Mutant(
        "DATS: a class more at exact coverage",
        "return (before < needed)[rows, rank]",
        "return (before <= needed + 2e-9)[rows, rank]",
        "calibrators",
        "retained",
    ),
    Mutant(
        "DATS: ties to the higher class",
        "xp.argsort(xp.arange(n_classes) - n_classes * counts, axis=1)",
        "xp.argsort(-xp.arange(n_classes) - n_classes * counts, axis=1)",
        "calibrators",
        "retained",
    ),
    Mutant(
        "DATS: sum of T(d_c) for its mean",
        "share = kept / kept.sum(axis=1, keepdims=True)",
        "share = kept * 1.0",
        "calibrators",
        "batch_temperatures",
    ),
    Mutant(
        "DATS: weights of current classes free",
        "            free[current] = False\n",
        "            free[current] = True\n",
        "calibrators",
    ),
    Mutant(
        "DATS: no prior on T_base",
        "        slope[0] += 2 * problem.prior_strength * (u[0] - log_centre)\n",
        "        slope[0] += 0.0 * (u[0] - log_centre)\n",
        "calibrators",
    ),
    Mutant("temperatures from 0.5", "MIN_TEMPERATURE = 0.05", "MIN_TEMPERATURE = 0.5", "calibrators"),
    Mutant(
        "TS: the prior ten times as strong",
        "2 * prior * point\n        return slope, np.full(1, weights @ curvatures + 2 * prior)",
        "20 * prior * point\n        return slope, np.full(1, weights @ curvatures + 20 * prior)",
        "calibrators",
        "prior",
    ),
    Mutant(
        "ETS: weights off the simplex",
        "            if (solution < 0).any():\n                continue\n",
        "",
        "calibrators",
        "weights or slsqp",
    ),
    Mutant(
        "ARC: no pull to the centre in EM",
        "        new += pull\n",
        "        new += 0 * pull\n",
        "calibrators",
        "em or mix or groups",
    ),
    Mutant(
        "test rows left among the validation rows",
        "rows = [np.flatnonzero(inside & (parts == part)) for part in (TRAIN, VALIDATION, TEST)]",
        "rows = [np.flatnonzero(inside & (parts == part)) for part in (TRAIN, VALIDATION, TEST)]\n"
        "    rows[1] = np.sort(np.concatenate(rows[1:]))",
        "scenarios",
        "disjoint or split or validation",
    ),
    Mutant(
        "calibration buffer without a row of each class",
        "return np.sort(shuffled[np.concatenate([firsts, others])])",
        "return np.sort(shuffled[:wanted])",
        "scenarios",
        "share",
    ),
    Mutant(
        "replay memory without its remainder",
        "            counts[position] += 1\n            remainder -= 1\n",
        "            remainder -= 1\n",
        "scenarios",
        "memory or quota",
    ),
    Mutant(
        "class order from the new generator",
        "np.random.RandomState(seed).shuffle(ids)",
        "np.random.default_rng(seed).shuffle(ids)",
        "scenarios",
        "order",
    ),
    Mutant(
        "T-CIL: nearest and farthest swapped",
        "np.where(current, farthest, nearest)",
        "np.where(current, nearest, farthest)",
        "training",
        "targets",
    ),
    Mutant(
        "T-CIL: bisection the wrong way",
        "if at[middle] < goal:",
        "if at[middle] > goal:",
        "training",
        "bisection",
    ),
]


def place_of(snippet: str, package: Path) -> Path | None:
    """The one file that holds the snippet once."""
    texts = {path: path.read_text("utf-8") for kind in ("py", "toml") for path in package.rglob(f"*.{kind}")}
    holders = [path for path, text in texts.items() if snippet in text]
    return holders[0] if len(holders) == 1 and texts[holders[0]].count(snippet) == 1 else None


def pytest(source: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run tests against the package in `source`, up to the first failure."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )


def run(mutant: Mutant) -> tuple[str, str]:
    """The verdict, and the test that fails with the mutant and passes without it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "src")
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        path = place_of(mutant.snippet, source / "equable")
        if path is None:
            return "snippet not found once", ""
        text = path.read_text("utf-8")
        path.write_text(text.replace(mutant.snippet, mutant.replacement), "utf-8")
        words = ["-k", mutant.names] if mutant.names else []
        found = pytest(source, str(TESTS / mutant.folder), *words)
    failed = re.search(r"^FAILED ([^\s\[]+)", found.stdout, re.MULTILINE)
    if found.returncode != 1 or not failed:
        return ("survived" if found.returncode == 0 else f"pytest exits with {found.returncode}"), ""
    control = pytest(ROOT / "src", failed[1])
    return ("killed" if control.returncode == 0 else "fails without it too"), failed[1].rpartition("::")[2]


def main(words: list[str]) -> int:
    store = "--write" in words
    wanted = [word for word in words if word != "--write"]
    chosen = [mutant for mutant in MUTANTS if not wanted or any(word in mutant.name for word in wanted)]
    rows = []
    for mutant in chosen:
        verdict, test = run(mutant)
        print(f"{verdict}: {mutant.name} ({test})", flush=True)
        rows.append((mutant.name, verdict, test))
    if store:
        lines = ["# Mutants", "", "Written by `python tests/mutants.py --write`.", ""]
        lines += ["| mutant | verdict | test that fails |", "|---|---|---|"]
        lines += [f"| {name} | {verdict} | {f'`{test}`' if test else ''} |" for name, verdict, test in rows]
        (TESTS / "mutants.md").write_text("\n".join(lines) + "\n", "utf-8")
    return int(any(verdict != "killed" for _, verdict, _ in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
