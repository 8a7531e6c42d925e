"""Train all tasks of a scenario, with a folder for each task.

``task-<t>/`` holds ``model.safetensors`` (weights after the task, normalisation in its facts),
``memory.npz`` (rows of the replay memory and of the calibration buffer, and logits of the replay memory if
the learner stores them), ``validation.npz``, ``test.npz`` and ``perturbed.npz`` (Outputs), after the last
task ``unknown.npz`` if the data have rows of no known class, and ``done.json``, written last, with the
SHA-256 of all others.
``epoch.safetensors`` exists while a task is being trained. A missing or damaged file is made again with the
same bytes, without training if the weights are intact. To train a task again, delete its folder and all later
ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equable.errors import ConfigError, FileFormatError
from equable.files import StrPath, read_npz, read_sealed, sha256_of, write_sealed
from equable.scenarios.memories import CalibrationBuffer, ReplayMemory
from equable.scenarios.tasks import Scenario
from equable.training.checkpoint import load_tensors, load_weights
from equable.training.exemplars import stored_logits
from equable.training.experiment_stamp import make_stamp, require_stamp
from equable.training.images import Images
from equable.training.learners import load_learner
from equable.training.networks import NetworkFactory, build_network, require_device, require_outputs
from equable.training.settings import TrainingSettings
from equable.training.task_files import MEMORY, MODEL, Run, write_files
from equable.training.train_task import TaskTrainer
from equable.training.vectors import Vectors

DONE = "done.json"


def train_scenario(
    dataset: Any,
    scenario: Scenario,
    network: NetworkFactory,
    settings: TrainingSettings,
    *,
    seed: int,
    folder: StrPath,
    progress: bool | None = None,
) -> list[dict[str, Any]]:
    """Train every task in turn and store its outputs; finished tasks are not trained again.

    Parameters
    ----------
    dataset
        Has (N, H, W, C) uint8 ``images`` in the row order of the scenario, like `ImageDataset`, or (N, D)
        float32 ``vectors``, like `VectorDataset`.
    network
        Called as ``network(n_classes, (height, width, channels))``, or ``network(n_classes, (length,))`` for
        vectors, for instance ``functools.partial(SlimResNet18, nf=20)``; see `equable.training.networks` for
        own networks.
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
        run = _prepare_run(dataset, scenario, network, settings, seed)
        folders = [Path(folder) / f"task-{index}" for index in range(len(scenario))]
        return [_complete_task(run, index, path, progress) for index, path in enumerate(folders)]


def _prepare_run(
    dataset: Any, scenario: Scenario, network: NetworkFactory, settings: TrainingSettings, seed: int
) -> Run:
    is_vectors = hasattr(dataset, "vectors")
    rows: np.ndarray = dataset.vectors if is_vectors else dataset.images
    unknown = getattr(dataset, "unknown", None)
    if len(rows) != len(scenario.labels):
        kind = "vectors" if is_vectors else "images"
        raise ConfigError(
            f"scenario must be of this dataset: {len(scenario.labels)} labels, {len(rows)} {kind}"
        )
    inputs = (Vectors if is_vectors else Images)(rows, scenario[0].train, settings.device)
    shape = tuple(int(length) for length in rows.shape[1:])
    build = partial(build_network, network, scenario.n_classes, shape, seed=seed, device=settings.device)
    few = torch.from_numpy(scenario[0].train[: settings.batch_size])
    require_outputs(build(), inputs.batch(few), scenario.n_classes)
    built = build()
    memory = ReplayMemory(settings.memory_size)
    buffer = CalibrationBuffer(settings.calibration_percent)
    run = Run(inputs, unknown, scenario, built, settings, seed, memory, buffer)
    run.stamp = make_stamp(run, rows)
    return run


def _complete_task(run: Run, index: int, folder: Path, progress: bool | None) -> dict[str, Any]:
    """Train or load one task, and make every file that is missing or damaged."""
    facts = _read_done(run, folder)
    files = run.files(index)
    missing = [name for name in files if not _is_intact(folder / name, facts)]
    trained = None if facts and MODEL in missing else _load_model(run, folder)
    if trained is None:
        trained = _train(run, index, folder, progress)
    _update_memories(run, index, None if MEMORY in missing else folder / MEMORY)
    if missing:
        made = write_files(run, index, folder, missing, trained)
        digests = {name: sha256_of(folder / name) for name in files}
        if facts is None or facts["files"] != digests:
            write_sealed(folder / DONE, made | (facts or {}) | {"files": digests})
    (folder / "epoch.safetensors").unlink(missing_ok=True)
    written: dict[str, Any] = read_sealed(folder / DONE)  # with the types of a resumed run
    return written


def _read_done(run: Run, folder: Path) -> dict[str, Any] | None:
    """The facts of a finished task; None where they are missing or damaged."""
    with suppress(FileNotFoundError, FileFormatError):
        facts = read_sealed(folder / DONE)
        if isinstance(facts, dict):
            require_stamp(run, folder, facts)
            return facts
    return None


def _is_intact(path: Path, facts: dict[str, Any] | None) -> bool:
    """Whether a file has the SHA-256 of ``done.json``."""
    return facts is not None and path.is_file() and facts["files"].get(path.name) == sha256_of(path)


def _load_model(run: Run, folder: Path) -> dict[str, Any] | None:
    """Load the task's weights and return the facts of their training; None if missing or damaged."""
    if not (folder / MODEL).is_file():
        return None
    try:
        weights, facts = load_tensors(folder / MODEL)
    except FileFormatError:
        return None
    require_stamp(run, folder, facts)
    load_weights(run.network, weights, folder / MODEL)
    return dict(facts.get("training", {}))


def _train(run: Run, index: int, folder: Path, progress: bool | None) -> dict[str, Any]:
    """Train the task and return its history."""
    start = time.perf_counter()
    memory = run.replay_memory.rows
    trainer = TaskTrainer(
        run.network, run.inputs, run.scenario, index, memory, run.settings, run.seed, run.memory_logits
    )
    trained = trainer.train(folder / "epoch.safetensors", run.stamp, progress)
    return {
        "training_seconds": time.perf_counter() - start,
        "best_epoch": trained.best_epoch,
        "epochs": [asdict(epoch) for epoch in trained.epochs],
    }


def _update_memories(run: Run, index: int, stored: Path | None) -> None:
    """Both memories after the task; their rows depend on seed and scenario only.

    Logits of the replay memory are read from `stored`, the task's intact ``memory.npz``, or computed.
    """
    task = run.scenario[index]
    labels = run.scenario.labels
    earlier = run.replay_memory.rows
    run.replay_memory = run.replay_memory.update(task.train, labels[task.train], seed=run.seed)
    run.calibration_buffer = run.calibration_buffer.extend(
        task.validation, labels[task.validation], seed=run.seed
    )
    if not load_learner(run.settings.learner).stores_logits:
        return
    if stored is not None:
        run.memory_logits = read_npz(stored)["replay_logits"]
        return
    run.memory_logits = stored_logits(run, index, earlier)


@contextmanager
def _torch_setup(settings: TrainingSettings) -> Iterator[None]:
    """Set threads and deterministic kernels, and restore them afterwards."""
    threads = torch.get_num_threads()
    cudnn = torch.backends.cudnn
    before = (cudnn.deterministic, cudnn.benchmark)
    try:
        if settings.threads:
            torch.set_num_threads(settings.threads)
        cudnn.deterministic = True
        cudnn.benchmark = False
        yield
    finally:
        torch.set_num_threads(threads)
        cudnn.deterministic, cudnn.benchmark = before
