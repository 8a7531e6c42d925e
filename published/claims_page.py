"""The reproduction table: each claim of the paper with measurement, verdict and explanation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from published.blocks import grid, lines, words
from published.claim_measures import Runs
from published.claims import CLAIMS, Claim, verdict
from published.evidence import Evidence

SIGNS = {"shown": "supports", "open": "undecided", "contrary": "contradicts"}

INTRODUCTION = """# Claims of the paper and measurements

The rule below each claim determines its verdict. A comparison in one run has an **interval**. Each end is the wider one of two 95 %
intervals: Student's t over seeds (variation between seeds), and the paired bootstrap over test rows (variation between rows; ends averaged
over seeds). A comparison *supports* the claim if the whole interval lies on the side of the claim, *contradicts* it if the whole
interval lies on the other side, and is *undecided* otherwise. A single seed is always undecided.

- **holds**: every comparison in every run supports the claim.
- **partly**: some comparisons support it, and more than contradict it.
- **not**: at least as many comparisons contradict the claim as support it. If all comparisons are undecided, the claim is not
  refuted; the seeds and rows are too few for a decision.

On CIFAR-10, CIFAR-100 and TinyImageNet the images are those of the paper, and training is shorter ([runs](index.md)); the other datasets
differ in pixels and sizes. A claim that fails here can hold there."""


def table(runs: Runs) -> str:
    """One line per claim: claim, measurement, verdict, counts."""
    rows = []
    for index, claim in enumerate(CLAIMS, 1):
        evidence = claim.measure(runs)
        rows.append(
            [
                f"{index}. {claim.title}",
                measured(evidence),
                f"**{verdict(evidence)}**",
                why_in_short(evidence),
            ]
        )
    return words(["Claim", "Measured", "Verdict", "Comparisons"], rows)


def measured(evidence: Sequence[Evidence]) -> str:
    """The range of each comparison over runs."""
    parts = []
    for what in dict.fromkeys(e.what for e in evidence):
        mine = [e for e in evidence if e.what == what]
        ends = sorted(mine, key=lambda e: e.estimate.mean)
        low, high = (e.unit.text(e.estimate.mean) for e in (ends[0], ends[-1]))
        unit = f" {mine[0].unit.name}" if mine[0].unit.name else ""
        parts.append(f"{what}: {low if low == high else f'{low} to {high}'}{unit}")
    return "; ".join(parts) or "no dataset with two networks"


def why_in_short(evidence: Sequence[Evidence]) -> str:
    """How many comparisons support the claim, and which do not."""
    if not evidence:
        return ""
    shown = [e for e in evidence if e.outcome == "shown"]
    text = f"{len(shown)} of {len(evidence)} support it"
    for outcome, said in (("contrary", "contradicting"), ("open", "undecided")):
        found = [e for e in evidence if e.outcome == outcome]
        if found:
            places = ", ".join(dict.fromkeys(e.run for e in found))
            text += f"; {said}: {len(found)} ({places})"
    return text


def section(index: int, claim: Claim, runs: Runs) -> str:
    """One claim with all comparisons."""
    evidence = claim.measure(runs)
    explanation = claim.why(runs) if evidence else ""
    return lines(
        f"## {index}. {claim.title}",
        f"*The paper.* {claim.paper}",
        f"*Rule.* {claim.rule}",
        f"*Verdict.* **{verdict(evidence)}**: {why_in_short(evidence) or 'nothing to compare'}.",
        "\n".join(evidence_line(e) for e in evidence),
        f"*Explanation.* {explanation}" if explanation else "",
    )


def evidence_line(e: Evidence) -> str:
    """One comparison with interval and outcome."""
    note = f" ({e.note})" if e.note else ""
    return f"- {e.run}, {e.what}: {e.text}{note}: {SIGNS[e.outcome]}, {e.estimate.n} seed{'s' * (e.estimate.n > 1)}"


def decided_table(runs: Runs) -> str:
    """For each run, how many comparisons support or contradict a claim, beside its number of test rows."""
    evidence = [e for claim in CLAIMS for e in claim.measure(runs)]
    rows = []
    for run in runs:
        outcomes = [e.outcome for e in evidence if e.run == run.expected.short]
        counts = [str(outcomes.count(outcome)) for outcome in SIGNS]
        rows.append([run.title, f"{min(run.results.counts):,}", f"{len(run.results.seeds)}", *counts])
    return grid(["Run", "Test rows of the smallest task", "Seeds", *SIGNS.values()], rows)


def claims_page(runs: Runs) -> str:
    """The page of all claims."""
    sections = [section(index, claim, runs) for index, claim in enumerate(CLAIMS, 1)]
    return lines(
        INTRODUCTION,
        "## Comparisons by run",
        "Tasks with many test rows decide comparisons that remain open with few. Comparisons between two networks are not counted.",
        decided_table(runs),
        *sections,
    )


def claims_data(runs: Runs) -> list[dict[str, Any]]:
    """Data of the verdicts."""
    data = []
    for claim in CLAIMS:
        evidence = claim.measure(runs)
        rows = [
            {"run": e.run, "what": e.what, "outcome": e.outcome, "n": e.estimate.n, "mean": e.estimate.mean}
            for e in evidence
        ]
        data.append({"claim": claim.title, "verdict": verdict(evidence), "evidence": rows})
    return data
