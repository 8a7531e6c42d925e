"""The process of one seed, ``python -m equable.benchmark.seed_process``; `workers` starts it.

It reads its `SeedJob` as JSON from standard input, trains and scores the seed, and writes a `SeedState` as
JSON to standard output. It ends when standard input does, because then the process that started it is gone,
and when the lease of the run is lost.
"""

from __future__ import annotations

import _thread
import faulthandler
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict
from pathlib import Path

from equable.benchmark.batching import measure_arrivals
from equable.benchmark.lease import DURATION, is_held, renewal_time
from equable.benchmark.run_data import load_data
from equable.benchmark.run_folder import RunFolder
from equable.benchmark.score import ScoreCount, score_run
from equable.benchmark.seed_job import SeedJob, SeedState
from equable.benchmark.settings import Config
from equable.benchmark.train import train_seed
from equable.errors import EquableError

#: Exit code of a process that ended because its parent is gone or the lease is lost.
STOPPED = 3
SECONDS_BETWEEN_LOOKS = 0.5
#: Times in a row that the lease must be missing: while another process checks it, it is moved for a moment.
MISSES = 3
#: Seconds that the main thread has to remove its half-written files.
SECONDS_TO_STOP = 5.0


def main() -> None:
    """Do the job that standard input names."""
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever is printed goes to the log
    with open(0, "rb", buffering=0, closefd=False) as stream:
        job = SeedJob(**json.loads(stream.readline()))
    threading.Thread(target=_end_when_stopped, args=[job], daemon=True).start()
    try:
        state = do(job)
    except KeyboardInterrupt:
        sys.exit(STOPPED)
    with answer:
        json.dump(asdict(state), answer)


def _end_when_stopped(job: SeedJob) -> None:
    """Interrupt the main thread once nobody waits for the result; after some seconds exit at once."""
    _wait_until_stopped(Path(job.folder), job.lease)
    _thread.interrupt_main()
    time.sleep(SECONDS_TO_STOP)
    os._exit(STOPPED)


def _wait_until_stopped(folder: Path, lease: str) -> None:
    """Wait until standard input ends, or the lease is gone or no longer renewed."""
    misses = 0
    unchanged = 0  # looks, not seconds: a process that was suspended does not look
    renewed = None
    while misses < MISSES and unchanged * SECONDS_BETWEEN_LOOKS < 2 * DURATION:
        readable, _, _ = select.select([0], [], [], SECONDS_BETWEEN_LOOKS)
        if readable and not os.read(0, 4096):
            return
        misses = 0 if is_held(folder, lease) else misses + 1
        before = renewed
        renewed = renewal_time(folder)
        unchanged = unchanged + 1 if renewed == before else 0


def do(job: SeedJob) -> SeedState:
    """Run the seed; an error is an outcome, too."""
    begin = time.monotonic()
    _log(job, f"begins: process {os.getpid()}, {job.threads or 'all'} threads")
    try:
        count = run_seed(job)
    except Exception as error:
        if not (job.progress and isinstance(error, EquableError | OSError)):
            traceback.print_exc()
        return SeedState("failed", f"{type(error).__name__}: {error}")
    for failure in count.failed:
        _log(job, failure)
    seconds = time.monotonic() - begin
    _log(job, f"is done after {seconds:.1f} s: {count.made} scores made, {count.kept} kept")
    return SeedState("done", made=count.made, kept=count.kept, failed=count.failed)


def run_seed(job: SeedJob) -> ScoreCount:
    """Train one seed, score it and measure it in all arrivals; what is there already is kept."""
    config = Config.model_validate_json(job.settings)
    folder = RunFolder(Path(job.folder))
    remove_partial_files(folder, job.seed)
    progress = None if job.progress else False
    train_seed(folder, config, load_data(config), job.seed, threads=job.threads, progress=progress)
    count = score_run(folder, [job.seed], progress=progress)
    measure_arrivals(folder, [job.seed], progress=progress)
    return count


def remove_partial_files(folder: RunFolder, seed: int) -> None:
    """Remove what killed processes of this seed left half-written."""
    patterns = {folder.seed(seed): "*", folder.scores: f".seed-{seed}_*", folder.arrivals: f".seed-{seed}.*"}
    for path, pattern in patterns.items():
        for partial in path.rglob(f"{pattern}.part"):
            partial.unlink(missing_ok=True)


def _log(job: SeedJob, text: str) -> None:
    if not job.progress:  # else the terminal shows progress bars
        print(f"{time.strftime('%F %T %Z')} seed {job.seed} {text}", flush=True)


if __name__ == "__main__":
    main()
