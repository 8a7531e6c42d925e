"""The page of a monitor's log: rows, mix of tasks, expected and observed accuracy, ECE, the alarm."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equable.decisions.monitor import ALARM, MonitorStatus
from equable.errors import FileFormatError
from equable.reports.figures import DrawnFigure, Plot, draw
from equable.reports.figures.style import BLUE, GREEN, INK, LOOKS, MUTED, VERMILION, new_figure
from equable.reports.page import render_page
from equable.reports.page_sections import Page, PageSection
from equable.reports.results import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Of a longer log so many evenly spaced lines are drawn, and always the last.
MOST_POINTS = 2000
LEGEND_TASKS = 12


@dataclass(frozen=True)
class MonitorLog:
    """The lines of a log in the order of their rows; `damaged` lines could not be read."""

    name: str
    lines: Sequence[MonitorStatus]
    damaged: int
    replaced: int  # lines that a monitor loaded from an older file has written anew

    @property
    def first_alarm(self) -> MonitorStatus | None:
        """The first line with an alarm."""
        return next((line for line in self.lines if line.alarm), None)


def read_log(path: str | os.PathLike[str]) -> MonitorLog:
    """Read a log; lines cut off by a kill are counted and left out, a file without a whole line is refused.

    A line with no more rows than the one before it comes from a monitor that was loaded from an older file:
    it replaces the lines of the same rows.
    """
    lines: list[MonitorStatus] = []
    damaged = replaced = 0
    for text in Path(path).read_bytes().split(b"\n"):
        status = _status(text) if text.strip() else None
        damaged += bool(text.strip()) and status is None
        if status is not None:
            while lines and lines[-1].rows >= status.rows:
                lines.pop()
                replaced += 1
            lines.append(status)
    if not lines:
        raise FileFormatError(
            f"{path} must be the log of a Monitor, one JSON line an update; it has no whole line"
        )
    return MonitorLog(Path(path).name, lines, damaged, replaced)


def _status(text: bytes) -> MonitorStatus | None:
    """One line, or None where it is not a whole status."""
    try:
        found = json.loads(text)
        status = MonitorStatus(**found)
        numbers = [getattr(status, field.name) for field in fields(status) if field.name != "mix"]
        checked = [float(value) for value in (*numbers, *(status.mix or ())) if value is not None]
    except (ValueError, TypeError, RecursionError):
        return None
    # NaN is no JSON number, and a count is no text
    return status if all(value == value for value in checked) and isinstance(status.rows, int) else None


def monitor_page(log: MonitorLog) -> str:
    """One self-contained HTML page, light and dark."""
    return render_page(_page(log, {plot.name: draw(plot, png=False) for plot in monitor_plots(log)}))


def monitor_plots(log: MonitorLog) -> list[Plot]:
    """Accuracy and ECE, the mix of tasks where there is one, the e-value."""
    last = log.lines[-1]
    plots = [
        Plot("accuracy", ACCURACY, _accuracy_alt(last), lambda: _draw_accuracy(log)),
        Plot(
            "e_value", E_VALUE, f"The e-value over rows; it ends at {last.e_value:.3g}.", lambda: _draw_e(log)
        ),
    ]
    if last.mix is not None:
        alt = f"Shares of {len(last.mix)} tasks in the window over rows."
        plots.insert(1, Plot("mix", MIX, alt, lambda: _draw_mix(log)))
    return plots


ACCURACY = (
    "Accuracy over rows: expected (mean top probability of the window, no labels needed), promised (the same "
    "of the rows whose labels came) and observed (their share of right answers), and the ECE of these rows."
)
MIX = "Estimated shares of the tasks in the window."
E_VALUE = "Evidence against calibrated confidences. The dotted line is the alarm, 100."
BIASED = (
    "Accuracy, ECE and alarm speak of the rows whose labels came. Labels of referred rows alone are a biased "
    "sample."
)


def _page(log: MonitorLog, drawn: dict[str, DrawnFigure]) -> Page:
    last = log.lines[-1]
    tiles = [
        ("Rows", f"{last.rows:,}", f"{last.labelled:,} with labels"),
        ("Expected accuracy", _percent(last.expected_accuracy), "of the window, without labels"),
        ("Observed accuracy", _percent(last.accuracy), f"promised {_percent(last.promised_accuracy)}"),
        ("ECE", _percent(last.ece), "of the kept rows with labels"),
        ("Alarm", "yes" if last.alarm else "no", f"e-value {last.e_value:.3g}, alarm at {ALARM:g}"),
    ]
    sections = [
        PageSection("accuracy", "Accuracy", (), figures=[drawn["accuracy"]]),
        PageSection("mix", "Mix of tasks", (), figures=[drawn["mix"]] if "mix" in drawn else []),
        PageSection("alarm", "Alarm", [BIASED], figures=[drawn["e_value"]]),
    ]
    kept = [section for section in sections if section.figures]
    return Page(log.name, "equable monitor", _lead(log), _notes(log), tiles, kept)


def _lead(log: MonitorLog) -> str:
    first = log.first_alarm
    if first is None:
        return "No alarm: the labels that came do not contradict the confidences."
    return (
        f"Alarm at row {first.rows:,}, after {first.labelled:,} labels: confidences are not calibrated"
        f"{'' if log.lines[-1].alarm else '. At the end of the log the e-value is below the alarm again'}."
    )


def _notes(log: MonitorLog) -> list[str]:
    notes = [f"{len(log.lines):,} updates."]
    if log.damaged:
        notes.append(f"{log.damaged:,} damaged line{'s' if log.damaged > 1 else ''} left out.")
    if log.replaced:
        notes.append(f"{log.replaced:,} updates were made again after a restart; the later ones count.")
    return notes


def _accuracy_alt(last: MonitorStatus) -> str:
    return (
        f"Accuracy over rows. At the end {_percent(last.expected_accuracy)} is expected, "
        f"{_percent(last.promised_accuracy)} promised and {_percent(last.accuracy)} observed."
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{percent(value)} %"


def _drawn_lines(log: MonitorLog) -> list[MonitorStatus]:
    step = -(-len(log.lines) // MOST_POINTS)
    return [*log.lines[:-1:step], log.lines[-1]]


def _draw_accuracy(log: MonitorLog) -> Figure:
    lines = _drawn_lines(log)
    figure, (upper, lower) = new_figure(4.2, rows=2, sharex=True, height_ratios=(2, 1))
    shown: tuple[tuple[str, str, str, str], ...] = (
        ("expected_accuracy", "expected", MUTED, ":"),
        ("promised_accuracy", "promised", BLUE, "--"),
        ("accuracy", "observed", VERMILION, "-"),
    )
    for name, label, color, line in shown:
        upper.plot(*_points(lines, name), color=color, linestyle=line, label=label)
    upper.set_ylabel("Accuracy (%)")
    figure.legend(ncols=3, loc="outside upper left", handlelength=2.2)
    lower.plot(*_points(lines, "ece"), color=GREEN)
    lower.set_ylabel("ECE (%)")
    lower.set_ylim(bottom=0)
    lower.set_xlabel("Rows seen")
    for axes in (upper, lower):
        axes.grid(axis="y")
    return figure


def _points(lines: Sequence[MonitorStatus], name: str) -> tuple[list[int], list[float]]:
    found = [(line.rows, 100 * value) for line in lines if (value := getattr(line, name)) is not None]
    return [rows for rows, _ in found], [value for _, value in found]


def _draw_mix(log: MonitorLog) -> Figure:
    lines = [line for line in _drawn_lines(log) if line.mix is not None]
    figure, (axes,) = new_figure(2.6)
    looks = list(LOOKS.values())
    n_tasks = len(lines[-1].mix or ())
    for t in range(n_tasks):
        look = looks[(t + 1) % len(looks)]
        found: list[Any] = [
            (line.rows, 100 * line.mix[t]) for line in lines if line.mix and len(line.mix) > t
        ]
        label = f"task {t + 1}" if n_tasks <= LEGEND_TASKS else None
        axes.plot(*zip(*found, strict=True), color=look.color, linestyle=look.line, label=label)
    if n_tasks <= LEGEND_TASKS:
        figure.legend(ncols=min(n_tasks, 6), loc="outside upper left", handlelength=2.2)
    axes.set_ylabel("Share of the window (%)")
    axes.set_xlabel("Rows seen")
    axes.set_ylim(-2, 102)
    axes.grid(axis="y")
    return figure


def _draw_e(log: MonitorLog) -> Figure:
    lines = _drawn_lines(log)
    figure, (axes,) = new_figure(2.2)
    axes.plot([line.rows for line in lines], [max(line.e_value, 1e-3) for line in lines], color=INK)
    axes.axhline(ALARM, color=VERMILION, linestyle=":")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # the style draws no formulas
    axes.set_ylabel("e-value")
    axes.set_xlabel("Rows seen")
    axes.grid(axis="y")
    return figure
