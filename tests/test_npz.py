"""A damaged or forged npz file is refused, and has no other effect."""

from __future__ import annotations

import io
import json
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from equable import files
from equable.errors import FileFormatError
from equable.files import read_json, read_npz, write_npz
from messages import raises_naming


def npz_of(path, members, method=zipfile.ZIP_STORED):
    """A zip file with the given members, whatever they are."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


def npy_of(array, **options):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), **options)
    return stream.getvalue()


def npy_with(header, data=b"", version=(1, 0)):
    """Bytes of an npy file whose header is the given text."""
    text = header.encode("latin-1") + b"\n"
    return b"\x93NUMPY" + bytes(version) + len(text).to_bytes(2 * version[0], "little") + text + data


HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }"


class Bomb:
    """Unpickling it makes a file, which the tests check for."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


class TestForeignNpz:
    def test_npy_version_2_and_spaced_headers(self, tmp_path):
        data = np.array([1.0, 2.0]).tobytes()
        for npy in (
            npy_with(HEADER, data, version=(2, 0)),
            npy_with("{'shape': ( 2 , ), 'descr' : \"<f8\",\n 'fortran_order':  False}", data),
        ):
            npz_of(tmp_path / "a.npz", [("x.npy", npy)])
            np.testing.assert_array_equal(read_npz(tmp_path / "a.npz")["x"], [1.0, 2.0])

    def test_what_the_system_refuses_is_its_own_error(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            read_npz(tmp_path / "none.npz")
        with pytest.raises(IsADirectoryError):
            read_npz(tmp_path)

    @pytest.mark.parametrize("content", [b"", b"PK", b"x" * 5000])
    def test_not_a_zip(self, tmp_path, content):
        (tmp_path / "a.npz").write_bytes(content)
        with raises_naming(FileFormatError, "a.npz must", "whole npz file"):
            read_npz(tmp_path / "a.npz")

    @pytest.mark.parametrize("compress", [False, True])
    def test_every_truncation_is_noticed(self, tmp_path, compress):
        write_npz(tmp_path / "a.npz", {"x": np.arange(8.0), "y": np.array(["a"])}, compress=compress)
        whole = (tmp_path / "a.npz").read_bytes()
        for length in range(len(whole)):
            (tmp_path / "cut.npz").write_bytes(whole[:length])
            with pytest.raises(FileFormatError):
                read_npz(tmp_path / "cut.npz")

    def test_nothing_is_unpickled(self, tmp_path):
        planted = npy_of(np.array([Bomb(str(tmp_path / "boom"))], dtype=object), allow_pickle=True)
        npz_of(tmp_path / "a.npz", [("x.npy", planted)])
        with raises_naming(FileFormatError, "a.npz", "'x' must", "plain", "object"):
            read_npz(tmp_path / "a.npz")
        assert not (tmp_path / "boom").exists()

    @pytest.mark.parametrize("name", ["x.npy", "x.pkl"])
    def test_a_bare_pickle_as_a_member(self, tmp_path, name):
        npz_of(tmp_path / "a.npz", [(name, pickle.dumps(Bomb(str(tmp_path / "boom"))))])
        with pytest.raises(FileFormatError, match=r"header|must hold npy arrays only"):
            read_npz(tmp_path / "a.npz")
        assert not (tmp_path / "boom").exists()

    HEADERS = {
        "more than the file holds": (HEADER.replace("(2,)", "(3,)"), "declares 24 bytes .* holds 16"),
        "terabytes": (HEADER.replace("(2,)", f"({2**50},)"), "declares .* the file holds 16"),
        "less than the file holds": (HEADER.replace("(2,)", "(1,)"), "declares 8 bytes .* holds 16"),
        "beyond 64 bits": (HEADER.replace("(2,)", f"(0, {2**70})"), "damaged|declares"),
        "a negative length": (HEADER.replace("(2,)", "(-2,)"), "declares -16 bytes"),
        "two negative lengths": (HEADER.replace("(2,)", "(-2, -1)"), "damaged"),
        "no shape": (HEADER.replace("shape", "shade"), "header"),
        "no order": (HEADER.replace("False", "0"), "header"),
        "a structured type": (HEADER.replace("'<f8'", "[('a', '<f8')]"), "plain numbers or text"),
        "an unknown type": (HEADER.replace("<f8", "<f7"), "header"),
        "text without length": (HEADER.replace("<f8", "<U0"), "plain numbers or text"),
        "text without end": (HEADER.replace("<f8", "<U99999999").replace("(2,)", "(0,)"), "plain numbers"),
        "dates": (HEADER.replace("<f8", "<M8[s]"), "plain numbers or text"),
        "code": ("__import__('os').system('false')", "header"),
        "too deep": ("(" * 3000, "header"),
        "too many signs": ("-" * 9000 + "1", "header"),
        "too many axes": (HEADER.replace("(2,)", "(" + "1, " * 99 + "2)"), "damaged"),
        "a number of 5000 digits": (HEADER.replace("(2,)", f"({'1' * 5000},)"), "header"),
    }

    @pytest.mark.parametrize("case", HEADERS)
    def test_headers_that_lie(self, tmp_path, case):
        header, message = self.HEADERS[case]
        npz_of(tmp_path / "a.npz", [("x.npy", npy_with(header, np.ones(2).tobytes()))])
        with pytest.raises(FileFormatError, match=message):
            read_npz(tmp_path / "a.npz")

    def test_header_longer_than_the_file(self, tmp_path):
        for version, length in (((1, 0), 60_000), ((2, 0), 2**32 - 1)):
            start = b"\x93NUMPY" + bytes(version) + length.to_bytes(2 * version[0], "little")
            npz_of(tmp_path / "a.npz", [("x.npy", start + b"{'descr'")])
            with pytest.raises(FileFormatError, match="header"):
                read_npz(tmp_path / "a.npz")

    def test_header_longer_than_any_needs_to_be(self, tmp_path):
        npz_of(tmp_path / "a.npz", [("x.npy", npy_with(HEADER + " " * 70_000, bytes(16), version=(2, 0)))])
        with pytest.raises(FileFormatError, match="header"):
            read_npz(tmp_path / "a.npz")

    def test_newer_npy(self, tmp_path):
        npz_of(tmp_path / "a.npz", [("x.npy", npy_with(HEADER, bytes(16), version=(3, 0))[:4000])])
        with pytest.raises(FileFormatError, match="header"):
            read_npz(tmp_path / "a.npz")

    def test_text_that_is_no_text(self, tmp_path):
        header = HEADER.replace("<f8", "<U2")
        npz_of(tmp_path / "a.npz", [("x.npy", npy_with(header, b"\xff" * 16))])
        with pytest.raises(FileFormatError, match="no characters"):
            read_npz(tmp_path / "a.npz")

    def test_an_array_twice(self, tmp_path):
        with pytest.warns(UserWarning, match="Duplicate name"):
            npz_of(tmp_path / "a.npz", [("x.npy", npy_of([1])), ("x.npy", npy_of([2]))])
        with pytest.raises(FileFormatError, match="holds 'x' twice"):
            read_npz(tmp_path / "a.npz")

    def test_other_members(self, tmp_path):
        npz_of(tmp_path / "a.npz", [("readme.txt", b"hello")])
        with pytest.raises(FileFormatError, match=r"npy arrays only; it holds 'readme.txt'"):
            read_npz(tmp_path / "a.npz")

    def test_a_bomb_is_refused_before_it_is_unpacked(self, tmp_path, monkeypatch):
        monkeypatch.setattr(files, "FREE_BYTES", 1 << 20)
        npz_of(tmp_path / "a.npz", [("x.npy", npy_of(np.zeros(1 << 19)))], zipfile.ZIP_DEFLATED)
        assert (tmp_path / "a.npz").stat().st_size < 10_000
        monkeypatch.setattr(zipfile.ZipFile, "open", None)
        with raises_naming(FileFormatError, "a.npz must", "unpack", "1048576 bytes", "claims 4"):
            read_npz(tmp_path / "a.npz")

    def test_a_bomb_that_hides_its_size(self, tmp_path):
        """The directory states 100 bytes, the data unpack to 4 MB: at most 100 are read."""
        npz_of(tmp_path / "a.npz", [("x.npy", npy_of(np.zeros(1 << 19)))], zipfile.ZIP_DEFLATED)
        whole = (tmp_path / "a.npz").read_bytes()
        size = ((1 << 22) + 128).to_bytes(4, "little")
        assert whole.count(size) == 2
        (tmp_path / "a.npz").write_bytes(whole.replace(size, (100).to_bytes(4, "little")))
        with pytest.raises(FileFormatError, match="Bad CRC"):
            read_npz(tmp_path / "a.npz")

    @pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_methods_that_unpack_all_at_once(self, tmp_path, method):
        npz_of(tmp_path / "a.npz", [("x.npy", npy_of([1.0]))], method)
        with raises_naming(FileFormatError, "stored or deflated", "'x'", f"zip method {method}"):
            read_npz(tmp_path / "a.npz")

    @pytest.mark.parametrize("compress", [False, True])
    def test_changed_bytes_are_refused_or_harmless(self, tmp_path, compress):
        arrays = {"x": np.arange(20.0).reshape(4, 5), "g": np.array(["a", "bc"])}
        write_npz(tmp_path / "a.npz", arrays, compress=compress)
        whole = (tmp_path / "a.npz").read_bytes()
        rng = np.random.default_rng(0)
        refused = 0
        for _ in range(500):
            damaged = bytearray(whole)
            for position in rng.integers(len(whole), size=rng.integers(1, 4)):
                damaged[position] ^= int(rng.integers(1, 256))
            (tmp_path / "b.npz").write_bytes(bytes(damaged))
            try:
                back = read_npz(tmp_path / "b.npz")
            except FileFormatError:
                refused += 1
                continue
            # the checksums let only dates, names and comments of the zip file change
            for name in arrays.keys() & back.keys():
                np.testing.assert_array_equal(back[name], arrays[name])
        assert refused > 200

    # one folder serves all examples: each writes its file anew
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
    @given(data=st.data())
    def test_no_header_brings_the_reader_down(self, tmp_path, data):
        """Forged with a right checksum: any text near a header, any bytes after it."""
        header = data.draw(
            st.sampled_from([h for h, _ in self.HEADERS.values()] + [HEADER]).flatmap(
                lambda text: st.builds(
                    lambda at, new: text[:at] + new + text[at + len(new) :],
                    st.integers(0, len(text)),
                    st.text(st.characters(max_codepoint=255), max_size=6),
                )
            )
        )
        npz_of(tmp_path / "a.npz", [("x.npy", npy_with(header, data.draw(st.binary(max_size=32))))])
        try:
            back = read_npz(tmp_path / "a.npz")
        except FileFormatError:
            return
        assert isinstance(back["x"].tolist(), list | float | int | bool | str | bytes | complex)

    def test_json_is_not_npz_and_npz_is_not_json(self, tmp_path):
        (tmp_path / "a").write_text(json.dumps({"x": [1]}))
        with pytest.raises(FileFormatError):
            read_npz(tmp_path / "a")
        write_npz(tmp_path / "b", {"x": np.ones(2)})
        with pytest.raises(FileFormatError):
            read_json(tmp_path / "b")
