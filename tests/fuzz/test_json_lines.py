"""Untrusted logs of a monitor: JSON lines."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equable
from equable.errors import EquableError
from fuzz.hostile import JSON, NUMBERS, damaged
from fuzz.sandbox import FUZZ, call


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The log of three updates with labels."""
    folder = tmp_path_factory.mktemp("log")
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 4
    logits = 3 * np.eye(4)[labels] + rng.normal(size=(60, 4))
    calibrator = equable.TaskMix().fit(logits, labels, tasks=labels // 2)
    monitor = equable.Monitor(calibrator, window=30, log=folder / "log.jsonl")
    for begin in (0, 20, 40):
        monitor.update(logits[begin : begin + 20])
        monitor.feedback(np.arange(begin, begin + 20), labels[begin : begin + 20])
    return (folder / "log.jsonl").read_bytes()


@st.composite
def forged(draw, original):
    """Whole lines with values that a monitor does not write."""
    lines = []
    for line in original.splitlines():
        value = json.loads(line)
        for key in draw(st.lists(st.sampled_from(sorted(value)), max_size=3)):
            value[key] = draw(
                JSON | NUMBERS | st.integers() | st.sampled_from([10**400, -1, "9" * 5000, [0.5] * 9])
            )
        lines.append(json.dumps(value))
    return "\n".join(draw(st.permutations(lines))).encode()


@FUZZ
@given(data=st.data())
def test_log(sandbox, original, data):
    content = data.draw(damaged(st.just(original)) | forged(original) | st.binary(max_size=100))
    path = sandbox.box / "log.jsonl"
    path.write_bytes(content)
    found = sandbox.read(lambda: call("monitor", path, "--json"), len(content))
    if not isinstance(found, EquableError):
        assert json.loads(found)["updates"] >= 1
