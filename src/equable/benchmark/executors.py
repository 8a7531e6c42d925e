"""Where units of work run: here, in processes or threads of this machine, or on a Dask cluster.

Each is one function that takes ``(work, units)`` and yields ``(unit, result)`` as units finish; another place
needs one more. A unit leaves its results in the run folder, so an executor carries no data, and whatever is
lost on the way is done again by the next run. Steps to score go to `run_local`; cells, which have processes
of their own and report their failures, to `run_threads` or `run_dask`, which differ in place alone.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from multiprocessing import active_children, get_context
from typing import TypeVar

from equable.errors import EquableError

Unit = TypeVar("Unit")
Result = TypeVar("Result")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SECONDS_BETWEEN_TICKS = 0.5


def cpu_count() -> int:
    """CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_of_each(jobs: int) -> int:
    """A process's fair share of the CPUs."""
    return max(1, cpu_count() // jobs)


def one_thread() -> AbstractContextManager[object]:
    """One BLAS thread: on small matrices more would only wait for one another."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1)
    return limits


def run_local(
    work: Callable[[Unit], Result],
    units: Sequence[Unit],
    *,
    jobs: int = 1,
    tick: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Unit, Result]]:
    """Yield (unit, result) as units finish; one job runs here in order, more in processes of their own.

    `tick` is called now and then while processes work. An error or Ctrl-C stops all processes; their
    files are whole or absent.

    Examples
    --------
    >>> list(run_local(abs, [-1, 2]))
    [(-1, 1), (2, 2)]
    """
    if jobs == 1 or len(units) < 2:
        for unit in units:
            yield unit, work(unit)
        return
    jobs = min(jobs, len(units))
    # Spawned, not forked: a fork copies locks that torch's and BLAS's threads hold.
    with ProcessPoolExecutor(jobs, get_context("spawn"), _start_worker, (threads_of_each(jobs),)) as pool:
        futures = {pool.submit(work, unit): unit for unit in units}
        try:
            yield from _finished(futures, tick)
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.terminate()
            if isinstance(error, BrokenProcessPool):
                raise EquableError(
                    "a worker process died, perhaps for want of memory; the same command resumes, "
                    "with fewer --jobs if it dies again"
                ) from error
            raise


def run_threads(
    work: Callable[[Unit], Result],
    units: Sequence[Unit],
    *,
    jobs: int = 1,
    tick: Callable[[], None] = lambda: None,
    stop: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Unit, Result]]:
    """Yield (unit, result) as units finish, `jobs` at once in threads.

    `tick` is called now and then. `stop` is called when the executor must end early: it makes the work under
    way return, which is then waited for.

    Examples
    --------
    >>> sorted(run_threads(abs, [-1, 2], jobs=2))
    [(-1, 1), (2, 2)]
    """
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(work, unit): unit for unit in units}
        try:
            yield from _finished(futures, tick)
        except BaseException:
            stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def run_dask(
    work: Callable[[Unit], Result],
    units: Sequence[Unit],
    *,
    address: str,
    tick: Callable[[], None] = lambda: None,
    stop: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Unit, Result]]:
    """The same on the workers of the Dask scheduler at `address`; needs the extra ``dask``."""
    from equable.benchmark.cluster import run_on

    return run_on(address, work, units, tick, stop)


def _finished(futures: dict[Future[Result], Unit], tick: Callable[[], None]) -> Iterator[tuple[Unit, Result]]:
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, timeout=SECONDS_BETWEEN_TICKS, return_when=FIRST_COMPLETED)
        tick()
        for future in done:
            yield futures[future], future.result()


def _start_worker(threads: int) -> None:
    """Before numpy is imported: threads; Ctrl-C is the parent's affair, and its order to stop is heard."""
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # an exception: temporary files are removed
