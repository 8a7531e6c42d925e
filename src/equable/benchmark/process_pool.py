"""Steps to score, one after the other or in processes of this machine that end with their parent."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context, parent_process
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from equable.benchmark.progress import open_bar
from equable.errors import EquableError

Unit = TypeVar("Unit")
Result = TypeVar("Result")


def one_thread() -> Any:
    """A context with one thread of BLAS: with small matrices several threads are slower than one."""
    return threadpool_limits(1)


def run_local(
    work: Callable[[Unit], Result], units: Sequence[Unit], *, jobs: int = 1
) -> Iterator[tuple[Unit, Result]]:
    """Yield (unit, result) as units finish; one job runs in this process, more in processes of their own.

    An error, Ctrl-C and the death of this process end all processes.
    """
    jobs = min(jobs, len(units))
    if jobs < 2:
        for unit in units:
            yield unit, work(unit)
        return
    # Spawned, not forked: a fork copies locks that threads of torch and BLAS hold.
    with ProcessPoolExecutor(jobs, get_context("spawn"), _start_worker) as pool:
        futures = {pool.submit(work, unit): unit for unit in units}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.terminate()
            if isinstance(error, BrokenProcessPool):
                raise EquableError(
                    "a worker process died, perhaps for lack of memory; the same command resumes, "
                    "with fewer --jobs if it dies again"
                ) from error
            raise


def run_steps(
    work: Callable[[Unit], Result], steps: Sequence[Unit], what: str, *, jobs: int, progress: bool | None
) -> list[Result]:
    """The result of every step, as they finish, with a progress bar."""
    results: list[Result] = []
    with open_bar(what, len(steps), progress) as update:
        for _, result in run_local(work, steps, jobs=jobs):
            results.append(result)
            if update is not None:
                update(len(results))
    return results


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when its parent ends: idle, it would wait on pipes that other workers keep open."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
