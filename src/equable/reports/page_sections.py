"""The sections of a report page, of one run, of several, or of one file of outputs."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from equable.benchmark.settings import flatten
from equable.reports.figures import Plot
from equable.reports.results import Results, mean_of, percent_text, points_text
from equable.reports.sentences import (
    TOLERATED,
    accepted_sentence,
    lead_method,
    run_names,
    shuffled,
    summarise,
)
from equable.reports.tables.comparison import comparison_table
from equable.reports.tables.table import Table
from equable.training.settings import LEARNERS

Names = Sequence[str]


@dataclass(frozen=True)
class PageSection:
    """A heading and its content, in this order; the reader opens `folded` tables."""

    key: str
    title: str
    texts: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Plot] = ()
    folded: Sequence[Table] = ()
    facts: Sequence[tuple[str, str]] = ()
    code: str = ""


@dataclass(frozen=True)
class Page:
    """The content of a page. `tiles` are (name, value, detail)."""

    title: str
    subtitle: str
    lead: str
    sentences: Sequence[str]
    tiles: Sequence[tuple[str, str, str]]
    sections: Sequence[PageSection]


def run_page(run: Results, tables: Sequence[Table], figures: Sequence[Plot]) -> Page:
    """The page of one run or of one file."""
    lead, *others = summarise(run)
    kept = _sections(run, {t.name: t for t in tables}, {f.name: f for f in figures})
    if run.file is None:
        return Page(run.title, _subtitle(run), lead, others, _tiles(run), [*kept, *_receipts([run])])
    kept.append(PageSection("files", "Files", facts=run.file.facts))
    others += [run.file.about, HELD_OUT]
    return Page(run.title, "equable evaluate", lead, others, _tiles(run), kept)


def runs_page(runs: Sequence[Results], figures: Sequence[Plot]) -> Page:
    """The page that compares several runs; `figures` has their worst-case changes."""
    names = run_names(runs)
    leads = [f"{name}: {summarise(run)[0]}" for name, run in zip(names, runs, strict=True)]
    sections = [PageSection("result", "All runs", (), [comparison_table(runs)], figures)]
    sections += [
        PageSection(f"run-{index}", name, summarise(run))
        for index, (run, name) in enumerate(zip(runs, names, strict=True))
    ]
    title = f"{len(runs)} runs compared"
    return Page(title, "equable report", leads[0], leads[1:], (), [*sections, *_receipts(runs)])


def _subtitle(run: Results) -> str:
    seeds = f"{len(run.seeds)} seed{'s' if len(run.seeds) > 1 else ''}"
    tasks = f"{run.n_tasks}{'' if run.is_finished else f' of {run.planned_tasks}'} tasks"
    learner = run.config.get("training", {}).get("learner", "er")
    named = "" if learner == "er" else f" · {LEARNERS.get(learner, learner)}"
    return f"equable report · {tasks} · {seeds} · {run.network}{named}"


def _tiles(run: Results) -> list[tuple[str, str, str]]:
    """A few large numbers of the uncalibrated network and the lead method."""
    lead = lead_method(run)
    sides = list(dict.fromkeys(["uncalibrated", lead]))
    who = " → ".join(["uncalibrated", run.label(lead)][: len(sides)])

    def values(name: str) -> str:
        return " → ".join(dict.fromkeys(percent_text(run.mean(side, name)) for side in sides))

    tiles = [("Average ECE" if run.has_tasks else "ECE", f"{values('average_ece')} %", who)]
    if run.has_tasks and lead != "uncalibrated":
        worst = points_text(run.mean(lead, "max_delta_ece"))
        tiles.append(("Worst task's change", f"{worst} points", f"maxΔECE, {run.label(lead)}"))
    floor = run.floor()
    if floor:
        tiles.append(("Noise floor", f"{percent_text(floor.mean)} %", "ECE of a perfectly calibrated model"))
    shares = [mean_of(run.accepted(side, run.n_tasks)) for side in sides]
    accepted = " → ".join(dict.fromkeys(map(percent_text, shares)))
    tiles.append((f"Accepted at ≤ {TOLERATED} error", f"{accepted} %", "of all rows, threshold in hindsight"))
    accuracy = f"{values('accuracy')} %"
    if run.keeps_prediction(lead):
        return [*tiles, ("Accuracy", accuracy, "with and without calibration")]
    mixed = shuffled(run, lead)
    beside = [("Accuracy, shuffled", f"{mixed} %", "batches of 32, all rows pooled")] if mixed else []
    return [("Accuracy", accuracy, who), *beside, *tiles]


HELD_OUT = "The numbers are valid if no calibrator was fitted on these rows, which cannot be checked here."
REFERRAL = (
    "One threshold for all tasks selects the rows that are referred to a person, so a confidence must have "
    "the same meaning on every task."
)
SETS = (
    "A prediction set holds every class that a row may belong to. Its level is valid if the rows of a task "
    "are distributed as in the calibration buffer."
)
ARRIVAL = (
    "The paper takes each task's whole test set as one batch. In practice rows arrive in batches of any "
    "size, of one task or several, or one by one."
)
ESTIMATES = (
    "TaskMix estimates the tasks of a batch without labels, ARC its classes. An estimate is reliable if most "
    "of it is on the true task of the test set and it is based on many calibration rows."
)
UNKNOWN = (
    "Every method predicts a known class for a row of a class that was never learnt. A threshold on the top "
    "probability or on the distance to the nearest prototype rejects some of them; no threshold is fitted."
)


def _sections(run: Results, tables: Mapping[str, Table], figures: Mapping[str, Plot]) -> list[PageSection]:
    """The sections that have tables or figures."""
    reliability = [name for name in figures if name.startswith("reliability_")]
    curves = [name for name in figures if name.startswith("ablation_")]
    ablations = [name for name in tables if name.startswith("ablation_")]
    temperatures = ["learned_temperature", "ideal_temperature"]
    by_task = {"shown" if run.file else "folded": ["tasks"]}
    referral = (REFERRAL, accepted_sentence(run))

    def section(
        key: str, title: str, shown: Names = (), plots: Names = (), folded: Names = (), texts: Names = ()
    ) -> PageSection:
        open_tables, closed_tables = ([tables[n] for n in names if n in tables] for names in (shown, folded))
        drawn = [figures[name] for name in plots if name in figures]
        return PageSection(key, title, texts, open_tables, drawn, closed_tables)

    sections = (
        section("result", "Result", ["main"], ["worst_change", "confidence"]),
        section("noise", "Intervals", ["intervals"]),
        section("paper", "Beside the paper", ["paper"]),
        section("tasks", "Task by task", plots=temperatures, **by_task),
        section("reliability", "Reliability", plots=reliability),
        section("arrival", "How rows arrive", ["arrivals"], ["arrivals"], texts=[ARRIVAL]),
        section("referral", "Referral", ["answered"], ["referral"], ["referral"], referral),
        section("sets", "Prediction sets", ["sets"], texts=[SETS]),
        section("estimates", "Estimates of a batch", ["batch_estimates"], texts=[ESTIMATES]),
        section("unknown", "Unknown classes", ["unknown"], texts=[UNKNOWN]),
        section("steps", "After every task", folded=["steps", "steps_worst", "protocol"]),
        section("ablations", "Ablations", plots=curves, folded=ablations),
        section("runtime", "Runtime", plots=["runtime"], folded=["runtime"]),
    )
    return [section for section in sections if section.tables or section.figures or section.folded]


def _receipts(runs: Sequence[Results]) -> list[PageSection]:
    """Settings, provenance and the commands that reproduce the numbers."""
    several = len(runs) > 1
    sections = []
    for index, (run, name) in enumerate(zip(runs, run_names(runs), strict=True)):
        end = f"-{index}" if several else ""
        of = f" of {name}" if several else ""
        sections.append(PageSection(f"settings{end}", f"Settings{of}", facts=_settings(run)))
        sections.append(PageSection(f"provenance{end}", f"Provenance{of}", facts=_provenance(run)))
    text = "Every number above was computed from stored outputs, without training."
    return [*sections, PageSection("recompute", "Recompute", [text], code=_commands(runs))]


def _settings(run: Results) -> list[tuple[str, str]]:
    flat = flatten(run.config)
    flat.pop("data.data_dir", None)
    for key, value in flat.items():
        if key == "data.source" or key.endswith(".calibrator"):  # no paths of a machine
            flat[key] = Path(str(value)).name
    shown = {k: ", ".join(map(str, v)) if isinstance(v, list) else str(v) for k, v in flat.items()}
    return [(key, text) for key, text in shown.items() if text]


def _provenance(run: Results) -> list[tuple[str, str]]:
    """Versions, hardware, seeds, numbers of rows, and a fingerprint of the outputs behind the scores."""
    found = dict(run.environment)
    also = "; ".join(str(machine.get("cpu")) for machine in found.pop("also", []))
    facts = [(key, str(value)) for key, value in flatten(found).items() if value is not None]
    facts += [("continued on", also)] if also else []
    digests = "".join(sorted({score.outputs for score in run.scores.values()}))
    comparison = run.at(run.methods[0])[0].comparison
    return [
        *facts,
        ("seeds", ", ".join(map(str, run.seeds))),
        ("test rows of each task", ", ".join(f"{n:,}" for n in run.counts)),
        ("bins of the ECE", str(comparison["n_bins"])),
        ("bootstrap replicates", f"{comparison['n_bootstrap']:,}"),
        ("outputs, SHA-256", hashlib.sha256(digests.encode()).hexdigest()),
    ]


def _commands(runs: Sequence[Results]) -> str:
    names = [shlex.quote(run.name) for run in runs]
    out = " --out FOLDER" if len(runs) > 1 else ""
    lines = ["# from stored outputs, in seconds"]
    lines += [f"equable {verb} {name}" for name in names for verb in ("score", "arrivals", "ablate")]
    lines += [f"equable report {' '.join(names)}{out}", "", "# everything, training included"]
    for run in runs:
        seeds = ",".join(map(str, run.seeds))
        lines.append(f"equable run {shlex.quote(run.name + '/config.toml')} --seeds {seeds} --out NEW-FOLDER")
    return "\n".join(lines)
