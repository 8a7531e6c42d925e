"""What stands on a report page, of one run or of several."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from equable.reports.page import Page, PageFigure, PageSection, section_of
from equable.reports.remarks import arrival_words, referral_words
from equable.reports.results import Results
from equable.reports.sentences import best_ranked, summarise
from equable.reports.tables import Table, comparison_table
from equable.reports.tables.comparison import run_names
from equable.reports.tables.main import main_table
from equable.reports.tables.table import number

Tables = Mapping[str, Table]
Figures = Mapping[str, PageFigure]


def run_page(run: Results, tables: Tables, figures: Figures) -> Page:
    """The page of one run."""
    lead, *others = summarise(run)
    details = _detail_sections(run, tables, figures)
    sections = [*_result_sections(tables, figures), *details, *_receipts([run])]
    kept = [s for s in sections if s.tables or s.figures or s.folded or s.facts or s.code]
    return Page(run.title, _kicker(run), lead, others, _tiles(run), kept)


def runs_page(runs: Sequence[Results], figures: Figures) -> Page:
    """The page that compares several runs; `figures` has their worst-case changes."""
    names = run_names(runs)
    leads = [f"{name}: {summarise(run)[0]}" for name, run in zip(names, runs, strict=True)]
    table = comparison_table(runs)
    sections = [
        section_of(
            "result",
            "All runs",
            {"comparison": table},
            figures,
            open_tables=["comparison"],
            drawn=["worst_change"],
        )
    ]
    for index, (run, name) in enumerate(zip(runs, names, strict=True)):
        sections.append(
            PageSection(
                f"run-{index}", name, summarise(run), [replace(main_table(run), name=f"main-{index}")]
            )
        )
    title = f"{len(runs)} runs compared"
    return Page(title, "equable report", leads[0], leads[1:], (), [*sections, *_receipts(runs)])


def _kicker(run: Results) -> str:
    seeds = f"{len(run.seeds)} seed{'s' if len(run.seeds) > 1 else ''}"
    tasks = f"{run.last_task + 1}{'' if run.is_finished else f' of {run.planned_tasks}'} tasks"
    return f"equable report · {tasks} · {seeds} · {run.network}"


def _tiles(run: Results) -> list[tuple[str, str, str]]:
    """A few large numbers: before and after, the worst task, the headroom."""
    best = best_ranked(run)
    label = run.label(best)
    before, after, worst = (
        run.metric("uncalibrated", "average_ece"),
        run.metric(best, "average_ece"),
        run.metric(best, "max_delta_ece"),
    )
    accuracy, floor = run.metric(best, "accuracy"), run.floor()
    tiles = []
    if before and after:
        change = f"{number(100 * before.mean, 1)} → {number(100 * after.mean, 1)} %"
        tiles.append(("Average ECE", change, f"uncalibrated → {label}"))
    if worst and best != "uncalibrated":
        text = f"{number(100 * worst.mean, 1, signed=True)} points"
        tiles.append(("Worst task's change", text, f"maxΔECE, {label}"))
    if floor:
        tiles.append(("Noise floor", f"{number(100 * floor.mean, 1)} %", "a perfect model's ECE here"))
    if accuracy:
        tiles.append(("Accuracy", f"{number(100 * accuracy.mean, 1)} %", "the same for every method"))
    return tiles


def _result_sections(tables: Tables, figures: Figures) -> list[PageSection]:
    return [
        section_of(
            "result", "Result", tables, figures, open_tables=["main"], drawn=["worst_change", "confidence"]
        ),
        section_of("noise", "How sure is this", tables, figures, open_tables=["intervals"]),
        section_of("paper", "Beside the paper", tables, figures, open_tables=["paper"]),
        section_of(
            "tasks",
            "Task by task",
            tables,
            figures,
            drawn=["learned_temperature", "ideal_temperature"],
            folded=["tasks", "task_changes"],
        ),
        section_of(
            "reliability",
            "Reliability",
            tables,
            figures,
            drawn=[name for name in figures if name.startswith("reliability_")],
        ),
    ]


REFERRAL = (
    "Who hands the unsure cases to a person needs confidences that mean the same on every task: "
    "one threshold decides which cases those are."
)


ARRIVAL = (
    "The paper hands over each task's whole test set as one batch. In practice rows come in batches of any "
    "size, from one task or several, or one by one."
)
BELIEFS = (
    "ARC estimates each batch's classes without labels; the more of the estimate lies on the task's own "
    "classes, and the more calibration rows it rests on, the more its temperature can be trusted."
)


def _detail_sections(run: Results, tables: Tables, figures: Figures) -> list[PageSection]:
    ablations = [name for name in tables if name.startswith("ablation_")]
    drawn = [name for name in figures if name.startswith("ablation_")]
    steps = ["steps", "steps_worst", "protocol"]
    return [
        section_of(
            "arrival",
            "How rows arrive",
            tables,
            figures,
            texts=[ARRIVAL, *arrival_words(run)],
            drawn=["regimes"],
            folded=["arrivals", "regimes"],
        ),
        section_of(
            "referral",
            "Referral",
            tables,
            figures,
            texts=[REFERRAL, *referral_words(run)],
            drawn=["referral"],
            folded=["referral", "referral_gain"],
        ),
        section_of(
            "beliefs",
            "What ARC believed",
            tables,
            figures,
            texts=[BELIEFS],
            open_tables=["beliefs"],
        ),
        section_of("steps", "After every task", tables, figures, folded=steps),
        section_of("ablations", "Ablations", tables, figures, drawn=drawn, folded=ablations),
        section_of("runtime", "Runtime", tables, figures, drawn=["runtime"], folded=["runtime"]),
    ]


def _receipts(runs: Sequence[Results]) -> list[PageSection]:
    """Settings, provenance and the commands that make it all again."""
    several = len(runs) > 1
    sections = []
    for index, (run, name) in enumerate(zip(runs, run_names(runs), strict=True)):
        end, of = (f"-{index}", f" of {name}") if several else ("", "")
        sections.append(PageSection(f"settings{end}", f"Settings{of}", facts=_settings(run)))
        sections.append(PageSection(f"provenance{end}", f"Provenance{of}", facts=_provenance(run)))
    text = "Every number above comes from stored outputs: no training, and the same tables each time."
    return [*sections, PageSection("recompute", "Recompute", [text], code=_commands(runs))]


def _settings(run: Results) -> list[tuple[str, str]]:
    flat: dict[str, Any] = {}
    for key, value in (dict(run.config) | {"methods": _own_methods(run)}).items():
        flat |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
    if flat.get("data.source"):  # where it lies on somebody's disk is nobody else's matter
        flat["data.source"] = Path(str(flat["data.source"])).name
    flat.pop("data.data_dir", None)
    return [(key, _plain(value)) for key, value in flat.items() if value != ""]


def _own_methods(run: Results) -> dict[str, str]:
    """Where the user's own methods come from: the class, the name of its file and which version of it."""
    told = {}
    for name in run.own:
        table = run.config["methods"][name]
        code = f"{Path(str(table.get('calibrator'))).name} on {table.get('rows', 'calibration_buffer')}"
        settings = "".join(f", {key} = {value}" for key, value in dict(table.get("settings", {})).items())
        told[name] = f"{code}{settings}, SHA-256 {str(table.get('sha256'))[:16]}…"
    return told


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _provenance(run: Results) -> list[tuple[str, str]]:
    """Versions, hardware, seeds, numbers of rows, and a fingerprint of the outputs behind the scores."""
    found = dict(run.environment)
    also, packages = found.pop("also", []), found.pop("packages", {})
    facts = [(key.replace("_", " "), str(value)) for key, value in found.items() if value is not None]
    facts += (
        [("packages", ", ".join(f"{name} {version}" for name, version in packages.items()))]
        if packages
        else []
    )
    facts += [("continued on", "; ".join(str(place.get("cpu")) for place in also))] if also else []
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
    lines = ["# from stored outputs, in seconds"]
    lines += [
        f"equable {verb} {shlex.quote(run.name)}" for run in runs for verb in ("score", "regimes", "ablate")
    ]
    lines.append(
        f"equable report {shlex.join(run.name for run in runs)}{' --out FOLDER' if runs[1:] else ''}"
    )
    lines += ["", "# all of it, training included"]
    for run in runs:
        seeds = ",".join(map(str, run.seeds))
        lines.append(f"equable run {shlex.quote(run.name + '/config.toml')} --seeds {seeds} --out NEW-FOLDER")
    return "\n".join(lines)
