"""Train all tasks of a scenario, with a folder for each task.

``task-<t>/`` holds ``model.safetensors`` (weights after the task, normalisation in its facts),
``memory.npz`` (rows of the replay memory and of the calibration buffer), ``validation.npz``, ``test.npz``
and ``perturbed.npz`` (Outputs), and ``done.json``, written last, with the SHA-256 of all others.
``epoch.safetensors`` exists while a task is being trained. A missing or damaged file is made again with the
same bytes, without training if the weights are intact. To train a task again, delete its folder and all later
ones.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
from equable.training.networks import NetworkFactory, build_network, require_device, require_outputs
from equable.training.settings import TrainingSettings
from equable.training.tcil import PerturbedMemory, perturb_memory
from equable.training.train_task import train_task

MODEL = "model.safetensors"
DONE = "done.json"
#: The files of a task besides ``done.json``, in the order they are made.
FILES = (MODEL, "memory.npz", "test.npz", "validation.npz", "perturbed.npz")
#: Settings that change the last bits only: a run may continue on another machine.
MAY_CHANGE = ("device", "threads")
#: Settings that older runs do not have; with these values they do not enter the stamp.
ADDED_LATER = {"learner": "er"}


@dataclass
class Run:
    """The state of a run between two tasks."""

    images: Images
    scenario: Scenario
    network: nn.Module
    settings: TrainingSettings
    seed: int
    stamp: str
    replay_memory: ReplayMemory
    calibration_buffer: CalibrationBuffer


def train_scenario(
    dataset: Any,
    scenario: Scenario,
    network: NetworkFactory,
    settings: TrainingSettings,
    *,
    seed: int,
    folder: str | os.PathLike[str],
    progress: bool | None = None,
) -> list[dict[str, Any]]:
    """Train every task in turn and store its outputs; finished tasks are not trained again.

    Parameters
    ----------
    dataset
        Has (N, H, W, C) uint8 ``images`` in the row order of the scenario, like `ImageDataset`.
    network
        Called as ``network(n_classes, (height, width, channels))``, for instance
        ``functools.partial(SlimResNet18, nf=20)``; see `equable.training.networks` for own networks.
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
        run = _start(dataset.images, scenario, network, settings, seed)
        folders = [Path(folder) / f"task-{index}" for index in range(len(scenario))]
        return [_do_task(run, index, path, progress) for index, path in enumerate(folders)]


def _start(
    pixels: np.ndarray, scenario: Scenario, network: NetworkFactory, settings: TrainingSettings, seed: int
) -> Run:
    if len(pixels) != len(scenario.labels):
        raise ConfigError(
            f"scenario must be of this dataset: {len(scenario.labels)} labels, {len(pixels)} images"
        )
    images = Images(pixels, scenario[0].train, settings.device)
    _, height, width, channels = map(int, pixels.shape)
    shape = (height, width, channels)
    built = build_network(network, scenario.n_classes, shape, seed=seed, device=settings.device)
    stamp = _stamp(pixels, scenario, built, settings, seed)
    rows = torch.from_numpy(scenario[0].train[: settings.batch_size])
    require_outputs(built, images.batch(rows), scenario.n_classes)
    memory = ReplayMemory(settings.memory_size)
    buffer = CalibrationBuffer(settings.calibration_percent)
    return Run(images, scenario, built, settings, seed, stamp, memory, buffer)


def _stamp(
    pixels: np.ndarray, scenario: Scenario, network: nn.Module, settings: TrainingSettings, seed: int
) -> str:
    """SHA-256 of everything that determines the result, except what may change."""
    facts = {
        name: value
        for name, value in settings.model_dump().items()
        if name not in MAY_CHANGE and ADDED_LATER.get(name) != value
    }
    shapes = [(name, tuple(value.shape)) for name, value in network.state_dict().items()]
    inputs = hashlib.sha256(repr((scenario.hash, sorted(facts.items()), seed, shapes, pixels.shape)).encode())
    inputs.update(np.ascontiguousarray(pixels).data)
    kinds = [(name, type(module).__qualname__) for name, module in network.named_modules()]
    digest = hashlib.sha256(repr((inputs.hexdigest(), kinds)).encode())
    digest.update(np.ascontiguousarray(scenario.labels, dtype=np.int64).data)
    return digest.hexdigest()


def _do_task(run: Run, index: int, folder: Path, progress: bool | None) -> dict[str, Any]:
    """Train or load one task, and make every file that is missing or damaged."""
    facts = _read_done(run, folder)
    missing = [name for name in FILES if not _is_intact(folder / name, facts)]
    trained = None if missing and missing[0] == MODEL else _load_model(run, folder)
    if trained is None:
        trained = _train(run, index, folder, progress)
        missing = list(dict.fromkeys([MODEL, *missing]))
    _update_memories(run, index)
    if facts is None or missing:
        made = _write_files(run, index, folder, missing if facts else FILES, trained)
        files = {name: sha256_of(folder / name) for name in FILES}
        if facts is None or facts.get("files") != files:
            write_sealed(folder / DONE, made | (facts or {}) | {"files": files})
    (folder / "epoch.safetensors").unlink(missing_ok=True)
    written: dict[str, Any] = read_sealed(folder / DONE)  # with the types of a resumed run
    return written


def _read_done(run: Run, folder: Path) -> dict[str, Any] | None:
    """The facts of a finished task; None where they are missing or damaged."""
    with suppress(FileNotFoundError, FileFormatError):
        facts = read_sealed(folder / DONE)
        if isinstance(facts, dict):
            _require_stamp(run, folder, facts)
            return facts
    return None


