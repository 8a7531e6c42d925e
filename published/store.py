"""Store a finished run as a small run folder: python -m published.store RUN [NAME].

::

    results/<name>/config.toml        settings without paths of a machine
                   settings.json      settings that define the experiment, with digest
                   environment.json   versions and hardware
                   seconds.json       runtimes, and average ECE before the rounding
                   seed-<s>/task-<T>/ the last task: validation.npz, test.npz, perturbed.npz, done.json,
                                      and pts.safetensors, the fit of PTS on these rows;
                                      unknown.npz if the data have rows of no known class

Logits and features are rounded to float16; the digests in ``done.json`` are those of the rounded files. The
folder contains no images, no weights and no row numbers of the dataset. The fit of PTS is stored because it has
no unique optimum: another processor can give another network for the same rows. Stored seeds that the
finished run does not have stay, so that a run can be stored seed by seed.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from equable.benchmark.methods import METHODS
from equable.benchmark.process_pool import one_thread
from equable.benchmark.run_folder import (
    OUTPUT_FILES,
    RunFolder,
    changes,
    comparable,
    open_run,
    outputs_digest,
    seal_settings,
    sealed_settings,
)
from equable.benchmark.score_record import Score
from equable.benchmark.settings import Config
from equable.benchmark.task_outputs import load_step
from equable.benchmark.unknown import FILE as UNKNOWN
from equable.errors import ConfigError, ConvergenceWarning, InputError
from equable.files import read_json, read_sealed, sha256_of, write_json, write_sealed
from equable.outputs import Outputs
from equable.reports.tables.runtime import PARTS
from equable.scenarios import ValidationSet

RESULTS = Path(__file__).parents[1] / "results"
#: Stored keys of ``done.json``; the values of the epochs are not stored.
KEPT_FACTS = (
    *("task", "seed", "n_seen", "accuracy", "confidence", "best_epoch", "training_seconds"),
    *("scenario_hash", "forward", "tcil"),
)
SECONDS = "seconds.json"
PTS = "pts.safetensors"


def store_run(source: Path, target: Path, seeds: list[int] | None = None) -> list[int]:
    """Store every seed that is completely trained and scored, and return all seeds that are stored now."""
    run = open_run(source)
    config = run.config()
    tasks = config.scenario.tasks
    last = (tasks if isinstance(tasks, int) else len(tasks)) - 1
    chosen = [s for s in (seeds or config.seeds) if _is_finished(run, s, last)]
    if not chosen:
        raise ConfigError(
            f"{source} must contain a seed with {last + 1} finished tasks and scores; it has none"
        )
    stored = sorted({*chosen, *_stored_seeds(target, config)})
    store_settings(source, target, config, stored)
    originals = read_json(target / SECONDS) if (target / SECONDS).is_file() else {}
    write_json(target / SECONDS, _merged(originals, _original(run, chosen, last)))
    for seed in chosen:
        store_step(run.task(seed, last), RunFolder(target).task(seed, last))
    return stored


def _stored_seeds(target: Path, config: Config) -> list[int]:
    """The seeds of a stored run; a stored run with other settings is refused."""
    if not target.exists():
        return []
    changed = changes(sealed_settings(target), comparable(config.flat()))
    if changed:
        raise ConfigError(
            f"{target} must have the settings of the run; it has others: {'; '.join(changed)} "
            "(stored → given). Remove it, or choose another name"
        )
    return open_run(target).config().seeds


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The nested tables of both; where both have a value, the new one."""
    both = {k: _merged(old[k], new[k]) for k in old.keys() & new.keys() if isinstance(new[k], dict)}
    return {**old, **new, **both}


