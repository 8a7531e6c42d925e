"""Read requests as JSON lines, run a contestant and answer with its seconds; runs in any environment.

Each contestant imports its own library. The time is that of the call of a user on arrays in memory. The
answer contains the result and the peak of memory above the memory of the process before the call.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import json
import logging
import math
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ARRAYS: dict[str, np.ndarray] = {}
LOADED = [""]
BINS = 15
PACKAGES = (
    *("equable", "numpy", "scipy", "scikit-learn", "torch"),
    *("torchmetrics", "netcal", "probmetrics", "torch-uncertainty"),
)


# One temperature: each returns log T ---------------------------------------------------------------


def equable_temperature() -> float:
    import equable

    return math.log(equable.TemperatureScaling(prior_strength=0).fit(ARRAYS["z"], ARRAYS["y"]).temperature_)


def sklearn_temperature() -> float:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    class Logits(ClassifierMixin, BaseEstimator):
        """The decision function is the input, so that scikit-learn calibrates these logits."""

        classes_ = np.arange(ARRAYS["z"].shape[1])

        def fit(self, X: Any, y: Any) -> Logits:
            return self

        def __sklearn_is_fitted__(self) -> bool:
            return True

        def decision_function(self, X: Any) -> Any:
            return X

        def predict(self, X: Any) -> Any:
            return X.argmax(axis=1)

    peer = CalibratedClassifierCV(FrozenEstimator(Logits()), method="temperature", ensemble=False)
    peer.fit(ARRAYS["z"], ARRAYS["y"])
    return -math.log(float(peer.calibrated_classifiers_[0].calibrators[0].beta_))


def probmetrics_temperature() -> float:
    import torch
    from probmetrics.calibrators import TemperatureScalingCalibrator
    from probmetrics.distributions import CategoricalLogits

    peer = TemperatureScalingCalibrator()
    peer.fit_torch(CategoricalLogits(torch.from_numpy(ARRAYS["z"])), torch.from_numpy(ARRAYS["y"]))
    return -math.log(float(peer.invtemp_))


def netcal_temperature() -> float:
    from netcal.scaling import TemperatureScaling

    z = ARRAYS["z"].astype(np.float64)
    e = np.exp(z - z.max(axis=1, keepdims=True))
    peer = TemperatureScaling()
    with contextlib.redirect_stdout(io.StringIO()):
        peer.fit(e / e.sum(axis=1, keepdims=True), ARRAYS["y"], random_state=0, tensorboard=False)
    return -math.log(float(np.ravel(peer.temperature)[0]))  # the temperature of netcal multiplies


def lbfgs_temperature() -> float:
    """A common recipe: L-BFGS of torch on T from 1.5, rate 0.01, 50 iterations."""
    import torch

    logits = torch.from_numpy(ARRAYS["z"])
    labels = torch.from_numpy(ARRAYS["y"])
    temperature = torch.nn.Parameter(torch.full((1,), 1.5))
    optimiser = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

    def closure() -> Any:
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits / temperature, labels)
        loss.backward()
        return loss

    optimiser.step(closure)
    return math.log(temperature.item())


def torch_uncertainty_temperature() -> float:
    import torch

    _declare_torchvision_operators()
    from torch_uncertainty.post_processing import TemperatureScaler

    rows = torch.utils.data.TensorDataset(torch.from_numpy(ARRAYS["z"]), torch.from_numpy(ARRAYS["y"]))
    peer = TemperatureScaler()
    # one batch, because loaders are not compared
    peer.fit(torch.utils.data.DataLoader(rows, batch_size=len(rows), collate_fn=None), progress=False)
    return math.log(float(peer.temperature[0]))


def _declare_torchvision_operators() -> None:
    """Declare operators that the wheel of torchvision needs and a CPU build of torch does not have."""
    import torch

    if "nms" not in DECLARED:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        DECLARED["nms"] = library


DECLARED: dict[str, Any] = {}


# ECE of probabilities ------------------------------------------------------------------------------


def equable_ece() -> float:
    from equable.metrics import expected_calibration_error

    return expected_calibration_error(ARRAYS["y"], ARRAYS["p"], n_bins=BINS)


def torchmetrics_ece() -> float:
    import torch
    from torchmetrics.functional.classification import multiclass_calibration_error

    p = torch.from_numpy(ARRAYS["p"])
    y = torch.from_numpy(ARRAYS["y"])
    return float(multiclass_calibration_error(p, y, num_classes=p.shape[1], n_bins=BINS))


def netcal_ece() -> float:
    from netcal.metrics.confidence import ECE

    return float(ECE(BINS).measure(ARRAYS["p"], ARRAYS["y"]))


def equable_bootstrap() -> float:
    from equable.metrics import compare_tasks

    tasks = np.zeros(len(ARRAYS["y"]), dtype=np.int64)
    found = compare_tasks(
        ARRAYS["y"], tasks, ARRAYS["p"], ARRAYS["q"], n_bins=BINS, n_bootstrap=1000, random_state=0
    )
    return float(found.average_ece)


def torchmetrics_bootstrap() -> float:
    """Two replicates of the BootStrapper."""
    import torch
    from torchmetrics.classification import MulticlassCalibrationError
    from torchmetrics.wrappers import BootStrapper

    p = torch.from_numpy(ARRAYS["p"])
    y = torch.from_numpy(ARRAYS["y"])
    metric = BootStrapper(MulticlassCalibrationError(num_classes=p.shape[1], n_bins=BINS), num_bootstraps=2)
    metric.update(p, y)
    return float(metric.compute()["mean"])


def netcal_bootstrap() -> float:
    """Two replicates; netcal has no bootstrap."""
    from netcal.metrics.confidence import ECE

    rng = np.random.default_rng(0)
    values = []
    for _ in range(2):
        rows = rng.integers(0, len(ARRAYS["y"]), len(ARRAYS["y"]))
        values.append(float(ECE(BINS).measure(ARRAYS["p"][rows], ARRAYS["y"][rows])))
    return float(np.mean(values))


CALLS: dict[str, Callable[[], float]] = {
    name: value
    for name, value in globals().items()
    if callable(value) and name.endswith(("_temperature", "_ece", "_bootstrap"))
}


# Requests ----------------------------------------------------------------------------------


def memory(field: str) -> int:
    """Bytes of ``VmRSS`` or ``VmHWM``; 0 if the system does not provide them."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), 0)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request."""
    if request.get("versions"):
        found = {"python": platform.python_version()}
        for name in PACKAGES:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[name] = importlib.metadata.version(name).partition("+")[0]
        return found
    if request["load"] != LOADED[0]:
        ARRAYS.clear()
        with np.load(request["load"], allow_pickle=False) as file:
            ARRAYS.update({name: file[name] for name in file.files})
        LOADED[0] = request["load"]
    call = CALLS[request["call"]]
    if request.get("warm"):
        call()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = memory("VmRSS")
    start = time.perf_counter()
    value = call()
    return {
        "seconds": time.perf_counter() - start,
        "value": value,
        "peak_bytes": max(0, memory("VmHWM") - before),
    }


def main() -> None:
    logging.disable(logging.CRITICAL)
    channel = sys.stdout
    sys.stdout = sys.stderr  # output of libraries must not mix with the answers
    for line in sys.stdin:
        try:
            found = answer(json.loads(line))
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        channel.write(json.dumps(found) + "\n")
        channel.flush()


if __name__ == "__main__":
    main()
