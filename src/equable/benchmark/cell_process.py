"""The process of a cell: ``python -m equable.benchmark.cell_process``, its `Cell` as JSON on standard input.

Standard input stays open as long as somebody attends; when it ends, the worker is dead and so ends the cell.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from importlib import import_module
from typing import Any

from equable.benchmark.cells import FAILED, Cell, in_journal
from equable.benchmark.executors import end_after


def main() -> None:
    """Do the cell that standard input names."""
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)  # an exception: half-written files are removed
    with open(0, "rb", buffering=0, closefd=False) as stream:
        cell = Cell(**json.loads(stream.readline()))
    end_after(_read_to_end)
    print(f"{time.strftime('%F %T %Z')} {cell.name} begins: process {os.getpid()}, {cell.threads} threads")
    sys.exit(_work(cell))


def _work(cell: Cell) -> int:
    begin = time.monotonic()
    try:
        with in_journal(cell) as finish:
            finish(**_function(cell.work)(cell))
    except Exception:
        traceback.print_exc()
        return FAILED
    print(f"{time.strftime('%F %T %Z')} {cell.name} is done after {time.monotonic() - begin:.1f} s")
    return 0


def _function(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def _leave(*_: object) -> None:
    sys.exit(128 + signal.SIGTERM)


def _read_to_end() -> None:
    while os.read(0, 4096):
        pass


if __name__ == "__main__":
    main()
