import subprocess
import sys
import tracemalloc

import numpy as np

import equable.metrics


def test_public_names_exist():
    for name in equable.metrics.__all__:
        assert callable(getattr(equable.metrics, name))


def test_import_is_light():
    """Neither the import nor a comparison loads matplotlib, scikit-learn, torch or scipy."""
    code = (
        "import sys, equable.metrics as m; m.compare_tasks([0, 1], [0, 1], [[.5, .5]] * 2, [[.5, .5]] * 2);"
        "print([n for n in ('matplotlib', 'sklearn', 'torch', 'scipy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_memory_stays_below_twice_the_input(planted):
    """Rows are read block by block: no float64 copy of single-precision probabilities."""
    y, p, q = (a if a.ndim == 1 else a.astype(np.float32) for a in planted(200_000, 0.6, 1.0))
    tasks = np.arange(200_000) % 5
    measured = {
        p.nbytes: lambda: equable.metrics.expected_calibration_error(y, p),
        p.nbytes + q.nbytes: lambda: equable.metrics.compare_tasks(y, tasks, p, q, n_bootstrap=50),
    }
    for input_bytes, call in measured.items():
        tracemalloc.start()
        call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2 * input_bytes
