"""Replay training in images per second, against Avalanche's Replay strategy.

    python -m speed.replay_training [threads …]

Both train equable's SlimResNet18 (nf = 20) on the same images, 28 × 28 as MedMNIST's and 32 × 32 as CIFAR's,
64 new and 64 replayed rows a step, plain SGD, in processes of their own that take turns. Only the steps of an
epoch are timed: what either does before and after (loaders, memory, batch norm, scores) is left out; so are
metrics and loggers of Avalanche, which gets its rows normalised. Beside the wall clock stands the
processor's: other programs hardly touch it, and with one thread it shows what an idle machine would. Last,
the share of convolutions in a step and the speed of a large matrix product say how far the ratio could go.
Results go to ``results/replay_training.json``.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from equable.files import write_json
from speed.timing import cpu_name

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "results" / "replay_training.json"
ENVIRONMENT = Path(".venv-avalanche")
SIDES = (28, 32)
BATCH, MEMORY, CURRENT, TURNS = 64, 192, 256, 8
GOAL = 1.0
#: Operations that multiply and add: convolutions and products of matrices.
MULTIPLYING = ("mkldnn_convolution", "convolution_backward", "mm", "addmm")


def data(side: int) -> tuple[np.ndarray, np.ndarray]:
    """uint8 images and labels of two tasks of two classes; the second is the one that is timed."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.repeat([0, 1], MEMORY), np.repeat([2, 3], CURRENT // 2)])
    return rng.integers(0, 256, (len(labels), side, side, 3), dtype=np.uint8), labels


class Stopwatch:
    """Seconds since its birth: of the wall, and of the processor for this process."""

    def __init__(self) -> None:
        self.start = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Both clocks."""
        return time.perf_counter() - self.start[0], time.process_time() - self.start[1]


# The contestants: a generator that gives (images, wall seconds, processor seconds) of one epoch at a time


def equable_trainer(side: int) -> Any:
    """A trainer at the second task."""
    from equable.scenarios import make_scenario
    from equable.training import ReplaySettings, SlimResNet18
    from equable.training.images import Images
    from equable.training.networks import build_network
    from equable.training.train_task import TaskTrainer

    images, labels = data(side)
    # A scenario asks for validation and test rows: each class is given one more of both, never trained on.
    extra = np.repeat(np.arange(4), 2)
    images, labels = np.concatenate([images, images[:8]]), np.concatenate([labels, extra])
    split = np.concatenate([np.zeros(len(labels) - 8, dtype=int), np.tile([1, 2], 4)])
    scenario = make_scenario(labels, split, order=range(4), tasks=2)
    network = build_network(SlimResNet18, 4, images.shape[1:], seed=0)
    memory = scenario[0].train[:: len(scenario[0].train) // MEMORY][:MEMORY]
    pictures = Images(images, scenario[0].train)
    trainer = TaskTrainer(network, pictures, scenario, 1, memory, ReplaySettings(batch_size=BATCH), seed=0)
    network.train()
    return trainer


def equable_epochs(side: int) -> Any:
    trainer = equable_trainer(side)
    while True:
        start, batches = Stopwatch(), trainer._batches()
        for rows in batches:
            trainer._step(rows)
        yield sum(map(len, batches)), *start.read()


def avalanche_epochs(side: int) -> Any:
    from speed.avalanche_import import import_avalanche

    import_avalanche()
    import torch
    from avalanche.benchmarks import nc_benchmark
    from avalanche.training import Replay
    from avalanche.training.plugins import EvaluationPlugin, SupervisedPlugin
    from torch import nn
    from torch.utils.data import TensorDataset

    from equable.training import SlimResNet18

    class Logits(SlimResNet18):
        def forward(self, x: Any) -> Any:
            return super().forward(x)[0]

    class Clock(SupervisedPlugin):  # type: ignore[misc]
        images, seconds = 0, (0.0, 0.0)

        def before_training_epoch(self, strategy: Any, **_: Any) -> None:
            self.images, self.start = 0, Stopwatch()

        def after_training_iteration(self, strategy: Any, **_: Any) -> None:
            self.images += len(strategy.mb_x)

        def after_training_epoch(self, strategy: Any, **_: Any) -> None:
            self.seconds = self.start.read()

    images, labels = data(side)
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float().sub(127.5).div(73.9).contiguous()
    rows = TensorDataset(x, torch.from_numpy(labels))
    rows.targets = labels.tolist()  # type: ignore[attr-defined]
    benchmark = nc_benchmark(rows, rows, n_experiences=2, task_labels=False, fixed_class_order=[0, 1, 2, 3])
    model, clock = Logits(4, images.shape[1:]), Clock()
    strategy = Replay(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        criterion=nn.CrossEntropyLoss(),
        mem_size=MEMORY,
        train_mb_size=BATCH,
        train_epochs=1,
        plugins=[clock],
        evaluator=EvaluationPlugin(),
    )
    strategy.train(benchmark.train_stream[0], eval_streams=[])
    while True:
        strategy.train(benchmark.train_stream[1], eval_streams=[])
        yield clock.images, *clock.seconds


CONTESTANTS = {"equable": equable_epochs, "avalanche": avalanche_epochs}
PACKAGES = {"equable": ("equable", "torch", "numpy"), "avalanche": ("avalanche-lib", "torch", "numpy")}


def work(name: str, side: int, threads: int) -> None:
    """Answer each line of the input with one epoch, as JSON; the first answer tells the versions."""
    import warnings

    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a library prints stays out of the answers
    print(json.dumps({package: version(package) for package in PACKAGES[name]}), file=answers, flush=True)
    epochs = CONTESTANTS[name](side)
    for _ in sys.stdin:
        print(json.dumps(next(epochs)), file=answers, flush=True)


# What the processor could do --------------------------------------------------------------------------------


def limit(side: int, threads: int) -> None:
    """Print, as JSON, what bounds a step of equable's.

    Its seconds, those of its convolutions and products of matrices, their floating-point operations, and how
    many of these a second the product of two large matrices reaches; all medians.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile
    from torch.utils.flop_counter import FlopCounterMode

    torch.set_num_threads(threads)
    steps, convolutions, products = [], [], []
    a, b = torch.rand(2, 1024, 1024)
    trainer = equable_trainer(side)
    batches = trainer._batches()
    with FlopCounterMode(display=False) as counter:
        trainer._step(batches[0])
    for rows in batches * 4:
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            clock = Stopwatch()
            trainer._step(rows)
            steps.append(clock.read()[0])
        # of an operation only itself is counted, not what it calls
        parts = {event.key: event.self_cpu_time_total / 1e6 for event in profiler.key_averages()}
        convolutions.append(sum(parts.get(f"aten::{name}", 0.0) for name in MULTIPLYING))
        clock = Stopwatch()
        a @ b
        products.append(2 * 1024**3 / clock.read()[0])
    facts = {"step": steps, "convolutions": convolutions, "products": products}
    found = {name: float(np.median(values)) for name, values in facts.items()}
    print(json.dumps({**found, "operations": counter.get_total_flops()}))


