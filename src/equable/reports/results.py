"""The results of a run, read back from its folder: all that tables, figures and page are made from."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from equable.arrays import FloatArray
from equable.benchmark.methods import METHODS, Method
from equable.benchmark.score_record import Score
from equable.benchmark.sealed_settings import changes
from equable.calibrators import Uncalibrated
from equable.errors import FileFormatError
from equable.files import read_json, read_sealed
from equable.training.settings import NETWORK_TABLE


class Spread(NamedTuple):
    """Mean and standard deviation (ddof 0) over n seeds; fractions, nats or seconds."""

    mean: float
    std: float
    n: int


def spread(values: Any) -> Spread | None:
    """Mean and standard deviation of the values that are numbers, None where there is none.

    Examples
    --------
    >>> from equable.reports.results import spread
    >>> spread([1.0, 3.0, None])
    Spread(mean=2.0, std=1.0, n=2)
    """
    array = np.array([v for v in values if v is not None and np.isfinite(v)], dtype=np.float64)
    return Spread(float(array.mean()), float(array.std()), len(array)) if len(array) else None


@dataclass(frozen=True, eq=False)
class Results:
    """One run: scores by (seed, task, method), noise floors by (seed, task), and where they came from."""

    name: str
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    scores: Mapping[tuple[int, int, str], Score]
    noise: Mapping[tuple[int, int], Mapping[str, Any]]
    ablations: tuple[Mapping[str, Any], ...] = ()
    regimes: tuple[Mapping[str, Any], ...] = ()
    #: Runtimes by (seed, task, method) that were kept where the scores of earlier tasks were not.
    seconds: Mapping[tuple[int, int, str], Mapping[str, float]] = field(default_factory=dict)

    @cached_property
    def last_task(self) -> int:
        """The newest task that any seed has finished."""
        return max(task for _, task, _ in self.scores)

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that have finished the last task; the others do not enter any mean."""
        return tuple(sorted({seed for seed, task, _ in self.scores if task == self.last_task}))

    @cached_property
    def unfinished(self) -> tuple[int, ...]:
        """Seeds that are still on their way."""
        return tuple(sorted({seed for seed, _, _ in self.scores} - set(self.seeds)))

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Names in the order of `METHODS`, then the run's own, unknown ones last."""
        seen = {method for _, task, method in self.scores if task == self.last_task}
        known = METHODS | self._named
        return (*(m for m in known if m in seen), *sorted(seen - set(known)))

    @property
    def ranked(self) -> tuple[str, ...]:
        """The methods that compete: neither variants nor bounds, nor such as lack a seed."""
        own_right = [m for m in self.methods if not (self.method(m).variant or self.method(m).bound)]
        return tuple(m for m in own_right if m == "uncalibrated" or self.is_whole(m))

    def is_whole(self, method: str) -> bool:
        """Whether the method has a score for every seed that has finished the last task."""
        return len(self.at(method)) == len(self.seeds)

    @property
    def planned_tasks(self) -> int:
        """How many tasks the settings name; those that are finished where they name none."""
        tasks = self.config.get("scenario", {}).get("tasks", self.last_task + 1)
        return len(tasks) if isinstance(tasks, list) else int(tasks)

    @property
    def is_finished(self) -> bool:
        """Whether the last task of all has been learnt."""
        return self.last_task + 1 == self.planned_tasks

    def method(self, name: str) -> Method:
        """The row of `METHODS` or of the run's own; a name that is in neither is shown, unranked."""
        known = METHODS.get(name) or self._named.get(name)
        return known or Method(name, "none", Uncalibrated, variant=True)

    def label(self, name: str) -> str:
        """What tables and figures call a method."""
        return self.method(name).label

    @property
    def own(self) -> tuple[str, ...]:
        """The methods that are the user's own."""
        return tuple(m for m in self.methods if m in self._named)

    @cached_property
    def _named(self) -> dict[str, Method]:
        """The user's own methods as the settings name them; their code is not needed here."""
        tables = self.config.get("methods", {})
        known = tables.items() if isinstance(tables, Mapping) else ()
        return {
            name: Method(str(table.get("label", name)), "none", Uncalibrated)
            for name, table in known
            if isinstance(table, Mapping)
        }

    @property
    def title(self) -> str:
        """What the run calls itself."""
        return str(self.config.get("name") or self.name)

    @property
    def paper(self) -> str:
        """Whose numbers of the paper stand beside these; "" for nobody's."""
        return str(self.config.get("paper", ""))

    @property
    def backbone(self) -> str:
        """Name of the network, as in the settings."""
        return str(self.config.get("network", {}).get("name", "slim_resnet18"))

    @property
    def network(self) -> str:
        """The same as people write it."""
        known = NETWORK_TABLE.get(self.backbone)
        return known.class_name if known else self.backbone

    def seeds_at_bound(self, method: str) -> int:
        """Seeds in which a temperature of the method ended at an end of the package's range."""
        return sum(bool(score.facts.get("at_bound")) for score in self.at(method))

    def at(self, method: str, task: int | None = None) -> list[Score]:
        """The method's scores after a task (default: the last), one a seed."""
        task = self.last_task if task is None else task
        keys = ((seed, task, method) for seed in self.seeds)
        return [self.scores[key] for key in keys if key in self.scores]

    def over_seeds(
        self, method: str, read: Callable[[Score], float | None], task: int | None = None
    ) -> Spread | None:
        """Mean and std over seeds of whatever `read` takes from a score."""
        return spread([read(score) for score in self.at(method, task)])

    def metric(self, method: str, name: str, task: int | None = None) -> Spread | None:
        """A value of the comparison, such as average_ece."""
        return self.over_seeds(method, lambda score: score.comparison[name], task)

    def of_task(self, method: str, name: str, index: int) -> Spread | None:
        """A value of one seen task after the last, such as its delta_ece."""
        return self.over_seeds(method, lambda score: score.comparison["tasks"][index][name])

    def interval(self, method: str, name: str) -> tuple[float, float] | None:
        """The bootstrap interval of a metric, its ends averaged over seeds; None without bootstrap."""
        return _average([score.comparison["intervals"].get(name) for score in self.at(method)])

    def task_interval(self, method: str, index: int) -> tuple[float, float] | None:
        """The same for the change in ECE of one task."""
        return _average([s.comparison["tasks"][index]["delta_ece_interval"] for s in self.at(method)])

    def seconds_of(self, seed: int, task: int, method: str) -> Mapping[str, float] | None:
        """Runtime of one step in parts; None where the step was not scored."""
        score = self.scores.get((seed, task, method))
        return self.seconds.get((seed, task, method), None if score is None else score.seconds)

    def listed(self, method: str, read: Callable[[Score], list[Any]]) -> FloatArray:
        """(seeds, tasks) of a list of the score, such as its temperatures; NaN for None."""
        return np.array([read(score) for score in self.at(method)], dtype=np.float64)

    def floor(self) -> Spread | None:
        """Noise floor of the average ECE after the last task."""
        return spread([self.noise.get((s, self.last_task), {}).get("average") for s in self.seeds])

    def task_floor(self, index: int) -> Spread | None:
        """Noise floor of one task after the last."""
        found = [self.noise[s, self.last_task] for s in self.seeds if (s, self.last_task) in self.noise]
        return spread([record["noise_floor"][index] for record in found])

    @property
    def counts(self) -> list[int]:
        """Test rows of each task, of the first seed (they are alike but for rounding)."""
        return [task["count"] for task in self.at(self.methods[0])[0].comparison["tasks"]]


