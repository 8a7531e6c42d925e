"""Evaluate saved calibrators on a file of outputs with labels, with the tables and the page of a run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import equable
from equable.arrays import FloatArray, IntArray
from equable.benchmark.batching import AS_GIVEN, STANDARD_ARRIVALS, batches_of
from equable.benchmark.decide import Guarantee, measure_decisions
from equable.benchmark.methods import METHODS
from equable.benchmark.score_record import Score, rows_by_task, score_rows
from equable.calibrators import CALIBRATORS, Calibrator, TaskMix, Uncalibrated
from equable.calibrators.newton import is_at_bound
from equable.calibrators.serialization import load_with_extras
from equable.decisions import CrossFit
from equable.decisions.cross_fit import POSTERIORS
from equable.deploy.apply_file import Applied, Grouping, apply_calibrator, group_rows
from equable.deploy.fit_file import ALIASES, file_in_errors, load_outputs
from equable.errors import EquableWarning, InputError
from equable.files import sha256_of
from equable.metrics import noise_floor, reliability_curve
from equable.metrics.bootstrap import LEAST_REPLICATES
from equable.outputs import Outputs
from equable.reports.distinct_names import short_names
from equable.reports.results import FileSource, Results

QUANTILES = {"q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95}
UNCALIBRATED = "uncalibrated"
#: The methods whose probabilities depend on the other rows of a batch, and what to know where it is one task.
BATCHWISE = {"dats", "arc", "taskmix"}
ONE_TASK = (
    "\nMost or all of these batches hold rows of one task, which is unknown in use. For rows that arrive "
    "mixed, shuffle the rows of the file and give --groups 32."
)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The results of one file, and the facts about it for JSON."""

    results: Results
    facts: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, lists and dictionaries, ready for JSON."""
        methods = [_method_record(self.results, method) for method in self.results.methods]
        decisions = [_decision_record(self.results, record) for record in self.results.decisions]
        return {**self.facts, "methods": methods, **({"decisions": decisions} if decisions else {})}


def evaluate_file(
    path: Path,
    calibrators: Sequence[Path] = (),
    how: str | None = None,
    *,
    n_bins: int = 10,
    n_bootstrap: int = 1000,
) -> Evaluation:
    """Evaluate saved calibrators on a file of outputs with labels.

    Parameters
    ----------
    path
        npz file of `Outputs`, rows that no calibrator was fitted on.
    calibrators
        Files of saved calibrators.
    how
        Which rows share a batch, as `group_rows` takes it.
    n_bins, n_bootstrap
        As in `equable.metrics.compare_tasks`; `n_bootstrap` 0 or at least 40.

    Examples
    --------
    >>> import tempfile, equable
    >>> outputs = equable.Outputs([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0]], labels=[0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     outputs.save(folder + "/outputs.npz")
    ...     found = evaluate_file(Path(folder, "outputs.npz"), n_bootstrap=0).results
    >>> found.methods, found.task_name(0), round(found.mean("uncalibrated", "accuracy"), 3)
    (('uncalibrated',), 'All rows', 0.667)
    """
    if 0 < n_bootstrap < LEAST_REPLICATES:
        raise InputError(
            f"--bootstrap must be 0 (no intervals) or at least {LEAST_REPLICATES}, which a 95 % interval "
            f"needs; got {n_bootstrap}"
        )
    outputs = load_outputs(path, "labels")
    with file_in_errors(path):
        grouping = group_rows(outputs, how)
    scoring = _Scoring(outputs, grouping, sha256_of(path), n_bins, n_bootstrap)
    scores = {UNCALIBRATED: scoring.score(UNCALIBRATED, scoring.plain, scoring.before, {})}
    stored = [load_with_extras(file) for file in calibrators]
    labels = labels_of(calibrators, [calibrator for calibrator, _ in stored])
    for file, (calibrator, extras), label in zip(calibrators, stored, labels, strict=True):
        with file_in_errors(f"{file} on {path}"):
            applied = apply_calibrator(calibrator, outputs, grouping)
        source = {"file": Path(file).name, "sha256": sha256_of(file)}
        scores[label] = scoring.score(label, calibrator, applied, source)
        if isinstance(calibrator, TaskMix):
            scoring.arrivals.append(scoring.in_shuffled_batches(label, calibrator))
        if POSTERIORS in extras:
            scoring.decisions += scoring.decide(label, CrossFit.from_extras(file, calibrator, extras))
    sizes = grouping.sizes
    facts = {
        "outputs": Path(path).name,
        "sha256": scoring.digest,
        "rows": len(outputs),
        "classes": outputs.n_classes,
        "tasks": len(scoring.ids) or None,
        "groups": grouping.how,
        "batches": {"count": len(sizes), "smallest": int(sizes.min()), "largest": int(sizes.max())},
        "bins": n_bins,
        "bootstrap": n_bootstrap,
    }
    return Evaluation(_results(scores, scoring, facts), facts)


def kind_of(calibrator: Calibrator) -> str:
    """The name in `equable.CALIBRATORS`."""
    return next(name for name, kind in CALIBRATORS.items() if kind is type(calibrator))


def labels_of(files: Sequence[Path], calibrators: Sequence[Calibrator]) -> list[str]:
    """A short name for each file: its method's, followed by the file's where that is not unique.

    RC is saved as temperature scaling: its file is named too.
    """
    kinds = [kind_of(calibrator) for calibrator in calibrators]
    plain = [METHODS[kind].label if kind in METHODS else kind for kind in kinds]
    taken = [*plain, METHODS[UNCALIBRATED].label]
    names = short_names([Path(file).with_suffix("") for file in files])
    found = []
    for label, name in zip(plain, names, strict=True):
        found.append(label if taken.count(label) == 1 and name not in ALIASES else f"{label} ({name})")
        if found.count(found[-1]) > 1:
            raise InputError(f"each calibrator must be given once; got {found[-1]} twice")
    return found


class _Scoring:
    """What all scores of a file share, and what is measured beside them."""

    def __init__(
        self, outputs: Outputs, grouping: Grouping, digest: str, n_bins: int, n_bootstrap: int
    ) -> None:
        assert outputs.labels is not None
        self.outputs = outputs
        self.grouping = grouping
        self.labels = outputs.labels
        ids = () if outputs.tasks is None else tuple(np.unique(outputs.tasks).tolist())
        self.ids = ids if len(ids) > 1 else ()
        self.tasks = outputs.tasks if self.ids and outputs.tasks is not None else np.zeros_like(self.labels)
        self.members = rows_by_task(self.tasks)
        self.views = [*self.members, np.arange(len(outputs))] if self.ids else self.members
        self.plain = Uncalibrated().fit(outputs.logits, outputs.labels)
        self.before = apply_calibrator(self.plain, outputs, grouping)
        self.digest = digest
        self.n_bins = n_bins
        self.n_bootstrap = n_bootstrap
        self.arrivals = [self.in_shuffled_batches(UNCALIBRATED, self.plain)]
        self.decisions: list[dict[str, Any]] = []

    @property
    def has_pure_batches(self) -> bool:
        """Whether most batches of the file's tasks or of n rows, n > 1, hold one of several tasks."""
        grouping = self.grouping
        if not self.ids or grouping.how == "file" or grouping.sizes.max() == 1:
            return False
        pairs = set(zip(grouping.groups.tolist(), self.tasks.tolist(), strict=True))
        return len(pairs) < 1.5 * len(grouping.sizes)

    def in_shuffled_batches(self, method: str, calibrator: Calibrator) -> dict[str, Any]:
        """Accuracy in shuffled batches of 32 rows, measured as in a run; warnings about them are left out."""
        groups = batches_of(np.searchsorted(self.ids, self.tasks), seed=0)["mixed", 32]
        with warnings.catch_warnings(action="ignore", category=EquableWarning):
            p = calibrator.predict_proba(self.outputs.logits, features=self.outputs.features, groups=groups)
        accuracy = float((p.argmax(axis=1) == self.labels).mean())
        return {"arrival": "mixed", "batch": 32, "method": method, "seed": 0, "pooled_accuracy": accuracy}

    def decide(self, label: str, shared: CrossFit) -> Iterator[dict[str, Any]]:
        """Sets and referral in the batches as given and, where rows have tasks, in the standard arrivals."""
        arrivals: dict[tuple[str, int], np.ndarray] = {AS_GIVEN: self.grouping.groups}
        if self.ids:
            groups = batches_of(np.searchsorted(self.ids, self.tasks), seed=0)
            arrivals |= {way: groups[way] for way in STANDARD_ARRIVALS}
        kinds: tuple[Guarantee, ...] = ("batch",) if shared.class_tasks is None else ("task", "batch")
        for (arrival, batch), batches in arrivals.items():
            found = measure_decisions(shared, self.outputs, self.views, batches, kinds)
            yield {"method": label, "arrival": arrival, "batch": batch, "seed": 0, **found}

    def score(self, name: str, calibrator: Calibrator, applied: Applied, source: dict[str, str]) -> Score:
        """The score of one method, with noise floors and temperatures of each view among its facts."""
        before = self.before.probabilities
        after = applied.probabilities
        n_bins = self.n_bins
        quantiles = [_quantiles(applied.temperature, rows) for rows in self.views]
        bounds = [found is not None and is_at_bound(found["q50"]) for found in quantiles]
        fields = score_rows(
            self.labels, self.tasks, before, after, n_bins=n_bins, n_bootstrap=self.n_bootstrap
        )
        fields["reliability"] = [
            reliability_curve(self.labels[rows], after[rows], n_bins=n_bins).to_dict() for rows in self.views
        ]
        floors = [
            noise_floor(after[rows], n_bins=n_bins, random_state=[0, index])
            for index, rows in enumerate(self.views)
        ]
        return Score(
            seed=0,
            task=len(self.members) - 1,
            method=name,
            **fields,
            temperatures=[None if q is None else q["q50"] for q in quantiles[: len(self.members)]],
            seconds={},
            facts={
                "calibrator": kind_of(calibrator),
                "settings": calibrator.get_params(),
                **source,
                "noise_floor": floors,
                "temperature_quantiles": quantiles,
                "views_at_bound": bounds,
                "at_bound": any(bounds),
            },
            outputs=self.digest,
        )


def _quantiles(temperature: FloatArray | None, rows: IntArray) -> dict[str, float] | None:
    if temperature is None:
        return None
    found = np.quantile(temperature[rows], list(QUANTILES.values()))
    return dict(zip(QUANTILES, found.tolist(), strict=True))


def _results(scores: Mapping[str, Score], scoring: _Scoring, facts: Mapping[str, Any]) -> Results:
    saved = {label: score for label, score in scores.items() if label != UNCALIBRATED}
    best = min(scores.values(), key=lambda score: float(score.comparison["average_ece"]))
    floors = best.facts["noise_floor"][: best.task + 1]
    return Results(
        name=facts["outputs"],
        config={},
        environment={},
        scores={(0, score.task, label): score for label, score in scores.items()},
        noise={(0, best.task): {"noise_floor": floors, "average": float(np.mean(floors))}},
        arrivals=tuple(scoring.arrivals),
        decisions=tuple(scoring.decisions),
        labels={label: label for label in saved},
        kinds={label: score.facts["calibrator"] for label, score in scores.items()},
        task_ids=scoring.ids,
        file=_source([score.facts for score in saved.values()], facts, scoring),
    )


def _source(saved: Sequence[Mapping[str, Any]], facts: Mapping[str, Any], scoring: _Scoring) -> FileSource:
    """The rows and batches in a few sentences, and the digests of all files."""
    tasks = f", {facts['tasks']} tasks" if facts["tasks"] else ""
    rows = f"{facts['rows']:,} rows, {facts['classes']} classes{tasks}"
    shown = [("outputs", facts["outputs"]), ("outputs, SHA-256", facts["sha256"])]
    for found in saved:
        settings = "".join(f", {key} = {value}" for key, value in found["settings"].items())
        shown.append((found["file"], f"{found['calibrator']}{settings}"))
        shown.append((f"{found['file']}, SHA-256", found["sha256"]))
    shown += [
        ("batches", str(scoring.grouping)),
        ("bins of the ECE", str(facts["bins"])),
        ("bootstrap replicates", f"{facts['bootstrap']:,}"),
        ("equable", equable.__version__),
    ]
    noted = scoring.has_pure_batches and BATCHWISE & {found["calibrator"] for found in saved}
    about = f"{facts['outputs']}: {rows}. {scoring.grouping}.{ONE_TASK if noted else ''}"
    return FileSource(about, tuple(shown))


def _decision_record(results: Results, record: Mapping[str, Any]) -> dict[str, Any]:
    """Sets by guarantee, with the coverage of each view, and referral; of a file with posteriors."""
    names = [results.task_name(view) for view in results.views]
    sets = {}
    for guarantee, found in record["sets"].items():
        coverage = [{"name": n, "coverage": share} for n, share in zip(names, found["coverage"], strict=True)]
        sets[guarantee] = {"coverage": coverage, "size": found["size"]}
    return {key: value for key, value in record.items() if key != "seed"} | {"sets": sets}


def _method_record(results: Results, method: str) -> dict[str, Any]:
    (score,) = results.at(method)
    views = [_view_record(results, score, view) for view in results.views]
    worst = max(views[: results.n_tasks], key=lambda view: float(view["ece"]))
    return {
        "method": results.label(method),
        "calibrator": score.facts["calibrator"],
        "settings": dict(score.facts["settings"]),
        "file": score.facts.get("file"),
        "sha256": score.facts.get("sha256"),
        "comparison": score.comparison,
        "worst_task": worst["name"],
        "views": views,
    }


def _view_record(results: Results, score: Score, view: int) -> dict[str, Any]:
    """One task, or all rows."""
    interval = results.task_interval(score.method, view)
    values = {
        name: results.of_task(score.method, name, view) for name in ("accuracy", "nll", "ece", "delta_ece")
    }
    return {
        "name": results.task_name(view),
        "count": sum(results.counts) if view == results.n_tasks else results.counts[view],
        **{name: value and value.mean for name, value in values.items()},
        "delta_ece_interval": interval and list(interval),
        "noise_floor": score.facts["noise_floor"][view],
        "accepted": score.accepted[view],
        "temperature": score.facts["temperature_quantiles"][view],
        "temperature_at_bound": score.facts["views_at_bound"][view],
        "reliability": score.reliability[view],
    }
