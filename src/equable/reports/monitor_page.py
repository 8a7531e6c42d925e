"""The page of a monitor's log: rows, mix of tasks, expected and observed accuracy, ECE, the alarm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import TypeAdapter, ValidationError

from equable.arrays import FloatArray
from equable.decisions.monitor import ALARM, MOST_ROWS, MonitorStatus
from equable.errors import FileFormatError
from equable.files import StrPath
from equable.reports.figures import Plot
from equable.reports.figures.style import BLUE, GREEN, INK, LINE_WIDTH, MUTED, STYLES, VERMILION, new_figure
from equable.reports.page import render_page
from equable.reports.page_sections import Page, PageSection
from equable.reports.results import percent_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Shares are sums of numbers that were rounded.
ROUNDING = 1e-9
LEGEND_TASKS = 12
_STATUS = TypeAdapter(MonitorStatus)


@dataclass(frozen=True)
class MonitorLog:
    """The lines of a log in the order of their rows; `damaged` lines could not be read."""

    name: str
    lines: Sequence[MonitorStatus]
    damaged: int
    replaced: int  # lines replaced by a monitor that was loaded from an older file

    @property
    def first_alarm(self) -> MonitorStatus | None:
        """The first line with an alarm."""
        return next((line for line in self.lines if line.alarm), None)


def read_log(path: StrPath) -> MonitorLog:
    """Read a log; lines cut off or out of range are counted and left out.

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
            f"{path} must be the log of a Monitor, one JSON line per update; no line is complete"
        )
    return MonitorLog(Path(path).name, lines, damaged, replaced)


def _status(text: bytes) -> MonitorStatus | None:
    """One line, or None where it is not a whole status."""
    try:
        status = _STATUS.validate_json(text, strict=True)
    except ValidationError:
        return None
    return status if _in_range(status) else None


def _in_range(status: MonitorStatus) -> bool:
    """Whether a monitor can have written these numbers; NaN is in no range."""
    if not 0 <= status.labelled <= status.rows <= MOST_ROWS or status.mix == ():
        return False
    shares = (status.expected_accuracy, status.promised_accuracy, status.accuracy, status.ece)
    given = [value for value in (*shares, *(status.mix or ())) if value is not None]
    return 0 <= status.e_value < math.inf and all(-ROUNDING <= value <= 1 + ROUNDING for value in given)


ACCURACY = (
    "Accuracy over rows: expected (mean top probability of the window, no labels needed), promised (the same "
    "of the rows with labels) and observed (their share of right answers), and the ECE of these rows."
)
MIX = "Estimated shares of the tasks in the window; tasks are numbered from 0."
E_VALUE = f"Evidence against calibrated confidences. The dotted line is the alarm, {ALARM:g}."
LAST_VALUES = "The last values are at the top of the page."
TITLES = {"accuracy": "Accuracy", "mix": "Mix of tasks", "alarm": "Alarm"}
AS_OF = "The log holds the state at the last update; labels that arrived later are not in it."
BIASED = (
    "Accuracy, ECE and alarm describe the rows whose labels have arrived. Labels of referred rows alone are "
    "a biased sample."
)


def monitor_page(log: MonitorLog) -> str:
    """One self-contained HTML page, light and dark."""
    sections = [
        PageSection(plot.name, TITLES[plot.name], [BIASED] if plot.name == "alarm" else (), figures=[plot])
        for plot in monitor_plots(log)
    ]
    counts = (
        f"Updates: {len(log.lines):,}. Damaged lines, left out: {log.damaged:,}. "
        f"Lines replaced after a restart: {log.replaced:,}."
    )
    page = Page(log.name, "equable monitor", _lead(log), [counts, AS_OF], _tiles(log.lines[-1]), sections)
    return render_page(page)


