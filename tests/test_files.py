"""Files are written whole or not at all, and a damaged file is refused."""

from __future__ import annotations

import math
import os
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from equable import files
from equable.errors import FileFormatError, InputError
from equable.files import atomic_file, read_json, read_npz, write_bytes, write_json, write_npz, write_text
from messages import raises_naming

# one folder serves all examples of a property: each writes its file anew
SHARED_FOLDER = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_entry_that_swallows_the_next_is_damage(tmp_path):
    """The length of a comment, in the directory at the end: zipfile would list one array less."""
    names = ("groups", "labels", "logits", "tasks")
    write_npz(tmp_path / "x.npz", {name: np.arange(3.0) for name in names})
    whole = (tmp_path / "x.npz").read_bytes()
    refused = 0
    for name in names[:-1]:
        place = whole.rfind(f"{name}.npy".encode()) - 46 + 32
        for length in range(40, 70):
            changed = bytearray(whole)
            changed[place] = length
            (tmp_path / "x.npz").write_bytes(changed)
            with pytest.raises(FileFormatError):
                read_npz(tmp_path / "x.npz")
            refused += 1
    assert refused == 90
    (tmp_path / "x.npz").write_bytes(whole)
    assert sorted(read_npz(tmp_path / "x.npz")) == list(names)


KILLED = """
import os, sys
from equable.files import atomic_file
with atomic_file(sys.argv[1]) as stream:
    stream.write(bytes(100_000))
    stream.flush()
    os._exit(9)
"""


