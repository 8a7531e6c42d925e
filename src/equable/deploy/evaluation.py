"""Calibrators on one file of labelled outputs: every number and curve of ``equable evaluate``.

A view is what is looked at together: one task's rows, or all rows. A file with several tasks has a view
for each and all rows last; any other file has all rows alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from equable.arrays import FloatArray, IntArray
from equable.benchmark.methods import METHODS
from equable.calibrators import CALIBRATORS, Calibrator, load
from equable.calibrators.newton import is_at_bound
from equable.calibrators.row_blocks import softmax
from equable.deploy.files import (
    ALIASES,
    Applied,
    Grouping,
    apply_calibrator,
    group_rows,
    load_outputs,
    naming,
)
from equable.errors import InputError
from equable.files import sha256_of
from equable.metrics import (
    ReliabilityCurve,
    RiskCoverage,
    TaskComparison,
    accepted_share,
    accuracy,
    compare_tasks,
    negative_log_likelihood,
    noise_floor,
    reliability_curve,
    risk_coverage,
)
from equable.metrics.bootstrap import LEAST_REPLICATES
from equable.metrics.compare_tasks import Interval
from equable.outputs import Outputs
from equable.reports.distinct_names import short_names

ALL_ROWS = "All rows"
ACCEPTED_ERROR = 0.05
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, eq=False)
class ViewScores:
    """One method on one view; fractions and nats. `temperature` has its `QUANTILES` over the rows."""

    name: str
    count: int
    accuracy: float
    nll: float
    ece: float
    delta_ece: float
    delta_ece_interval: Interval | None
    noise_floor: float  # the ECE that these confidences would show, were they perfectly calibrated
    accepted: float
    temperature: tuple[float, ...] | None
    reliability: ReliabilityCurve
    referral: RiskCoverage

    @property
    def at_bound(self) -> bool:
        """Whether the median temperature is at an end of the package's range."""
        return self.temperature is not None and is_at_bound(self.temperature[len(QUANTILES) // 2])

    @property
    def task(self) -> str:
        """The task's id alone."""
        return self.name.removeprefix("Task ")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers; the referral curve, which has a point a row, is for the page."""
        found = {name: value for name, value in vars(self).items() if name != "referral"}
        names = (f"q{round(100 * q):02d}" for q in QUANTILES)
        return found | {
            "temperature": self.temperature and dict(zip(names, self.temperature, strict=True)),
            "temperature_at_bound": self.at_bound,
            "reliability": self.reliability.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class MethodScores:
    """One calibrator; `kind` is its name in `equable.CALIBRATORS`, `source` its file's name and digest."""

    label: str
    kind: str
    settings: Mapping[str, Any]
    source: tuple[str, str] | None
    comparison: TaskComparison
    views: tuple[ViewScores, ...]

    @property
    def worst(self) -> ViewScores:
        """The task (without tasks: all rows) with the highest ECE."""
        return max(self.by_task, key=lambda view: view.ece)

    @property
    def most_harmed(self) -> ViewScores:
        """The task whose ECE rose most, or fell least."""
        return max(self.by_task, key=lambda view: view.delta_ece)

    @property
    def by_task(self) -> tuple[ViewScores, ...]:
        """The views without all rows, where there are tasks."""
        return self.views[:-1] or self.views

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, lists and dictionaries, ready for JSON."""
        return {
            "method": self.label,
            "calibrator": self.kind,
            "settings": dict(self.settings),
            "file": self.source and self.source[0],
            "sha256": self.source and self.source[1],
            "comparison": self.comparison.to_dict(),
            "worst_task": self.worst.name,
            "views": [view.to_dict() for view in self.views],
        }


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All methods on one file, the uncalibrated softmax first."""

    name: str
    sha256: str
    n_rows: int
    n_classes: int
    grouping: Grouping
    methods: tuple[MethodScores, ...]

    @property
    def views(self) -> tuple[ViewScores, ...]:
        """The uncalibrated views: names and counts are the same for all methods."""
        return self.methods[0].views

    @property
    def has_tasks(self) -> bool:
        """Whether the rows are of several tasks."""
        return len(self.views) > 1

    @property
    def n_bins(self) -> int:
        """Bins of the ECE."""
        return self.methods[0].comparison.n_bins

    @property
    def n_bootstrap(self) -> int:
        """Replicates behind the intervals."""
        return self.methods[0].comparison.n_bootstrap

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, lists and dictionaries, ready for JSON."""
        sizes = self.grouping.sizes
        return {
            "outputs": self.name,
            "sha256": self.sha256,
            "rows": self.n_rows,
            "classes": self.n_classes,
            "tasks": len(self.views) - 1 if self.has_tasks else None,
            "groups": self.grouping.how,
            "batches": {"count": len(sizes), "smallest": int(sizes.min()), "largest": int(sizes.max())},
            "bins": self.n_bins,
            "bootstrap": self.n_bootstrap,
            "methods": [method.to_dict() for method in self.methods],
        }


def evaluate_files(
    path: Path,
    calibrators: Sequence[Path] = (),
    how: str | None = None,
    *,
    n_bins: int = 10,
    n_bootstrap: int = 1000,
    random_state: int = 0,
) -> Evaluation:
    """Judge saved calibrators on a file of outputs with labels.

    Parameters
    ----------
    path
        npz file of `Outputs`, rows that no calibrator was fitted on.
    calibrators
        Files of saved calibrators.
    how
        Which rows share a batch, as `group_rows` takes it.
    n_bins, n_bootstrap, random_state
        As in `equable.metrics.compare_tasks`; `n_bootstrap` 0 or at least 40.

    Examples
    --------
    >>> import tempfile, equable
    >>> outputs = equable.Outputs([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0]], labels=[0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     outputs.save(folder + "/outputs.npz")
    ...     found = evaluate_files(Path(folder, "outputs.npz"), n_bootstrap=0)
    >>> found.grouping.how, [view.name for view in found.views], round(found.views[0].accuracy, 3)
    ('all', ['All rows'], 0.667)
    """
    if 0 < n_bootstrap < LEAST_REPLICATES:
        raise InputError(
            f"--bootstrap must be 0 (no intervals) or at least {LEAST_REPLICATES}, which a 95 % interval "
            f"takes; got {n_bootstrap}"
        )
    outputs = load_outputs(path, "labels")
    with naming(path):
        grouping = group_rows(outputs, how)
    judge = _Judge(outputs, n_bins, n_bootstrap, random_state)
    plain = Applied(judge.before, np.ones(len(outputs)), grouping)
    methods = [MethodScores("Uncalibrated", "uncalibrated", {}, None, *judge.scores(plain))]
    fitted = [load(file) for file in calibrators]
    for file, calibrator, label in zip(calibrators, fitted, labels_of(calibrators, fitted), strict=True):
        with naming(f"{file} on {path}"):
            applied = apply_calibrator(calibrator, outputs, grouping)
        kind, source = kind_of(calibrator), (Path(file).name, sha256_of(file))
        methods.append(MethodScores(label, kind, calibrator.get_params(), source, *judge.scores(applied)))
    return Evaluation(
        Path(path).name, sha256_of(path), len(outputs), outputs.n_classes, grouping, tuple(methods)
    )


def kind_of(calibrator: Calibrator) -> str:
    """The name in `equable.CALIBRATORS`."""
    return next(name for name, kind in CALIBRATORS.items() if kind is type(calibrator))


def labels_of(files: Sequence[Path], calibrators: Sequence[Calibrator]) -> list[str]:
    """A short name for each file: its method's, with the file's own where that is not enough.

    RC is saved as what it is, temperature scaling: its file is called by its own name too.
    """
    kinds = [kind_of(calibrator) for calibrator in calibrators]
    plain = [METHODS[kind].label if kind in METHODS else kind for kind in kinds]
    taken = [*plain, METHODS["uncalibrated"].label]
    enough = [taken.count(p) == 1 and Path(f).stem not in ALIASES for p, f in zip(plain, files, strict=True)]
    for names in ([Path(f).stem for f in files], short_names([Path(f) for f in files])):
        whole = [f"{label} ({name})" for label, name in zip(plain, names, strict=True)]
        found = [p if alone else w for p, w, alone in zip(plain, whole, enough, strict=True)]
        if len(set(found)) == len(found):
            return found
    twice = next(label for label in found if found.count(label) > 1)
    raise InputError(f"each calibrator must be given once; got {twice} twice")


class _Judge:
    """What all methods share: labels, views, and the uncalibrated probabilities they are compared with."""

    def __init__(self, outputs: Outputs, n_bins: int, n_bootstrap: int, random_state: int) -> None:
        assert outputs.labels is not None
        self.labels = outputs.labels
        everything = np.arange(len(outputs))
        ids = [] if outputs.tasks is None else np.unique(outputs.tasks).tolist()
        self.tasks: IntArray = np.zeros(len(outputs), dtype=np.int64)
        self.views = {ALL_ROWS: everything}
        if outputs.tasks is not None and len(ids) > 1:
            self.tasks = outputs.tasks
            own = {f"Task {task}": np.flatnonzero(outputs.tasks == task) for task in ids}
            self.views = {**own, ALL_ROWS: everything}
        self.n_bins, self.n_bootstrap, self.random_state = n_bins, n_bootstrap, random_state
        self.before = np.asarray(softmax(outputs.logits))

    def scores(self, applied: Applied) -> tuple[TaskComparison, tuple[ViewScores, ...]]:
        """Everything about one method."""
        comparison = compare_tasks(
            self.labels,
            self.tasks,
            self.before,
            applied.probabilities,
            n_bins=self.n_bins,
            n_bootstrap=self.n_bootstrap,
            random_state=self.random_state,
        )
        changes = [(t.ece, t.delta_ece, t.delta_ece_interval) for t in comparison.tasks]
        if len(self.views) > 1:
            pooled = comparison.intervals.get("pooled_ece_change")
            changes.append((comparison.pooled_ece, comparison.pooled_ece_change, pooled))
        views = (self._view(name, applied, *change) for name, change in zip(self.views, changes, strict=True))
        return comparison, tuple(views)

    def _view(
        self, name: str, applied: Applied, ece: float, change: float, interval: Interval | None
    ) -> ViewScores:
        rows = self.views[name]
        labels, found = self.labels[rows], applied.probabilities[rows]
        seed = [self.random_state, list(self.views).index(name)]
        return ViewScores(
            name=name,
            count=len(rows),
            accuracy=accuracy(labels, found),
            nll=negative_log_likelihood(labels, found),
            ece=ece,
            delta_ece=change,
            delta_ece_interval=interval,
            noise_floor=noise_floor(found, n_bins=self.n_bins, random_state=seed),
            accepted=accepted_share(labels, found, ACCEPTED_ERROR),
            temperature=_quantiles(applied.temperature, rows),
            reliability=reliability_curve(labels, found, n_bins=self.n_bins),
            referral=risk_coverage(labels, found),
        )


def _quantiles(temperature: FloatArray | None, rows: IntArray) -> tuple[float, ...] | None:
    if temperature is None:
        return None
    return tuple(np.quantile(temperature[rows], QUANTILES).tolist())
