"""The page of an evaluation: the same looks and the same promises as a run's report."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

import equable
from equable.deploy.evaluation import ALL_ROWS, Evaluation, MethodScores, ViewScores
from equable.deploy.evaluation_sentences import about_file, by_ece, in_percent, in_points, sentences_of
from equable.deploy.evaluation_tables import build_tables
from equable.files import write_text
from equable.reports.figures import Plot, render
from equable.reports.figures.panels import (
    ReliabilityPanel,
    draw_referral_panels,
    draw_reliability_panels,
    draw_temperatures,
    errors_at_shares,
    give_looks,
    points_of,
)
from equable.reports.page import Page, PageFigure, PageSection, page_figure, render_page, section_of
from equable.reports.tables.table import number

REFERRAL = (
    "Who hands the unsure rows to a person needs confidences that mean the same on every task: one threshold "
    "decides which rows those are. A row is accepted where the classifier's confidence reaches it."
)
RELIABILITY = (
    "On the dashed line confidence is accuracy; dots below it are overconfident, dots above it too modest. "
    "A dot's area is its share of the rows; titles give the ECE."
)
HELD_OUT = (
    "Numbers hold for rows that no calibrator was fitted on; whether these are such, nobody can check here."
)


def write_page(evaluation: Evaluation, path: str | os.PathLike[str]) -> None:
    """Write the self-contained HTML page, atomically."""
    write_text(path, render_page(evaluation_page(evaluation)))


def evaluation_page(evaluation: Evaluation) -> Page:
    """All that stands on the page."""
    tables = {table.name: table for table in build_tables(evaluation)}
    figures = {plot.name: _drawn(plot) for plot in build_plots(evaluation)}
    reliability = [name for name in figures if name.startswith("reliability_")]
    sections = [
        section_of("result", "Result", tables, figures, open_tables=["main"]),
        section_of("noise", "How sure is this", tables, figures, open_tables=["intervals"]),
        section_of("tasks", "Task by task", tables, figures, open_tables=["tasks"], drawn=["temperatures"]),
        section_of("reliability", "Reliability", tables, figures, texts=[RELIABILITY], drawn=reliability),
        section_of(
            "referral", "Referral", tables, figures, texts=[REFERRAL, _kept(evaluation)], drawn=["referral"]
        ),
        PageSection("files", "Files", facts=_facts(evaluation)),
        PageSection("recompute", "Recompute", code=_command(evaluation)),
    ]
    if not evaluation.has_tasks:
        sections[2] = section_of("temperatures", "Temperatures", tables, figures, drawn=["temperatures"])
    kept = [s for s in sections if s.tables or s.figures or s.facts or s.code]
    lead, *others = sentences_of(evaluation)
    sentences = [*others, about_file(evaluation), HELD_OUT]
    return Page(evaluation.name, "equable evaluate", lead, sentences, _tiles(evaluation), kept)


def _tiles(evaluation: Evaluation) -> list[tuple[str, str, str]]:
    """A few large numbers: before and after, the worst task, how low it could go."""
    plain, best = evaluation.methods[0], by_ece(evaluation)[0]
    arrow = f"uncalibrated → {best.label}" if best is not plain else "uncalibrated"

    def both(before: float, after: float) -> str:
        return (
            f"{in_percent(before)} → {in_percent(after)} %" if best is not plain else f"{in_percent(after)} %"
        )

    name = "Average ECE" if evaluation.has_tasks else "ECE"
    tiles = [(name, both(plain.comparison.average_ece, best.comparison.average_ece), arrow)]
    if evaluation.has_tasks and best is not plain:
        change = f"{in_points(best.comparison.max_delta_ece)} points"
        tiles.append(("Worst task's change", change, f"maxΔECE, {best.most_harmed.name.lower()}"))
    floors = [view.noise_floor for view in best.by_task]
    tiles.append(("Noise floor", f"{in_percent(sum(floors) / len(floors))} %", "a perfect model's ECE here"))
    shares = [number(100 * m.views[-1].accepted, 0) for m in dict.fromkeys((plain, best))]
    tiles.append(("Accepted at ≤ 5 % error", f"{' → '.join(shares)} %", "of all rows, best threshold"))
    tiles.append(("Accuracy", f"{in_percent(best.comparison.accuracy)} %", f"of {evaluation.n_rows:,} rows"))
    return tiles


def _facts(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Receipts: what was read, how it was judged, by which version."""
    facts = [("outputs", evaluation.name), ("outputs, SHA-256", evaluation.sha256)]
    for method in evaluation.methods:
        if method.source is not None:
            settings = ", ".join(f"{key} = {value}" for key, value in method.settings.items())
            facts.append((method.source[0], f"{method.kind}{f': {settings}' if settings else ''}"))
            facts.append((f"{method.source[0]}, SHA-256", method.source[1]))
    return [
        *facts,
        ("batches", str(evaluation.grouping)),
        ("bins of the ECE", str(evaluation.n_bins)),
        ("bootstrap replicates", f"{evaluation.n_bootstrap:,}"),
        ("equable", equable.__version__),
    ]