def test_a_killed_process_leaves_nothing_half_written(tmp_path):
    unnamed = files._open_unnamed(tmp_path)
    if unnamed is None:
        pytest.skip("this file system has no files without a name")
    unnamed.close()
    (tmp_path / "a.txt").write_text("old")
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "a.txt")], check=False)
    assert ended.returncode == 9
    assert names_in(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


@pytest.mark.parametrize("hidden", [False, True], ids=["without a name", "with a hidden name"])
class TestAtomicWrites:
    @pytest.fixture(autouse=True)
    def _kind_of_file(self, hidden, monkeypatch):
        if hidden:
            monkeypatch.setattr(files, "_open_unnamed", lambda folder: None)

    def test_the_content_arrives_and_nothing_else(self, tmp_path):
        write_text(tmp_path / "new" / "folder" / "a.txt", "grüße\n")
        assert (tmp_path / "new" / "folder" / "a.txt").read_bytes() == "grüße\n".encode()
        assert names_in(tmp_path / "new" / "folder") == ["a.txt"]

    def test_a_link_is_followed(self, tmp_path):
        (tmp_path / "there").mkdir()
        for name in ("old.txt", "new.txt"):
            (tmp_path / name).symlink_to(tmp_path / "there" / name)
        (tmp_path / "there" / "old.txt").write_text("old")
        for name in ("old.txt", "new.txt"):
            write_text(tmp_path / name, "new")
            assert (tmp_path / name).is_symlink()
            assert (tmp_path / "there" / name).read_text() == "new"
        assert names_in(tmp_path / "there") == ["new.txt", "old.txt"]

    def test_a_pipe_is_left_alone(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError, match=r"must be a file; it is a device.*pipe"):
            write_text(tmp_path / "pipe", "x")
        assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
        assert names_in(tmp_path) == ["pipe"]

    @pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt(), ValueError("x")])
    def test_a_failed_block_keeps_the_old_file(self, tmp_path, error):
        target = tmp_path / "a.txt"
        target.write_text("old")

        def write_half():
            with atomic_file(target) as stream:
                stream.write(b"half of the n")
                raise error

        with pytest.raises(type(error)):
            write_half()
        assert target.read_text() == "old"
        assert names_in(tmp_path) == ["a.txt"]

    @pytest.mark.parametrize("step", ["os.fsync", "os.replace"])
    def test_a_failed_move_keeps_the_old_file(self, tmp_path, monkeypatch, step):
        target = tmp_path / "a.txt"
        target.write_text("old")

        def full(*_args):
            raise OSError("No space left on device")

        monkeypatch.setattr(step, full)
        with pytest.raises(OSError, match="No space"):
            write_bytes(target, b"new")
        assert target.read_text() == "old"
        assert names_in(tmp_path) == ["a.txt"]

    def test_an_error_names_the_target_and_not_the_temporary_file(self, tmp_path):
        target = tmp_path / ("a" * 250)  # the longest name that leaves no room for the temporary one
        with pytest.raises(OSError, match="too long") as caught:
            write_bytes(target, b"new")
        assert caught.value.filename == str(target)

    def test_readers_see_the_old_file_until_the_end(self, tmp_path):
        target = tmp_path / "a.txt"
        target.write_text("old")
        with atomic_file(target) as stream:
            stream.write(b"new")
            stream.flush()
            assert target.read_text() == "old"
            assert os.fstat(stream.fileno()).st_dev == target.stat().st_dev  # else the move is not atomic
        assert target.read_text() == "new"

    @pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
    def test_the_umask_decides_who_may_read(self, tmp_path, mask, mode):
        before = os.umask(mask)
        try:
            write_text(tmp_path / "a.txt", "x")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == mode

    def test_the_umask_is_never_changed(self, tmp_path, monkeypatch):
        """The umask belongs to the process: a change would affect files that other threads write."""

        def forbidden(mask):
            raise AssertionError("the umask was changed")

        monkeypatch.setattr("os.umask", forbidden)
        write_text(tmp_path / "a.txt", "x")
        assert (tmp_path / "a.txt").read_text() == "x"

    def test_threads_that_write_one_file_leave_one_whole_version(self, tmp_path):
        target = tmp_path / "a.bin"
        versions = [bytes([i]) * 100_000 for i in range(8)]
        threads = [threading.Thread(target=write_bytes, args=(target, v)) for v in versions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert target.read_bytes() in versions
        assert names_in(tmp_path) == ["a.bin"]

    def test_a_folder_is_not_replaced(self, tmp_path):
        (tmp_path / "a").mkdir()
        with pytest.raises(OSError, match="a"):
            write_text(tmp_path / "a", "x")
        assert names_in(tmp_path) == ["a"]


class TestJson:
    @SHARED_FOLDER
    @given(
        value=st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
            max_leaves=10,
        )
    )
    def test_round_trip_to_the_last_bit(self, tmp_path, value):
        write_json(tmp_path / "a.json", value)
        back = read_json(tmp_path / "a.json")
        assert back == value
        assert repr(back) == repr(value) or isinstance(value, dict | list)  # −0.0 is not 0.0

    def test_key_order_does_not_matter(self, tmp_path):
        write_json(tmp_path / "a", {"x": 1, "y": 2})
        write_json(tmp_path / "b", {"y": 2, "x": 1})
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, {"a": [1.0, math.nan]}])
    def test_what_json_cannot_say_is_refused_and_the_old_file_kept(self, tmp_path, value):
        write_json(tmp_path / "a.json", 1)
        with pytest.raises(InputError, match="must hold finite numbers"):
            write_json(tmp_path / "a.json", value)
        assert read_json(tmp_path / "a.json") == 1
        assert names_in(tmp_path) == ["a.json"]

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b'{"a": 1',
            b"\xff\xfe",
            b"NaN",
            b'{"a": Infinity}',
            b"[" * 100_000,
            b"1" * 5000,
            b"{} {}",
            b"\xef\xbb\xbf{}",
        ],
        ids=["empty", "cut", "not text", "NaN", "infinity", "deep", "long number", "two values", "mark"],
    )
    def test_damage_is_named(self, tmp_path, content):
        (tmp_path / "a.json").write_bytes(content)
        with pytest.raises(FileFormatError, match=r"a\.json must be a JSON file"):
            read_json(tmp_path / "a.json")

    def test_missing(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            read_json(tmp_path / "none.json")


PLAIN_DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
    hnp.unicode_string_dtypes(endianness="?", max_len=5),
    hnp.byte_string_dtypes(max_len=5),
)


