"""The process of one seed, ``python -m equable.benchmark.seed_process``; `workers` starts it.

It reads its `SeedJob` as JSON from standard input, trains and scores the seed, and writes a `SeedOutcome` as
JSON to standard output. It ends when standard input does: then the process that started it is gone.
"""

from __future__ import annotations

import faulthandler
import json
import os
import time
import traceback
from dataclasses import asdict
from pathlib import Path

from equable.benchmark.batching import measure_arrivals
from equable.benchmark.process_pool import end_after, raise_on_sigterm
from equable.benchmark.run_data import load_data
from equable.benchmark.run_folder import RunFolder
from equable.benchmark.score import ScoreCount, score_run
from equable.benchmark.seed_job import SeedJob, SeedOutcome
from equable.benchmark.settings import Config
from equable.benchmark.train import train_seed
from equable.errors import EquableError


def main() -> None:
    """Do the job that standard input names."""
    faulthandler.enable()
    raise_on_sigterm()
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever is printed goes to the log
    with open(0, "rb", buffering=0, closefd=False) as stream:
        job = SeedJob(**json.loads(stream.readline()))
    end_after(_read_to_end)
    outcome = _do(job)
    with answer:
        json.dump(asdict(outcome), answer)


def _do(job: SeedJob) -> SeedOutcome:
    begin = time.monotonic()
    _log(job, f"begins: process {os.getpid()}, {job.threads or 'all'} threads")
    try:
        count = run_seed(job)
    except Exception as error:
        if not (job.progress and isinstance(error, EquableError | OSError)):
            traceback.print_exc()
        return SeedOutcome("failed", f"{type(error).__name__}: {error}")
    for failure in count.failed:
        _log(job, failure)
    seconds = time.monotonic() - begin
    _log(job, f"is done after {seconds:.1f} s: {count.made} scores made, {count.kept} kept")
    return SeedOutcome("done", made=count.made, kept=count.kept, failed=count.failed)


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


def _read_to_end() -> None:
    while os.read(0, 4096):
        pass


if __name__ == "__main__":
    main()