def _command(evaluation: Evaluation) -> str:
    files = [method.source[0] for method in evaluation.methods if method.source is not None]
    options = ["--groups", evaluation.grouping.how, "--bins", str(evaluation.n_bins)]
    options += ["--bootstrap", str(evaluation.n_bootstrap), "--html", "page.html"]
    lines = [["equable", "evaluate", evaluation.name], *([file] for file in files), options]
    return " \\\n  ".join(map(shlex.join, lines))


# Figures --------------------------------------------------------------------------------------------


def _drawn(plot: Plot) -> PageFigure:
    return page_figure(plot.name, render(plot, "svg"), plot.caption, plot.alt)


def build_plots(evaluation: Evaluation) -> Iterator[Plot]:
    """Every figure of the page."""
    for index, method in enumerate(evaluation.methods):
        if index or len(evaluation.methods) == 1:
            yield _reliability(evaluation, method, index)
    yield _referral(evaluation)
    temperatures = _temperatures(evaluation)
    if temperatures is not None:
        yield temperatures


def _reliability(evaluation: Evaluation, method: MethodScores, index: int) -> Plot:
    plain = evaluation.methods[0]

    def panel(before: ViewScores, after: ViewScores) -> ReliabilityPanel:
        if method is plain:
            return ReliabilityPanel(
                f"{before.name}: {in_percent(before.ece)} %", {"uncalibrated": points_of(before.reliability)}
            )
        title = f"{before.name}: {in_percent(before.ece)} → {in_percent(after.ece)} %"
        sides = {
            "before": points_of(before.reliability),
            f"after {method.label}": points_of(after.reliability),
        }
        return ReliabilityPanel(title, sides)

    panels = [panel(*views) for views in zip(plain.views, method.views, strict=True)]
    sides = "Uncalibrated" if method is plain else f"Before and after {method.label}"
    caption = f"{sides}, {'each task and ' if evaluation.has_tasks else ''}all rows."
    alt = f"Reliability diagrams. ECE of {'; '.join(panel.title for panel in panels)}."
    return Plot(f"reliability_{index}", caption, alt, lambda: draw_reliability_panels(panels))


def _referral(evaluation: Evaluation) -> Plot:
    methods = {m.label: [errors_at_shares(view.referral) for view in m.views] for m in evaluation.methods}
    looks = give_looks([method.kind for method in evaluation.methods])
    titles = [view.name for view in evaluation.views]
    caption = (
        "The least confident rows go to a person; how often is the classifier wrong on the rest? "
        "The dotted line is 5 %."
    )
    if evaluation.has_tasks:
        caption += " In the last panel one threshold serves all tasks: there calibration counts."
    alt = f"Error among kept rows by share referred. {_kept(evaluation)}"
    return Plot("referral", caption, alt, lambda: draw_referral_panels(titles, methods, looks))


def _kept(evaluation: Evaluation) -> str:
    shares = ", ".join(f"{m.label} {in_percent(m.views[-1].accepted)} %" for m in evaluation.methods)
    return f"Of all rows may be accepted with at most 5 % error: {shares}."


def _temperatures(evaluation: Evaluation) -> Plot | None:
    """None where no calibrator has temperatures, or one number a method says it all."""
    looks = dict(zip(evaluation.methods, give_looks([m.kind for m in evaluation.methods]), strict=True))
    shown = [m for m in evaluation.methods[1:] if m.views[0].temperature is not None]
    found = {m.label: [view.temperature or () for view in m.by_task] for m in shown}
    varied = any(view[0] != view[-1] for views in found.values() for view in views)
    if not found or not (evaluation.has_tasks or varied):
        return None
    names = [view.name.removeprefix("Task ") for view in evaluation.methods[0].by_task]
    axis = "Task" if evaluation.has_tasks else ""
    caption = (
        "Temperature by which the logits of each task's rows are divided: the median, where rows differ "
    )
    caption = caption if evaluation.has_tasks else caption.replace("each task's", "all")
    caption += "a bar for the middle half and a line for 90 % of them. Above 1 confidence is lowered."
    words = (f"{label}: {', '.join(number(view[2]) for view in views)}" for label, views in found.items())
    alt = f"Median temperature of {ALL_ROWS.lower() if not axis else 'each task'}. {'; '.join(words)}."
    chosen = [looks[m] for m in shown]
    return Plot("temperatures", caption, alt, lambda: draw_temperatures(names, found, chosen, axis))
