"""Avalanche: calibrate after each experience and log the scores before and after calibration.

`CalibrationPlugin` connects `equable.integrations.incremental.IncrementalCalibration` to the events of an
Avalanche strategy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from equable.calibrators import Calibrator
from equable.calibrators.validation import require_number
from equable.errors import InputError, MissingExtraError
from equable.integrations.incremental import IncrementalCalibration, stratified_share
from equable.metrics import TaskComparison

try:
    from avalanche.evaluation.metric_results import MetricValue
    from avalanche.training.plugins import SupervisedPlugin
except ImportError as error:
    raise MissingExtraError(
        "equable.integrations.avalanche needs Avalanche: pip install avalanche-lib"
    ) from error

__all__ = ["CalibrationPlugin", "stratified_split"]

# name in the logs → attribute of `TaskComparison`; ECE is the mean over tasks
STREAM_METRICS = {
    "Accuracy_Uncalibrated": "accuracy_before",
    "Accuracy_Calibrated": "accuracy",
    "NLL_Uncalibrated": "nll_before",
    "NLL_Calibrated": "nll",
    "ECE_Uncalibrated": "average_ece_before",
    "ECE_Calibrated": "average_ece",
    "DeltaLECE": "delta_last_ece",
    "MaxDeltaECE": "max_delta_ece",
}
# and of `TaskScores`, one value for each experience
EXPERIENCE_METRICS = {"ECE_Uncalibrated_Exp": "ece_before", "ECE_Calibrated_Exp": "ece"}


class CalibrationPlugin(SupervisedPlugin):  # type: ignore[misc]
    """Keep a calibration buffer, calibrate after each experience and log scores at each evaluation.

    Weights, modes, gradients and torch's generator are not changed: training gives the same bits with and
    without the plug-in.

    Parameters
    ----------
    calibrator
        An equable calibrator such as ``DATS()`` or ``ARC()``; it is fitted in place.
    validation
        Stream whose i-th experience holds rows of the i-th training experience that are never
        trained on, such as ``benchmark.valid_stream``. Augmentation is switched off for them.
    features, percent, seed
        As in `IncrementalCalibration`.

    Attributes
    ----------
    calibration
        The `IncrementalCalibration`.
    comparison
        `TaskComparison` of the last evaluation, None before the first.

    Notes
    -----
    ``strategy.eval(stream)`` logs at its end accuracy, NLL and ECE before and after calibration (means over
    the experiences in which classes were learnt), ΔLECE and maxΔECE, and the ECE of each experience.
    Each experience of the stream is one batch with one temperature. Rows of classes not yet learnt are left
    out. Nothing is logged by an evaluation during an experience, when the calibrator is older than the model,
    nor before a second class has been learnt.
    """

    def __init__(
        self,
        calibrator: Calibrator,
        validation: Any,
        *,
        features: nn.Module | str | None = None,
        percent: float = 50.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if getattr(validation, "name", None) == "train":
            raise InputError("validation must be held out of training; got the train stream")
        self.validation = validation
        self.calibration = IncrementalCalibration(calibrator, features=features, percent=percent, seed=seed)
        self.comparison: TaskComparison | None = None
        self._up_to_date = False
        self._trained: list[int] = []  # the experience behind each task of `calibration`
        self._evaluated: list[Any] = []

    def before_training_exp(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Raise before training where the experience could not be calibrated."""
        self._up_to_date = False
        held_out = set(_targets(self._held_out(strategy)))
        missing = sorted(set(_targets(strategy.experience.dataset)) - held_out)
        if missing:
            raise InputError(
                f"validation must hold rows of every class in training; class {missing[0]} has none"
            )

    def after_training_exp(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Extend the calibration buffer by this experience and fit the calibrator."""
        self.calibration.end_task(strategy.model, self._held_out(strategy).eval())
        self._trained.append(_number(strategy.experience))
        self._up_to_date = len(self.calibration.classes) > 1

    def before_eval(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Start an evaluation."""
        self._evaluated = []

    def after_eval_exp(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Remember an experience that holds classes learnt so far."""
        dataset = strategy.experience.dataset
        if self._up_to_date and set(_targets(dataset)) & set(self.calibration.classes):
            self._evaluated.append(dataset.eval())

    def after_eval(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Log the scores of the stream before and after calibration."""
        if not self._evaluated:
            return
        self.comparison = self.calibration.evaluate(strategy.model, self._evaluated)
        stream = strategy.experience.origin_stream.name
        for name, value in _values(self.comparison, stream, self._trained):
            strategy.evaluator.publish_metric_value(
                MetricValue(self, name, value, strategy.clock.train_iterations)
            )

    def _held_out(self, strategy: Any) -> Any:
        """The validation dataset of the experience in training."""
        wanted = _number(strategy.experience)
        for experience in self.validation:
            if _number(experience) == wanted:
                return experience.dataset
        raise InputError(f"validation must have the experiences of the training stream; it has no {wanted}")


def stratified_split(percent: float, *, seed: int = 0) -> Callable[[Any], tuple[Any, Any]]:
    """Split a dataset into training and validation, `percent` of each class for validation.

    For ``benchmark_with_validation_stream(benchmark, split_strategy=stratified_split(20))``; its own default
    takes the last rows as they come.
    """
    require_number(percent, "percent", 0, 100, open_low=True)

    def split(dataset: Any) -> tuple[Any, Any]:
        held_out = stratified_share(_targets(dataset), percent, seed=seed)
        training = np.setdiff1d(np.arange(len(dataset)), held_out)
        return dataset.subset(training.tolist()), dataset.subset(held_out.tolist())

    return split


def _number(experience: Any) -> int:
    """The position of an experience in its stream; during training Avalanche gives it to loggers only."""
    return int(experience.logging().current_experience)


def _targets(dataset: Any) -> list[int]:
    return [int(target) for target in dataset.targets]


def _values(comparison: TaskComparison, stream: str, experiences: list[int]) -> list[tuple[str, float]]:
    """Metric names in Avalanche's form and their values; `experiences[t]` is the experience of task t."""
    place = f"eval_phase/{stream}_stream"
    whole = [(f"{name}/{place}", getattr(comparison, source)) for name, source in STREAM_METRICS.items()]
    return whole + [
        (f"{name}/{place}/Exp{experiences[task.task]:03}", getattr(task, source))
        for name, source in EXPERIENCE_METRICS.items()
        for task in comparison.tasks
    ]
