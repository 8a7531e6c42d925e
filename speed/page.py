"""Write docs/speed.md from the stored results of the benchmarks."""

from __future__ import annotations

from typing import Any

import numpy as np

Results = dict[str, Any]


def page(results: dict[str, Results]) -> str:
    """The whole page; benchmarks without stored results are listed as not measured."""
    parts = [INTRODUCTION]
    for name, section in SECTIONS.items():
        parts.append(section(results[name]) if name in results else f"## {name}\n\nNot measured yet.\n")
    return "\n".join(parts)


INTRODUCTION = """# Speed

`make bench` writes this page from `speed/results/`; `make bench ONLY=ece` runs one benchmark. Each contestant has its own
environment. All contestants use the same data and number of threads and alternate in one run. A call of less than a second is
repeated in each turn, and the second one is timed. A ratio is the median over turns with quartiles in brackets. The machine is
shared, so ratios are more reliable than times.
"""


def stamp(results: Results) -> str:
    """Date, hardware and versions of a benchmark."""
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return f"*{results['date']}, {results['hardware']}, {results['threads']} thread(s); {versions}.*\n"


def seconds(values: list[float]) -> str:
    """The median in ms or s."""
    middle = float(np.median(values))
    return f"{1e3 * middle:.1f} ms" if middle < 1 else f"{middle:.1f} s"


def median_and_quartiles(ratio: list[float] | None) -> str:
    """Median and quartiles."""
    middle, low, high = (f"{float(f'{value:.2g}'):g}" for value in ratio or (0, 0, 0))
    return f"{middle} [{low}, {high}]" if ratio else "–"


def met(ratio: list[float] | None, goal: float, at_most: bool = False) -> str:
    """Whether the median reaches the goal."""
    if not ratio:
        return "–"
    reached = ratio[0] <= goal if at_most else ratio[0] >= goal
    return ("met" if reached else "missed") + f" ({'≤' if at_most else '≥'} {goal:.3g})"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def temperature(results: Results) -> str:
    """Section: one temperature."""
    rows = []
    for size in results["results"]["sizes"]:
        for name, found in size["contestants"].items():
            cells = [f"{size['rows']:,} × {size['classes']:,}" if name == "equable" else "", name]
            if "error" in found:
                rows.append([*cells, f"missing: {found['error']}", "", ""])
                continue
            comparison = ""
            if name == size["fastest"]:
                comparison = f"**{median_and_quartiles(size['ratio'])}** {met(size['ratio'], size['goal'])}"
            error = f"{found['log_temperature_error']:.0e}"
            rows.append([*cells, seconds(found["seconds"]), error, comparison])
    exact = all(size["most_exact"] for size in results["results"]["sizes"])
    return (
        "## One temperature\n\n"
        "The fit uses float32 logits in memory. The error is |log T − log T\\*|, where T\\* is the root of the exact "
        "derivative to 1e-12. A peer with an error above 0.01 has not found the minimum and is not compared. "
        "The ratio is the time of the fastest correct peer divided by that of equable.\n\n"
        + table(["rows × classes", "", "time", "error in log T", "ratio to equable, goal"], rows)
        + f"\nThe error of equable is {'the smallest at every size' if exact else 'NOT the smallest at every size'}.\n\n"
        + stamp(results)
    )


