"""The comparison of runs detects every difference; otherwise the fault tests could not fail."""

import shutil

import pytest

from blackbox.tiny_run import assert_undisturbed, contents, mark_finished
from equable.files import read_json, write_json


def change_a_byte(folder):
    path = folder / "seed-0" / "task-1" / "test.npz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def change_a_score(folder):
    path = folder / "scores" / "seed-1_task-1_rc.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"ece": 0.', '"ece": 0.1', 1), encoding="utf-8")


def write_again(folder):
    path = folder / "seed-0" / "task-0" / "done.json"
    write_json(path, read_json(path))


DISTURBANCES = {
    "a byte": change_a_byte,
    "a score": change_a_score,
    "written again": write_again,
    "lost": lambda folder: (folder / "seed-1" / "task-0" / "model.safetensors").unlink(),
    "half-written": lambda folder: (folder / "scores" / ".x.part").touch(),
}


def test_a_copy_is_undisturbed(reference, tmp_path):
    folder = shutil.copytree(reference, tmp_path / "run")
    assert_undisturbed(folder, reference, mark_finished(folder))
    suffixes = {name.rpartition(".")[2] for name in contents(folder)}
    assert suffixes == {"npz", "safetensors", "json"}
    assert len(contents(folder, (0,))) > 50


@pytest.mark.parametrize("disturb", DISTURBANCES)
def test_every_disturbance_is_seen(reference, tmp_path, disturb):
    folder = shutil.copytree(reference, tmp_path / "run")
    kept = mark_finished(folder)
    DISTURBANCES[disturb](folder)
    with pytest.raises(AssertionError):
        assert_undisturbed(folder, reference, kept)
