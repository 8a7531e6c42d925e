"""The reproduction table: each claim of the paper, what was measured, the verdict and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from published.blocks import lines, words
from published.claim_measures import Runs
from published.claims import CLAIMS, Claim, verdict
from published.evidence import Evidence

SIGNS = {"shown": "yes", "open": "undecided", "contrary": "the contrary"}

INTRODUCTION = """# Claims of the paper, and what was measured here

Every verdict is computed, by a rule that stands below the claim. A comparison in one run has an **interval**: at each end the
wider of Student's t over seeds (95 %, what other seeds would change) and the paired bootstrap over test rows (95 %, ends
averaged over seeds, what other rows would change). The comparison *shows* its part of the claim where the whole interval lies on
the claim's side; it shows *the contrary* where the whole interval lies on the other; else it is *undecided*. One seed shows nothing.

- **holds**: every comparison in every run shows it.
- **partly**: some do, and more than show the contrary.
- **not**: as many or more show the contrary, or none shows anything. In the second case all are *undecided*, which refutes
  nothing: so few seeds and rows cannot tell.

The datasets are the paper's neither in pixels nor in size ([what was run](index.md)), so a claim that fails here may hold there."""


def table(runs: Runs) -> str:
    """Claim → measured → verdict → why, a line each."""
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
    return words(["Claim", "Measured", "Verdict", "Why"], rows)


def measured(evidence: Sequence[Evidence]) -> str:
    """The range of each comparison over runs."""
    parts = []
    for what in dict.fromkeys(e.what for e in evidence):
        mine = [e for e in evidence if e.what == what]
        ends = sorted(mine, key=lambda e: e.estimate.mean)
        low, high = (e.unit.text(e.estimate.mean) for e in (ends[0], ends[-1]))
        unit = f" {mine[0].unit.name}" if mine[0].unit.name else ""
        parts.append(f"{what}: {low if low == high else f'{low} to {high}'}{unit}")
    return "; ".join(parts) or "no two networks on one dataset yet"


def why_in_short(evidence: Sequence[Evidence]) -> str:
    """How many comparisons show it, and where they do not."""
    if not evidence:
        return ""
    shown = [e for e in evidence if e.outcome == "shown"]
    text = f"shown in {len(shown)} of {len(evidence)}"
    for outcome, said in (("contrary", "the contrary in"), ("open", "undecided in")):
        found = [e for e in evidence if e.outcome == outcome]
        if found:
            places = ", ".join(dict.fromkeys(e.run for e in found))
            text += f"; {said} {len(found)} ({places})"
    return text


def section(index: int, claim: Claim, runs: Runs) -> str:
    """One claim in full."""
    evidence = claim.measure(runs)
    told = claim.why(runs) if evidence else ""
    return lines(
        f"## {index}. {claim.title}",
        f"*The paper.* {claim.paper}",
        f"*Rule.* {claim.rule}",
        f"*Verdict.* **{verdict(evidence)}**: {why_in_short(evidence) or 'nothing to compare yet'}.",
        "\n".join(evidence_line(e) for e in evidence),
        f"*Behind it.* {told}" if told else "",
    )


def evidence_line(e: Evidence) -> str:
    """One comparison with its interval and outcome."""
    note = f" ({e.note})" if e.note else ""
    return f"- {e.run}, {e.what}: {e.text}{note}: {SIGNS[e.outcome]}, {e.estimate.n} seed{'s' * (e.estimate.n > 1)}"


def claims_page(runs: Runs) -> str:
    """The page of all claims."""
    sections = [section(index, claim, runs) for index, claim in enumerate(CLAIMS, 1)]
    return lines(INTRODUCTION, *sections)


def claims_data(runs: Runs) -> list[dict[str, Any]]:
    """The numbers behind the verdicts."""
    data = []
    for claim in CLAIMS:
        evidence = claim.measure(runs)
        rows = [
            {"run": e.run, "what": e.what, "outcome": e.outcome, "n": e.estimate.n, "mean": e.estimate.mean}
            for e in evidence
        ]
        data.append({"claim": claim.title, "verdict": verdict(evidence), "evidence": rows})
    return data