# The referee ------------------------------------------------------------------------------------------------


class Worker:
    """A contestant in its own process and environment."""

    def __init__(self, name: str, python: str, side: int, threads: int) -> None:
        self.process = subprocess.Popen(
            [python, "-m", "speed.replay_training", "work", name, str(side), str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )  # fmt: skip
        self.versions: dict[str, str] = self._answer()

    def epoch(self) -> tuple[int, float, float]:
        """Images, wall seconds and processor seconds of one epoch, after another that is not timed.

        While the other had its turn this process lost its caches and some of its memory; training does not
        stop like that between epochs.
        """
        assert self.process.stdin is not None
        for _ in range(2):
            print("go", file=self.process.stdin, flush=True)
            images, wall, processor = self._answer()
        return images, wall, processor

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a contestant ended with code {self.process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def measure(side: int, threads: int, pythons: dict[str, str]) -> dict[str, Any]:
    """Images per second of each turn; contestants alternate, and who goes first alternates too."""
    workers = {name: Worker(name, python, side, threads) for name, python in pythons.items()}
    try:
        counts = {name: worker.epoch()[0] for name, worker in workers.items()}  # warm-up
        turns: dict[str, list[tuple[int, float, float]]] = {name: [] for name in workers}
        for turn in range(TURNS):
            for name in list(workers)[:: 1 if turn % 2 == 0 else -1]:
                turns[name].append(workers[name].epoch())
    finally:
        for worker in workers.values():
            worker.close()
    rates = {  # images per second, (turns, 2)
        name: np.array([(images / wall, images / processor) for images, wall, processor in found])
        for name, found in turns.items()
    }
    result = {
        "side": side,
        "threads": threads,
        "images_per_turn": counts,
        "versions": {n: w.versions for n, w in workers.items()},
    }
    for column, kind in enumerate(("wall", "processor")):
        result[kind] = {name: rate[:, column].tolist() for name, rate in rates.items()}
        if "avalanche" in rates:
            quotients = rates["equable"][:, column] / rates["avalanche"][:, column]
            result[f"{kind}_ratio"] = np.quantile(quotients, [0.5, 0.25, 0.75]).tolist()
    return result


def limit_of(result: dict[str, Any]) -> dict[str, Any]:
    """What bounds a step, and the ratio if every convolution were as fast as that product."""
    side, threads = str(result["side"]), str(result["threads"])
    command = [sys.executable, "-m", "speed.replay_training", "limit", side, threads]
    environment = {**os.environ, "OMP_NUM_THREADS": threads}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    least = found["step"] - found["convolutions"] + found["operations"] / found["products"]
    if "wall_ratio" in result:
        found["ratio"] = result["wall_ratio"][0] * found["step"] / least
    return found


def peer() -> tuple[str | None, str]:
    """The peer's interpreter, its environment made if need be; or why there is none."""
    done = subprocess.run(
        ["make", f"{ENVIRONMENT}/.test"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    return str(ENVIRONMENT / "bin" / "python"), ""


def main(thread_counts: list[int]) -> dict[str, Any]:
    """Measure, print and store."""
    python, reason = peer()
    pythons = {"equable": sys.executable, **({"avalanche": python} if python else {})}
    if not python:
        print(f"avalanche-lib is missing: {reason}")
    facts: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": cpu_name(),
        "python": platform.python_version(),
        "network": "SlimResNet18, nf = 20",
        "batch": f"{BATCH} new + {BATCH} replayed",
        "goal": GOAL,
        "missing": {} if python else {"avalanche-lib": reason},
        "results": [],
    }
    for side, threads in itertools.product(SIDES, thread_counts):
        result = measure(side, threads, pythons)
        for kind in ("wall", "processor"):
            middle = {name: round(float(np.median(rates))) for name, rates in result[kind].items()}
            ratio = result.get(f"{kind}_ratio")
            print(f"{side} × {side}, {threads} threads, {kind} clock: {middle}, ratio {ratio}", flush=True)
        facts["results"].append(result)
        write_json(RESULT, facts)  # at once: a run that is cut short leaves what it has measured
        result["limit"] = limit_of(result)
        print(f"limit: {result['limit']}", flush=True)
        write_json(RESULT, facts)
    return facts


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1:2] == ["limit"]:
        limit(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main([int(argument) for argument in sys.argv[1:]] or [1, 2])
