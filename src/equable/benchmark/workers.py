"""Run seeds, each in a process of its own, on this machine or on the workers of a Dask cluster.

A thread here, or a task on a Dask worker, starts the process of a seed (`seed_process`) and waits for it.
Results go to the run folder, which all machines share; a seed may be started again at any moment and keeps
finished files.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from equable.benchmark.environment import THREAD_VARIABLES, cpu_count
from equable.benchmark.lease import Lease, is_held
from equable.benchmark.seed_process import STOPPED, TRIES, SeedJob, SeedState, read_state
from equable.benchmark.settings import Config
from equable.errors import ClusterError, LockedError, MissingExtraError, os_error_text

SECONDS_BETWEEN_TICKS = 0.5
SECONDS_TO_CONNECT = 10.0


@dataclass(frozen=True)
class Workers:
    """Where seeds run: `jobs` at once on this machine, or on the cluster of a scheduler's address."""

    jobs: int = 1
    dask: str | None = None
    tries: int = TRIES


ONE_AT_A_TIME = Workers()


def default_jobs(configs: Collection[Config]) -> int:
    """Seeds at once if no number is given: one, or as many as the cores hold if their threads are set."""
    threads = [config.training.threads for config in configs if config.training.device == "cpu"]
    return max(1, cpu_count() // max(threads)) if len(threads) == len(configs) and all(threads) else 1


def seed_jobs(
    configs: Mapping[Path, Config], lease: Lease, workers: Workers, progress: bool | None
) -> list[SeedJob]:
    """A job for each seed of each run folder.

    The number of threads changes the last bits of a result. On a cluster a seed has the threads of its
    settings, or one.
    """
    jobs = min(workers.jobs, sum(len(config.seeds) for config in configs.values()))
    alone = jobs == 1 and workers.dask is None
    share = None if alone else 1 if workers.dask else max(1, cpu_count() // jobs)
    return [
        SeedJob(
            folder=str(folder.resolve()),
            seed=seed,
            lease=lease.token(folder),
            settings=config.model_dump_json(),
            threads=config.training.threads or share,
            tries=workers.tries,
            progress=alone and progress is not False and sys.stderr.isatty(),
        )
        for folder, config in configs.items()
        for seed in config.seeds
    ]


def run_seeds(
    jobs: Sequence[SeedJob], lease: Lease, workers: Workers, tick: Callable[[int, int], None]
) -> list[SeedState]:
    """Run all seeds; their last states in the same order.

    `tick` is called about twice a second with the numbers of seeds that are done and failed. An error, Ctrl-C
    or the loss of the lease ends all processes.
    """
    found: dict[SeedJob, SeedState] = {}
    with _executor(workers, len(jobs)) as (executor, check):
        # seeds that a former run finished are only verified, after the others
        order = sorted(jobs, key=lambda job: read_state(Path(job.folder), job.seed).state == "done")
        waiting = {executor.submit(watch_seed, job): job for job in order}
        try:
            while waiting:
                wait(waiting, timeout=SECONDS_BETWEEN_TICKS, return_when=FIRST_COMPLETED)
                lease.check()
                check()
                for future, job in list(waiting.items()):
                    state = _last_state(future, job)
                    if state is not None:
                        found[job] = state
                        del waiting[future]
                failed = sum(state.state != "done" for state in found.values())
                tick(len(found) - failed, failed)
        except BaseException:
            lease.release()  # seed processes then end, and no watcher starts another
            raise
    return [found[job] for job in jobs]


def _last_state(future: Future[SeedState], job: SeedJob) -> SeedState | None:
    """How a seed ended; None while it runs."""
    if future.cancelled():
        raise ClusterError("the scheduler cancelled a seed; the same command resumes")
    if not future.done():
        # A Dask worker that dies with its result may leave the future waiting: the state file has it.
        recorded = job.recorded()
        return recorded if recorded is not None and recorded.state in ("done", "failed") else None
    error = future.exception()
    if error is not None:
        state = SeedState("failed", f"{type(error).__name__}: {error}")
        job.record(state)
        return state
    if future.result().state == "stopped":  # seen before the next heartbeat
        raise LockedError(f"the lease of {job.folder} must be renewed; it was lost")
    return future.result()


@contextmanager
def _executor(workers: Workers, n_jobs: int) -> Iterator[tuple[Executor, Callable[[], None]]]:
    """An executor, and a function that raises an error when it is lost."""
    if workers.dask is not None:
        with connected(workers.dask) as (client, check):
            yield client.get_executor(pure=False), check
        return
    with ThreadPoolExecutor(max(1, min(workers.jobs, n_jobs))) as pool:
        yield pool, lambda: None


@contextmanager
def connected(address: str) -> Iterator[tuple[Any, Callable[[], None]]]:
    """A client of the scheduler, and a function that raises `ClusterError` when the scheduler is gone."""
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise MissingExtraError(
            f"--dask needs {error.name}; install it with: pip install 'equable[dask]'"
        ) from error
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":  # errors that matter become a `ClusterError`
            logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with ThreadPoolExecutor(1) as pool:  # a notebook has a running loop in this thread
            pool.submit(lambda: asyncio.run(_require_answer(address))).result()
        client = distributed.Client(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except Exception as error:  # of the system, of TLS or of Dask
        raise ClusterError(f"--dask must be the address of a scheduler; {address}: {error}") from error

    def check() -> None:
        if client.status != "running":
            raise ClusterError(f"the scheduler at {address} has stopped; the same command resumes")

    try:
        if not client.scheduler_info()["workers"]:
            print(f"equable: waiting for workers at {address}", file=sys.stderr)
        yield client, check
    finally:
        with suppress(Exception):
            client.close(timeout=2)  # the scheduler then cancels its tasks


async def _require_answer(address: str) -> None:
    """Ask for the identity: a client has no timeout for a listener that does not answer."""
    dask: Any = import_module("distributed")
    words = dask.Security().get_connection_args("client")
    try:
        async with asyncio.timeout(SECONDS_TO_CONNECT), dask.rpc(address, connection_args=words) as other:
            kind = (await other.identity())["type"]
    except TimeoutError:
        raise TimeoutError(f"no scheduler answered there within {SECONDS_TO_CONNECT:g} s") from None
    if kind != "Scheduler":
        raise ValueError(f"this is the address of a Dask {kind.lower()}")


# The watcher of one seed ------------------------------------------------------------------------------


def watch_seed(job: SeedJob) -> SeedState:
    """Run the process of a seed, again if it dies, until it has died `SeedJob.tries` times.

    An error does not count as a death: it would recur, and is reported at once.
    """
    host = socket.gethostname()
    if not Path(job.folder).is_dir():
        return SeedState("failed", f"folder {job.folder} must exist on {host}; it does not")
    try:
        state = _try(job)
    except OSError as error:  # the disk is full, or no process can be started
        state = SeedState("failed", f"{host}: {os_error_text(error)}")
    if state.state != "stopped":
        job.record(state)
    return state


def _try(job: SeedJob) -> SeedState:
    for deaths in range(job.tries):
        if not is_held(Path(job.folder), job.lease):
            return SeedState("stopped")
        job.record(SeedState("running", deaths=deaths))
        state = _run_process(job)
        if state is not None:
            return replace(state, deaths=deaths)
    error = f"the process of this seed died {job.tries} times; it is not started again"
    return SeedState("failed", error, deaths=job.tries)


def _run_process(job: SeedJob) -> SeedState | None:
    """How one process ended; None if it died."""
    threads = {} if job.threads is None else dict.fromkeys(THREAD_VARIABLES, str(job.threads))
    module = "equable.benchmark.seed_process"
    job.log.parent.mkdir(exist_ok=True)
    with open(os.devnull if job.progress else job.log, "ab") as log:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", module, job.folder, f"seed-{job.seed}", str(os.getpid())],
            input=json.dumps(asdict(job)).encode(),
            stdout=subprocess.PIPE,
            stderr=None if job.progress else log,
            env={**os.environ, **threads},
            start_new_session=True,  # the run handles Ctrl-C: it releases its lease
        )
    if ended.returncode == STOPPED:
        return SeedState("stopped")
    return SeedState(**json.loads(ended.stdout)) if ended.stdout.endswith(b"}") else None
