"""ECE of a million rows and its bootstrap, compared with torchmetrics and netcal."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from speed.peers import save_arrays, take_turns, versions_of, workers
from speed.timing import against_fastest

ROWS = 1_000_000
CLASSES = 10
GOAL = 1.5
REPLICATES = 1000
ECE = {
    "equable": ("equable", "equable_ece"),
    "torchmetrics": ("calibration", "torchmetrics_ece"),
    "netcal": ("calibration", "netcal_ece"),
}
BOOTSTRAP = {
    "equable": ("equable", "equable_bootstrap"),
    "torchmetrics": ("calibration", "torchmetrics_bootstrap"),
    "netcal": ("calibration", "netcal_bootstrap"),
}
#: Other shapes, compared with torchmetrics only: classes, type.
SHAPES = ((2, "float32"), (10, "float64"), (100, "float32"))


def planted(n_classes: int = CLASSES, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Overconfident probabilities of a million rows, calibrated ones, and labels."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(ROWS, n_classes)).astype(np.float32) * 2
    e = np.exp(z - z.max(axis=1, keepdims=True), dtype=dtype)
    p = e / e.sum(axis=1, keepdims=True)
    soft = np.exp((z - z.max(axis=1, keepdims=True)) / 1.5).cumsum(axis=1)
    y = (soft / soft[:, -1:] > rng.random((ROWS, 1))).argmax(axis=1)
    q = np.diff(soft, axis=1, prepend=0) / soft[:, -1:]
    return p, q.astype(dtype), y


def main() -> dict[str, Any]:
    """Times, ratios and memory as multiples of the input."""
    found: dict[str, Any] = {"rows": ROWS, "classes": CLASSES, "goal": GOAL, "replicates": REPLICATES}
    with tempfile.TemporaryDirectory() as folder, workers({"calibration"}) as (running, missing):
        p, q, y = planted()
        arrays = save_arrays(Path(folder) / "rows.npz", p=p, q=q, y=y)
        for name, contestants, repeats in (("ece", ECE, 15), ("bootstrap", BOOTSTRAP, 2)):
            results = take_turns(contestants, running, missing, arrays, repeats)
            for peer, result in results.items():
                if name == "bootstrap" and peer != "equable" and "error" not in result:
                    # two replicates are timed and extrapolated; each is one pass over the rows
                    result["seconds"] = [s * REPLICATES / 2 for s in result["seconds"]]
                    result["extrapolated"] = True
                if "error" not in result:
                    # the paired bootstrap has two inputs, that of the peers has one
                    both = name == "bootstrap" and peer == "equable"
                    result["memory"] = result["peak_bytes"] / (p.nbytes + y.nbytes + both * q.nbytes)
            found[name] = {"contestants": results, **against_fastest(results, correct=lambda _: True)}
            print(
                name,
                {k: v.get("error") or (np.median(v["seconds"]), v["memory"]) for k, v in results.items()},
            )
        found["shapes"] = []
        for n_classes, dtype in SHAPES:
            p, _, y = planted(n_classes, dtype)
            arrays = save_arrays(Path(folder) / f"{n_classes}-{dtype}.npz", p=p, y=y)
            peers = {name: call for name, call in ECE.items() if name != "netcal"}
            results = take_turns(peers, running, missing, arrays, 7)
            facts = {
                "classes": n_classes,
                "dtype": dtype,
                "contestants": results,
                **against_fastest(results, correct=lambda _: True),
            }
            print(n_classes, dtype, facts["ratio"])
            found["shapes"].append(facts)
            arrays.unlink()
        found["versions"] = versions_of(running)
    return found