def monitor_plots(log: MonitorLog) -> list[Plot]:
    """Accuracy and ECE, the mix of tasks where there is one, the e-value."""
    last = log.lines[-1]
    plots = [
        Plot("accuracy", ACCURACY, f"Accuracy over rows. {LAST_VALUES}", lambda: _draw_accuracy(log.lines)),
        Plot("alarm", E_VALUE, f"The e-value over rows. {LAST_VALUES}", lambda: _draw_e(log.lines)),
    ]
    if last.mix is not None:
        alt = f"Shares of {len(last.mix)} tasks in the window over rows."
        plots.insert(1, Plot("mix", MIX, alt, lambda: _draw_mix(log.lines)))
    return plots


def _tiles(last: MonitorStatus) -> list[tuple[str, str, str]]:
    return [
        ("Rows", f"{last.rows:,}", f"{last.labelled:,} with labels"),
        ("Expected accuracy", _percent(last.expected_accuracy), "of the window, without labels"),
        ("Observed accuracy", _percent(last.accuracy), f"promised {_percent(last.promised_accuracy)}"),
        ("ECE", _percent(last.ece), "of the kept rows with labels"),
        ("Alarm", "yes" if last.alarm else "no", f"e-value {last.e_value:.3g}, alarm at {ALARM:g}"),
    ]


def _lead(log: MonitorLog) -> str:
    first = log.first_alarm
    if first is None:
        return "No alarm: the labels do not contradict the confidences."
    where = f"Alarm at row {first.rows:,}, after {first.labelled:,} labels"
    return f"{where}: confidences are not calibrated."


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{percent_text(value)} %"


def _values(lines: Sequence[MonitorStatus], name: str) -> FloatArray:
    """A field of each line; NaN for None."""
    return np.array([getattr(line, name) for line in lines], dtype=np.float64)


def _name_axes(axes: Axes, up: str, along: str = "Rows seen") -> None:
    axes.set(xlabel=along, ylabel=up)
    axes.grid(axis="y")


def _draw_accuracy(lines: Sequence[MonitorStatus]) -> Figure:
    figure, (upper, lower) = new_figure(4.2, rows=2, sharex=True, height_ratios=(2, 1))
    rows = _values(lines, "rows")
    for name, label, color, line in (
        ("expected_accuracy", "expected", MUTED, ":"),
        ("promised_accuracy", "promised", BLUE, "--"),
        ("accuracy", "observed", VERMILION, "-"),
    ):
        upper.plot(rows, 100 * _values(lines, name), color=color, linestyle=line, label=label)
    figure.legend(ncols=3, loc="outside upper left", handlelength=2.2)
    lower.plot(rows, 100 * _values(lines, "ece"), color=GREEN)
    lower.set_ylim(bottom=0)
    _name_axes(upper, "Accuracy (%)", along="")
    _name_axes(lower, "ECE (%)")
    return figure


def _draw_mix(lines: Sequence[MonitorStatus]) -> Figure:
    figure, (axes,) = new_figure(2.6)
    styles = list(STYLES.values())
    n_tasks = len(lines[-1].mix or ())
    mixed = [line for line in lines if line.mix and len(line.mix) == n_tasks]
    shares = 100 * np.array([line.mix for line in mixed])
    for t in range(n_tasks):
        style = styles[(t + 1) % len(styles)]
        line = style.options(marker="", linewidth=LINE_WIDTH)
        axes.plot(_values(mixed, "rows"), shares[:, t], label=f"task {t}", **line)
    if n_tasks <= LEGEND_TASKS:
        figure.legend(ncols=min(n_tasks, 6), loc="outside upper left", handlelength=2.2)
    axes.set_ylim(-2, 102)
    _name_axes(axes, "Share of the window (%)")
    return figure


def _draw_e(lines: Sequence[MonitorStatus]) -> Figure:
    figure, (axes,) = new_figure(2.2)
    axes.plot(_values(lines, "rows"), np.maximum(_values(lines, "e_value"), 1e-3), color=INK)
    axes.axhline(ALARM, color=VERMILION, linestyle=":")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # the style does not parse formulas
    _name_axes(axes, "e-value")
    return figure
