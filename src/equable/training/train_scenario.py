"""All tasks of a scenario, one folder each: everything calibration needs, and nothing done twice.

``task-<t>/`` holds ``model.safetensors`` (weights after the task, normalisation in its facts),
``memory.npz`` (rows of the replay memory and of the calibration buffer), ``validation.npz``, ``test.npz``
and ``perturbed.npz`` (Outputs), and ``done.json``, written last, with the SHA-256 of all others.
``epoch.safetensors`` exists while a task is being trained. A file that is missing or damaged is made again,
to the same bytes, without training where the weights are there. Delete a task's folder and all later ones
to train them again.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from equable.errors import ConfigError, FileFormatError
from equable.files import read_sealed, sha256_of, write_npz, write_sealed
from equable.outputs import Outputs
from equable.scenarios.memories import CalibrationBuffer, ReplayMemory
from equable.scenarios.tasks import Scenario
from equable.training.checkpoint import load_tensors, load_weights, save_tensors
from equable.training.collect import collect_tests, collect_validation
from equable.training.images import Images
from equable.training.networks import NetworkFactory, build_network, require_outputs
from equable.training.settings import ReplaySettings, require_device
from equable.training.tcil import PerturbedMemory, perturb_memory
from equable.training.train_task import train_task

MODEL, DONE = "model.safetensors", "done.json"
#: What a task leaves besides ``done.json``, in the order it is made.
FILES = (MODEL, "memory.npz", "test.npz", "validation.npz", "perturbed.npz")
#: Settings that decide nothing but the last bits: a run may move house.
MAY_CHANGE = ("device", "threads")


class Dataset(Protocol):
    """Anything with (N, H, W, C) uint8 images, such as `equable.datasets.ImageDataset`."""

    @property
    def images(self) -> np.ndarray:
        """The images, in the row order of the scenario."""


@dataclass
class Run:
    """A run between two tasks: the network and the memories it carries on."""

    images: Images
    scenario: Scenario
    network: nn.Module
    settings: ReplaySettings
    seed: int
    stamp: str
    replay_memory: ReplayMemory
    calibration_buffer: CalibrationBuffer


def train_scenario(
    dataset: Dataset,
    scenario: Scenario,
    network: NetworkFactory,
    settings: ReplaySettings,
    *,
    seed: int,
    folder: str | os.PathLike[str],
    progress: bool | None = None,
) -> list[dict[str, Any]]:
    """Train every task in turn and store its outputs; finished tasks are read, not trained again.

    Parameters
    ----------
    dataset
        Holds the images of the rows the scenario speaks of.
    network
        Called as ``network(n_classes, (height, width, channels))``, for instance
        ``functools.partial(SlimResNet18, nf=20)``; see `equable.training.networks` for one's own.
    seed
        Decides initial weights, batches, augmentation, replay memory and calibration buffer.
    folder
        Where the ``task-<t>`` folders go.
    progress
        None shows a bar on a terminal, True always, False never.

    Returns
    -------
    list of dict
        The contents of each task's ``done.json``.

    Examples
    --------
    >>> import tempfile
    >>> from functools import partial
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> from equable.scenarios import make_scenario
    >>> from equable.training import ReplaySettings, SlimResNet18, train_scenario
    >>> labels = np.repeat(np.arange(4), 20)
    >>> images = np.random.default_rng(0).integers(0, 256, (80, 8, 8, 1), dtype=np.uint8)
    >>> settings = ReplaySettings(batch_size=16, max_epochs=1, memory_size=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = train_scenario(SimpleNamespace(images=images), make_scenario(labels, tasks=2),
    ...                           partial(SlimResNet18, nf=2), settings, seed=0, folder=folder)
    >>> [task["n_seen"] for task in done]
    [2, 4]
    """
    require_device(settings.device)
    with _torch_setup(settings):
        run = _start(dataset, scenario, network, settings, seed)
        return [
            _do_task(run, index, Path(folder) / f"task-{index}", progress) for index in range(len(scenario))
        ]


def _start(
    dataset: Dataset, scenario: Scenario, network: NetworkFactory, settings: ReplaySettings, seed: int
) -> Run:
    pixels = dataset.images
    if len(pixels) != len(scenario.labels):
        raise ConfigError(
            f"scenario must be of this dataset: {len(scenario.labels)} labels, {len(pixels)} images"
        )
    images = Images(pixels, scenario[0].train, settings.device)
    shape = (int(pixels.shape[1]), int(pixels.shape[2]), int(pixels.shape[3]))
    built = build_network(network, scenario.n_classes, shape, seed=seed, device=settings.device)
    stamp = _stamp(pixels, scenario, built, settings, seed)
    rows = torch.from_numpy(scenario[0].train[: settings.batch_size])
    require_outputs(built, images.batch(rows), scenario.n_classes)
    memory, buffer = ReplayMemory(settings.memory_size), CalibrationBuffer(settings.calibration_percent)
    return Run(images, scenario, built, settings, seed, stamp, memory, buffer)


def _stamp(
    pixels: np.ndarray, scenario: Scenario, network: nn.Module, settings: ReplaySettings, seed: int
) -> str:
    """SHA-256 of all that decides the result, except what may change."""
    facts = {name: value for name, value in asdict(settings).items() if name not in MAY_CHANGE}
    shapes = [(name, tuple(value.shape)) for name, value in network.state_dict().items()]
    inputs = hashlib.sha256(repr((scenario.hash, sorted(facts.items()), seed, shapes, pixels.shape)).encode())
    inputs.update(np.ascontiguousarray(pixels).data)
    kinds = [(name, type(module).__qualname__) for name, module in network.named_modules()]
    digest = hashlib.sha256(repr((inputs.hexdigest(), kinds)).encode())
    digest.update(np.ascontiguousarray(scenario.labels, dtype=np.int64).data)
    return digest.hexdigest()


def _do_task(run: Run, index: int, folder: Path, progress: bool | None) -> dict[str, Any]:
    """Bring the run past this task: train it or load it, and make every file that is missing or damaged."""
    facts = _read_done(run, folder)
    missing = [name for name in FILES if not _is_intact(folder / name, facts)]
    trained = None if missing and missing[0] == MODEL else _load_model(run, folder)
    if trained is None:
        trained = _train(run, index, folder, progress)
        missing = list(dict.fromkeys([MODEL, *missing]))
    _remember(run, index)
    if facts is None or missing:
        made = _write_files(run, index, folder, missing if facts else FILES, trained)
        files = {name: sha256_of(folder / name) for name in FILES}
        if facts is None or facts.get("files") != files:
            write_sealed(folder / DONE, made | (facts or {}) | {"files": files})
    (folder / "epoch.safetensors").unlink(missing_ok=True)
    written: dict[str, Any] = read_sealed(folder / DONE)  # the same types as when it is read on resumption
    return written


def _read_done(run: Run, folder: Path) -> dict[str, Any] | None:
    """The facts of a finished task; None where they are missing or damaged."""
    try:
        facts = read_sealed(folder / DONE) if (folder / DONE).exists() else None
    except FileFormatError:
        return None
    if not isinstance(facts, dict):
        return None
    _require_stamp(run, folder, facts)
    return facts


def _require_stamp(run: Run, folder: Path, facts: Mapping[str, Any]) -> None:
    if facts.get("stamp") != run.stamp:
        raise ConfigError(
            f"{folder} must come from this experiment; it was made with other {_other(run, facts)}. "
            "Give the same, or another folder"
        )


def _other(run: Run, facts: Mapping[str, Any]) -> str:
    """What a folder's facts say differs from this run, as far as they tell."""
    stored, now = facts.get("settings"), {"seed": run.seed, **asdict(run.settings)}
    known = {"seed": facts.get("seed", run.seed), **(stored if isinstance(stored, dict) else {})}
    changed = [
        f"{name}: {known[name]!r} → {value!r}"
        for name, value in now.items()
        if name not in MAY_CHANGE and known.get(name, value) != value
    ]
    same_rows = facts.get("scenario_hash", run.scenario.hash) == run.scenario.hash
    parts = [] if same_rows else ["class order or splits"]
    parts += [f"settings: {'; '.join(changed)} (stored → given)"] if changed else []
    return " and ".join(parts) or ("data or network" if stored else "data, network or settings")


def _is_intact(path: Path, facts: dict[str, Any] | None) -> bool:
    """Whether a file is there and, as far as ``done.json`` knows, as it was written."""
    if not path.is_file():
        return False
    known = (facts or {}).get("files", {}).get(path.name)
    return known is None or known == sha256_of(path)


def _load_model(run: Run, folder: Path) -> dict[str, Any] | None:
    """Put the task's weights into the network; what is known of their training, None if they are damaged."""
    try:
        weights, facts = load_tensors(folder / MODEL)
    except FileFormatError:
        return None
    _require_stamp(run, folder, facts)
    load_weights(run.network, weights, folder / MODEL)
    trained: dict[str, Any] = facts.get("training", {})
    return trained


def _train(run: Run, index: int, folder: Path, progress: bool | None) -> dict[str, Any]:
    """Train the task; its history, with times."""
    start = time.perf_counter()
    trained = train_task(
        run.network,
        run.images,
        run.scenario,
        index,
        run.replay_memory.rows,
        run.settings,
        seed=run.seed,
        checkpoint=folder / "epoch.safetensors",
        stamp=run.stamp,
        progress=progress,
    )
    return {
        "training_seconds": time.perf_counter() - start,
        "images_per_second": float(np.median([epoch.images_per_second for epoch in trained.epochs])),
        "best_epoch": trained.best_epoch,
        "epochs": [asdict(epoch) for epoch in trained.epochs],
    }


def _remember(run: Run, index: int) -> None:
    """Both memories as they are after the task; they follow from seed and scenario alone."""
    task, labels = run.scenario[index], run.scenario.labels
    run.replay_memory = run.replay_memory.update(task.train, labels[task.train], seed=run.seed)
    run.calibration_buffer = run.calibration_buffer.extend(
        task.validation, labels[task.validation], seed=run.seed
    )


def _write_files(
    run: Run, index: int, folder: Path, names: Sequence[str], trained: dict[str, Any]
) -> dict[str, Any]:
    """Make these files; return all that is known of the task and of the files made."""
    facts = _task_facts(run, index) | trained
    if MODEL in names:
        statistics = {"mean": run.images.mean.tolist(), "std": run.images.std.tolist()}
        # Without times, so that the same weights make the same bytes.
        about = {"stamp": run.stamp, "training": _timeless(trained), **statistics}
        save_tensors(folder / MODEL, run.network.state_dict(), about)
    if "memory.npz" in names:
        rows = {"replay_memory": run.replay_memory.rows, "calibration_buffer": run.calibration_buffer.rows}
        write_npz(folder / "memory.npz", rows)
    if "test.npz" in names:
        facts |= _write_test(run, index, folder)
    if "validation.npz" in names or "perturbed.npz" in names:
        facts |= _write_validation(run, index, folder, names)
    forward = {name: facts.pop(name) for name in ("validation", "test") if name in facts}
    return {**facts, "forward": forward}


def _write_test(run: Run, index: int, folder: Path) -> dict[str, Any]:
    test, times = collect_tests(run.network, run.images, run.scenario, index)
    test.save(folder / "test.npz")
    return {**_per_task(test, index + 1), "test": {name: asdict(timed) for name, timed in times.items()}}


def _write_validation(run: Run, index: int, folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """The validation sets, and the perturbed memory, which is made with their help."""
    network, buffer = run.network, run.calibration_buffer
    validation, times = collect_validation(network, run.images, run.scenario, index, buffer)
    facts: dict[str, Any] = {"validation": {name: asdict(timed) for name, timed in times.items()}}
    if "validation.npz" in names:
        validation.save(folder / "validation.npz")
    if "perturbed.npz" in names:
        perturbed, seconds = _perturb(run, index, validation.outputs)
        perturbed.outputs.save(folder / "perturbed.npz")
        about = {field.name: getattr(perturbed, field.name) for field in fields(perturbed)}
        facts["tcil"] = {name: value for name, value in about.items() if name != "outputs"}
        facts["tcil"]["seconds"] = seconds
    return facts


def _perturb(run: Run, index: int, validation: Outputs) -> tuple[PerturbedMemory, float]:
    start = time.perf_counter()
    assert validation.tasks is not None
    rows = run.replay_memory.rows
    perturbed = perturb_memory(
        run.network,
        run.images.batch(torch.from_numpy(rows)),
        run.scenario.labels[rows],
        validation[validation.tasks == index],
        run.scenario[index].classes,
        run.scenario.tasks_of(rows),
    )
    return perturbed, time.perf_counter() - start


def _per_task(test: Outputs, n_tasks: int) -> dict[str, list[float]]:
    """Accuracy and mean confidence on each task's test set."""
    assert test.labels is not None
    logits = test.logits.astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    confidence = 1 / np.exp(shifted).sum(axis=1)
    hit = logits.argmax(axis=1) == test.labels
    inside = [test.tasks == task for task in range(n_tasks)]
    return {
        "accuracy": [float(hit[rows].mean()) for rows in inside],
        "confidence": [float(confidence[rows].mean()) for rows in inside],
    }


def _task_facts(run: Run, index: int) -> dict[str, Any]:
    return {
        "stamp": run.stamp,
        "scenario_hash": run.scenario.hash,
        "seed": run.seed,
        "task": index,
        "n_seen": run.scenario.n_seen(index),
        "settings": asdict(run.settings),
    }


def _timeless(value: Any) -> Any:
    """The value without its times."""
    if isinstance(value, dict):
        return {name: _timeless(part) for name, part in value.items() if "second" not in name}
    return [_timeless(part) for part in value] if isinstance(value, list) else value


@contextmanager
def _torch_setup(settings: ReplaySettings) -> Iterator[None]:
    """Threads and deterministic kernels for the length of a run."""
    threads, cudnn = torch.get_num_threads(), torch.backends.cudnn
    before = (cudnn.deterministic, cudnn.benchmark)
    try:
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        cudnn.deterministic, cudnn.benchmark = True, False
        yield
    finally:
        torch.set_num_threads(threads)
        cudnn.deterministic, cudnn.benchmark = before
