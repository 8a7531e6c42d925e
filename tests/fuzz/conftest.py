"""The sandbox of every fuzz test, and at the end how many inputs were read."""

import pytest

from fuzz.sandbox import Sandbox

COUNTS: dict[str, int] = {}


@pytest.fixture
def sandbox(tmp_path, monkeypatch, request):
    """A sandbox with a folder to read from."""
    box = Sandbox(tmp_path)
    monkeypatch.chdir(box.elsewhere)
    yield box
    if hasattr(request.function, "hypothesis"):
        COUNTS[request.node.name] = box.inputs


def pytest_terminal_summary(terminalreporter):
    if COUNTS:
        parts = ", ".join(f"{name.removeprefix('test_')} {count}" for name, count in COUNTS.items())
        terminalreporter.write_line(f"fuzz: {sum(COUNTS.values())} inputs read ({parts})")