def ece(results: Results) -> str:
    """Section: ECE and its bootstrap."""
    found = results["results"]
    text = (
        f"## ECE and its bootstrap\n\n{found['rows']:,} rows × {found['classes']} classes, float32, 15 bins. "
        f"The bootstrap has {found['replicates']:,} replicates. That of equable is paired over probabilities before and after "
        "calibration; for the peers two replicates are timed and extrapolated. Memory is the peak above the memory before the "
        "call, as a multiple of the input.\n\n"
    )
    rows = []
    for what, label in (("ece", "ECE"), ("bootstrap", "bootstrap")):
        fastest = found[what]["fastest"]
        goal = found["goal"]
        for name, peer in found[what]["contestants"].items():
            cells = [label if name == "equable" else "", name]
            if "error" in peer:
                rows.append([*cells, f"missing: {peer['error']}", "", ""])
                continue
            comparison = ""
            if name == fastest:
                ratio = found[what]["ratio"]
                comparison = f"**{median_and_quartiles(ratio)}** {met(ratio, goal)}"
            rows.append([*cells, seconds(peer["seconds"]), f"{peer['memory']:.2f}", comparison])
    shapes = [
        [
            f"{found['rows']:,} × {shape['classes']}, {shape['dtype']}",
            *(
                seconds(peer["seconds"]) if "seconds" in peer else "missing"
                for peer in shape["contestants"].values()
            ),
            median_and_quartiles(shape["ratio"]),
        ]
        for shape in found["shapes"]
    ]
    head = [
        "rows × classes",
        *found["shapes"][0]["contestants"],
        "ratio to equable",
    ]
    return (
        text
        + table(["", "", "time", "memory", "ratio to equable, goal"], rows)
        + "\nECE of other shapes, compared with torchmetrics only:\n\n"
        + table(head, shapes)
        + "\n"
        + stamp(results)
    )


def phase(results: Results) -> str:
    """Section: calibration phase of one step."""
    found = results["results"]
    rows = [
        ["RC", str(found["rows"]["RC"]), seconds(found["seconds"]["RC"]), "1", ""],
        *(
            [
                name,
                str(found["rows"][name]),
                seconds(found["seconds"][name]),
                median_and_quartiles(found["ratios"][name]),
                met(found["ratios"][name], found["goals"][name], at_most=True),
            ]
            for name in ("DATS", "ARC")
        ),
    ]
    return (
        f"## Calibration phase of one step\n\nThe phase consists of forward passes of the rows that a method needs, and its fit; "
        f"{found['network']}, stored outputs of the last BloodCell task. DATS needs all validation rows of the current task, so its goal is "
        "1.05 × the ratio of rows. In the paper DATS takes 1.16–2.5 × RC.\n\n"
        + table(["", "rows", "time", "ratio to RC", "goal"], rows)
        + "\n"
        + stamp(results)
    )


def growth(results: Results) -> str:
    """Section: growth with rows, classes and groups."""
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
        "## Growth\n\n![Seconds of applying and fitting against rows, classes and groups](images/growth.svg)\n\n"
        f"Fits of more than {found['budget']:.0f} s are not in the figure. `PredictionSets`, `Referral` and `Monitor` use "
        f"TaskMix and a calibration buffer of at most {found['buffer']:,} rows. For `Monitor` a group is one update, followed "
        "by the labels of its rows. The table contains the exponents between the two largest sizes; 1 is linear. The "
        "exponent of a fit also depends on its number of steps.\n\n"
        + table(["", *(f"{'fitting' if w == 'fit' else 'applying'}, {axis}" for w, axis in columns)], rows)
        + f"\nThe next table is for {largest:,} rows × 100 classes (float32) in 10 groups. Calibrators use `out=`. Memory is "
        "the peak above the memory before the call; for applying it is a multiple of the input (logits and features).\n\n"
        + table(["", "applying", "memory", "rows fitted", "fitting", "memory"], memory)
        + "\n"
        + many_groups(found)
        + stamp(results)
    )


