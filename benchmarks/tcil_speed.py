"""T-CIL against a naive version that recomputes means, targets and gradients at every bisection step.

    python benchmarks/tcil_speed.py [rows] [classes]

ResNet32 at 32 px with weights as they are born: time does not depend on them. Both fit with the same
exact solver; the naive version is the one the tests compare with.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch

from equable import Outputs
from equable.training import ResNet32
from equable.training.perturb import perturb_memory

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "training"))
from test_perturb import naive_tcil


def main(n_rows: int = 2000, n_classes: int = 50) -> None:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    network = ResNet32(n_classes, (32, 32, 3)).to(memory_format=torch.channels_last).eval()
    x = torch.randn(n_rows, 32, 32, 3).permute(0, 3, 1, 2)
    labels = np.arange(n_rows) % n_classes
    current = range(n_classes - n_classes // 5, n_classes)
    rows = np.isin(labels, current)
    start = time.perf_counter()
    with torch.inference_mode():
        logits = torch.cat([network(part)[0] for part in torch.split(x, 256)]).numpy()
    print(f"one forward pass of {n_rows} exemplars   {time.perf_counter() - start:7.2f} s")
    validation = Outputs(logits[rows], labels[rows])
    for name, method in (("equable", perturb_memory), ("naive", naive_tcil)):
        start = time.perf_counter()
        method(network, x, labels, validation, current)
        print(f"{name:<38} {time.perf_counter() - start:7.2f} s")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
