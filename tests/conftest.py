"""Fixtures shared by the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from planted import Incremental, make_incremental

try:
    from hypothesis import settings
except ImportError:  # the environment of Avalanche has none
    pass
else:
    # Enough examples to meet a mistake within a few runs of the suite; no deadline, machines may be busy.
    settings.register_profile("suite", max_examples=25, deadline=None)
    settings.load_profile("suite")


@pytest.fixture
def incremental() -> Incremental:
    return make_incremental()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data, or a skip with the reason."""
    folder = os.environ.get("EQUABLE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("EQUABLE_DATA does not name the folder of real data, which is not distributed")
    return Path(folder)
