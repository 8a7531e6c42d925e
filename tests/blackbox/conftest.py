"""A place for a run, and one undisturbed run for the whole folder; no process outlives the tests."""

import os
from unittest.mock import patch

import pytest
from filelock import FileLock
from speed.loopback import ending_together

from blackbox.tiny_run import Place


@pytest.fixture(scope="session", autouse=True)
def nothing_left():
    """Every process that a test starts ends with the test run, however that ends."""
    with ending_together() as mark, patch.dict(os.environ, {mark: "1"}):
        yield


@pytest.fixture(scope="session")
def reference(request, tmp_path_factory):
    """The folder of an undisturbed run of seeds 0 and 1 in processes of their own."""
    pytest.importorskip("torch")
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if hasattr(request.config, "workerinput") else own
    with FileLock(shared / "blackbox.lock"):
        place = Place(shared / "blackbox")
        if not (place.run / "report.html").exists():
            driver = place.start("--jobs", "2")
            _, complaint = driver.communicate(timeout=200)
            assert driver.returncode == 0, complaint
            place.close()
    return place.run


@pytest.fixture
def place(tmp_path, reference):
    """A place of one's own, with the reference made."""
    own = Place(tmp_path / "place")
    yield own
    own.close()