def many_groups(found: Results) -> str:
    """Applying to many small groups, with the goal of TaskMix."""
    rows = []
    for point in found["points"]:
        if point["axis"] == "many groups" and "error" not in point:
            took = point["apply"]["seconds"]
            held = point["apply"]["process_bytes"]
            goal = ""
            if point["calibrator"] == "taskmix":
                reached = took <= found["seconds_goal"] and held <= found["bytes_goal"]
                goal = f"{'met' if reached else 'missed'} (≤ {found['seconds_goal']:.0f} s, {found['bytes_goal'] / 2**30:.0f} GiB)"
            rows.append([point["calibrator"], f"{took:.1f} s", f"{held / 1e6:,.0f} MB", goal])
            size = f"{point['rows']:,} rows × {point['classes']} classes in {point['groups']:,} groups"
    return (
        f"{size}; the memory is the peak of the whole process, input and output included:\n\n"
        + table(["", "applying", "memory", "goal"], rows)
        + "\n"
    )


def exponent(value: float | None) -> str:
    """Two digits, or a dash if it was not measured."""
    return "–" if value is None else f"{value:.2f}"


def blocks(results: Results) -> str:
    """Section: inputs larger than memory."""
    found = results["results"]
    rows = []
    for name, method in found["methods"].items():
        if "error" in method:
            rows.append([name, f"failed: {method['error']}", ""])
        else:
            rows.append([name, f"{method['seconds']:.0f} s", f"{method['peak_private_bytes'] / 1e6:.0f} MB"])
    return (
        f"## Larger than memory\n\nThe input is a memory-mapped file of {found['rows']:,} × {found['classes']} float16 logits; "
        "the probabilities are written to another one through `out=`, in groups of 1,000 rows. The process is limited to "
        f"{found['limit_bytes'] / 2**30:.0f} GiB beyond the mapped files.\n\n"
        + table(["", "time", "memory at the end"], rows)
        + "\n"
        + stamp(results)
    )


def waiting(results: Results) -> str:
    """Section: latency of commands."""
    found = dict(results["results"])
    stages = found.pop("digits, one seed")
    rows = [
        [
            name,
            seconds(what["seconds"]["wait"]),
            seconds(what["seconds"]["least"]),
            median_and_quartiles(what["ratio"]),
        ]
        for name, what in found.items()
    ]
    stage_seconds = ", ".join(f"{name} {value:.1f} s" for name, value in stages.items())
    return (
        "## Latency\n\nCPU seconds of a new process, compared with a reference (`import numpy`; for the help "
        "`import typer, rich`):\n\n"
        + table(["", "time", "reference", "ratio"], rows)
        + f"\nStages of digits with one seed (wall time, and CPU time of all processes): {stage_seconds}.\n\n"
        + stamp(results)
    )


def replay_training(results: Results) -> str:
    """Section: images per second compared with Avalanche."""
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
                        median_and_quartiles(ratio),
                        met(ratio, results["goal"]),
                    ]
                )
    missing = "".join(f"\nMissing: {name}: {why}." for name, why in results["missing"].items())
    packages = {f"python {results['python']}"}
    for found in results["results"]:
        for versions in found["versions"].values():
            packages |= {f"{name} {version.partition('+')[0]}" for name, version in versions.items()}
    return (
        f"## Replay training\n\nImages per second, {results['network']}, {results['batch']} rows per step, compared with the "
        "Replay strategy of Avalanche; `processor` uses CPU seconds, which other programs affect less. Both train "
        "the same modules, and convolutions take four fifths of a step. equable uses another memory layout "
        "(channels last) and a shorter loop.\n\n"
        + table(["image, threads, clock", "equable", "Avalanche", "ratio", "goal"], rows)
        + _room_left(results["results"])
        + f"{missing}\n*{results['date']}, {results['hardware']}; {', '.join(sorted(packages))}.*\n"
    )


def _room_left(results: list[Results]) -> str:
    """Upper limit of replay training: convolutions compared with the product of two large matrices."""
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
    header = ["image, threads", "share of convolutions", "their rate", "matrix product", "ratio at that rate"]
    return (
        "\nUpper limit: the product of two 1024 × 1024 matrices approximates the peak rate of the processor. The last column "
        "is the ratio (wall) if all convolutions of equable, forward and backward, had this rate.\n\n"
        + table(header, rows)
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
