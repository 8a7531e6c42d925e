"""A progress bar on standard error, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Seconds over which speed is averaged: files come in bursts, so nearly a whole run.
SPEED_PERIOD = 24 * 3600.0
#: ``update(completed)`` sets the steps done, ``update(completed, text)`` the text before the bar, too.
Update = Callable[..., None]


@contextmanager
def open_bar(what: str, total: int, show: bool | None = None, completed: int = 0) -> Iterator[Update | None]:
    """A bar for the length of a block, or None; `show` None means on a terminal only.

    Steps that were `completed` before do not count for the speed.
    """
    if show is False or (show is None and not sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), speed_estimate_period=SPEED_PERIOD) as bar:
        task = bar.add_task(what, total=total, completed=completed)
        yield lambda completed, text="": bar.update(task, completed=completed, description=text or what)