def store_settings(source: Path, target: Path, config: Config, seeds: list[int]) -> None:
    """Store settings without paths of a machine, and the environments of all stored seeds."""
    data = config.data.model_copy(update={"source": Path(config.data.source).name, "data_dir": ""})
    slim = config.model_copy(update={"data": data, "seeds": seeds, "methods": {}})
    RunFolder(target).write_config(slim)
    seal_settings(target, slim)
    path = target / "environment.json"
    places = [place for file in (path, source / path.name) if file.is_file() for place in _places(file)]
    distinct = [place for i, place in enumerate(places) if place not in places[:i]]
    write_json(path, {**distinct[0], "also": distinct[1:]})


def _places(environment: Path) -> list[dict[str, Any]]:
    """Every environment of the file."""
    first = read_json(environment)
    return [first, *first.pop("also", [])]


def _is_finished(run: RunFolder, seed: int, last: int) -> bool:
    """Whether every task is trained, and scored by every method."""
    steps = range(last + 1)
    trained = run.finished_tasks(seed) == list(steps)
    return trained and all(run.score(seed, task, name).is_file() for task in steps for name in METHODS)


def _original(run: RunFolder, seeds: list[int], last: int) -> dict[str, Any]:
    """Seconds of every task in parts, and average ECE before the rounding."""
    found: dict[str, Any] = {"parts": list(PARTS), "seconds": {}, "average_ece": {}}
    for seed in seeds:
        for path in sorted(run.scores.glob(f"seed-{seed}_task-{last}_*.json")):
            name = path.stem.removeprefix(f"seed-{seed}_task-{last}_")
            if name in METHODS:
                steps = [Score.load(run.score(seed, task, name)) for task in range(last + 1)]
                seconds = [[round(step.seconds[part], 6) for part in PARTS] for step in steps]
                found["seconds"].setdefault(name, {})[str(seed)] = seconds
                found["average_ece"].setdefault(name, {})[str(seed)] = steps[-1].comparison["average_ece"]
    return found


def store_step(source: Path, target: Path) -> None:
    """Store the outputs of one task in compressed float16, with their metadata."""
    outputs_digest(source)  # raises an error for damaged files
    validation = ValidationSet.load(source / "validation.npz")
    kept_rows = ValidationSet(halved(validation.outputs), validation.in_calibration_buffer)
    kept_rows.save(target / "validation.npz", compress=True)
    for name in ("test.npz", "perturbed.npz"):
        halved(Outputs.load(source / name)).save(target / name, compress=True)
    facts = read_sealed(source / "done.json")
    kept = {name: facts[name] for name in KEPT_FACTS if name in facts}
    files = {name: sha256_of(target / name) for name in OUTPUT_FILES}
    if (source / UNKNOWN).is_file():
        halved(Outputs.load(source / UNKNOWN)).save(target / UNKNOWN, compress=True)
        files[UNKNOWN] = sha256_of(target / UNKNOWN)
    write_sealed(target / "done.json", {**kept, "precision": "float16", "files": files})
    store_pts(target)


def store_pts(target: Path) -> None:
    """Fit PTS on the rounded rows and store it."""
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # tables mark it
        METHODS["pts"].fit(load_step(target)).save(target / PTS)


def halved(outputs: Outputs) -> Outputs:
    """The same rows with logits and features in float16; overflow raises an error."""
    with np.errstate(over="ignore"):  # reported below with a name
        logits, features = (
            None if array is None else array.astype(np.float16)
            for array in (outputs.logits, outputs.features)
        )
    for name, array in (("logits", logits), ("features", features)):
        if array is not None and not np.isfinite(array).all():
            raise InputError(f"{name} must lie within ±65504 to be stored in float16; some do not")
    return Outputs(logits, outputs.labels, features, outputs.tasks, outputs.groups)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m published.store", description=__doc__)
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("name", nargs="?", help="name of the folder in results/; default: that of the run")
    parser.add_argument("--seeds", type=int, nargs="*", help="default: all finished seeds")
    parser.add_argument("--results", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    target = given.results / (given.name or given.run.resolve().name)
    seeds = store_run(given.run, target, given.seeds)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    print(f"{target}: seeds {', '.join(map(str, seeds))}, {size / 2**20:.2f} MB")


if __name__ == "__main__":
    main()
