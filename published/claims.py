"""The claims of the paper, each with a rule that decides from the data whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from published.claim_measures import (
    Runs,
    backbone,
    coverage,
    coverage_why,
    current_only,
    current_why,
    dats_wins,
    ideal,
    ideal_why,
    inclusion,
    inclusion_why,
    last_confidence,
    last_unharmed,
    one_temperature,
    one_temperature_why,
    per_sample,
    runtime,
    runtime_why,
    trade,
    trade_why,
    worst_unharmed,
    worst_why,
)
from published.evidence import Evidence
from published.runs import Published


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, the rule, the measurement and an explanation of the outcome."""

    title: str
    paper: str
    rule: str
    measure: Callable[[Runs], list[Evidence]]
    why: Callable[[Runs], str] = lambda runs: ""


def verdict(evidence: Sequence[Evidence]) -> str:
    """Holds, partly or not, by the numbers of supporting and contradicting comparisons."""
    shown, contrary = (sum(e.outcome == o for e in evidence) for o in ("shown", "contrary"))
    if not evidence:
        return "not measured"
    if shown == len(evidence):
        return "holds"
    return "partly" if shown > contrary else "not"


def for_each_run(measure: Callable[[Published], list[Evidence]]) -> Callable[[Runs], list[Evidence]]:
    """Apply a measurement to every run."""
    return lambda runs: [evidence for run in runs for evidence in measure(run)]


CLAIMS = (
    Claim(
        "The last task's confidence is higher than the others'",
        "Figure 3: the most recent task has significantly higher confidence than earlier ones.",
        "Mean confidence of the last task − that of the most confident earlier task: above zero.",
        for_each_run(last_confidence),
    ),
    Claim(
        "The ideal temperature varies by task",
        "Figure 4: the temperature fitted on each task's own validation set fluctuates and falls for the last task.",
        "log T of some task − the mean log T of the others: zero excluded, at a level for all tasks at once.",
        for_each_run(ideal),
        ideal_why,
    ),
    Claim(
        "A single temperature worsens the last task",
        "Tables 1–2, Figure 1: RC and T-CIL raise the ECE of the last task on every dataset.",
        "ΔLECE of RC and of T-CIL: each above zero.",
        for_each_run(one_temperature),
        one_temperature_why,
    ),
    Claim(
        "TS, ETS and PTS on current data do not help",
        "Table 1: methods that use the current task only do not change average ECE.",
        "Change of average ECE against the uncalibrated network: above −1 point for each of the three.",
        for_each_run(current_only),
        current_why,
    ),
    Claim(
        "DATS lowers NLL and average ECE below RC and T-CIL",
        "Tables 1–2: DATS is best in NLL everywhere and in average ECE on all but TinyImageNet.",
        "Four differences, paired by test rows and seeds: each below zero.",
        for_each_run(dats_wins),
    ),
    Claim(
        "DATS does not harm the last task: ΔLECE ≤ 0 within noise",
        "Tables 1–2: ΔLECE of DATS between −2.66 and +0.21 points.",
        "Mean ΔLECE at most zero and its interval's upper end below the noise floor of the last task's ECE.",
        for_each_run(last_unharmed),
    ),
    Claim(
        "DATS does not harm the worst task",
        "Figure 1: in the worst case DATS causes no change or a small improvement.",
        "Mean maxΔECE at most zero and its interval's upper end below the average noise floor.",
        for_each_run(worst_unharmed),
        worst_why,
    ),
    Claim(
        "T-CIL trades the last task for average ECE",
        "Table 1, TinyImageNet: T-CIL has a lower average ECE than DATS and a far higher ECE on the last task.",
        "T-CIL − DATS: average ECE below zero, and the last task's ECE above zero.",
        for_each_run(trade),
        trade_why,
    ),
    Claim(
        "Coverage 0.4–0.6 is best",
        "Table 4: average ECE is lowest for thresholds between 40 and 60 %.",
        "Mean over coverages 0.4, 0.5, 0.6 − mean over 0.7, 0.8, seed by seed: below zero.",
        for_each_run(coverage),
        coverage_why,
    ),
    Claim(
        "Validation inclusion hardly matters",
        "Table 5: from 20 to 50 % average ECE changes by less than 0.4 points.",
        "Inclusion 20, 30, 40 % − 50 %; the value of a seed is the mean of 5 draws: within ±1 point.",
        for_each_run(inclusion),
        inclusion_why,
    ),
    Claim(
        "The backbone does not matter",
        "Table 6: all methods behave in the same way with ResNet32.",
        "The intervals of both networks lie on the same side of zero, for DATS − RC and DATS − T-CIL in average ECE and for ΔLECE "
        "of RC and of DATS.",
        backbone,
    ),
    Claim(
        "Per-sample distances add noise",
        "Section 3.2, without numbers: a distance for each sample causes noise and instability.",
        "Average ECE with sample distances − with class distances, paired: above zero.",
        for_each_run(per_sample),
    ),
    Claim(
        "DATS' runtime lies between RC's and T-CIL's",
        "Table 3: DATS takes 1.2 to 2.5 times as long as RC, T-CIL 4 to 12 times.",
        "DATS ÷ RC and T-CIL ÷ DATS in seconds, seed by seed: each above one.",
        for_each_run(runtime),
        runtime_why,
    ),
)
