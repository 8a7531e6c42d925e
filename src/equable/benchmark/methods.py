"""The methods of the benchmark: a table of calibration set × calibrator.

Every row of `METHODS` is scored, tabulated and drawn; the user methods of a run are added to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from equable.benchmark.lascal import LaSCal
from equable.benchmark.oracles import TaskTemperatures
from equable.benchmark.task_outputs import Rows, Step
from equable.benchmark.tcil import SGDTemperatureScaling
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
from equable.outputs import Outputs


@dataclass(frozen=True)
class Method:
    """A calibrator and the rows it is fitted on.

    `variant` marks a method with other settings, `bound` an oracle that knows task or test labels: neither is
    ranked against the methods. `fingerprint` is the digest of a user method; others have none.
    """

    label: str
    rows: Rows
    make: Callable[[], Calibrator]
    variant: bool = False
    bound: bool = False
    note: str = ""
    fingerprint: str = ""

    def fit(self, step: Step) -> Calibrator:
        """The calibrator, fitted on its rows of this step."""
        rows, current = self.rows_of(step), step.current
        return self.make().fit(
            rows.logits,
            rows.labels,
            features=rows.features,
            tasks=rows.tasks,
            current=(current.features, current.labels) if self.rows == "calibration_buffer" else None,
        )

    def rows_of(self, step: Step) -> Outputs:
        """The rows the calibrator is fitted on."""
        return step.rows(self.rows)


METHODS: dict[str, Method] = {
    "uncalibrated": Method("Uncalibrated", "none", Uncalibrated),
    "ts": Method("TS", "current", TemperatureScaling),
    "ets": Method("ETS", "current", EnsembleTemperatureScaling),
    "pts": Method("PTS", "current", ParametrizedTemperatureScaling),
    "rc": Method("RC", "calibration_buffer", TemperatureScaling),
    "rc_brier": Method("RC (Brier)", "calibration_buffer", lambda: TemperatureScaling(loss="brier")),
    "tcil": Method("T-CIL", "perturbed", SGDTemperatureScaling),
    "dats": Method("DATS", "calibration_buffer", DATS),
    "lascal": Method("LaSCal", "calibration_buffer", LaSCal),
    "arc": Method("ARC", "calibration_buffer", ARC),
    "bic": Method("BiC", "calibration_buffer", lambda: BiasCorrection(by="newest")),
    "bcts": Method("BCTS", "calibration_buffer", lambda: BiasCorrection(by="class")),
    "bias": Method("Bias correction", "calibration_buffer", BiasCorrection),
    "taskmix": Method("TaskMix", "calibration_buffer", TaskMix),
    "tcil_exact": Method(
        "T-CIL, exact", "perturbed", lambda: TemperatureScaling(prior_strength=0), variant=True
    ),
    "dats_no_prior": Method(
        "DATS, no prior", "calibration_buffer", lambda: DATS(prior_strength=0), variant=True
    ),
    "dats_shared": Method(
        "DATS, one weight", "calibration_buffer", lambda: DATS(weights="shared"), variant=True
    ),
    "dats_literal": Method(
        "DATS, literal", "calibration_buffer", lambda: DATS(aggregate="literal"), variant=True
    ),
    "dats_sample": Method(
        "DATS, sample distance", "calibration_buffer", lambda: DATS(distance="sample"), variant=True
    ),
    "dats_euclidean": Method(
        "DATS, Euclidean", "calibration_buffer", lambda: DATS(metric="euclidean"), variant=True
    ),
    "oracle_task": Method(
        "Temperature per task",
        "validation",
        TaskTemperatures,
        bound=True,
        note="from each task's own validation data; needs task labels at test time",
    ),
    "oracle_single": Method(
        "One temperature, all validation data",
        "validation",
        lambda: TemperatureScaling(loss="brier", prior_strength=0),
        bound=True,
        note="keeps every task's whole validation set",
    ),
    "oracle_test": Method(
        "Temperature per task, test labels",
        "test",
        TaskTemperatures,
        bound=True,
        note="fitted on the test labels themselves",
    ),
}
