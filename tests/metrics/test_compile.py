"""The C of the package: compiled where it can be, done without where not, and never loaded when stale."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from equable.metrics import compile, compiled
from equable.metrics.compile import FOLDER, SOURCES, compile_library, compiler, library_path

needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C compiler here")


@pytest.fixture
def sources(tmp_path):
    for name in SOURCES:
        shutil.copy(FOLDER / name, tmp_path)
    return tmp_path


@needs_compiler
def test_a_compiler_makes_a_library_that_works(sources, monkeypatch):
    library, reason = compile_library(sources)
    assert reason == ""
    assert library == library_path(sources)
    assert sorted(path.name for path in sources.iterdir()) == sorted([*SOURCES, library.name])
    monkeypatch.setattr(compile, "library_path", lambda: library)
    monkeypatch.delenv("EQUABLE_COMPILED", raising=False)
    fresh = compiled._library.__wrapped__()
    monkeypatch.setattr(compiled, "_library", lambda: fresh)
    confidence, hit = compiled.top_rows(np.array([[0.25, 0.75], [0.5, 0.5]]), np.array([1, 1]))
    np.testing.assert_array_equal(confidence, [0.75, 0.5])
    np.testing.assert_array_equal(hit, [True, False])


@needs_compiler
def test_the_source_compiles_without_a_warning_and_without_clones(sources):
    done = subprocess.run(
        [*compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror", "-fopenmp-simd", "-O2", "-c", "top_rows.c"],
        cwd=sources, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.returncode == 0


@needs_compiler
def test_clones_are_left_out_where_the_compiler_knows_none(sources, monkeypatch):
    strange = sources / "strange-cc"
    strange.write_text(f'#!/bin/sh\ncase "$*" in *-DCLONES*) exit 1;; esac\nexec {compiler()[0]} "$@"\n')
    strange.chmod(0o755)
    monkeypatch.setenv("CC", str(strange))
    library, _ = compile_library(sources)
    assert library is not None
    assert library.exists()


@needs_compiler
def test_a_library_of_other_source_is_replaced_and_not_loaded(sources):
    old, _ = compile_library(sources)
    (sources / "top_rows.h").write_text((sources / "top_rows.h").read_text() + "/* new */\n")
    assert library_path(sources) != old
    new, _ = compile_library(sources)
    assert list(sources.glob("*.so")) == [new]


@pytest.mark.parametrize(
    ("compiler_name", "complaint"),
    [("no-such-compiler", "no-such-compiler"), ("false", "exit code 1"), ("'", "No such file")],
)
def test_a_broken_compiler_is_named_and_nothing_is_left(sources, monkeypatch, compiler_name, complaint):
    monkeypatch.setenv("CC", compiler_name)
    library, reason = compile_library(sources)
    assert library is None
    assert complaint in reason
    assert not list(sources.glob("*_top_rows-*"))


@needs_compiler
def test_words_of_a_compiler_in_any_encoding(sources, monkeypatch):
    french = sources / "french-cc"
    french.write_bytes(f'#!/bin/sh\nprintf "\\351chec" >&2\nexec {compiler()[0]} "$@"\n'.encode())
    french.chmod(0o755)
    monkeypatch.setenv("CC", str(french))
    assert compile_library(sources)[0] is not None


@needs_compiler
def test_what_cannot_be_loaded_is_made_again_or_named(sources, monkeypatch):
    library_path(sources).write_bytes(b"junk")
    library, _ = compile_library(sources)
    assert library.read_bytes() != b"junk"
    library.unlink()
    monkeypatch.setenv("CC", f"{compiler()[0]} -c")  # an object file
    library, reason = compile_library(sources)
    assert library is None
    assert reason


def test_no_compiler_is_said(sources, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    assert compile_library(sources) == (None, "no C compiler (cc, gcc, clang) was found")


def test_a_folder_that_cannot_be_written_is_said(sources, monkeypatch):
    monkeypatch.setattr(shutil, "copyfile", lambda *_: (_ for _ in ()).throw(OSError("read-only")))
    library, reason = compile_library(sources)
    assert library is None
    assert reason
    assert not list(sources.glob("_top_rows-*"))


@pytest.mark.parametrize("broken", ["missing", "no library", "without the functions"])
def test_what_cannot_be_loaded_is_done_without(tmp_path, monkeypatch, broken):
    path = tmp_path / "_top_rows.so"
    if broken == "no library":
        path.write_bytes(b"not a library")
    if broken == "without the functions":
        path = Path(sys.modules["_ctypes"].__file__)
    monkeypatch.setattr(compile, "library_path", lambda: path)
    assert compiled._library.__wrapped__() is None


def test_it_can_be_switched_off():
    code = "from equable.metrics import compiled; print(compiled._library())"
    environment = {**os.environ, "EQUABLE_COMPILED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "None\n"


@needs_compiler
def test_this_installation_is_compiled():
    """Where there is a compiler, the build hook has used it."""
    assert not compile._flaw(library_path()), "install equable again: its C or the compiler has changed"


@pytest.mark.skipif(
    compiled._library() is None, reason="equable is not compiled here, or this is switched off"
)
@pytest.mark.parametrize("n_rows", [1, 15, 16, 17, 31])
@pytest.mark.parametrize("n_classes", [2, 10, 100])
def test_no_row_beyond_the_last_is_read(n_rows, n_classes):
    table = np.full((40, n_classes), np.nan)
    table[:n_rows] = np.eye(n_classes)[np.arange(n_rows) % n_classes]
    confidence, hit = compiled.top_rows(table[:n_rows], np.zeros(n_rows, dtype=int))
    np.testing.assert_array_equal(confidence, 1.0)
    np.testing.assert_array_equal(hit, np.arange(n_rows) % n_classes == 0)


@pytest.mark.skipif(
    compiled._library() is None, reason="equable is not compiled here, or this is switched off"
)
def test_rows_of_very_many_classes_are_left_to_numpy():
    """A million float32 numbers, added up one by one, come to 1; their sum is 1.00365."""
    row = np.full((1, 10**6), np.spacing(np.float32(1 / 16)) * 0.49, np.float32)
    row[0, :16] = 1 / 16
    assert compiled.top_rows(row, np.array([0])) is None


@pytest.mark.skipif(
    compiled._library() is None, reason="equable is not compiled here, or this is switched off"
)
def test_labels_that_another_thread_writes_are_no_danger():
    """In a process of its own, which would die: each label is checked as it is used."""
    code = """
import threading, time, numpy as np
from equable.metrics import compiled
rows, labels = np.tile(np.eye(10)[0], (20_000, 1)), np.zeros(20_000, np.int64)
stop = time.monotonic() + 1.0
def write():
    while time.monotonic() < stop:
        labels[1000:] = 2**50
        labels[1000:] = 0
thread = threading.Thread(target=write)
thread.start()
while time.monotonic() < stop:
    compiled.top_rows(rows, labels)
thread.join()
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "alive\n"
