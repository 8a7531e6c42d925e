"""The sandbox detects forbidden actions; otherwise the fuzz tests could not fail."""

import pickle

import numpy as np
import pytest

from equable.errors import InputError


class Evil:
    def __reduce__(self):
        return len, ("unpickled",)


EVIL = pickle.dumps(Evil())
HARM = {
    "unpickles": lambda box: pickle.loads(EVIL),
    "writes elsewhere": lambda box: (box.elsewhere / "new").write_text("x"),
    "writes beside": lambda box: (box.box / "new").write_text("x"),
    "removes": lambda box: (box.elsewhere / "sentinel.txt").unlink(),
    "runs code": lambda box: eval(compile("1 + 1", "stranger.py", "eval")),
    "fills Python's memory": lambda box: bytes(80 << 20),
    "fills numpy's memory": lambda box: np.ones(80 << 20, dtype=np.uint8),
}


@pytest.mark.parametrize("harm", HARM)
def test_harm_is_seen(sandbox, harm):
    with pytest.raises(AssertionError):
        sandbox.read(lambda: HARM[harm](sandbox), 100)


def test_other_errors_are_findings(sandbox):
    with pytest.raises(ZeroDivisionError):
        sandbox.read(lambda: 1 / 0, 100)
    with pytest.raises(MemoryError):
        sandbox.read(lambda: np.empty(1 << 32, dtype=np.uint8), 100)


def test_our_errors_and_values_pass(sandbox):
    assert sandbox.read(lambda: 3, 100) == 3

    def refuse():
        raise InputError("no")

    assert isinstance(sandbox.read(refuse, 100), InputError)
    assert sandbox.inputs == 2