class TestNpz:
    @SHARED_FOLDER
    @given(
        array=PLAIN_DTYPES.flatmap(
            lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
        ),
        compress=st.booleans(),
        fortran=st.booleans(),
    )
    def test_round_trip(self, tmp_path, array, compress, fortran):
        given_order = np.asarray(array, order="F" if fortran else "C")
        write_npz(tmp_path / "a.npz", {"x": given_order}, compress=compress)
        back = read_npz(tmp_path / "a.npz")["x"]
        assert back.dtype == array.dtype.newbyteorder("=")
        assert back.flags.writeable
        np.testing.assert_array_equal(back, array)
        # numpy, the other reader of these files, agrees
        np.testing.assert_array_equal(np.load(tmp_path / "a.npz", allow_pickle=False)["x"], array)

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_reads_what_numpy_writes(self, tmp_path, save):
        arrays = {
            "a": np.arange(6.0).reshape(2, 3),
            "f": np.asfortranarray(np.arange(6).reshape(2, 3)),
            "t": np.array(["", "ä", "long"]),
            "zero": np.array(3),
            "none": np.empty((0, 4)),
            "other end": np.array([1.5, 2.5], dtype=">f4"),
        }
        save(tmp_path / "a.npz", **arrays)
        back = read_npz(tmp_path / "a.npz")
        assert back.keys() == arrays.keys()
        for name, array in arrays.items():
            assert back[name].dtype == array.dtype.newbyteorder("=")
            assert back[name].dtype.isnative
            np.testing.assert_array_equal(back[name], array)

    def test_an_array_longer_than_one_piece(self, tmp_path):
        array = np.random.default_rng(0).normal(size=400_001)
        for compress in (False, True):
            write_npz(tmp_path / "a.npz", {"x": array}, compress=compress)
            np.testing.assert_array_equal(read_npz(tmp_path / "a.npz")["x"], array)

    @pytest.mark.parametrize("compress", [False, True])
    def test_equal_arrays_give_equal_bytes(self, tmp_path, monkeypatch, compress):
        array = np.arange(12.0).reshape(3, 4)
        write_npz(tmp_path / "a.npz", {"x": array, "y": np.array(1)}, compress=compress)
        monkeypatch.setattr("time.time", lambda: 2e9)
        other = {"y": np.array(1), "x": np.asfortranarray(array.astype(">f8"))}
        write_npz(tmp_path / "b.npz", other, compress=compress)
        assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()

    def test_other_arrays_give_other_bytes(self, tmp_path):
        write_npz(tmp_path / "a.npz", {"x": np.array([1.0])})
        write_npz(tmp_path / "b.npz", {"x": np.array([np.nextafter(1.0, 2)])})
        assert (tmp_path / "a.npz").read_bytes() != (tmp_path / "b.npz").read_bytes()

    @pytest.mark.parametrize(
        "array",
        [
            np.array([{}, None]),
            np.array(["2020-01-01"], dtype="M8[D]"),
            np.zeros(2, dtype=[("a", "f8")]),
            np.zeros(2, dtype="V8"),
        ],
        ids=["objects", "dates", "structured", "void"],
    )
    def test_only_plain_arrays_are_written(self, tmp_path, array):
        write_npz(tmp_path / "a.npz", {"x": np.array(1)})
        before = (tmp_path / "a.npz").read_bytes()
        with raises_naming(InputError, "'bad' must", "plain numbers or text"):
            write_npz(tmp_path / "a.npz", {"good": np.array(2), "bad": array})
        assert (tmp_path / "a.npz").read_bytes() == before
        assert names_in(tmp_path) == ["a.npz"]

    def test_a_failed_write_keeps_the_old_file(self, tmp_path, monkeypatch):
        write_npz(tmp_path / "a.npz", {"x": np.array(1)})
        before = (tmp_path / "a.npz").read_bytes()

        def full(*_args, **_options):
            raise OSError("No space left on device")

        monkeypatch.setattr(files.npy_format, "write_array", full)
        with pytest.raises(OSError, match="No space"):
            write_npz(tmp_path / "a.npz", {"x": np.array(2)})
        assert (tmp_path / "a.npz").read_bytes() == before
        assert names_in(tmp_path) == ["a.npz"]
