"""Keys of ``--json`` of every command, as stored in tests/frozen; exit codes of refusals.

``EQUABLE_FREEZE=1`` writes the file anew; a key that is no longer there breaks programs that read it.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

from blackbox.tiny_run import SETTINGS
from calling import call

STORED = Path(__file__).parents[1] / "frozen" / "json_keys.json"


def key_paths(value, path=""):
    """Dotted paths of all keys; entries of a list share one path."""
    if isinstance(value, dict):
        return {found for key, part in value.items() for found in key_paths(part, f"{path}.{key}")} or {path}
    if isinstance(value, list):
        return {found for part in value for found in key_paths(part, f"{path}[]")} or {path}
    return {path}


def printed(*words):
    found = call(*words, "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.fixture
def everything(reference, tmp_path, blank_figures):
    """Command → what it prints with ``--json``."""
    run = tmp_path / "run"
    shutil.copytree(reference, run)
    rows = run / "seed-0" / "task-1" / "test.npz"
    cal = tmp_path / "cal.safetensors"
    out = tmp_path / "p.npz"
    return {
        "run": json.loads((reference.parent / "run.json").read_text(encoding="utf-8")),
        "status": printed("status", run),
        "score": printed("score", run, "--jobs", 1),
        "ablate": printed("ablate", run),
        "arrivals": printed("arrivals", run),
        "report": printed("report", run),
        "calibrate": printed("calibrate", rows, "--method", "dats", "--current", rows, "--out", cal),
        "apply": printed("apply", cal, rows, "--out", out),
        "evaluate": printed("evaluate", rows, cal, "--bootstrap", 40),
        "datasets list": printed("datasets", "list"),
        "datasets get": printed("datasets", "get", "digits"),
        "datasets check": printed("datasets", "check", reference.parent / "tiny.npz"),
    }


def test_keys_are_those_stored(everything):
    found = {name: sorted(key_paths(value)) for name, value in everything.items()}
    if os.environ.get("EQUABLE_FREEZE"):
        STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    for name, keys in stored.items():
        assert sorted(set(keys) - set(found[name])) == [], name
        assert sorted(set(found[name]) - set(keys)) == [], name


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (("evaluate", "{place}/tiny.npz"), 1, "logits"),
        (("run", "{place}/wrong.toml"), 1, "training.colour"),
        (("run", "no-such-preset"), 1, "no-such-preset"),
        (("run",), 2, "Missing argument"),
        (("status", "absent"), 2, "absent"),
        (("datasets", "check", "{place}/absent.npz"), 1, "absent.npz"),
        (("--version",), 0, ""),
    ],
)
def test_exit_codes(reference, tmp_path, monkeypatch, words, code, named):
    """0 done, 1 refused, 2 wrong usage; tests of interrupted runs check 130, and 1 of a failed seed."""
    for name in ("tiny.npz", "held.py"):
        shutil.copy(reference.parent / name, tmp_path)
    wrong = SETTINGS.replace("threads = 1", "threads = 1\ncolour = 3")
    (tmp_path / "wrong.toml").write_text(wrong, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = call(*(word.format(place=tmp_path) for word in words))
    assert found.exit_code == code, found.output
    assert named in found.output
    assert "Traceback" not in found.output
