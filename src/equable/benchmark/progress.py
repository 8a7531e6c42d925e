"""A progress bar on standard error: seen on a terminal, silent elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str, total: int, show: bool | None = None) -> Iterator[Callable[[int], None]]:
    """Yield a function that moves the bar on; `show` None means on a terminal only."""
    if show is False or (show is None and not sys.stderr.isatty()):
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps: bar.advance(task, steps)
