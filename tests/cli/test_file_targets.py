"""Where the file commands write: whole files or none, never over an input."""

import os
import subprocess
import sys

import pytest

from calling import call, refused


def writers(source, target):
    yield ("calibrate", source / "buffer.npz", "-m", "ts", "-o", target)
    yield ("apply", source / "ts.safetensors", source / "test.npz", "-o", target)
    yield ("evaluate", source / "flat.npz", "--bootstrap", "0", "--html", target)


@pytest.mark.parametrize("which", range(3))
def test_targets(source, tmp_path, which):
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "file").write_text("x")

    def write(target):
        return call(*list(writers(source, target))[which])

    assert refused(write(folder), "must be a file; .*folder is a folder")
    assert refused(write(tmp_path / "file" / "x"), "must lie in a folder; .*file is a file")
    # a missing folder is made, an existing file replaced
    new = tmp_path / "a" / "b" / "result"
    assert write(new).exit_code == 0
    size = new.stat().st_size
    new.write_text("old")
    assert write(new).exit_code == 0
    assert new.stat().st_size == size
    assert sorted(path.name for path in new.parent.iterdir()) == ["result"]


@pytest.mark.parametrize("which", range(3))
def test_what_is_no_file_is_not_replaced_by_one(source, tmp_path, which):
    pipe = tmp_path / "pipe"
    link = tmp_path / "link"
    real = tmp_path / "real"
    os.mkfifo(pipe)
    assert refused(
        call(*list(writers(source, pipe))[which]), "must be a file; .*pipe is a device, a pipe or a"
    )
    assert pipe.is_fifo()
    real.write_text("old")
    link.symlink_to(real)
    assert call(*list(writers(source, link))[which]).exit_code == 0
    assert link.is_symlink()
    assert real.read_bytes()[:3] != b"old"


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_terminal_without_greek_letters_is_no_reason_to_fail(source, encoding):
    words = [sys.executable, "-m", "equable.cli", "evaluate", source / "test.npz", source / "ts.safetensors"]
    done = subprocess.run(
        [*words, "--bootstrap", "0"],
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"ECE" in done.stdout


def test_too_little_memory_is_said_in_one_line(source, tmp_path, monkeypatch):
    def full(*_, **__):
        raise MemoryError("Unable to allocate 7.28 TiB")

    monkeypatch.setattr("equable.TemperatureScaling.fit", full)
    words = ("calibrate", source / "buffer.npz", "-m", "ts", "-o", tmp_path / "cal")
    assert refused(call(*words), r"not enough memory: Unable to allocate 7\.28 TiB")


@pytest.mark.parametrize("which", range(3))
def test_a_failed_write_leaves_the_old_file(source, tmp_path, monkeypatch, which):
    def full(*_):
        raise OSError(28, "No space left on device")

    (tmp_path / "result").write_text("old")
    monkeypatch.setattr("os.fsync", full)
    assert refused(call(*list(writers(source, tmp_path / "result"))[which]), "No space left.*Free space")
    assert (tmp_path / "result").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


@pytest.mark.parametrize("which", range(3))
def test_an_input_is_never_overwritten(source, tmp_path, which):
    for name in ("buffer.npz", "test.npz", "flat.npz", "ts.safetensors"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    (tmp_path / "link").symlink_to(tmp_path / ("buffer.npz", "test.npz", "flat.npz")[which])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    inputs = {0: ["buffer.npz", "link"], 1: ["test.npz", "ts.safetensors", "link"], 2: ["flat.npz", "link"]}
    for name in inputs[which]:
        words = list(writers(tmp_path, tmp_path / name))[which]
        assert refused(call(*words), "must be another file than the input")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
