"""Forged and damaged archives: refused whole, with nothing written anywhere."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from equable.datasets import archives
from equable.datasets.archives import open_zip, read_tar
from equable.errors import DataError
from messages import raises_naming

ESCAPES = ["../evil", "/etc/evil", "data/../../evil", "data\\..\\evil", "C:/evil"]


def tar_with(path: Path, *members: tarfile.TarInfo, content: bytes = b"") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            member.size = len(content) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return path


def zip_with(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def read_all_zip(path: Path) -> dict[str, bytes]:
    with open_zip(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_wanted_members_only_are_read(tmp_path: Path) -> None:
    path = tar_with(tmp_path / "a.tar.gz", *map(tarfile.TarInfo, ["data/a", "data/b"]), content=b"hello")
    assert read_tar(path, lambda name: name.endswith("a")) == {"data/a": b"hello"}
    assert read_all_zip(zip_with(tmp_path / "a.zip", **{"data/a": b"hello"})) == {"data/a": b"hello"}


@pytest.mark.parametrize("name", ESCAPES)
def test_paths_that_leave_the_folder(tmp_path: Path, name: str) -> None:
    path = tar_with(tmp_path / "a.tar.gz", tarfile.TarInfo("data/a"), tarfile.TarInfo(name))
    with pytest.raises(DataError, match="must be a plain file inside the archive's folder"):
        read_tar(path, lambda _: False)
    with pytest.raises(DataError, match="must be a plain file inside the archive's folder"):
        read_all_zip(zip_with(tmp_path / "a.zip", **{"data/a": b"", name: b"evil"}))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.tar.gz", "a.zip"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("data/link")
    member.type = kind
    member.linkname = "/etc/passwd"
    with raises_naming(DataError, "must", "plain file", "link"):
        read_tar(tar_with(tmp_path / "a.tar.gz", member), lambda _: True)


def test_links_in_a_zip(tmp_path: Path) -> None:
    member = zipfile.ZipInfo("data/link")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(member, "/etc/passwd")
    with raises_naming(DataError, "must", "plain file", "link"):
        read_all_zip(tmp_path / "a.zip")


def test_bombs_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "FREE_BYTES", 1 << 20)
    zeros = bytes(4 << 20)
    packed = zip_with(tmp_path / "a.zip", bomb=zeros)
    assert packed.stat().st_size < 10_000
    with raises_naming(DataError, "must", "unpack", "1048576 bytes"):
        read_all_zip(packed)
    tar = tar_with(tmp_path / "a.tar.gz", tarfile.TarInfo("bomb"), content=zeros)
    for wanted in (True, False):
        with raises_naming(DataError, "must", "unpack", "1048576 bytes"):
            read_tar(tar, lambda _, wanted=wanted: wanted)


def test_a_long_name_cannot_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GNU long-name header makes tarfile read its whole size at once; the cap holds there, too."""
    monkeypatch.setattr(archives, "FREE_BYTES", 1 << 20)
    header = tarfile.TarInfo("././@LongLink")
    header.type = tarfile.GNUTYPE_LONGNAME
    header.size = 1 << 32
    with gzip.open(tmp_path / "a.tar.gz", "wb") as stream:
        stream.write(header.tobuf(tarfile.GNU_FORMAT) + bytes(4 << 20))
    with raises_naming(DataError, "must", "unpack", "1048576 bytes"):
        read_tar(tmp_path / "a.tar.gz", lambda _: True)


@pytest.mark.parametrize("size", [2**40, 2**63, 2**70])
def test_a_member_larger_than_any_file(tmp_path: Path, size: int) -> None:
    member = tarfile.TarInfo("data/a")
    member.size = size
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024)))
    with pytest.raises(DataError, match="truncated or damaged"):
        read_tar(path, lambda _: True)


def test_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_MEMBERS", 3)
    with pytest.raises(DataError, match=r"or 3 members; .* in 4 members"):
        read_all_zip(zip_with(tmp_path / "a.zip", a=b"1", b=b"1", c=b"1", d=b"1"))


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.999])
def test_truncated_archives(tmp_path: Path, keep: float) -> None:
    noise = bytes((i * i + i // 7) % 251 for i in range(40_000))
    for path in (
        tar_with(tmp_path / "a.tar.gz", *map(tarfile.TarInfo, "abc"), content=noise),
        zip_with(tmp_path / "a.zip", a=noise, b=noise),
    ):
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * keep)])
        with pytest.raises(DataError, match="truncated or damaged"):
            read_tar(path, lambda _: True) if path.suffix == ".gz" else read_all_zip(path)


def test_foreign_and_changed_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    for content in (b"not an archive", gzip.compress(b"not a tar" * 200)):
        path.write_bytes(content)
        with pytest.raises(DataError, match="truncated or damaged"):
            read_tar(path, lambda _: True)
    # gzip's checksum comes last; a tar of whole mebibytes is read without reaching it
    content = bytes(5 * 2**20 - 3 * 512)
    changed = bytearray(tar_with(path, tarfile.TarInfo("a"), content=content).read_bytes())
    changed[-8] ^= 0xFF
    path.write_bytes(changed)
    with pytest.raises(DataError, match="truncated or damaged"):
        read_tar(path, lambda _: True)
    packed = bytearray(zip_with(tmp_path / "a.zip", a=bytes(range(256)) * 20).read_bytes())
    packed[40] ^= 0xFF
    (tmp_path / "a.zip").write_bytes(packed)
    with pytest.raises(DataError, match="truncated or damaged"):
        read_all_zip(tmp_path / "a.zip")
