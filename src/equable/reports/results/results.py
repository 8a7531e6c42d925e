"""The results of a run or of one file of outputs, and the values that tables, figures and pages show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from equable.arrays import FloatArray
from equable.benchmark.batching import WHOLE
from equable.benchmark.methods import METHODS
from equable.benchmark.score_record import Score
from equable.metrics.bootstrap import LEAST_REPLICATES
from equable.reports.results.numbers import Ends, MeanStd, mean_interval, mean_of, mean_std
from equable.training.settings import NETWORK_TABLE

#: The ways in which rows arrive, in the order of tables.
ARRIVALS = ("pure", "mixed", "drift", "stream")
#: Ablations in the paper's order, with their titles.
ABLATION_TITLES = {
    "coverage": "coverage threshold",
    "inclusion": "validation inclusion (%)",
    "weights": "weights of DATS",
    "aggregate": "aggregate",
    "distance": "distance",
    "metric": "metric",
}
Record = Mapping[str, Any]
Arrival = tuple[str, int]  # how rows arrive, and the size of a batch


class FileSource(NamedTuple):
    """What a page shows of a file of outputs: its rows and batches, its digests."""

    about: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Results:
    """Scores by (seed, task, method), noise floors by (seed, task), and where they come from."""

    name: str
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    scores: Mapping[tuple[int, int, str], Score]
    noise: Mapping[tuple[int, int], Record]
    ablations: tuple[Record, ...] = ()
    arrivals: tuple[Record, ...] = ()
    decisions: tuple[Record, ...] = ()  # sets and referral, for each seed, method and arrival
    unknown: tuple[Record, ...] = ()  # rows of no known class, for each seed and score
    #: Runtimes by (seed, task, method) that were kept where the scores of earlier tasks were not.
    seconds: Mapping[tuple[int, int, str], Mapping[str, float]] = field(default_factory=dict)
    #: Name → label of the methods that are not in `METHODS`: the user's own; for a file, its calibrators.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Method → name in `METHODS` whose colour and marker it has.
    kinds: Mapping[str, str] = field(default_factory=dict)
    #: Ids of the tasks in a file; a run numbers its tasks from 1.
    task_ids: tuple[int, ...] = ()
    #: Set where the results are of one file of outputs.
    file: FileSource | None = None

    @cached_property
    def n_tasks(self) -> int:
        """Tasks that the furthest seed has finished."""
        return 1 + max(task for _, task, _ in self.scores)

    @property
    def has_tasks(self) -> bool:
        """Whether rows belong to tasks; those of a file need not."""
        return self.file is None or self.n_tasks > 1

    def task_name(self, index: int) -> str:
        """The heading of one task; the index after the last task stands for all rows."""
        if index == self.n_tasks or not self.has_tasks:
            return "All rows"
        return f"Task {self.task_ids[index] if self.task_ids else index + 1}"

    @property
    def views(self) -> range:
        """Indices of each task and, last, of all rows together; without tasks all rows alone."""
        return range(self.n_tasks + 1 if self.has_tasks else 1)

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that have finished the last task; the others do not enter any mean."""
        return tuple(sorted({seed for seed, task, _ in self.scores if task == self.n_tasks - 1}))

    @cached_property
    def unfinished(self) -> tuple[int, ...]:
        """Seeds that have not finished the last task."""
        return tuple(sorted({seed for seed, _, _ in self.scores} - set(self.seeds)))

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Names in the order of `METHODS` and `labels`, unknown ones last."""
        seen = {method for _, task, method in self.scores if task == self.n_tasks - 1}
        known = [*METHODS, *self.labels]
        return (*(m for m in known if m in seen), *sorted(seen - set(known)))

    @property
    def ranked(self) -> tuple[str, ...]:
        """The methods that are compared: no variants, no oracles, none that lacks a seed."""
        shown = {name for name, method in METHODS.items() if not (method.variant or method.oracle)}
        compared = [m for m in self.methods if m in shown or m in self.labels]
        return tuple(m for m in compared if m == "uncalibrated" or self.is_whole(m))

    def is_whole(self, method: str) -> bool:
        """Whether the method has a score for every seed that has finished the last task."""
        return len(self.at(method)) == len(self.seeds)

    @property
    def best(self) -> str:
        """The ranked method with the lowest average ECE, which may be the uncalibrated network."""
        return min(self.ranked, key=lambda m: self.mean(m, "average_ece"))

    def keeps_prediction(self, method: str) -> bool:
        """Whether the method keeps predicted classes: by its class, and by each task's accuracy."""
        kind = METHODS.get(self.kinds.get(method, method))
        tasks = [task for score in self.at(method) for task in score.comparison["tasks"]]
        declared = kind is None or kind.make().keeps_prediction
        return declared and all(task["accuracy"] == task["accuracy_before"] for task in tasks)

    @property
    def planned_tasks(self) -> int:
        """How many tasks the settings name; those that are finished where they name none."""
        tasks = self.config.get("scenario", {}).get("tasks", self.n_tasks)
        return len(tasks) if isinstance(tasks, list) else int(tasks)

    @property
    def is_finished(self) -> bool:
        """Whether the last planned task has been learnt."""
        return self.n_tasks == self.planned_tasks

    def is_oracle(self, name: str) -> bool:
        """Whether the method knows task or test labels."""
        return name in METHODS and METHODS[name].oracle

    def label(self, name: str) -> str:
        """The method's name in tables and figures."""
        return METHODS[name].label if name in METHODS else self.labels.get(name, name)

    def note(self, name: str) -> str:
        """What an oracle knows; the file of a saved calibrator."""
        return METHODS[name].note if name in METHODS else str(self.at(name)[0].facts.get("file", ""))

    @property
    def own(self) -> tuple[str, ...]:
        """The user's own methods; for a file, its calibrators."""
        return tuple(m for m in self.methods if m in self.labels)

    @property
    def title(self) -> str:
        """The run's name in its settings, else that of its folder."""
        return str(self.config.get("name") or self.name)

    @property
    def paper(self) -> str:
        """The paper's preset whose numbers are shown beside these; "" for none."""
        return str(self.config.get("paper", ""))

    @property
    def backbone(self) -> str:
        """Name of the network, as in the settings."""
        return str(self.config.get("network", {}).get("name", "slim_resnet18"))

    @property
    def network(self) -> str:
        """Name of the network for people."""
        known = NETWORK_TABLE.get(self.backbone)
        return known.class_name if known else self.backbone

    def at(self, method: str, task: int | None = None) -> list[Score]:
        """The method's scores after a task (default: the last), one per seed."""
        keys = ((seed, self.n_tasks - 1 if task is None else task, method) for seed in self.seeds)
        return [self.scores[key] for key in keys if key in self.scores]

    def metric(self, method: str, name: str, task: int | None = None) -> MeanStd | None:
        """A value of the comparison, such as average_ece; scores made before a metric was added have none."""
        return mean_std([score.comparison.get(name) for score in self.at(method, task)])

    def mean(self, method: str, name: str) -> float:
        """Mean over seeds of a value of the comparison; NaN where there is none."""
        return mean_of(self.metric(method, name))

    def of_task(self, method: str, name: str, index: int) -> MeanStd | None:
        """A value of one task after the last, such as delta_ece; index `n_tasks` is all rows together."""
        return mean_std([_of_view(score.comparison, name, index) for score in self.at(method)])

    def task_means(self, method: str, name: str) -> list[float]:
        """Means over seeds of a value of each task after the last; NaN where there is none."""
        return [mean_of(self.of_task(method, name, task)) for task in range(self.n_tasks)]

    def interval(self, method: str, name: str) -> Ends | None:
        """The bootstrap interval of a metric, its ends averaged over seeds; None with too few replicates."""
        found = [score.comparison["intervals"].get(name) for score in self.at(method)]
        return mean_interval(found) if self.has_bootstrap else None

    def task_interval(self, method: str, index: int) -> Ends | None:
        """The interval of the change in ECE of one task; index `n_tasks` is all rows together."""
        if index == self.n_tasks:
            return self.interval(method, "pooled_ece_change")
        found = [score.comparison["tasks"][index]["delta_ece_interval"] for score in self.at(method)]
        return mean_interval(found) if self.has_bootstrap else None

    @property
    def n_bootstrap(self) -> int:
        """Bootstrap replicates behind the intervals; all scores of a run have the same."""
        return int(self.at(self.methods[-1])[0].comparison["n_bootstrap"])

    @property
    def has_bootstrap(self) -> bool:
        """Whether there are enough replicates for 95 % intervals."""
        return self.n_bootstrap >= LEAST_REPLICATES

    def listed(self, method: str, read: Callable[[Score], list[Any]]) -> FloatArray:
        """(seeds, tasks) of a list of the score, such as its temperatures; NaN for None."""
        return np.array([read(score) for score in self.at(method)], dtype=np.float64)

    def seeds_at_bound(self, method: str) -> int:
        """Seeds in which a temperature of the method ended at an end of the package's range."""
        return sum(bool(score.facts.get("at_bound")) for score in self.at(method))

    def floor(self, index: int | None = None) -> MeanStd | None:
        """Noise floor of the average ECE after the last task, or of one task."""
        keys = ((seed, self.n_tasks - 1) for seed in self.seeds)
        found = [self.noise[key] for key in keys if key in self.noise]
        return mean_std([r["average"] if index is None else r["noise_floor"][index] for r in found])

    @property
    def counts(self) -> list[int]:
        """Test rows of each task, of the first seed (other seeds differ by rounding only)."""
        return [task["count"] for task in self.at(self.methods[0])[0].comparison["tasks"]]

    def worst_changes(self) -> dict[str, MeanStd]:
        """Label → maxΔECE of each ranked method but the uncalibrated."""
        found = {m: self.metric(m, "max_delta_ece") for m in self.ranked if m != "uncalibrated"}
        return {self.label(m): value for m, value in found.items() if value is not None}

    def temperatures_by_method(self) -> dict[str, FloatArray]:
        """Method → (seeds, tasks) for every ranked method with temperatures, and the ideal one."""
        names = [m for m in (*self.ranked, "oracle_task") if m in self.methods and m != "uncalibrated"]
        found = {m: self.listed(m, lambda s: s.temperatures) for m in names}
        return {m: values for m, values in found.items() if np.isfinite(values).all()}

    def accepted(self, method: str, index: int) -> MeanStd | None:
        """Share of a task's rows acceptable at the tolerated error; index `n_tasks` is all rows."""
        return mean_std([score.accepted[index] for score in self.at(method)])

    def estimated(self, method: str, task: int, name: str) -> MeanStd | None:
        """A value of the calibrator's explanation of one task's test set."""
        batches = [batch for score in self.at(method) for batch in score.facts.get("batches", [])]
        return mean_std([float(batch[name]) for batch in batches if int(batch["task"]) == task])

    def seconds_of(self, seed: int, method: str) -> list[Mapping[str, float]]:
        """Runtime in parts of each step that was scored."""
        known = {key: score.seconds for key, score in self.scores.items()} | dict(self.seconds)
        keys = [(seed, task, method) for task in range(self.n_tasks)]
        return [known[key] for key in keys if key in known]

    def summed_seconds(self, method: str, part: str) -> MeanStd | None:
        """Seconds of a part, or "total", summed over tasks as in the paper's table."""
        totals = []
        for seed in self.seeds:
            steps = self.seconds_of(seed, method)
            if len(steps) == self.n_tasks:
                totals.append(sum(sum(s.values()) if part == "total" else s.get(part, 0.0) for s in steps))
        return mean_std(totals)

    @property
    def ablation_names(self) -> list[str]:
        """The ablations that were run, in the paper's order, others last."""
        seen = {record["ablation"] for record in self.ablations}
        return [*(name for name in ABLATION_TITLES if name in seen), *sorted(seen - set(ABLATION_TITLES))]

    def ablation_methods(self, name: str) -> list[str]:
        """DATS, and what was run beside it on the same rows."""
        return list(dict.fromkeys(r["method"] for r in self.ablations if r["ablation"] == name))

    def ablation_values(self, name: str, metric: str, method: str = "dats") -> dict[Any, MeanStd]:
        """Setting → mean and std over seeds, each seed the mean of its draws; in the order of the file."""
        values: dict[Any, dict[int, list[float]]] = {}
        for r in self.ablations:
            if (r["ablation"], r["method"]) == (name, method):
                values.setdefault(r["setting"], {}).setdefault(r["seed"], []).append(r[metric])
        means = {s: mean_std([sum(d) / len(d) for d in seeds.values()]) for s, seeds in values.items()}
        return {setting: value for setting, value in means.items() if value is not None}

    @cached_property
    def arrivals_measured(self) -> list[Arrival]:
        """The arrivals that were measured: small batches first, whole test sets last."""
        seen = {(str(r["arrival"]), int(r["batch"])) for r in self.arrivals}
        return sorted(seen, key=lambda a: (ARRIVALS.index(a[0]), a[1] == WHOLE, a[1]))

    @property
    def distinct_arrivals(self) -> list[Arrival]:
        """The same with single rows, which are equal in every arrival, only once."""
        return [(kind, batch) for kind, batch in self.arrivals_measured if batch != 1 or kind == "pure"]

    @property
    def arriving_methods(self) -> list[str]:
        """The methods whose arrivals were measured, in the order of the other tables."""
        seen = {r["method"] for r in self.arrivals}
        return [m for m in self.methods if m in seen]

    def arrival_value(self, method: str, arrival: Arrival, measure: str = "average_ece") -> MeanStd | None:
        """A measure of one method for one arrival; mean and std over seeds."""
        return mean_std([record.get(measure) for record in self._arrivals_of(method, arrival)])

    def arrival_means(self, method: str, ways: Sequence[Arrival]) -> dict[Arrival, float]:
        """Average ECE of one method in those of these arrivals that it has numbers for."""
        found = {way: self.arrival_value(method, way) for way in ways}
        return {way: value.mean for way, value in found.items() if value is not None}

    def arrival_interval(self, method: str, arrival: Arrival, measure: str) -> Ends | None:
        """Its bootstrap interval, ends averaged over seeds; None without bootstrap."""
        return mean_interval([r["intervals"].get(measure) for r in self._arrivals_of(method, arrival)])

    def _arrivals_of(self, method: str, arrival: Arrival) -> list[Record]:
        found = [r for r in self.arrivals if r["method"] == method and r["seed"] in self.seeds]
        return [r for r in found if (r["arrival"], r["batch"]) == arrival]

    def ignores_batches(self, method: str) -> bool:
        """Whether the average ECE of the method is the same in every arrival."""
        values = list(self.arrival_means(method, self.arrivals_measured).values())
        return bool(np.ptp(values) < 1e-9)


POOLED = {"ece": "pooled_ece", "delta_ece": "pooled_ece_change"}


def _of_view(comparison: Record, name: str, index: int) -> float:
    """A value of one task; after the last task, of all rows together."""
    tasks = comparison["tasks"]
    if index < len(tasks):
        return float(tasks[index][name])
    if name in POOLED:
        return float(comparison[POOLED[name]])
    counts = [task["count"] for task in tasks]
    return float(np.average([task[name] for task in tasks], weights=counts))
