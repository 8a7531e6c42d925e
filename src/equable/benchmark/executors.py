"""Where units of work run: here, in processes or threads of this machine, or on a Dask cluster.

Each is one function that takes ``(work, units)`` and yields ``(unit, result)`` as units finish; another place
needs one more. A unit leaves its results in the run folder, so an executor carries no data, and whatever is
lost on the way is done again by the next run. Steps to score go to `run_local`; cells, which have processes
of their own and report their failures, to `run_threads` or `run_dask`, which differ in place alone.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from multiprocessing import active_children, get_context, parent_process
from typing import TypeVar

from equable.errors import EquableError

Unit = TypeVar("Unit")
Result = TypeVar("Result")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SECONDS_BETWEEN_TICKS = 0.5
#: Exit code of a process that ended because nobody waits for it any more.
ORPHANED = 3
#: Seconds such a process has for the removal of its half-written files.
SECONDS_TO_STOP = 5.0


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

    `tick` is called now and then while processes work. An error or Ctrl-C stops all processes, and so does
    the death of this one, however it comes; their files are whole or absent.

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
        futures = {pool.submit(_do, work, unit): unit for unit in units}
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


class _Stop(SystemExit):
    """The order to stop: an exception, so that temporary files are removed."""


def _start_worker(threads: int) -> None:
    """Before numpy is imported: threads; Ctrl-C is the parent's affair, and its order to stop is heard."""
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    parent = parent_process()
    assert parent is not None
    end_after(parent.join)  # idle workers would wait for ever: each keeps the others' pipe open


def _leave(*_: object) -> None:
    raise _Stop(1)


def _do(work: Callable[[Unit], Result], unit: Unit) -> Result:
    try:
        return work(unit)
    except _Stop:  # the pool would take it for the unit's result and begin the next one
        os._exit(1)


def end_after(wait_until_gone: Callable[[], object]) -> None:
    """End this process once the call returns: gently first, by its own SIGTERM, then at any rate."""

    def watch() -> None:
        wait_until_gone()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SECONDS_TO_STOP)
        os._exit(ORPHANED)

    threading.Thread(target=watch, daemon=True).start()
