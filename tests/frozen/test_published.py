"""The command that writes docs/results gives the stored numbers; one small run stands for all."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]
#: The module that computes docs/results from results/.
PUBLISHED = "published"
RUN = "digits"


def test_the_numbers_behind_the_figures_of_a_run_are_those_stored(tmp_path):
    """Within the tolerance of the command itself, which other processors need."""
    shutil.copytree(ROOT / "results" / RUN, tmp_path / RUN)
    found = subprocess.run(
        [sys.executable, "-m", PUBLISHED, "--check", "--results", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in found.stderr, found.stderr
    differing = found.stderr.split()
    assert any(name.endswith(".json") for name in differing)  # those of the runs that were left out
    assert f"docs/results/data/{RUN}.json" not in differing
    assert f"docs/results/{RUN}.md" not in differing
