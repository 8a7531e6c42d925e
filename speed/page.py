"""docs/speed.md: what the stored results of the benchmarks say, nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

Results = dict[str, Any]


def page(results: dict[str, Results]) -> str:
    """The whole page; a benchmark without stored results is named as missing."""
    parts = [INTRODUCTION]
    for name, section in SECTIONS.items():
        parts.append(section(results[name]) if name in results else f"## {name}\n\nNot measured yet.\n")
    return "\n".join(parts)


INTRODUCTION = """# Speed

Written by `make bench` from `speed/results/`. Contestants live in environments of their own, see the same
data with the same number of threads and take turns in one run; what takes less than a second runs twice in
each turn, and the second time counts. A ratio is the median over the turns, its quartiles in brackets. Times are of a shared machine and noisy: trust the ratios. `make bench ONLY=ece` runs one.
"""


def stamp(results: Results) -> str:
    """Where and when a benchmark ran."""
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return f"*{results['date']}, {results['hardware']}, {results['threads']} thread(s); {versions}.*\n"


def seconds(values: list[float]) -> str:
    """The median, in a unit that suits it."""
    middle = float(np.median(values))
    return f"{1e3 * middle:.1f} ms" if middle < 1 else f"{middle:.1f} s"


def spread(ratio: list[float] | None) -> str:
    """Median and quartiles."""
    return "{:.2g} [{:.2g}, {:.2g}]".format(*ratio) if ratio else "–"


def met(ratio: list[float] | None, goal: float, at_most: bool = False) -> str:
    """Whether the median reached the goal."""
    if not ratio:
        return "–"
    reached = ratio[0] <= goal if at_most else ratio[0] >= goal
    return ("met" if reached else "missed") + f" ({'≤' if at_most else '≥'} {goal:.3g})"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def temperature(results: Results) -> str:
    """One temperature against every peer."""
    rows = []
    for size in results["results"]["sizes"]:
        for name, found in size["contestants"].items():
            cells = [f"{size['rows']:,} × {size['classes']:,}" if name == "equable" else "", name]
            if "error" in found:
                rows.append([*cells, f"missing: {found['error']}", "", ""])
                continue
            told = ""
            if name == size["fastest"]:
                told = f"**{spread(size['ratio'])}** {met(size['ratio'], size['goal'])}"
            error = f"{found['log_temperature_error']:.0e}"
            rows.append([*cells, seconds(found["seconds"]), error, told])
    exact = all(size["most_exact"] for size in results["results"]["sizes"])
    return (
        "## One temperature\n\n"
        "Fit on float32 logits in memory. The error is |log T − log T\\*|, where T\\* is the root of the exact "
        "derivative to 1e-12; a peer with an error above 0.01 has not found the minimum and is not compared. "
        "The ratio is that of the fastest correct peer to equable, with the goal (3 up to 10⁵ numbers, 8 above).\n\n"
        + table(["rows × classes", "", "time", "error in log T", "ratio to equable, goal"], rows)
        + f"\nequable's error is {'the smallest everywhere' if exact else 'NOT the smallest everywhere'}. "
        "Large float32 inputs end in float32 passes, hence 1e-8 and not 1e-14 there: logits of 32 bits are "
        "themselves known no better.\n\n" + stamp(results)
    )


def ece(results: Results) -> str:
    """ECE and its bootstrap."""
    found = results["results"]
    text = (
        f"## ECE and its bootstrap\n\n{found['rows']:,} rows × {found['classes']} classes, float32, 15 bins. "
        f"The bootstrap has {found['replicates']:,} replicates, for equable paired over probabilities before and after; of the peers two were timed and multiplied. Memory "
        "is the peak above what was there before the call, as a multiple of the input. equable works in blocks of rows, "
        "transposed so that the numbers of one class are adjacent in memory.\n\n"
    )
    if "numpy_ratio" in found["ece"]:  # stored before the compiled code was removed
        text += (
            "Measured at 0.1: the rows `equable` used C code that has since been removed; the rows `equable, not compiled` "
            "used numpy alone.\n\n"
        )
    rows = []
    for what, label in (("ece", "ECE"), ("bootstrap", "bootstrap")):
        fastest, goal = found[what]["fastest"], found["goal"]
        for name, peer in found[what]["contestants"].items():
            cells = [label if name == "equable" else "", name]
            if "error" in peer:
                rows.append([*cells, f"missing: {peer['error']}", "", ""])
                continue
            told = ""
            if name == fastest:
                ratio = found[what]["ratio"]
                told = f"**{spread(ratio)}** {met(ratio, goal)}"
                if without := found[what].get("numpy_ratio"):
                    told += f"; not compiled {spread(without)}"
            rows.append([*cells, seconds(peer["seconds"]), f"{peer['memory']:.2f}", told])
    shapes = [
        [
            f"{found['rows']:,} × {shape['classes']}, {shape['dtype']}",
            *(
                seconds(peer["seconds"]) if "seconds" in peer else "missing"
                for peer in shape["contestants"].values()
            ),
            spread(shape["ratio"]),
            *([spread(shape["numpy_ratio"])] if "numpy_ratio" in shape else []),
        ]
        for shape in found["shapes"]
    ]
    head = [
        "rows × classes",
        *found["shapes"][0]["contestants"],
        "ratio to equable",
        *(["to equable, not compiled"] if "numpy_ratio" in found["shapes"][0] else []),
    ]
    return (
        text
        + table(["", "", "time", "memory", "ratio to equable, goal"], rows)
        + "\nECE of other shapes, against torchmetrics alone:\n\n"
        + table(head, shapes)
        + "\n"
        + stamp(results)
    )


def phase(results: Results) -> str:
    """The calibration phase of one step."""
    found = results["results"]
    rows = [
        ["RC", str(found["rows"]["RC"]), seconds(found["seconds"]["RC"]), "1", ""],
        *(
            [
                name,
                str(found["rows"][name]),
                seconds(found["seconds"][name]),
                spread(found["ratios"][name]),
                met(found["ratios"][name], found["goals"][name], at_most=True),
            ]
            for name in ("DATS", "ARC")
        ),
    ]
    outputs = "outputs of a trained BloodCell model" if found["real_outputs"] else "planted outputs"
    tcil = found["tcil"]
    return (
        f"## Calibration phase of one step\n\nForward passes of the rows a method needs and its fit; "
        f"{found['network']}, {outputs}. DATS also needs the current task's other validation rows, so its goal is "
        "1.05 × the ratio of rows. The paper's DATS takes 1.16–2.5 × RC.\n\n"
        + table(["", "rows", "time", "ratio to RC", "goal"], rows)
        + f"\nT-CIL's search with {tcil['exemplars']} exemplars takes {spread(tcil['ratio'])} of the time of a "
        "version that recomputes means, targets and gradients at every bisection step: "
        f"{met(tcil['ratio'], tcil['goal'], at_most=True)}.\n\n" + stamp(results)
    )


def growth(results: Results) -> str:
    """Growth with rows, classes and groups."""
    found = results["results"]
    steep = found["exponents"]
    columns = [
        ("fit", "rows"),
        ("fit", "classes"),
        ("apply", "rows"),
        ("apply", "classes"),
        ("apply", "groups"),
    ]
    rows = [
        [name, *(exponent(steep[what].get(name, {}).get(axis)) for what, axis in columns)]
        for name in steep["apply"]
    ]
    whole = [p for p in found["points"] if "error" not in p and p["axis"] == "rows"]
    largest = max(p["rows"] for p in whole)
    memory = [
        [
            p["calibrator"],
            f"{p['apply']['seconds']:.1f} s",
            f"{p['apply']['peak_bytes'] / p['input_bytes']:.2f}",
            f"{p['fit_rows']:,}",
            f"{p['fit']['seconds']:.1f} s",
            f"{p['fit']['peak_bytes'] / 1e6:.0f} MB",
        ]
        for p in whole
        if p["rows"] == largest
    ]
    return (
        "## Growth\n\n![Seconds of fitting (dotted) and applying (solid) against rows, classes and groups]"
        "(images/growth.svg)\n\nSolid: applying, dotted: fitting. A fit that would take longer than "
        f"{found['budget']:.0f} s is not in the figure. Exponents between the two largest sizes, 1 is linear; a "
        "fit's also moves with the number of its steps:\n\n"
        + table(["", *(f"{'fitting' if w == 'fit' else 'applying'}, {axis}" for w, axis in columns)], rows)
        + f"\nAt {largest:,} rows × 100 classes (float32), written to `out=`. Memory is the peak above what the "
        "process held before, while applying as a multiple of the input (logits and features):\n\n"
        + table(["", "applying", "memory", "rows fitted", "fitting", "memory"], memory)
        + "\n"
        + stamp(results)
    )


def exponent(value: float | None) -> str:
    """Two digits, or a dash for what was not measured."""
    return "–" if value is None else f"{value:.2f}"


def blocks(results: Results) -> str:
    """Inputs larger than memory."""
    found = results["results"]
    rows = []
    for name, method in found["methods"].items():
        if "error" in method:
            rows.append([name, f"failed: {method['error']}", ""])
        else:
            rows.append([name, f"{method['seconds']:.0f} s", f"{method['peak_private_bytes'] / 1e6:.0f} MB"])
    return (
        f"## Larger than memory\n\n{found['rows']:,} × {found['classes']} float16 logits in a memory-mapped file, "
        "probabilities written to another through `out=`, in groups of 1,000 rows; more than "
        f"{found['limit_bytes'] / 2**30:.0f} GiB beyond the mapped files is forbidden to the process.\n\n"
        + table(["", "time", "memory held at the end"], rows)
        + "\n"
        + stamp(results)
    )


def waiting(results: Results) -> str:
    """What a user waits for."""
    found = dict(results["results"])
    stages = found.pop("digits, one seed")
    rows = [
        [name, seconds(what["seconds"]["wait"]), seconds(what["seconds"]["least"]), spread(what["ratio"])]
        for name, what in found.items()
    ]
    told = ", ".join(f"{name} {value:.1f} s" for name, value in stages.items())
    return (
        "## Waiting\n\nCPU seconds of a fresh process, beside the least it could be (`import numpy`; for the help, "
        "`import typer, rich`):\n\n"
        + table(["", "time", "least", "ratio"], rows)
        + f"\nDigits with one seed, stage by stage (wall, and CPU of all processes): {told}. Measured at 0.1, where a "
        "second report kept the files that were up to date; it now writes all of them.\n\n" + stamp(results)
    )


# Goes with the next measurement.
MEASURED_AT_0_1 = (
    "Measured at 0.1, where training also used Winograd convolutions, a batch norm for several threads and glibc's "
    "malloc settings, which have since been removed."
)


def replay_training(results: Results) -> str:
    """Images per second against Avalanche."""
    rows = []
    for found in results["results"]:
        for clock in ("wall", "processor"):
            if clock in found:
                rates = {name: f"{float(np.median(values)):.0f}" for name, values in found[clock].items()}
                ratio = found.get(f"{clock}_ratio")
                rows.append(
                    [
                        f"{found['side']} × {found['side']}, {found['threads']}, {clock}",
                        rates.get("equable", "–"),
                        rates.get("avalanche", "–"),
                        spread(ratio),
                        met(ratio, results["goal"]),
                    ]
                )
    missing = "".join(f"\nMissing: {name}: {why}." for name, why in results["missing"].items())
    packages = {f"python {results['python']}"}
    for found in results["results"]:
        for versions in found["versions"].values():
            packages |= {f"{name} {version.partition('+')[0]}" for name, version in versions.items()}
    return (
        f"## Replay training\n\nImages per second, {results['network']}, {results['batch']} rows a step, against "
        "Avalanche's Replay strategy; `processor` counts CPU seconds, which other programs hardly touch. Both train "
        "the same modules, and four fifths of a step are convolutions: equable gains by their layout in memory "
        "(channels last) and by a loop with nothing else in it. "
        + MEASURED_AT_0_1
        + "\n\n"
        + table(["image, threads, clock", "equable", "Avalanche", "ratio", "goal"], rows)
        + _room_left(results["results"])
        + f"{missing}\n*{results['date']}, {results['hardware']}; {', '.join(sorted(packages))}.*\n"
    )


def _room_left(results: list[Results]) -> str:
    """How far replay training could go: the convolutions beside the product of two large matrices."""
    rows = []
    for found in results:
        limit = found.get("limit", {})
        if "ratio" in limit:
            rows.append(
                [
                    f"{found['side']} × {found['side']}, {found['threads']}",
                    f"{100 * limit['convolutions'] / limit['step']:.0f} %",
                    f"{limit['operations'] / limit['convolutions'] / 1e9:.0f} GFLOP/s",
                    f"{limit['products'] / 1e9:.0f} GFLOP/s",
                    f"{limit['ratio']:.2f}",
                ]
            )
    if not rows:
        return ""
    header = ["image, threads", "convolutions' share", "their rate", "matrix product", "ratio at its rate"]
    return (
        "\nHow much room is left: the product of two 1024 × 1024 matrices is about as fast as this processor "
        "multiplies and adds. The last column is the ratio (wall) if each of equable's convolutions, forward and "
        "backward, ran at that rate.\n\n" + table(header, rows)
    )


SECTIONS = {
    "temperature": temperature,
    "ece": ece,
    "phase": phase,
    "replay_training": replay_training,
    "growth": growth,
    "blocks": blocks,
    "waiting": waiting,
}
