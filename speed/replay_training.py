"""Replay training in images per second, compared with the Replay strategy of Avalanche.

    python -m speed.replay_training [threads …]

Both train SlimResNet18 (nf = 20) of equable on the same images, 28 × 28 and 32 × 32 pixels,
with 64 new and 64 replayed rows per step and plain SGD, in subprocesses that alternate. Only the steps of an
epoch are timed, without loaders, memory update, batch norm and scores, and without metrics and loggers of
Avalanche, whose rows are normalised in advance. CPU seconds are reported in addition to wall seconds, because
other programs affect them less. The share of convolutions in a step and the speed of a large matrix product
give an upper limit for the ratio. Results are written to ``results/replay_training.json``.
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
BATCH = 64
MEMORY = 192
CURRENT = 256
TURNS = 8
GOAL = 1.0
#: Operations counted as convolutions and matrix products.
MULTIPLYING = ("mkldnn_convolution", "convolution_backward", "mm", "addmm")


def data(side: int) -> tuple[np.ndarray, np.ndarray]:
    """uint8 images and labels of two tasks with two classes each; the second task is timed."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.repeat([0, 1], MEMORY), np.repeat([2, 3], CURRENT // 2)])
    return rng.integers(0, 256, (len(labels), side, side, 3), dtype=np.uint8), labels


class Stopwatch:
    """Wall seconds and CPU seconds of this process since its creation."""

    def __init__(self) -> None:
        self.start = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Both clocks."""
        return time.perf_counter() - self.start[0], time.process_time() - self.start[1]


# Contestants: generators of (images, wall seconds, CPU seconds) of one epoch


def equable_trainer(side: int) -> Any:
    """A trainer at the second task."""
    from equable.scenarios import make_scenario
    from equable.training import ReplaySettings, SlimResNet18
    from equable.training.images import Images
    from equable.training.networks import build_network
    from equable.training.train_task import TaskTrainer

    images, labels = data(side)
    # A scenario needs validation and test rows: each class has one more of both, not used for training.
    extra = np.repeat(np.arange(4), 2)
    images = np.concatenate([images, images[:8]])
    labels = np.concatenate([labels, extra])
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
        start = Stopwatch()
        batches = trainer.epoch_batches()
        for rows in batches:
            trainer.training_step(rows)
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
        images = 0
        seconds = (0.0, 0.0)

        def before_training_epoch(self, strategy: Any, **_: Any) -> None:
            self.images = 0
            self.start = Stopwatch()

        def after_training_iteration(self, strategy: Any, **_: Any) -> None:
            self.images += len(strategy.mb_x)

        def after_training_epoch(self, strategy: Any, **_: Any) -> None:
            self.seconds = self.start.read()

    images, labels = data(side)
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float().sub(127.5).div(73.9).contiguous()
    rows = TensorDataset(x, torch.from_numpy(labels))
    rows.targets = labels.tolist()  # type: ignore[attr-defined]
    benchmark = nc_benchmark(rows, rows, n_experiences=2, task_labels=False, fixed_class_order=[0, 1, 2, 3])
    model = Logits(4, images.shape[1:])
    clock = Clock()
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
    """Answer each input line with one epoch as JSON; the first answer contains the versions."""
    import warnings

    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    answers = sys.stdout
    sys.stdout = sys.stderr  # output of libraries must not mix with the answers
    print(json.dumps({package: version(package) for package in PACKAGES[name]}), file=answers, flush=True)
    epochs = CONTESTANTS[name](side)
    for _ in sys.stdin:
        print(json.dumps(next(epochs)), file=answers, flush=True)


# Upper limit --------------------------------------------------------------------------------


def limit(side: int, threads: int) -> None:
    """Print the limits of a step of equable as JSON, all medians.

    Seconds of the step and of its convolutions and matrix products, their floating-point operations, and the
    operations per second of the product of two large matrices.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile
    from torch.utils.flop_counter import FlopCounterMode

    torch.set_num_threads(threads)
    steps = []
    convolutions = []
    products = []
    a, b = torch.rand(2, 1024, 1024)
    trainer = equable_trainer(side)
    batches = trainer.epoch_batches()
    with FlopCounterMode(display=False) as counter:
        trainer.training_step(batches[0])
    for rows in batches * 4:
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            clock = Stopwatch()
            trainer.training_step(rows)
            steps.append(clock.read()[0])
        # without the operations that an operation calls
        parts = {event.key: event.self_cpu_time_total / 1e6 for event in profiler.key_averages()}
        convolutions.append(sum(parts.get(f"aten::{name}", 0.0) for name in MULTIPLYING))
        clock = Stopwatch()
        a @ b
        products.append(2 * 1024**3 / clock.read()[0])
    facts = {"step": steps, "convolutions": convolutions, "products": products}
    found = {name: float(np.median(values)) for name, values in facts.items()}
    print(json.dumps({**found, "operations": counter.get_total_flops()}))


# Comparison ------------------------------------------------------------------------------------------------


class Worker:
    """A contestant in a subprocess with its own environment."""

    def __init__(self, name: str, python: str, side: int, threads: int) -> None:
        self.process = subprocess.Popen(
            [python, "-m", "speed.replay_training", "work", name, str(side), str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )  # fmt: skip
        self.versions: dict[str, str] = self._answer()

    def epoch(self) -> tuple[int, float, float]:
        """Images, wall seconds and CPU seconds of one epoch, after one epoch that is not timed.

        The other contestant evicts the caches; the first epoch fills them again.
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
            raise RuntimeError(f"a contestant exited with code {self.process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def measure(side: int, threads: int, pythons: dict[str, str]) -> dict[str, Any]:
    """Images per second of each turn; the contestants alternate in alternating order."""
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
    """Limits of a step, and the ratio if every convolution were as fast as the matrix product."""
    side = str(result["side"])
    threads = str(result["threads"])
    command = [sys.executable, "-m", "speed.replay_training", "limit", side, threads]
    environment = {**os.environ, "OMP_NUM_THREADS": threads}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    least = found["step"] - found["convolutions"] + found["operations"] / found["products"]
    if "wall_ratio" in result:
        found["ratio"] = result["wall_ratio"][0] * found["step"] / least
    return found


def peer() -> tuple[str | None, str]:
    """The interpreter of the peer, created if necessary; or None and the reason."""
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
        write_json(RESULT, facts)  # after each result, so that an interrupted run keeps its measurements
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
