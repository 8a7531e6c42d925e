"""Fixtures shared by the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from planted import Incremental, make_incremental


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
