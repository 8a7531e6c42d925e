"""Fixtures: a folder for a run, and one undisturbed reference run; no process outlives the tests."""

import os
from unittest.mock import patch

import pytest
from speed.loopback import ending_together

from blackbox.tiny_run import Place


@pytest.fixture(scope="session", autouse=True)
def nothing_left():
    """Every process that a test starts ends with the test run, however that ends."""
    with ending_together() as mark, patch.dict(os.environ, {mark: "1"}):
        yield


@pytest.fixture(scope="session")
def reference(made_once):
    """The folder of an undisturbed run of seeds 0 and 1 in processes of their own."""
    pytest.importorskip("torch")

    def make(folder):
        place = Place(folder)
        driver = place.start("--jobs", "2", draw=True)
        said, complaint = driver.communicate(timeout=200)
        assert driver.returncode == 0, complaint
        (folder / "run.json").write_text(said, encoding="utf-8")
        place.close()

    return made_once("blackbox", make) / "run"


@pytest.fixture
def place(tmp_path, reference):
    """A new `Place`; the reference run exists."""
    own = Place(tmp_path / "place")
    yield own
    own.close()
