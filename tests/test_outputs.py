"""`Outputs`, the record passed between the layers, and its file."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import equable
from equable.errors import FileFormatError, InputError
from equable.files import write_npz
from messages import raises_naming

NAMES = ("logits", "labels", "features", "tasks", "groups")


def assert_equal(left, right):
    for name in NAMES:
        a = getattr(left, name)
        b = getattr(right, name)
        assert (a is None) == (b is None), name
        if a is not None:
            assert a.dtype == b.dtype, name
            np.testing.assert_array_equal(a, b)


def finite(dtype):
    width = np.dtype(dtype).itemsize * 8
    return st.floats(width=width, allow_nan=False, allow_infinity=False)


@st.composite
def records(draw):
    """Small records with any combination of fields."""
    n_rows = draw(st.integers(1, 6))
    n_classes = draw(st.integers(2, 5))
    n_features = draw(st.integers(1, 4))
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))

    def matrix(n_columns):
        return hnp.arrays(dtype, (n_rows, n_columns), elements=finite(dtype))

    def whole(high):
        return hnp.arrays(np.int64, n_rows, elements=st.integers(0, high))

    text = hnp.arrays(hnp.unicode_string_dtypes(min_len=1, max_len=4, endianness="="), n_rows)
    numbers = hnp.arrays(np.int64, n_rows, elements=st.integers(-(2**63), 2**63 - 1))
    return equable.Outputs(
        draw(matrix(n_classes)),
        labels=draw(st.none() | whole(n_classes - 1)),
        features=draw(st.none() | matrix(n_features)),
        tasks=draw(st.none() | whole(2**63 - 1)),
        groups=draw(st.none() | text | numbers),
    )


@pytest.fixture
def full():
    rng = np.random.default_rng(0)
    return equable.Outputs(
        rng.normal(size=(6, 3)).astype(np.float32),
        labels=[0, 1, 2, 0, 1, 2],
        features=rng.normal(size=(6, 4)).astype(np.float16),
        tasks=[0, 0, 0, 1, 1, 1],
        groups=["ward a"] * 3 + ["ward b"] * 3,
    )


class TestRecord:
    def test_only_logits_are_needed(self):
        outputs = equable.Outputs([[1, 2, 3]])
        assert (len(outputs), outputs.n_classes) == (1, 3)
        assert all(getattr(outputs, name) is None for name in NAMES[1:])

    def test_it_cannot_be_changed(self, full):
        with pytest.raises(dataclasses.FrozenInstanceError):
            full.logits = np.zeros((6, 3))

    @pytest.mark.parametrize(
        "rows",
        [slice(1, 4), [2, 0, 2], np.array([True, False] * 3), np.arange(6)[::-1]],
        ids=["slice", "indices", "mask", "reversed"],
    )
    def test_choosing_rows(self, full, rows):
        chosen = full[rows]
        for name in NAMES:
            np.testing.assert_array_equal(getattr(chosen, name), getattr(full, name)[rows])

    def test_choosing_rows_of_a_record_without_labels(self):
        assert equable.Outputs([[1, 2], [3, 4]])[[1]].labels is None

    def test_choosing_none_or_a_single_number(self, full):
        with pytest.raises(InputError, match="logits must have at least one row"):
            full[full.labels > 9]
        with pytest.raises(InputError, match="logits must have two dimensions"):
            full[0]

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ({"logits": [[1.0]]}, "logits must have at least 2 columns"),
            ({"labels": [0, 1, 2, 0, 1, 3]}, r"labels must .*0 … 2 .*K = 3.*got 3"),
            ({"features": np.ones((5, 4))}, "features must .*each of the 6 rows"),
            ({"tasks": [0, 0, 0, 0, 0, -1]}, "tasks must .*≥ 0.*got -1"),
            ({"groups": np.ones(6)}, "groups must .*whole numbers or text.*got dtype float64"),
        ],
    )
    def test_bad_arrays(self, full, bad, message):
        arrays = {name: getattr(full, name) for name in NAMES} | bad
        with pytest.raises(InputError, match=message):
            equable.Outputs(**arrays)


class TestFile:
    # one folder serves all examples: each writes its file anew
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
    @given(record=records(), compress=st.booleans())
    def test_round_trip(self, tmp_path, record, compress):
        record.save(tmp_path / "a.npz", compress=compress)
        assert_equal(equable.Outputs.load(tmp_path / "a.npz"), record)

    def test_compressed_is_smaller_and_equal(self, tmp_path):
        record = equable.Outputs(np.zeros((1000, 10)))
        record.save(tmp_path / "a.npz")
        record.save(tmp_path / "b.npz", compress=True)
        assert (tmp_path / "b.npz").stat().st_size < (tmp_path / "a.npz").stat().st_size / 10
        assert_equal(equable.Outputs.load(tmp_path / "b.npz"), record)

    def test_equal_records_give_equal_bytes(self, tmp_path, full):
        full.save(tmp_path / "a.npz")
        equable.Outputs(**{name: getattr(full, name) for name in reversed(NAMES)}).save(tmp_path / "b.npz")
        assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()

    def test_a_file_made_with_numpy_alone(self, tmp_path):
        np.savez(tmp_path / "a.npz", logits=[[1.0, 2.0]], labels=[1.0])
        loaded = equable.Outputs.load(tmp_path / "a.npz")
        assert loaded.labels.tolist() == [1]
        assert loaded.labels.dtype == np.int64

    def test_a_failed_write_keeps_the_old_file(self, tmp_path, full, monkeypatch):
        full.save(tmp_path / "a.npz")
        before = (tmp_path / "a.npz").read_bytes()

        def full_disk(*_args):
            raise OSError("No space left on device")

        monkeypatch.setattr("os.replace", full_disk)
        with pytest.raises(OSError, match="No space"):
            full[:2].save(tmp_path / "a.npz")
        assert (tmp_path / "a.npz").read_bytes() == before
        assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]

    def test_missing(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            equable.Outputs.load(tmp_path / "none.npz")

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ({"schema": np.array(2)}, "has schema 2; this equable reads 1 to 1. Update"),
            ({"schema": np.array(2**64 - 1, dtype=np.uint64)}, "has schema 18446744073709551615"),
            ({"schema": np.array(0)}, "has schema 0"),
            ({"schema": np.array([1])}, "schema must be one whole number"),
            ({"schema": np.array("1")}, "schema must be one whole number"),
            ({"weights": np.ones(2)}, r"none but \['features', 'groups', 'labels', 'logits', 'tasks'\]"),
            ({"logits": None}, r"must hold the array 'logits' .*; it holds \[\]"),
            ({"logits": np.ones(2)}, "logits must have two dimensions"),
            ({"logits": np.full((2, 2), np.nan)}, "logits must be finite"),
            ({"logits": np.ones((2, 2), dtype=complex)}, "logits must be real numbers"),
            ({"logits": np.array([["a", "b"]])}, "logits must be real numbers"),
            ({"labels": np.array([0, 2])}, "labels must lie in 0 … 1"),
            ({"labels": np.array([0])}, r"labels must have shape \(2,\)"),
            ({"labels": np.array(["a", "b"])}, "labels must be whole numbers"),
            ({"features": np.ones((3, 2))}, "features must have one row for each of the 2 rows"),
            ({"features": np.ones((2, 0))}, "features must have at least 1 columns"),
            ({"tasks": np.array([0.5, 1])}, "tasks must be whole numbers"),
            ({"tasks": np.array([-1, 1])}, "tasks must .*≥ 0.*got -1"),
            ({"groups": np.array([0.5, 1])}, "groups must be whole numbers or text"),
            ({"groups": np.array([["a", "b"]])}, r"groups must have shape \(2,\)"),
        ],
    )
    def test_wrong_content_is_named_with_the_file(self, tmp_path, arrays, message):
        content = {"schema": np.array(1), "logits": np.eye(2)} | arrays
        write_npz(tmp_path / "a.npz", {name: array for name, array in content.items() if array is not None})
        with pytest.raises(FileFormatError, match=rf"a\.npz.*{message}"):
            equable.Outputs.load(tmp_path / "a.npz")

    def test_objects_are_refused(self, tmp_path):
        np.savez(tmp_path / "a.npz", logits=np.array([[1, None]]))
        with raises_naming(FileFormatError, "'logits' must", "plain numbers or text"):
            equable.Outputs.load(tmp_path / "a.npz")

    @pytest.mark.parametrize("compress", [False, True])
    def test_changed_bytes_give_a_refusal_or_a_valid_record(self, tmp_path, full, compress):
        full.save(tmp_path / "a.npz", compress=compress)
        whole = (tmp_path / "a.npz").read_bytes()
        rng = np.random.default_rng(1)
        for _ in range(400):
            damaged = bytearray(whole)
            damaged[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
            (tmp_path / "b.npz").write_bytes(bytes(damaged))
            try:
                record = equable.Outputs.load(tmp_path / "b.npz")
            except FileFormatError:
                continue
            np.testing.assert_array_equal(record.logits, full.logits)
