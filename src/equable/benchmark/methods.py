"""The methods of the benchmark: a table of calibration set × calibrator.

Every row of `METHODS` is scored, tabulated and drawn; the user methods of a run are added to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from equable.benchmark.lascal import LaSCal
from equable.benchmark.oracles import TaskTemperatures
from equable.benchmark.task_outputs import Rows, Step
from equable.calibrators import (
    ARC,
    DATS,
    BiasCorrection,
    Calibrator,
    EnsembleTemperatureScaling,
    ParametrizedTemperatureScaling,
    TaskMix,
    TemperatureScaling,
    Uncalibrated,
)
from equable.calibrators.sgd_temperature import SGDTemperatureScaling


@dataclass(frozen=True)
class Method:
    """A calibrator and the rows it is fitted on.

    `variant` marks a method with other settings, `oracle` one that knows task or test labels: neither is
    ranked against the methods. `fingerprint` is the digest of a user method; others have none.
    """

    label: str
    rows: Rows
    make: Callable[[], Calibrator]
    variant: bool = False
    oracle: bool = False
    note: str = ""
    fingerprint: str = ""

    def fit(self, step: Step) -> Calibrator:
        """The calibrator, fitted on its rows of this step."""
        rows = step.rows(self.rows)
        current = step.current
        return self.make().fit(
            rows.logits,
            rows.labels,
            features=rows.features,
            tasks=rows.tasks,
            current=(current.features, current.labels) if self.rows == "calibration_buffer" else None,
        )


def _variant(label: str, rows: Rows, make: Callable[[], Calibrator]) -> Method:
    return Method(label, rows, make, variant=True)


BUFFER: Rows = "calibration_buffer"
METHODS: dict[str, Method] = {
    "uncalibrated": Method("Uncalibrated", "none", Uncalibrated),
    "ts": Method("TS", "current", TemperatureScaling),
    "ets": Method("ETS", "current", EnsembleTemperatureScaling),
    "pts": Method("PTS", "current", ParametrizedTemperatureScaling),
    "rc": Method("RC", BUFFER, TemperatureScaling),
    "rc_brier": Method("RC (Brier)", BUFFER, lambda: TemperatureScaling(loss="brier")),
    "tcil": Method("T-CIL", "perturbed", SGDTemperatureScaling),
    "dats": Method("DATS", BUFFER, DATS),
    "lascal": Method("LaSCal", BUFFER, LaSCal),
    "arc": Method("ARC", BUFFER, ARC),
    "bic": Method("BiC", BUFFER, lambda: BiasCorrection(by="newest")),
    "bcts": Method("BCTS", BUFFER, lambda: BiasCorrection(by="class")),
    "bias": Method("Bias correction", BUFFER, BiasCorrection),
    "taskmix": Method("TaskMix", BUFFER, TaskMix),
    "tcil_exact": _variant("T-CIL, exact", "perturbed", lambda: TemperatureScaling(prior_strength=0)),
    "dats_no_prior": _variant("DATS, no prior", BUFFER, lambda: DATS(prior_strength=0)),
    "dats_shared": _variant("DATS, one weight", BUFFER, lambda: DATS(weights="shared")),
    "dats_literal": _variant("DATS, literal", BUFFER, lambda: DATS(aggregate="literal")),
    "dats_sample": _variant("DATS, sample distance", BUFFER, lambda: DATS(distance="sample")),
    "dats_euclidean": _variant("DATS, Euclidean", BUFFER, lambda: DATS(metric="euclidean")),
    "oracle_task": Method(
        "Temperature per task",
        "validation",
        TaskTemperatures,
        oracle=True,
        note="from each task's own validation data; needs task labels at test time",
    ),
    "oracle_single": Method(
        "One temperature, all validation data",
        "validation",
        lambda: TemperatureScaling(loss="brier", prior_strength=0),
        oracle=True,
        note="keeps every task's whole validation set",
    ),
    "oracle_test": Method(
        "Temperature per task, test labels",
        "test",
        TaskTemperatures,
        oracle=True,
        note="fitted on the test labels themselves",
    ),
}