def _require_stamp(run: Run, folder: Path, facts: Mapping[str, Any]) -> None:
    if facts.get("stamp") != run.stamp:
        raise ConfigError(
            f"{folder} must come from this experiment; it was made with other {_differences(run, facts)}. "
            "Give the same, or another folder"
        )


def _differences(run: Run, facts: Mapping[str, Any]) -> str:
    """The differences between a folder's stored facts and this run."""
    stored = facts.get("settings")
    now = {"seed": run.seed, **run.settings.model_dump()}
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
    """Whether a file exists and has the SHA-256 of ``done.json``, if there is one."""
    if not path.is_file():
        return False
    known = (facts or {}).get("files", {}).get(path.name)
    return known is None or known == sha256_of(path)


def _load_model(run: Run, folder: Path) -> dict[str, Any] | None:
    """Load the task's weights into the network; the facts of their training, None if they are damaged."""
    try:
        weights, facts = load_tensors(folder / MODEL)
    except FileFormatError:
        return None
    _require_stamp(run, folder, facts)
    load_weights(run.network, weights, folder / MODEL)
    return dict(facts.get("training", {}))


def _train(run: Run, index: int, folder: Path, progress: bool | None) -> dict[str, Any]:
    """Train the task and return its history."""
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


def _update_memories(run: Run, index: int) -> None:
    """Both memories after the task; they depend on seed and scenario only."""
    task = run.scenario[index]
    labels = run.scenario.labels
    run.replay_memory = run.replay_memory.update(task.train, labels[task.train], seed=run.seed)
    run.calibration_buffer = run.calibration_buffer.extend(
        task.validation, labels[task.validation], seed=run.seed
    )


def _write_files(
    run: Run, index: int, folder: Path, names: Sequence[str], trained: dict[str, Any]
) -> dict[str, Any]:
    """Make these files; return the facts of the task and of the files."""
    facts = {
        "stamp": run.stamp,
        "scenario_hash": run.scenario.hash,
        "seed": run.seed,
        "task": index,
        "n_seen": run.scenario.n_seen(index),
        "settings": run.settings.model_dump(),
        **trained,
    }
    if MODEL in names:
        statistics = {"mean": run.images.mean.tolist(), "std": run.images.std.tolist()}
        # Without times, so that equal weights give equal bytes.
        model_facts = {"stamp": run.stamp, "training": _without_times(trained), **statistics}
        save_tensors(folder / MODEL, run.network.state_dict(), model_facts)
    if "memory.npz" in names:
        rows = {"replay_memory": run.replay_memory.rows, "calibration_buffer": run.calibration_buffer.rows}
        write_npz(folder / "memory.npz", rows)
    if "test.npz" in names:
        test, times = collect_tests(run.network, run.images, run.scenario, index)
        test.save(folder / "test.npz")
        facts |= _per_task(test, index + 1) | {"test": times}
    if "validation.npz" in names or "perturbed.npz" in names:
        facts |= _write_validation(run, index, folder, names)
    forward = {name: facts.pop(name) for name in ("validation", "test") if name in facts}
    return {**facts, "forward": forward}


def _write_validation(run: Run, index: int, folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """The validation sets, and the perturbed memory, which needs them."""
    validation, times = collect_validation(
        run.network, run.images, run.scenario, index, run.calibration_buffer
    )
    facts: dict[str, Any] = {"validation": times}
    if "validation.npz" in names:
        validation.save(folder / "validation.npz")
    if "perturbed.npz" in names:
        start = time.perf_counter()
        current = validation.outputs[validation.outputs.tasks == index]
        perturbed = _perturb(run, index, current)
        found = {name: value for name, value in vars(perturbed).items() if name != "outputs"}
        facts["tcil"] = {**found, "seconds": time.perf_counter() - start}
        perturbed.outputs.save(folder / "perturbed.npz")
    return facts


def _perturb(run: Run, index: int, current: Outputs) -> PerturbedMemory:
    rows = run.replay_memory.rows
    x = run.images.batch(torch.from_numpy(rows))
    labels = run.scenario.labels[rows]
    tasks = run.scenario.tasks_of(rows)
    return perturb_memory(run.network, x, labels, current, run.scenario[index].classes, tasks)


def _per_task(test: Outputs, n_tasks: int) -> dict[str, list[float]]:
    """Accuracy and mean confidence on each task's test set."""
    assert test.labels is not None
    logits = test.logits.astype(np.float64)
    confidence = 1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
    hit = logits.argmax(axis=1) == test.labels
    inside = [test.tasks == task for task in range(n_tasks)]
    return {
        "accuracy": [float(hit[rows].mean()) for rows in inside],
        "confidence": [float(confidence[rows].mean()) for rows in inside],
    }


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(part) for name, part in value.items() if "second" not in name}
    return [_without_times(part) for part in value] if isinstance(value, list) else value


@contextmanager
def _torch_setup(settings: TrainingSettings) -> Iterator[None]:
    """Set threads and deterministic kernels, and restore them afterwards."""
    threads = torch.get_num_threads()
    cudnn = torch.backends.cudnn
    before = (cudnn.deterministic, cudnn.benchmark)
    try:
        if settings.threads:
            torch.set_num_threads(settings.threads)
        cudnn.deterministic, cudnn.benchmark = True, False
        yield
    finally:
        torch.set_num_threads(threads)
        cudnn.deterministic, cudnn.benchmark = before
