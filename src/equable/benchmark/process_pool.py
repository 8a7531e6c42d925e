"""Steps to score, one after the other or in processes of this machine that end with their parent."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from multiprocessing import active_children, get_context, parent_process
from typing import TypeVar

from equable.benchmark.environment import THREAD_VARIABLES, cpu_count
from equable.errors import EquableError

Unit = TypeVar("Unit")
Result = TypeVar("Result")
#: Exit code of a process that ended because its parent is gone.
ORPHANED = 3
#: Seconds such a process has to remove its half-written files.
SECONDS_TO_STOP = 5.0


def one_thread() -> AbstractContextManager[object]:
    """Limit BLAS to one thread: with small matrices several threads are slower than one."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1)
    return limits


def run_local(
    work: Callable[[Unit], Result], units: Sequence[Unit], *, jobs: int = 1
) -> Iterator[tuple[Unit, Result]]:
    """Yield (unit, result) as units finish; one job runs in this process, more in processes of their own.

    An error, Ctrl-C and the death of this process end all processes; their files are whole or absent.
    """
    jobs = min(jobs, len(units))
    if jobs < 2:
        for unit in units:
            yield unit, work(unit)
        return
    threads = max(1, cpu_count() // jobs)
    # Spawned, not forked: a fork copies locks that threads of torch and BLAS hold.
    with ProcessPoolExecutor(jobs, get_context("spawn"), _start_worker, (threads,)) as pool:
        futures = {pool.submit(_do, work, unit): unit for unit in units}
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


class Terminated(SystemExit):
    """SIGTERM as an exception, so that temporary files are removed."""


def raise_on_sigterm() -> None:
    """Ignore Ctrl-C, which is for the parent, and turn SIGTERM into an exception."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _raise_terminated)


def end_after(wait_until_gone: Callable[[], object]) -> None:
    """End this process once the call returns: by its own SIGTERM, and after `SECONDS_TO_STOP` at once."""

    def watch() -> None:
        wait_until_gone()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SECONDS_TO_STOP)
        os._exit(ORPHANED)

    threading.Thread(target=watch, daemon=True).start()


def _raise_terminated(*_: object) -> None:
    raise Terminated(128 + signal.SIGTERM)


def _start_worker(threads: int) -> None:
    for name in THREAD_VARIABLES:  # before numpy is imported
        os.environ[name] = str(threads)
    raise_on_sigterm()
    parent = parent_process()
    assert parent is not None
    end_after(parent.join)  # idle workers would wait for ever: each keeps the pipe of the others open


def _do(work: Callable[[Unit], Result], unit: Unit) -> Result:
    try:
        return work(unit)
    except Terminated:  # the pool would take it for the result of the unit and begin the next one
        os._exit(1)
