"""A sandbox for reading hostile files: forbidden actions of a reader are detected.

Only errors of equable may leave a reader. Python's audit events report anything that is run, written,
removed or connected to; the address space is limited, and Python's own memory is measured.
"""

from __future__ import annotations

import os
import resource
import sys
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from typer.testing import CliRunner

from equable.cli import app
from equable.errors import EquableError

#: Inputs of each test in ``make fuzz``; 0 in the ordinary suite, which tries 8.
INPUTS = int(os.environ.get("EQUABLE_FUZZ", "0"))
FUZZ = settings(
    max_examples=INPUTS or 8,
    derandomize=not INPUTS,  # the ordinary suite must not fail by chance; `make fuzz` explores
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
FREE = 64 * 2**20
EXPANSION = 100
SLACK = 256 * 2**20  # address space that libraries reserve and never touch

#: Audit events that no reader of a file has a reason for.
FORBIDDEN = (
    "pickle.find_class",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "subprocess.Popen",
    "socket.",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.chmod",
    "os.chown",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chdir",
    "shutil.",
    "tempfile.",
    "webbrowser.open",
    "ctypes.",
    "code.__new__",
    "function.__new__",
)
LIBRARIES = tuple({os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, *sys.path) if path})


def call(*words: object) -> str | EquableError:
    """What a command prints, or its refusal: one line on standard error and exit code 1 or 2."""
    found = CliRunner().invoke(app, [str(word) for word in words])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert "Traceback" not in found.output
    assert "not enough memory" not in found.stderr
    if found.exit_code == 0:
        return found.stdout
    assert found.exit_code in (1, 2), found.output
    if not found.stdout:  # reports go to standard output
        lines = found.stderr.splitlines()
        own = [line for line in lines if line.startswith("equable: ") and "warning: " not in line]
        assert len(own) == 1, found.stderr
    return EquableError(found.stderr or found.stdout)


class Sandbox:
    """`box` is read from; `elsewhere` is the working folder, which nothing may touch."""

    def __init__(self, root: Path) -> None:
        self.box = root / "box"
        self.elsewhere = root / "elsewhere"
        for folder in (self.box, self.elsewhere):
            folder.mkdir()
        (self.elsewhere / "sentinel.txt").write_text("untouched")
        self.inputs = 0
        self.seen: list[str] = []
        _install_audit()

    def read(self, reader: Callable[[], Any], size: int) -> Any:
        """What the reader returns, or its error if that is one of equable's; everything else is a finding."""
        self.inputs += 1
        self.seen.clear()
        before = _contents(self.elsewhere)
        limit = FREE + EXPANSION * size
        value = self._limited(reader, limit)
        assert not self.seen, list(self.seen)
        assert self.peak <= limit, f"{self.peak >> 20} MB for a file of {size} bytes"
        assert _contents(self.elsewhere) == before
        return value

    def _limited(self, reader: Callable[[], Any], limit: int) -> Any:
        with _address_space(limit + SLACK):
            tracemalloc.start()
            _WATCHING.append(self)
            try:
                return reader()
            except EquableError as error:
                str(error).encode("utf-8")  # the message must be printable
                return error
            finally:
                _WATCHING.clear()
                self.peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note what a reader may not do."""
        # a first import makes code too, as in asyncio
        imported = event == "code.__new__" and _is_library(arguments[1])
        if event.startswith(FORBIDDEN) and not imported:
            self.seen.append(f"{event} {arguments!r:.200}")
        if event == "open" and (_writes(arguments) or arguments[0] == "sentinel.txt"):
            self.seen.append(f"open {arguments!r:.200}")
        if event == "exec" and not _is_library(getattr(arguments[0], "co_filename", "")):
            self.seen.append(f"exec {arguments!r:.200}")


_WATCHING: list[Sandbox] = []


@cache
def _install_audit() -> None:
    """Install the hook once; Python cannot remove an audit hook."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        for sandbox in _WATCHING:
            sandbox.audit(event, arguments)

    sys.addaudithook(hook)


def _writes(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    if isinstance(mode, str):
        return bool(set(mode) & set("wax+"))
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))


def _is_library(filename: str) -> bool:
    """Whether code is an import on first use, or generated by dataclasses and named tuples."""
    return filename.startswith(("<frozen", "<string>", *LIBRARIES))


def _contents(folder: Path) -> dict[str, bytes | None]:
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


class _address_space:
    """Limit the address space to what is in use plus `extra` bytes; allocating more is a MemoryError."""

    def __init__(self, extra: int) -> None:
        self.extra = extra

    def __enter__(self) -> None:
        self.limits = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + self.extra, self.limits[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_AS, self.limits)
