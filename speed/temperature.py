"""One temperature: equable and its peers on the same float32 logits, in turns, one thread each."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq

from equable.calibrators.losses import row_losses
from equable.calibrators.newton import LOG_BOUNDS
from equable.calibrators.softmax import shifted_rows
from speed.peers import save_arrays, take_turns, versions_of, workers
from speed.timing import against_fastest

# rows, classes, turns
SIZES = ((1_000, 10, 40), (5_000, 10, 30), (10_000, 100, 40), (25_000, 1_000, 5))
#: Printed name → (environment, call of peer_worker.py).
CONTESTANTS = {
    "equable": ("equable", "equable_temperature"),
    "scikit-learn": ("calibration", "sklearn_temperature"),
    "probmetrics": ("calibration", "probmetrics_temperature"),
    "netcal": ("calibration", "netcal_temperature"),
    "torch-uncertainty": ("torch-uncertainty", "torch_uncertainty_temperature"),
    "torch L-BFGS recipe": ("calibration", "lbfgs_temperature"),
}
#: Times faster than the fastest correct peer.
GOAL = 2.0
# Beyond this a temperature is not the minimum: 1 % is what a thousand rows leave uncertain at best.
CORRECT = 0.01
# 25,000 × 1,000 takes a peer minutes
SLOW = {"netcal": 1, "torch-uncertainty": 2, "torch L-BFGS recipe": 2}


def planted(n_rows: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Over-confident float32 logits with about 60 % accuracy."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n_rows)
    z = rng.normal(size=(n_rows, n_classes), scale=2.0)
    z[np.arange(n_rows), y] += 4 + 0.5 * np.log(n_classes)
    return (1.7 * z).astype(np.float32), y


def reference(z: np.ndarray, y: np.ndarray) -> float:
    """Log T of least NLL: the root of the exact derivative, to 1e-12."""
    shifted = shifted_rows(z)

    def slope(u: float) -> float:
        return float(row_losses(shifted, y, np.exp(-u), "nll")[1].sum())

    return float(brentq(slope, *LOG_BOUNDS, xtol=1e-12, rtol=1e-15))


def main() -> dict[str, Any]:
    """Seconds, errors and ratios at every size."""
    sizes = []
    environments = {where for where, _ in CONTESTANTS.values()}
    with tempfile.TemporaryDirectory() as folder, workers(environments) as (running, missing):
        for n_rows, n_classes, turns in SIZES:
            z, y = planted(n_rows, n_classes)
            arrays = save_arrays(Path(folder) / f"{n_rows}x{n_classes}.npz", z=z, y=y)
            few = {name: min(turns, SLOW.get(name, turns)) for name in CONTESTANTS}
            repeats = few if n_classes == 1_000 else turns
            results = take_turns(CONTESTANTS, running, missing, arrays, repeats)
            sizes.append(judged(n_rows, n_classes, results, reference(z, y)))
        return {"sizes": sizes, "versions": versions_of(running)}


def judged(n_rows: int, n_classes: int, results: dict[str, Any], truth: float) -> dict[str, Any]:
    """One size: errors against the truth, and the ratio to the fastest peer that found it."""
    for result in results.values():
        if "error" not in result:
            result["log_temperature_error"] = abs(result.pop("value") - truth)
    ours = results["equable"]["log_temperature_error"]
    found = against_fastest(results, lambda result: result["log_temperature_error"] <= CORRECT)
    others = [r["log_temperature_error"] for n, r in results.items() if n != "equable" and "error" not in r]
    row = {
        "rows": n_rows,
        "classes": n_classes,
        "goal": GOAL,
        "contestants": results,
        **found,
        "most_exact": all(ours <= other for other in others),
    }
    print(
        f"{n_rows} × {n_classes}",
        row["fastest"],
        row["ratio"],
        "most exact" if row["most_exact"] else "LESS EXACT",
    )
    for name, result in results.items():
        told = result.get("error", "")
        if not told:
            error = result["log_temperature_error"]
            told = f"{1e3 * float(np.median(result['seconds'])):10.2f} ms  error {error:.0e}"
        print(f"    {name:<20} {told}")
    return row
