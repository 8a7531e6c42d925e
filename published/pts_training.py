"""Train PTS with the optimiser of its authors and compare it with that of equable on the same stored rows.

``python -m published.pts_training RUN …`` uses seed 0 of each stored run. Tomani et al. 2022 use Adam with
learning rate 5e-5, batches of 1,000 and 100,000 steps: two minutes per run on an idle core. The command prints
average ECE and NLL on the test rows and the Brier score on the calibration rows.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import equable
from equable.benchmark.task_outputs import load_step
from equable.calibrators.newton import MAX_TEMPERATURE, MIN_TEMPERATURE
from equable.outputs import Outputs

RESULTS = Path(__file__).parents[1] / "results"
STEPS = 100_000
BATCH = 1000
RATE = 5e-5


def largest(logits: Tensor) -> Tensor:
    """The ten largest logits of each row, clipped to ±100, descending."""
    return logits.clamp(-100, 100).topk(min(10, logits.shape[1]), dim=1).values


def train(rows: Outputs) -> nn.Module:
    """Train the network of the authors with their optimiser."""
    z = torch.from_numpy(rows.logits.astype(np.float64))
    truth = nn.functional.one_hot(torch.from_numpy(rows.labels), z.shape[1]).double()
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(min(10, z.shape[1]), 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 1)
    ).double()
    nn.init.ones_(network[-1].bias)
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE)
    x = largest(z)
    for _ in range(STEPS):
        chosen = torch.randperm(len(z))[:BATCH]
        temperature = network(x[chosen]).abs().clamp(1e-12, 1e12)
        loss = ((torch.softmax(z[chosen] / temperature, 1) - truth[chosen]) ** 2).sum(1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network


def probabilities(network: nn.Module, logits: np.ndarray) -> np.ndarray:
    """Softmax of the logits divided by the temperature of the network."""
    z = torch.from_numpy(logits.astype(np.float64))
    with torch.no_grad():
        temperature = network(largest(z)).abs().clamp(MIN_TEMPERATURE, MAX_TEMPERATURE)
        return torch.softmax(z / temperature, 1).numpy()


def report(name: str, test: Outputs, p: np.ndarray, brier: float) -> str:
    """Average ECE and NLL over tasks."""
    found = equable.metrics.compare_tasks(test.labels, test.tasks, p, p)
    return f"{name:6} average ECE {100 * found.average_ece:5.1f} %, NLL {found.nll:.2f}, Brier {brier:.4f}"


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m published.pts_training", description=__doc__)
    parser.add_argument("runs", nargs="+", help="folders of results/")
    torch.set_num_threads(1)
    for run in parser.parse_args(words).runs:
        (folder,) = (RESULTS / run / "seed-0").glob("task-*")
        step = load_step(folder)
        rows = step.current
        assert rows.labels is not None
        theirs = train(rows)
        ours = equable.load(folder / "pts.safetensors")
        found = {
            "Adam": (probabilities(theirs, step.test.logits), probabilities(theirs, rows.logits)),
            "ours": (ours.predict_proba(step.test.logits), ours.predict_proba(rows.logits)),
        }
        print(run)
        for name, (test, own) in found.items():
            print(" ", report(name, step.test, test, equable.metrics.brier_score(rows.labels, own)))


if __name__ == "__main__":
    main()
