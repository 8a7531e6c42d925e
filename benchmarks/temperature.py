"""One temperature: equable against scikit-learn on the same float32 logits, one thread."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.optimize import brentq
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

import equable
from benchmarks.timing import ratio, side_by_side
from equable.calibrators.solvers import LOG_BOUNDS, ShiftedRows, loss_terms

SIZES = ((1_000, 10, 40), (5_000, 10, 30), (10_000, 100, 12), (25_000, 1_000, 3))
GOALS = {(5_000, 10): 3.0, (10_000, 100): 5.0, (25_000, 1_000): 5.0}


class Logits:
    """A classifier whose decision function is its input: scikit-learn then calibrates these logits."""

    def __init__(self, n_classes: int) -> None:
        self.classes_ = np.arange(n_classes)

    def fit(self, X: np.ndarray, y: np.ndarray) -> Logits:  # noqa: D102
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:  # noqa: D102
        return X

    def predict(self, X: np.ndarray) -> np.ndarray:  # noqa: D102
        return X.argmax(axis=1)

    def __sklearn_tags__(self):  # type: ignore[no-untyped-def]
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            transformer_tags=None,
            classifier_tags=ClassifierTags(),
            regressor_tags=None,
            input_tags=InputTags(),
        )


def planted(n_rows: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Over-confident float32 logits with about 60 % accuracy."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n_rows)
    z = rng.normal(size=(n_rows, n_classes), scale=2.0)
    z[np.arange(n_rows), y] += 4 + 0.5 * np.log(n_classes)
    return (1.7 * z).astype(np.float32), y


def reference(z: np.ndarray, y: np.ndarray) -> float:
    """Log T of least NLL: the root of the exact derivative, to 1e-12."""
    rows = ShiftedRows(z)

    def slope(u: float) -> float:
        return sum(float(loss_terms(s, y[block], np.exp(-u), "nll")[1].sum()) for block, s in rows)

    return float(brentq(slope, *LOG_BOUNDS, xtol=1e-12, rtol=1e-15))


def main() -> dict[str, object]:
    results = []
    heads = ("rows × classes", "equable ms", "sklearn ms", "ratio", "quartiles")
    print("{:>16} {:>11} {:>11} {:>7} {:>14}  |Δ log T|".format(*heads))
    for n_rows, n_classes, repeats in SIZES:
        z, y = planted(n_rows, n_classes)
        frozen = FrozenEstimator(Logits(n_classes))
        peer = CalibratedClassifierCV(frozen, method="temperature", ensemble=False)
        ours = equable.TemperatureScaling()
        calls = {"equable": partial(ours.fit, z, y), "scikit-learn": partial(peer.fit, z, y)}
        seconds = side_by_side(calls, repeats)
        truth = reference(z, y)
        beta = peer.calibrated_classifiers_[0].calibrators[0].beta_
        errors = {
            "equable": abs(np.log(ours.temperature_) - truth),
            "scikit-learn": abs(-np.log(float(beta)) - truth),
        }
        middle, low, high = ratio(seconds, "scikit-learn", "equable")
        mine, theirs = (1e3 * float(np.median(seconds[name])) for name in ("equable", "scikit-learn"))
        goal = GOALS.get((n_rows, n_classes))
        print(
            f"{n_rows:>8} × {n_classes:<5} {mine:>11.2f} {theirs:>11.2f} {middle:>7.1f} "
            f"{low:>6.1f}–{high:<6.1f}  {errors['equable']:.0e} / {errors['scikit-learn']:.0e}"
            + (f"   goal {goal:.0f}×: {'met' if middle >= goal else 'MISSED'}" if goal else "")
        )
        results.append(
            {
                "rows": n_rows,
                "classes": n_classes,
                "seconds": seconds,
                "log_temperature_error": errors,
                "ratio": [middle, low, high],
                "goal": goal,
            }
        )
    return {"temperature": results, "dats": dats()}


def dats() -> dict[str, object]:
    """DATS at 4,000 × 100: the fit alone."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(100), 40)
    z = (rng.normal(size=(4000, 100)) * 2 + 4 * np.eye(100)[y]).astype(np.float32) * np.where(
        y < 90, 2.0, 1.2
    )[:, None]
    features = rng.normal(size=(4000, 64)) + rng.normal(size=(100, 64))[y]
    cal = equable.DATS()
    seconds = side_by_side({"DATS": lambda: cal.fit(z, y, features=features, tasks=y // 10)}, 3)["DATS"]
    middle = float(np.median(seconds))
    print(f"DATS fit at 4000 × 100: {middle:.2f} s   goal 2 s: {'met' if middle < 2 else 'MISSED'}")
    return {"rows": 4000, "classes": 100, "seconds": seconds, "goal": 2.0}