def _average(intervals: list[Any]) -> tuple[float, float] | None:
    if not intervals or any(interval is None for interval in intervals):
        return None
    low, high = np.mean(intervals, axis=0)
    return float(low), float(high)


def load_results(folder: Path) -> Results:
    """Read the scores of a run folder; ablations, noise floors and provenance where they exist."""
    scores, noise = {}, {}
    for path in sorted((folder / "scores").glob("seed-*_task-*.json")):
        if path.stem.endswith("_noise_floor"):
            record = read_sealed(path)
            noise[int(record["seed"]), int(record["task"])] = record
        else:
            score = Score.load(path)
            scores[score.seed, score.task, score.method] = score
    if not scores:
        raise FileFormatError(f"{folder}/scores must hold scores; it holds none. Run: equable score {folder}")
    _require_one_setting(folder, scores)
    return Results(
        name=folder.resolve().name,
        config=_read_toml(folder / "config.toml"),
        environment=read_json(path) if (path := folder / "environment.json").exists() else {},
        scores=scores,
        noise=noise,
        ablations=_ablations(folder / "ablations", _last_outputs(scores)),
        regimes=_regimes(folder / "arrivals", _last_outputs(scores)),
    )


def _require_one_setting(folder: Path, scores: Mapping[tuple[int, int, str], Score]) -> None:
    """Refuse scores that no table may show side by side."""
    first, *others = scores.items()
    for key, score in others:
        changed = changes(first[1].made_with, score.made_with)
        if changed:
            names = ["seed-{}_task-{}_{}.json".format(*found) for found in (first[0], key)]
            raise FileFormatError(
                f"{folder}/scores must be made with the same settings; {names[0]} and {names[1]} differ in "
                f"{'; '.join(changed)}. Run: equable score {folder}"
            )


def _read_toml(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} must be a TOML file; it is damaged: {error}") from error


def _ablations(folder: Path, outputs: set[str]) -> tuple[Mapping[str, Any], ...]:
    """The records of these outputs, as far as they tell; those of others are outdated and left out.

    What is RC's beside an ablation of DATS, ``<name>_rc``, becomes a method of that one.
    """
    records: list[Mapping[str, Any]] = []
    for path in sorted(folder.glob("*.json")):
        found = read_json(path)
        if not isinstance(found, list) or not all(isinstance(r, dict) and "ablation" in r for r in found):
            raise FileFormatError(f"{path} must hold ablations; it holds something else. Delete it")
        records += [record for record in found if record.get("outputs") in (None, *outputs)]
    split = [(r, *str(r["ablation"]).partition("_rc")[:2]) for r in records]
    return tuple({**r, "ablation": name, "method": "rc" if rc else "dats"} for r, name, rc in split)


def _last_outputs(scores: Mapping[tuple[int, int, str], Score]) -> set[str]:
    last = max(task for _, task, _ in scores)
    return {score.outputs for (_, task, _), score in scores.items() if task == last}


def _regimes(folder: Path, outputs: set[str]) -> tuple[Mapping[str, Any], ...]:
    """All records that were measured on the outputs of these scores; others are outdated and left out."""
    found: list[Mapping[str, Any]] = []
    for path in sorted(folder.glob("seed-*.json")):
        value = read_sealed(path)
        if not isinstance(value, dict) or not {"outputs", "records"} <= set(value):
            raise FileFormatError(f"{path} must hold regimes; it holds other keys. Delete it")
        found += value["records"] if value["outputs"] in outputs else []
    return tuple(found)
