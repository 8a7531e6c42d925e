"""Runs whose folders share a name keep apart in the report of several."""

import csv
from pathlib import Path

import pytest

from equable.reports.report import write_report
from planted_run import make_run


def names_in(page: Path) -> set[str]:
    with (page.parent / "tables/scores.csv").open(encoding="utf-8") as lines:
        return {line["run"] for line in csv.DictReader(lines)}


def test_runs_of_one_folder_name_keep_apart_and_a_new_name_renews_the_report(tmp_path, blank_figures):
    pytest.importorskip("matplotlib")
    one, two = (make_run(tmp_path / name / "x") for name in ("a", "b"))
    page = write_report([one, two], tmp_path / "out")
    assert names_in(page) == {"a/x", "b/x"}
    assert "SlimResNet18, b/x" in page.read_text(encoding="utf-8")
    two.parent.rename(tmp_path / "c")
    assert names_in(write_report([one, tmp_path / "c" / "x"], tmp_path / "out")) == {"a/x", "c/x"}
