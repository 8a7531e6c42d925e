"""The pages about decisions print stored numbers, and name every level that was missed."""

from __future__ import annotations

from pathlib import Path

import pytest
from published import decisions, decisions_page, monitored_stream

from equable.files import read_json

STREAMS = Path(__file__).parents[1] / "docs" / "how-to" / "streams.md"


def test_the_pages_print_their_numbers():
    stored = decisions.FILE.with_suffix(".md").read_text(encoding="utf-8")
    assert decisions_page.page(read_json(decisions.FILE)) == stored
    assert monitored_stream.table(read_json(monitored_stream.FILE)) in STREAMS.read_text(encoding="utf-8")


def test_a_missed_level_is_named():
    def entry(low, violated):
        sets = {"task 1": [0.9, 0.89, 0.91], "task 2": [low, low, low], "coverage": [0.9, 0.9, 0.9]}
        one = {**sets, "size": [1.0, 1.0, 1.0], "rarest": [0.9, 0.9, 0.9]}
        referral = {key: [0.04, 0.03, 0.05] for key in ("answered", "error", "hindsight")}
        return {
            "sets": {a: {"mix": {"task": one, "batch": one}} for a in decisions_page.ARRIVALS},
            "referral": {a: {**referral, "violated": [violated] * 3} for a in decisions_page.ARRIVALS},
            "referral_draws": 200,
        }

    assert list(decisions_page.failures({"planted": entry(0.9, 0.1)})) == []
    found = list(decisions_page.failures({"planted": entry(0.85, 0.2)}))
    assert len(found) == 8
    assert "task 2 is covered 85.0" in found[0]
    assert "20.0 [15.0, 26.1] % of the draws" in found[1]


def test_wilson_against_a_known_value():
    assert decisions_page.wilson(0.2, 200) == pytest.approx((0.2, 0.1505, 0.2609), abs=1e-4)
