"""Compile the package's few lines of C, where there is a compiler; all works without them, only slower.

Installing the package does this (``hatch_build.py``). The library lies beside its source and has the source's
digest in its name, with that of flags and platform, so no other library is ever loaded. Nothing but Python's
own modules is needed here: builds run where nothing else is installed.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCES = ("top_rows.c", "top_rows.h")
#: Fast arithmetic would lose NaN, and change how the whole process rounds.
FLAGS = ("-O3", "-fopenmp-simd", "-fno-fast-math", "-fPIC", "-shared")
#: One function for several processors, where compiler and system can do that; else for the least of them.
VARIANTS = (("-DCLONES",), ())
SECONDS = 120


def library_path(folder: Path = FOLDER) -> Path:
    """Where the library of the source in `folder` lies once it is compiled for this platform."""
    digest = hashlib.sha256(repr((FLAGS, sysconfig.get_platform())).encode())
    for name in SOURCES:
        digest.update((folder / name).read_bytes())
    return folder / f"_top_rows-{digest.hexdigest()[:16]}.so"


def compiler() -> list[str] | None:
    """The command of a C compiler: ``CC`` if it is set, else the first that is there."""
    if named := os.environ.get("CC", "").strip():
        try:
            return shlex.split(named)
        except ValueError:  # a quotation mark alone: no command, which is found out when it is called
            return [named]
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    return [found] if found else None


def compile_library(folder: Path = FOLDER) -> tuple[Path | None, str]:
    """(the library, ""), made if need be; or (None, why there is none)."""
    library = library_path(folder)
    if library.exists() and not _flaw(library):
        return library, ""
    if sys.platform == "win32":
        return None, "on Windows it is not compiled"
    command = compiler()
    if command is None:
        return None, "no C compiler (cc, gcc, clang) was found"
    reason = ""
    # first under another name: a reader sees a whole library or none
    with tempfile.TemporaryDirectory() as room:
        made = Path(room) / library.name
        for variant in VARIANTS:
            source = str(folder / SOURCES[0])
            reason = _run([*command, *FLAGS, *variant, source, "-o", str(made)]) or _flaw(made)
            if not reason:
                return _put(made, library)
    return None, reason


def _flaw(library: Path) -> str:
    """Why the library cannot be loaded; empty where it can."""
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        return str(error)
    return ""


def _run(command: list[str]) -> str:
    """Why the command failed; empty where it did not."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = (done.stderr or done.stdout).strip().splitlines()
    return f"{shlex.join(command[:1])}: {lines[-1] if lines else f'exit code {done.returncode}'}"


def _put(made: Path, library: Path) -> tuple[Path | None, str]:
    beside = library.with_suffix(f".{os.getpid()}")
    try:
        shutil.copyfile(made, beside)
        beside.replace(library)
        for old in library.parent.glob("_top_rows-*.so"):
            if old != library:
                old.unlink(missing_ok=True)  # of other source: nobody loads it
    except OSError as error:
        beside.unlink(missing_ok=True)
        return None, str(error)
    return library, ""
