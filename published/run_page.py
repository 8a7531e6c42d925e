"""The page of one run, its figures and their data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from equable.reports.figures import Plot, build_plots
from equable.reports.figures.reliability import mean_referral, pooled_reliability
from equable.reports.results import MeanStd, Results
from equable.reports.sentences import ablation_title, accepted_sentence, setting_name, summarise
from equable.reports.tables import build_tables
from equable.reports.tables.runtime import PARTS
from published.blocks import beside_the_paper, figure, lines, runtime, untitled, words
from published.evidence import POINTS, Evidence, ablation_change, settings_of
from published.runs import TCIL_REFITTED, Published

FIGURES = (
    *("worst_change", "confidence", "ideal_temperature", "learned_temperature"),
    *("arrivals", "referral"),
)
RELIABILITY = ("dats", "arc")
STEADY = ("uncalibrated", "rc", "tcil", "dats", "arc")
UNSTEADY = ("pts", "lascal")
REFITTED = (
    "T-CIL: the network of this run is not available any more. Its replay memory was perturbed by a search with exact "
    "fits; the last temperature is fitted on those rows by the SGD of the authors."
)
DRAWN_REFERRAL = ("uncalibrated", "rc", "dats", "arc")


def plots_of(run: Published) -> list[Plot]:
    """The figures of the page; ablations and runtime are tables."""
    wanted = [*FIGURES, *(f"reliability_{method}" for method in RELIABILITY)]
    return [plot for plot in build_plots(run.results) if plot.name in wanted]


def run_page(run: Published) -> str:
    """The page of one run."""
    tables = {table.name: table for table in build_tables(run.results)}
    figures = {
        plot.name: figure(f"figures/{run.name}/{plot.name}.svg", plot.alt, plot.caption)
        for plot in plots_of(run)
    }
    ablations = [name for name in tables if name.startswith("ablation_")]

    def shown(*names: str) -> str:
        return lines(*(untitled(tables[name]) for name in names if name in tables))

    def drawn(*names: str) -> str:
        return lines(*(figures[name] for name in names if name in figures))

    return lines(
        f"# {run.title}",
        _introduction(run),
        "\n".join(f"- {sentence}" for sentence in summarise(run.results)),
        "## After the last task",
        shown("main", "intervals"),
        beside_the_paper(run),
        "## Temperatures",
        drawn("confidence", "ideal_temperature", "learned_temperature"),
        "## Task by task",
        drawn("worst_change"),
        shown("tasks"),
        "## Reliability",
        drawn(*(f"reliability_{method}" for method in RELIABILITY)),
        "## How rows arrive",
        drawn("arrivals"),
        shown("arrivals"),
        "## Referral",
        accepted_sentence(run.results),
        drawn("referral"),
        shown("answered", "referral"),
        "## Prediction sets",
        shown("sets"),
        "## Estimates of a batch",
        shown("batch_estimates"),
        "## Ablations of DATS",
        shown(*ablations),
        _ablation_intervals(run),
        "## Runtime",
        "Measured during the run on cores shared with other programs; ratios are more reliable than seconds.",
        runtime(run),
        "## Settings",
        _settings(run),
    )


def _ablation_intervals(run: Published) -> str:
    """Change of each setting against DATS with the settings of the run, with intervals."""
    rows = []
    for name in run.results.ablation_names:
        for setting in settings_of(run, name):
            change = ablation_change(run, name, setting)
            none = max(abs(change.low), abs(change.high)) < 1e-9
            text = "none" if none else Evidence("", "", change, POINTS, "open").text
            rows.append([ablation_title(name), setting_name(setting), text])
    floor = run.results.floor()
    return lines(
        "### Change against DATS with the settings of the run",
        "Change of the average ECE, 95 % intervals of Student's t over seeds"
        + (f"; the noise floor of the average ECE is {100 * floor.mean:.2f} %." if floor else "."),
        words(("Ablation", "Setting", "Change"), rows),
    )


def _introduction(run: Published) -> str:
    seeds = ", ".join(map(str, run.results.seeds))
    missing = run.expected.seeds - len(run.results.seeds)
    words = f"Part of the [results](index.md). Seeds {seeds}"
    words += f" ({missing} missing)" if missing > 0 else ""
    words = (
        f"{words}. Computed from outputs stored in float16. This rounding changes the average ECE of RC, DATS, ARC and, "
        f"unless it is fitted again, T-CIL by at most {100 * run.moved(STEADY):.2f} points, and that of PTS and LaSCal, "
        f"which depend on single rows, by at most {100 * run.moved(UNSTEADY):.2f} points."
    )
    return f"{words} {REFITTED}" if run.name in TCIL_REFITTED else words


def _settings(run: Published) -> str:
    environment = run.results.environment
    packages = ", ".join(f"{name} {version}" for name, version in environment.get("packages", {}).items())
    hardware = (
        f"{environment.get('cpu')}, {environment.get('cpu_count')} cores, {environment.get('memory_gb')} GB"
    )
    flat = []
    for key, value in run.results.config.items():
        section = value if isinstance(value, Mapping) else {key: value}
        inside = f"{key}." if isinstance(value, Mapping) else ""
        flat += [f"{inside}{name} = {_plain(v)}" for name, v in section.items() if v != ""]
    code = "\n".join(flat)
    return lines(
        f"Hardware: {hardware}. equable {environment.get('equable')}, {packages}.", f"```text\n{code}\n```"
    )


def _plain(value: Any) -> str:
    return PurePosixPath(value).name if isinstance(value, str) else str(value)


# Data of the figures ------------------------------------------------------------------------


def figure_data(run: Published) -> dict[str, Any]:
    """Data of the figures of a run, in fractions, nats and seconds."""
    results = run.results
    tasks = range(results.n_tasks)
    return {
        "seeds": list(results.seeds),
        "worst_change": {label: _pair(value) for label, value in results.worst_changes().items()},
        "ece_by_task": {m: [_pair(results.of_task(m, "ece", t)) for t in tasks] for m in results.methods},
        "accuracy": [_pair(results.of_task("uncalibrated", "accuracy", t)) for t in tasks],
        "confidence": {m: results.listed(m, lambda s: s.confidence).tolist() for m in results.methods},
        "temperature": {m: v.tolist() for m, v in results.temperatures_by_method().items()},
        "single_temperature": results.listed("oracle_single", lambda s: s.temperatures).tolist(),
        "reliability": {
            m: [[part.tolist() for part in pooled_reliability(results.at(m), t)] for t in tasks]
            for m in ("uncalibrated", *RELIABILITY)
        },
        "referral": {
            m: [mean_referral(results.at(m), i).tolist() for i in (*tasks, -1)] for m in DRAWN_REFERRAL
        },
        "arrivals": {
            m: {f"{r} {b}": _pair(results.arrival_value(m, (r, b))) for r, b in results.arrivals_measured}
            for m in results.arriving_methods
        },
        "ablations": {name: _ablation(results, name) for name in results.ablation_names},
        "runtime": {
            m: {part: _pair(results.summed_seconds(m, part)) for part in PARTS} for m in results.ranked
        },
        "extras": list(run.extras),
    }


def _ablation(results: Results, name: str) -> dict[str, Any]:
    return {
        method: {
            setting_name(s): _pair(v) for s, v in results.ablation_values(name, "average_ece", method).items()
        }
        for method in results.ablation_methods(name)
    }


def _pair(value: MeanStd | None) -> list[float] | None:
    return None if value is None else [value.mean, value.std]
