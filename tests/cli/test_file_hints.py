"""Common mistakes with files: the error message states the remedy."""

import json

import numpy as np
import pytest

import equable
from calling import call, refused
from equable.errors import FileFormatError
from equable.files import read_npz
from messages import assert_words, raises_naming

SAVEZ = r"single array.*np\.savez\(.*logits=…, labels=…\)"


@pytest.mark.parametrize("name", ["logits.npy", "logits.npz"])
def test_a_single_array_is_no_file_of_outputs(source, served_outputs, tmp_path, name):
    path = tmp_path / name
    with open(path, "wb") as stream:
        np.save(stream, served_outputs.logits)
    message = rf"{name} must .*named arrays.*{SAVEZ}"
    target = ("-o", tmp_path / "target")
    assert refused(call("apply", source / "dats.safetensors", path, *target), message)
    assert refused(call("evaluate", path, source / "dats.safetensors"), message)
    assert refused(call("calibrate", path, "-m", "ts", *target), message)
    assert refused(
        call("calibrate", source / "buffer.npz", "-m", "dats", "--current", path, *target), message
    )
    with pytest.raises(FileFormatError, match=message):
        equable.Outputs.load(path)
    assert not (tmp_path / "target").exists()


def test_a_single_array_is_no_dataset(tmp_path):
    np.save(tmp_path / "images.npy", np.zeros((4, 8, 8), dtype=np.uint8))
    (tmp_path / "images.npy").rename(tmp_path / "images.npz")
    found = call("datasets", "check", tmp_path / "images.npz")
    assert_words(found.output, "single array", "np.savez(", "train_images=…")


def test_unknown_arrays_are_refused_by_name(tmp_path):
    np.savez(tmp_path / "rows.npz", z=[[2.0, 0.0], [0.0, 1.0]], y=[0, 1])
    with raises_naming(FileFormatError, "rows.npz must", "'logits'", "'labels'", "'z' is none"):
        equable.Outputs.load(tmp_path / "rows.npz")


def test_a_file_of_the_wrong_kind_is_refused(source, tmp_path):
    cal = source / "dats.safetensors"
    rows = source / "test.npz"
    assert refused(call("apply", rows, rows, "-o", tmp_path / "p"), "must be a whole safetensors file")
    assert refused(call("apply", cal, cal, "-o", tmp_path / "p"), "must be a whole npz file")
    assert refused(call("evaluate", cal, cal), "must be a whole npz file")
    (tmp_path / "empty").write_bytes(b"")
    assert refused(call("apply", rows, tmp_path / "empty", "-o", tmp_path / "p"), "safetensors file")


@pytest.mark.parametrize("method", ["DATS", "Dats", "RC"])
def test_methods_in_any_case(source, tmp_path, method):
    words = ("calibrate", source / "buffer.npz", "--method", method, "-o", tmp_path / "a", "--json")
    assert json.loads(call(*words).stdout)["method"] == method.lower()
    words = ("calibrate", source / "buffer.npz", "--method", method.lower(), "-o", tmp_path / "b")
    assert call(*words).exit_code == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# DATS on rows without batches -----------------------------------------------------------

ONE = ("DATS", "360 rows", "one temperature", "one task", "--groups", "ARC")


def said_by(source, path, target, method="dats", *words):
    done = call("apply", source / f"{method}.safetensors", path, "-o", target, *words)
    assert done.exit_code == 0, done.stderr
    return done


def test_dats_on_one_batch_by_default_is_told(source, written, tmp_path):
    path = written(tasks=None)
    done = said_by(source, path, tmp_path / "p.npz")
    assert_words(done.stderr, "equable: warning: ", *ONE)
    assert done.stderr.count("\n") == 1
    assert np.ptp(read_npz(tmp_path / "p.npz")["temperature"]) == 0
    found = said_by(source, path, tmp_path / "p.npz", "dats", "--json")
    (warning,) = json.loads(found.stdout)["warnings"]
    assert_words(warning, *ONE)


def test_nothing_is_told_where_nothing_is_doubtful(source, served_outputs, written, tmp_path):
    target = tmp_path / "p.npz"
    path = written(tasks=None)
    for method, words in (
        ("arc", ()),
        ("ts", ()),
        ("dats", ("--groups", "all")),
        ("dats", ("--groups", "9")),
    ):
        assert said_by(source, path, target, method, *words).stderr == "", (method, words)
    assert said_by(source, source / "test.npz", target).stderr == ""
    assert said_by(source, written(tasks=None, groups=np.zeros(360, dtype=int)), target).stderr == ""
    equable.Outputs(served_outputs.logits[:1], features=served_outputs.features[:1]).save(
        tmp_path / "row.npz"
    )
    assert said_by(source, tmp_path / "row.npz", target).stderr == ""
