"""One seed in a process of its own, ``python -m equable.benchmark.seed_process``; `workers` starts it.

It reads its `SeedJob` as JSON from standard input, trains and scores the seed, and writes a `SeedState` as
JSON to standard output. It ends when the process that started it is gone, and when the lease of the run is
lost; all writes are atomic, so it may end at any moment. ``seeds/seed-3.log`` holds what it printed,
``seeds/seed-3.json`` the state of the seed in its last run::

    {"state": "running", "error": "", "made": 0, "kept": 0, "failed": [], "deaths": 0, "lease": token}
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from equable.benchmark.batching import measure_arrivals
from equable.benchmark.lease import DURATION, is_held, renewal_time
from equable.benchmark.run_data import load_data
from equable.benchmark.run_folder import RunFolder
from equable.benchmark.score import ScoreCount, score_seeds
from equable.benchmark.settings import Config
from equable.benchmark.train import train_seed
from equable.errors import EquableError, FileFormatError, os_error_text
from equable.files import read_json, write_json

#: Deaths of the process of a seed after which the seed fails.
TRIES = 3
#: Exit code of a process that ended because its parent is gone or the lease is lost.
STOPPED = 3
SECONDS_BETWEEN_LOOKS = 0.5
#: Consecutive checks that must miss the lease: a process that checks it moves it for a moment.
MISSES = 3


@dataclass(frozen=True)
class SeedState:
    """The state of a seed: ``running``, ``done``, ``failed``, ``stopped`` or ``missing``."""

    state: str
    error: str = ""
    made: int = 0
    kept: int = 0
    failed: Sequence[str] = ()  # failures of user methods
    deaths: int = 0
    lease: str = ""  # of the run that wrote it


@dataclass(frozen=True)
class SeedJob:
    """The input of the process of a seed."""

    folder: str  # the run folder, by a path that is valid on every machine
    seed: int
    lease: str  # token of the run's lease
    settings: str  # JSON of the run's `Config`
    threads: int | None = 1  # in the environment of the process; None: as many as torch takes
    tries: int = TRIES
    progress: bool = False  # progress bars on standard error

    @property
    def log(self) -> Path:
        """The file of what it printed."""
        return state_path(Path(self.folder), self.seed).with_suffix(".log")

    def record(self, state: SeedState) -> None:
        """Write the state; on a full disk it stays as it was."""
        with suppress(OSError):
            path = state_path(Path(self.folder), self.seed)
            write_json(path, asdict(replace(state, lease=self.lease)))

    def recorded(self) -> SeedState | None:
        """The state that this run has written, if any."""
        state = read_state(Path(self.folder), self.seed)
        return state if state.lease == self.lease else None


def state_path(folder: Path, seed: int) -> Path:
    """The state file of a seed."""
    return folder / "seeds" / f"seed-{seed}.json"


def read_state(folder: Path, seed: int) -> SeedState:
    """The state in the state file of a seed; ``missing`` without a whole one."""
    try:
        return SeedState(**read_json(state_path(folder, seed)))
    except (OSError, FileFormatError, TypeError):
        return SeedState("missing")


def main(parent: int) -> None:
    """Do the job that standard input names; `parent` is the process that waits for it."""
    faulthandler.enable()
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever is printed goes to the log
    job = SeedJob(**json.load(sys.stdin))
    threading.Thread(target=_end_when_stopped, args=[job, parent], daemon=True).start()
    with answer:
        json.dump(asdict(do(job)), answer)


def _end_when_stopped(job: SeedJob, parent: int) -> None:
    """End this process when its parent is gone, or the lease is gone or no longer renewed."""
    folder = Path(job.folder)
    misses = 0
    unchanged = 0  # checks, not seconds: a suspended process makes none
    renewed = None
    while misses < MISSES and unchanged * SECONDS_BETWEEN_LOOKS < 2 * DURATION and os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_LOOKS)
        misses = 0 if is_held(folder, job.lease) else misses + 1
        before = renewed
        renewed = renewal_time(folder)
        unchanged = unchanged + 1 if renewed == before else 0
    os._exit(STOPPED)


def do(job: SeedJob) -> SeedState:
    """Run the seed; an error becomes its state."""
    begin = time.monotonic()
    _log(job, f"begins: process {os.getpid()}, {job.threads or 'all'} threads")
    try:
        count = run_seed(job)
    except Exception as error:
        if not (job.progress and isinstance(error, EquableError | OSError)):
            with suppress(OSError):  # the disk is full; the error is in the answer
                traceback.print_exc()
        text = os_error_text(error) if isinstance(error, OSError) else str(error)
        return SeedState("failed", f"{type(error).__name__}: {text}")
    for failure in count.failed:
        _log(job, failure)
    seconds = time.monotonic() - begin
    _log(job, f"is done after {seconds:.1f} s: {count.made} scores made, {count.kept} kept")
    return SeedState("done", made=count.made, kept=count.kept, failed=count.failed)


def run_seed(job: SeedJob) -> ScoreCount:
    """Train one seed, score it and measure it in all arrivals; existing files are kept.

    Bars appear where standard error is a terminal; it is the log unless the job shows progress.
    """
    config = Config.model_validate_json(job.settings)
    folder = RunFolder(Path(job.folder))
    remove_partial_files(folder, job.seed)
    train_seed(folder, config, load_data(config), job.seed)
    count = score_seeds(folder, folder.config(), [job.seed])
    measure_arrivals(folder, [job.seed])
    return count


def remove_partial_files(folder: RunFolder, seed: int) -> None:
    """Remove the partial files of killed processes of this seed."""
    patterns = {folder.seed(seed): "*", folder.scores: f".seed-{seed}_*"}
    patterns |= dict.fromkeys((folder.arrivals, folder.unknown), f".seed-{seed}.*")
    for path, pattern in patterns.items():
        for partial in path.rglob(f"{pattern}.part"):
            partial.unlink(missing_ok=True)


def _log(job: SeedJob, text: str) -> None:
    if not job.progress:  # else the terminal shows progress bars
        with suppress(OSError):  # a full disk must not hide the error that follows
            print(f"{time.strftime('%F %T %Z')} seed {job.seed} {text}", flush=True)


if __name__ == "__main__":
    main(parent=int(sys.argv[-1]))
