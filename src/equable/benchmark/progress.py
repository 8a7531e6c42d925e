"""A progress bar on standard error, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Seconds over which speed is averaged: files come in bursts, so nearly a whole run.
SPEED_PERIOD = 24 * 3600.0


class Bar:
    """A progress bar, or none."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar = bar
        self._task = task

    @property
    def shown(self) -> bool:
        """Whether there is a bar."""
        return self._bar is not None

    def begin(self, steps: int) -> None:
        """Set the steps that were done before; they do not count for the speed."""
        if self.shown:
            self._bar.update(self._task, completed=steps)
            self._bar.reset(self._task, completed=steps)

    def advance(self, steps: int) -> None:
        """Move on, or back if a file was lost."""
        if self.shown:
            self._bar.advance(self._task, steps)

    def say(self, text: str) -> None:
        """Set the text before the bar."""
        if self.shown:
            self._bar.update(self._task, description=text)


@contextmanager
def open_bar(what: str, total: int, show: bool | None = None) -> Iterator[Bar]:
    """A bar for the length of a block; `show` None means on a terminal only."""
    if show is False or (show is None and not sys.stderr.isatty()):
        yield Bar()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), speed_estimate_period=SPEED_PERIOD) as bar:
        yield Bar(bar, bar.add_task(what, total=total))


@contextmanager
def progress_bar(what: str, total: int, show: bool | None = None) -> Iterator[Callable[[int], None]]:
    """Yield a function that moves the bar on; `show` None means on a terminal only."""
    with open_bar(what, total, show) as bar:
        yield bar.advance
