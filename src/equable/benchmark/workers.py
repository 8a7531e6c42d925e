"""Run seeds, each in a process of its own, on this machine or on the workers of a Dask cluster.

A thread here, or a task on a Dask worker, starts the process of a seed and watches it. The process ends when
its watcher dies (standard input closes) or when the lease of the run is lost. Results go to the run folder,
which all machines see; a seed may be begun again at any moment and keeps what is finished.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from equable.benchmark.environment import THREAD_VARIABLES, cpu_count
from equable.benchmark.lease import DURATION, Lease, is_held, renewal_time
from equable.benchmark.seed_job import TRIES, SeedJob, SeedOutcome
from equable.benchmark.settings import Config
from equable.errors import ClusterError, LockedError

SECONDS_BETWEEN_LOOKS = 0.5
#: Times in a row that the lease must be missing: while another process checks it, it is moved for a moment.
MISSES = 2
SECONDS_TO_STOP = 10.0


@dataclass(frozen=True)
class Workers:
    """Where seeds run: `jobs` at once on this machine, or on the cluster of a scheduler's address."""

    jobs: int = 1
    dask: str | None = None
    tries: int = TRIES


def seed_jobs(
    folder: Path, config: Config, lease: Lease, workers: Workers, n_seeds: int, progress: bool | None
) -> list[SeedJob]:
    """A job for each seed of a run; `n_seeds` of all runs share the machine.

    The number of threads changes the last bits of a result. On a cluster a seed has the threads of its
    settings, or one.
    """
    jobs = min(workers.jobs, n_seeds)
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
        for seed in config.seeds
    ]


def run_seeds(
    jobs: Sequence[SeedJob], lease: Lease, workers: Workers, tick: Callable[[int, int], None]
) -> list[SeedOutcome]:
    """Run all seeds; their outcomes in the same order.

    `tick` is called about twice a second with the numbers of seeds that are done and failed. An error, Ctrl-C
    or the loss of the lease ends all processes.
    """
    found: dict[SeedJob, SeedOutcome] = {}
    with _executor(workers, len(jobs)) as (executor, check):
        waiting = {executor.submit(watch_seed, job): job for job in jobs}
        try:
            while waiting:
                wait(waiting, timeout=SECONDS_BETWEEN_LOOKS, return_when=FIRST_COMPLETED)
                lease.check()
                check()
                for future, job in list(waiting.items()):
                    if future.cancelled():
                        raise ClusterError(f"{workers.dask} cancelled a seed; the same command resumes")
                    outcome = _outcome(future, job)
                    if outcome is not None and outcome.state == "stopped":  # seen before the next heartbeat
                        raise LockedError(f"the lease of {job.folder} must be renewed; it was lost")
                    if outcome is not None:
                        found[job] = outcome
                        del waiting[future]
                failed = sum(outcome.state != "done" for outcome in found.values())
                tick(len(found) - failed, failed)
        except BaseException:
            lease.release()  # watchers then end their processes and start no other
            raise
    return [found[job] for job in jobs]


def _outcome(future: Future[SeedOutcome], job: SeedJob) -> SeedOutcome | None:
    """How a seed ended; None while it runs."""
    if not future.done():
        # A Dask worker that dies with its result may leave the future waiting: the state file has it.
        recorded = job.recorded()
        return recorded if recorded is not None and recorded.state in ("done", "failed") else None
    error = future.exception()
    if error is None:
        return future.result()
    outcome = SeedOutcome("failed", f"{type(error).__name__}: {error}")
    job.record(outcome)
    return outcome


@contextmanager
def _executor(workers: Workers, n_jobs: int) -> Iterator[tuple[Executor, Callable[[], None]]]:
    """An executor, and a function that raises an error when it is lost."""
    if workers.dask is not None:
        from equable.benchmark.dask_client import connected

        with connected(workers.dask) as (client, check):
            yield client.get_executor(pure=False), check
        return
    with ThreadPoolExecutor(max(1, min(workers.jobs, n_jobs))) as pool:
        yield pool, lambda: None


# The watcher of one seed ------------------------------------------------------------------------------


def watch_seed(job: SeedJob) -> SeedOutcome:
    """Run the process of a seed, again if it dies, until it has died `SeedJob.tries` times.

    An error is no death: it would come again, and is reported at once.
    """
    if not Path(job.folder).is_dir():
        host = socket.gethostname()
        return SeedOutcome("failed", f"{host} must see the folder {job.folder} as the run does; it does not")
    try:
        outcome = _try(job)
    except OSError as error:  # the disk is full, or no process can be started
        outcome = SeedOutcome("failed", f"{socket.gethostname()}: {error}")
    if outcome.state != "stopped":
        job.record(outcome)
    return outcome


def _try(job: SeedJob) -> SeedOutcome:
    for deaths in range(job.tries):
        if not is_held(Path(job.folder), job.lease):
            return SeedOutcome("stopped", deaths=deaths)
        job.record(SeedOutcome("running", deaths=deaths))
        outcome = _run_process(job)
        if outcome is not None:
            return replace(outcome, deaths=deaths)
    error = f"given up: its process died {job.tries} times while it ran"
    return SeedOutcome("failed", error, deaths=job.tries)


def _run_process(job: SeedJob) -> SeedOutcome | None:
    """How one process ended; None if it died."""
    threads = {} if job.threads is None else dict.fromkeys(THREAD_VARIABLES, str(job.threads))
    job.log.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryFile() as answer, open(os.devnull if job.progress else job.log, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "equable.benchmark.seed_process", job.folder, f"seed-{job.seed}"],
            stdin=subprocess.PIPE,
            stdout=answer,
            stderr=None if job.progress else log,
            env={**os.environ, **threads},
            start_new_session=True,  # Ctrl-C is for the run, which then ends its seeds
        )
        assert process.stdin is not None
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
                process.stdin.flush()
            ended = _wait(process, job)
        finally:
            _stop(process)
        if not ended:
            return SeedOutcome("stopped", "stopped before it was finished")
        answer.seek(0)
        text = answer.read()
        return SeedOutcome(**json.loads(text)) if text.endswith(b"}") else None


def _wait(process: subprocess.Popen[bytes], job: SeedJob) -> bool:
    """Wait for a process; False if it still runs while the lease is gone or no longer renewed."""
    folder = Path(job.folder)
    misses = 0
    unchanged = 0  # looks, not seconds: a watcher that was suspended does not look
    renewed = None
    while misses < MISSES and unchanged * SECONDS_BETWEEN_LOOKS < 2 * DURATION:
        with suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_BETWEEN_LOOKS)
            return True
        misses = 0 if is_held(folder, job.lease) else misses + 1
        before = renewed
        renewed = renewal_time(folder)
        unchanged = unchanged + 1 if renewed == before else 0
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process: it sees its input close, and is killed if it does not end by itself."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
