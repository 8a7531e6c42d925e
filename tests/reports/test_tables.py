"""Tables from planted scores: the numbers, the marks, and four ways to print them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from equable.benchmark.score_record import Score
from equable.errors import FileFormatError
from equable.reports.distinct_names import short_names
from equable.reports.results import MeanStd, load_results, number
from equable.reports.tables import build_tables, terminal_table
from equable.reports.tables.comparison import comparison_table
from equable.reports.tables.main import main_table
from equable.reports.tables.render import csv_text, latex, markdown, rich_table
from equable.reports.tables.scores_csv import scores_csv
from equable.reports.tables.table import Cell, Column, Row, Section, Table, cell, mark_best, percent, points
from messages import assert_words, raises_naming
from planted_run import make_run, make_score


@pytest.fixture
def run(tmp_path):
    return load_results(make_run(tmp_path / "run"))


def table_of(run, name):
    return next(table for table in build_tables(run) if table.name == name)


def rows_of(table):
    return {row.label: row.cells for section in table.sections for row in section.rows}


def test_main_table_holds_mean_and_population_std_of_the_last_task(run):
    rows = rows_of(table_of(run, "main"))
    # by hand: seed 0 has ECE (.08, .08, .03), seed 1 .01 more on each task
    accuracy, nll, average, last, worst = rows["DATS"]
    assert average.value == pytest.approx(100 * np.mean([0.19 / 3, 0.22 / 3]))
    assert average.std == pytest.approx(0.5)
    assert average.text == "6.83 ± 0.50"
    assert accuracy.text == "65.00 ± 0.00"
    assert nll.value == pytest.approx(2 - 5 * (0.22 + 0.22 + 0.02) / 3)
    assert (last.text, worst.text) == ("−2.00 ± 0.00", "−2.00 ± 0.00")
    assert rows["RC"][3].text == "+8.00 ± 0.00"
    assert [c.text for c in rows["Uncalibrated"][3:]] == ["–", "–"]


def test_a_method_that_changes_predictions_has_its_own_accuracy(tmp_path):
    folder = make_run(tmp_path)
    for path in folder.glob("scores/*_task-2_rc.json"):
        score = Score.load(path)
        score.comparison["accuracy"] += 0.1
        score.comparison["tasks"][2]["accuracy"] += 0.3
        score.save(path)
    run = load_results(folder)
    rows = rows_of(table_of(run, "main"))
    assert rows["RC"][0].text == "75.00 ± 0.00"
    assert [label for label, cells in rows.items() if cells[0].best] == ["RC"]
    *_, last, everything = table_of(run, "tasks").sections
    assert last.title == "Task 3 (1,002 rows)"
    accuracy = {row.label: row.cells[0].text for row in last.rows}
    assert (accuracy["RC"], accuracy["DATS"]) == ("100.00 ± 0.00", "70.00 ± 0.00")
    pooled = (1000 * 60 + 1001 * 65 + 1002 * 100) / 3003
    assert {row.label: row.cells[0].value for row in everything.rows}["RC"] == pytest.approx(pooled)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(terminal_table(run))
    assert "75.0 ± 0.0*" in console.export_text().replace("\u00a0", " ")


def test_table_by_task_holds_each_task_and_all_rows(run):
    sections = table_of(run, "tasks").sections
    assert [s.title for s in sections] == [
        *("Task 1 (1,000 rows)", "Task 2 (1,001 rows)", "Task 3 (1,002 rows)", "All rows (3,003 rows)"),
    ]
    keys = [column.key for column in table_of(run, "tasks").columns]
    first, last = (
        {row.label: dict(zip(keys, row.cells, strict=True)) for row in sections[i].rows} for i in (0, 2)
    )
    assert first["RC"]["ece"].text == "10.50 ± 0.50"
    assert last["RC"]["delta_ece"].text == "+8.0 [+7.0, +9.0]"
    assert last["RC"]["accepted"].text == "30.0 ± 0.0"
    assert last["DATS"]["temperature"].text == "1.10 ± 0.00"
    assert first["Noise floor"]["ece"].text == "3.00 ± 0.00"
    assert first["DATS"]["ece"].best
    assert not first["Temperature per task"]["ece"].best  # a bound


def test_best_is_marked_among_ranked_methods_alone(run):
    table = table_of(run, "main")
    rows = rows_of(table)
    assert rows["DATS"][2].best
    # the variant and the bound are better, and get no mark
    assert rows["DATS, one weight"][2].value < rows["DATS"][2].value
    assert rows["Temperature per task"][2].value < rows["DATS"][2].value
    marked = {label for label, cells in rows.items() if any(c.best for c in cells)}
    assert marked == {"DATS", "TS"}  # TS shares −2.00 on the last task
    assert not any(cells[0].best for cells in rows.values())  # accuracy is the same for all
    titles = [section.title for section in table.sections]
    assert titles == ["", "Variants, not ranked", "Oracles, not ranked"]
    assert "Noise floor" in rows
    assert rows["Noise floor"][2].text == "3.00 ± 0.00"


def test_ties_are_ties_of_print():
    columns = (percent("ece", "ECE", ranked=True),)

    def ranked(*values):
        rows = tuple(Row(str(v), (cell(columns[0], MeanStd(v, 0.0, 1)),)) for v in values)
        (section,) = mark_best(columns, [Section("", rows, ranked=True)])
        return [row.cells[0].best for row in section.rows]

    assert ranked(0.10001, 0.10002, 0.2) == [True, True, False]
    assert ranked(0.1001, 0.1002, 0.2) == [True, False, False]
    assert ranked(0.1, 0.1) == [False, False]


def test_numbers_of_print():
    assert number(-0.001) == "0.00"
    assert number(-0.001, signed=True) == "0.00"
    assert number(-2.31) == "−2.31"
    assert number(1949.55) == "1,949.55"
    assert cell(percent("x", "x"), MeanStd(0.5, 0.0, 1)).text == "50.00"
    assert cell(points("x", "x"), MeanStd(-0.5, 0.0, 1), (-0.6, 0.1)).text == "−50.0 [−60.0, +10.0]"
    assert cell(percent("x", "x"), None) == Cell()


def test_intervals_are_averaged_and_read(run):
    rows = rows_of(table_of(run, "intervals"))
    change = rows["DATS"][1]
    assert (change.low, change.high) == pytest.approx((change.value - 1, change.value + 1))
    assert [c.text for c in rows["DATS"][-2:]] == ["lower", "none"]
    assert [c.text for c in rows["RC"][-2:]] == ["lower", "3"]
    assert "DATS, one weight" not in rows


def test_without_bootstrap_there_is_no_table_of_intervals(tmp_path):
    run = load_results(make_run(tmp_path, half_width=None))
    assert "intervals" not in {table.name for table in build_tables(run)}


def test_paper_stands_beside_ours_only_where_it_belongs(tmp_path, run):
    assert "paper" not in {table.name for table in build_tables(run)}
    theirs = load_results(make_run(tmp_path / "cifar10", paper="cifar10", seeds=(0, 1, 2)))
    table = table_of(theirs, "paper")
    assert table.title == "Ours and the paper's"
    rows = rows_of(table)
    at = [column.key for column in table.columns].index("average_ece_paper")
    assert rows["DATS"][at].text == "8.80 ± 0.93"
    assert rows["DATS"][at - 1].text == "7.33 ± 0.82"
    assert rows["DATS"][-1].text == "not given"
    assert table_of(theirs, "runtime").columns[-1].label == "Paper's total"
    assert rows_of(table_of(theirs, "ablation_coverage"))["0.6"][-1].text == "8.80 ± 0.93"


def test_a_run_of_other_settings_is_reduced_and_says_which(tmp_path):
    folder = make_run(tmp_path, paper="cifar100", seeds=(0, 1, 2))
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text + "max_epochs = 5\nmemory_size = 100\n[score]\nn_bins = 15\n")
    run = load_results(folder)
    apart = [
        "network.nf 20 (paper: 32)",
        "training.max_epochs 5 (preset: 200)",
        "training.memory_size 100 (paper: 4000)",
        "score.n_bins 15 (paper: 10)",
    ]
    table = table_of(run, "paper")
    assert table.title == f"Ours (reduced: {'; '.join(apart)}) and the paper's"
    assert {column.label for column in table.columns} == {"ours, reduced", "paper"}
    for name in ("runtime", "ablation_coverage"):
        assert all(setting in table_of(run, name).columns[-1].heading for setting in apart)


def test_the_papers_runtimes_and_ablations_are_of_one_backbone(tmp_path):
    deep = load_results(make_run(tmp_path, paper="cifar10", backbone="resnet32", seeds=(0, 1, 2)))
    assert table_of(deep, "paper").title == "Ours and the paper's"
    for name in ("runtime", "ablation_coverage"):
        assert "aper" not in table_of(deep, name).columns[-1].heading


def test_a_temperature_at_a_bound_is_marked_wherever_its_method_stands(tmp_path):
    folder = make_run(tmp_path, paper="cifar10")
    for seed in (0, 1):
        path = folder / "scores" / f"seed-{seed}_task-2_rc.json"
        score = Score.load(path)
        replace(score, facts={**score.facts, "at_bound": seed == 1}).save(path)
    run = load_results(folder)
    note = "‡ A temperature ended at its bound, 0.05 or 100: RC in 1 of 2 seeds."
    for name in ("main", "paper", "tasks", "intervals"):
        table = table_of(run, name)
        assert "RC ‡" in rows_of(table), name
        assert "DATS" in rows_of(table)
        assert note in (*table.notes, table.sections[0].note)
    row = next(row for row in table_of(run, "main").sections[0].rows if row.label == "RC ‡")
    assert row.note == "a temperature at its bound in 1 of 2 seeds"
    assert note in terminal_table(run).caption.plain


def test_the_terminal_names_every_marked_method_variants_and_oracles_too(tmp_path):
    folder = make_run(tmp_path)
    for method in ("rc", "dats_shared", "oracle_task"):
        path = folder / "scores" / f"seed-1_task-2_{method}.json"
        score = Score.load(path)
        replace(score, facts={**score.facts, "at_bound": True}).save(path)
    drawn = terminal_table(folder)
    marked = {str(cell).removesuffix(" ‡") for cell in drawn.columns[0].cells if "‡" in str(cell)}
    note = drawn.caption.plain.splitlines()[-1]
    assert len(marked) == 3
    assert_words(note, "‡ A temperature", *(f"{label} in 1 of 2 seeds" for label in marked))


def test_the_note_under_the_intervals_of_tasks_says_what_they_do_not_judge(run):
    (note,) = (n for n in table_of(run, "tasks").notes if n.startswith("Intervals are"))
    assert_words(note, "one task alone", "harm", "all tasks together")


def test_the_misprint_is_said_under_the_table(tmp_path):
    run = load_results(make_run(tmp_path, paper="cifar100", backbone="resnet32"))
    assert any("copying error" in note for note in table_of(run, "paper").notes)


def test_steps_and_protocol(run):
    steps = rows_of(table_of(run, "steps"))
    assert [c.value for c in steps["RC"]] == pytest.approx([100 * v for v in (0.135, 0.12, 0.115)])
    protocol = rows_of(table_of(run, "protocol"))
    assert [c.value for c in protocol["RC"]] == pytest.approx([11, 21, 12, 22])


def test_runtime_sums_over_tasks(run):
    assert [c.value for c in rows_of(table_of(run, "runtime"))["RC"]] == pytest.approx([3.0, 1.5, 0.75, 5.25])


def test_ablation_averages_draws_first_then_seeds(run):
    rows = rows_of(table_of(run, "ablation_coverage"))
    assert rows["0.4"][0].value == pytest.approx(10.3)
    assert rows["0.4"][0].std == pytest.approx(0.1)  # of 10.2 and 10.4; draws do not enter
    assert "2 draws" in table_of(run, "ablation_coverage").notes[0]


def test_unfinished_seeds_and_missing_methods_are_told(tmp_path):
    folder = make_run(tmp_path)
    make_score(7, 0, "dats").save(folder / "scores" / "seed-7_task-0_dats.json")
    (folder / "scores" / "seed-1_task-2_rc.json").unlink()
    run = load_results(folder)
    assert (run.seeds, run.unfinished) == ((0, 1), (7,))
    main = table_of(run, "main")
    assert "RC (1 of 2 seeds)" in rows_of(main)
    # a mean over the easier seed is not compared with means over both
    assert "rc" not in run.ranked
    assert "Nor are methods that lack a score for a seed." in main.sections[1].note


def test_a_run_that_is_not_finished_says_so(tmp_path):
    folder = make_run(tmp_path, paper="cifar10")
    done = load_results(folder)
    assert table_of(done, "main").title == "After all 3 tasks"
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text + "[scenario]\ntasks = [2, 2, 2, 2, 2]\n")
    run = load_results(folder)
    assert (run.planned_tasks, run.is_finished) == (5, False)
    assert table_of(run, "main").title == "After 3 of 5 tasks"
    assert "paper" not in [table.name for table in build_tables(run)]


def test_outdated_ablations_are_left_out(tmp_path):
    folder = make_run(tmp_path)
    path = folder / "ablations" / "coverage.json"
    records = json.loads(path.read_text())
    outputs = load_results(folder).at("dats")[0].outputs
    path.write_text(json.dumps([{**r, "outputs": "f" * 64} for r in records]))
    assert {r["ablation"] for r in load_results(folder).ablations} == {"weights"}
    path.write_text(json.dumps([{**r, "outputs": outputs} for r in records]))
    assert {r["ablation"] for r in load_results(folder).ablations} == {"coverage", "weights"}
    path.write_text('[{"a": 1}]')
    with raises_naming(FileFormatError, "coverage.json must", "ablations", "Delete it"):
        load_results(folder)


def test_an_unknown_method_is_shown_but_not_ranked(tmp_path):
    folder = make_run(tmp_path)
    for seed in (0, 1):
        score = replace(make_score(seed, 2, "dats"), method="mine")
        score.save(folder / "scores" / f"seed-{seed}_task-2_mine.json")
    assert "mine" in load_results(folder).methods
    assert "mine" not in load_results(folder).ranked


def test_no_scores_is_an_error_that_names_the_folder(tmp_path):
    with pytest.raises(FileFormatError, match="must hold scores"):
        load_results(tmp_path)


NASTY = r"a|b_c & 50 % <b>#$x$ {\o} *"


@pytest.fixture
def nasty():
    columns = (Column("v", "Value", "%", best="low"),)
    rows = (Row(NASTY, (Cell("−1.50 ± 0.20", -1.5, 0.2, best=True),)), Row("=1+1", (Cell(),)))
    return Table("t", NASTY, "Title", "Method", columns, (Section("", rows, ranked=True),), ("Note_1",))


def test_markdown_is_a_table_whatever_the_names(nasty):
    lines = markdown(nasty).splitlines()
    body = [line for line in lines if line.startswith("|")]
    assert all(line.replace("\\|", "").count("|") == 3 for line in body)
    assert r"a\|b\_c &amp; 50 % \<b\>\#$x$ {\\o} \*" in body[2]
    assert "**−1.50 ± 0.20**" in body[2]
    assert lines[-1] == r"Note\_1"


def test_latex_escapes_and_marks(nasty):
    text = latex(nasty)
    assert r"a|b\_c \& 50 \% <b>\#\$x\$ \{\textbackslash{}o\} *" in text
    assert r"\textbf{$-$1.50 $\pm$ 0.20}" in text
    assert text.count(r"\toprule") == text.count(r"\midrule") == text.count(r"\bottomrule") == 1
    # every line of the body has the same number of cells
    assert {line.count("&") - line.count(r"\&") for line in text.splitlines() if line.endswith(r"\\")} == {1}


def test_csv_holds_numbers_in_columns_of_their_own(nasty):
    heading, first, second = csv.reader(io.StringIO(csv_text(nasty)))
    assert heading == ["section", "Method", "Value (%)", "Value (%) std", "best"]
    assert first == ["", NASTY, "-1.5", "0.2", "v"]
    assert second[1] == "'=1+1"  # a spreadsheet must not run it


def test_flat_csv_holds_every_score_to_the_last_bit(run):
    rows = list(csv.DictReader(io.StringIO(scores_csv(run))))
    assert len(rows) == len(run.scores)
    for row in rows:
        score = run.scores[int(row["seed"]), int(row["task"]), row["method"]]
        assert float(row["average_ece"]) == score.comparison["average_ece"]
        assert float(row["max_delta_ece_low"]) == score.comparison["intervals"]["max_delta_ece"][0]
        assert float(row["quantile_pooled_ece"]) == score.pooled["quantile"]


def test_terminal_table_fits_eighty_columns(tmp_path):
    folder = make_run(tmp_path)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(terminal_table(folder))
    text = console.export_text().replace("\u00a0", " ")
    assert "6.8 ± 0.5*" in text
    assert "65.0 ± 0.0" in text
    assert "Noise floor" in text


def test_no_digit_is_cut_off_at_eighty_columns(tmp_path):
    table = main_table(load_results(make_run(tmp_path)), narrow=True)
    texts = ("96.8 ± 0.7*", "0.08 ± 0.01*", "22.6 ± 11.7*", "+21.1 ± 18.8*", "+21.2 ± 18.6*")
    wide = Row("DATS, sample distance", tuple(Cell(text) for text in texts))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(rich_table(replace(table, sections=(Section("", (wide,)),))))
    text = console.export_text().replace("\u00a0", " ")
    assert [c.text for c in wide.cells if c.text not in text] == []


def test_comparison_of_two_backbones(tmp_path):
    runs = [
        load_results(make_run(tmp_path / "a", name="CIFAR10")),
        load_results(
            make_run(tmp_path / "b", name="CIFAR10", backbone="resnet32", changes={"dats": (0.1, 0.1)})
        ),
    ]
    table = comparison_table(runs)
    labels = [column.heading for column in table.columns]
    assert table.groups == [("CIFAR10, SlimResNet18", 5), ("CIFAR10, ResNet32", 5)]
    assert r"\multicolumn{5}{c}{CIFAR10, SlimResNet18} & \multicolumn{5}{c}{CIFAR10, ResNet32}" in latex(
        table
    )
    assert "\\cmidrule(lr){2-6}\n\\cmidrule(lr){7-11}\n" in latex(table)
    assert labels[0] == "CIFAR10, SlimResNet18: Accuracy (%)"
    assert labels[-1] == "CIFAR10, ResNet32: maxΔECE (points)"
    rows = rows_of(table)
    assert rows["DATS"][2].best
    assert not rows["DATS"][7].best


def test_runs_of_one_folder_name_are_told_apart(tmp_path):
    folders = [make_run(tmp_path / name, name="CIFAR10") for name in ("a/x", "b/x", "c/y")]
    names = short_names(folders)
    runs = [replace(load_results(folder), name=name) for folder, name in zip(folders, names, strict=True)]
    lines = list(csv.DictReader(io.StringIO(scores_csv(*runs))))
    assert list(dict.fromkeys(line["run"] for line in lines)) == ["a/x", "b/x", "y"]
    headings = [name for name, _ in comparison_table(runs).groups]
    assert headings == [f"CIFAR10, SlimResNet18, {name}" for name in ("a/x", "b/x", "y")]


def test_score_files_survive_the_round_trip(tmp_path):
    score = make_score(0, 1, "rc")
    score.save(tmp_path / "s.json")
    assert Score.load(tmp_path / "s.json") == score
