"""The numbers of an evaluation against naive ones; its sentences on planted cases."""

import json
from pathlib import Path

import numpy as np
import pytest

import equable
from equable.benchmark.batching import batches_of
from equable.deploy.evaluate_file import evaluate_file, labels_of
from equable.errors import FileFormatError, InputError
from equable.reports.page_sections import run_page
from equable.reports.sentences import summarise
from equable.reports.tables import build_tables, terminal_tables
from messages import assert_words, raises_naming
from planted import make_incremental


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Test outputs whose newest task needs T = 1.2 and the others far more, and three calibrators."""
    folder = tmp_path_factory.mktemp("evaluation")
    buffer = make_incremental(seed=1)
    test = make_incremental(n_per_class=100, seed=2)
    tasks = np.array([3, 4, 7])[test.tasks]  # ids need not count from 0
    equable.Outputs(test.logits, test.y, test.features, tasks).save(folder / "test.npz")
    equable.Outputs(test.logits, test.y, test.features).save(folder / "flat.npz")
    for name, calibrator in {
        "ts": equable.TemperatureScaling(),
        "dats": equable.DATS(),
        "arc": equable.ARC(),
    }.items():
        calibrator.fit(buffer.logits, buffer.y, features=buffer.features, tasks=buffer.tasks)
        calibrator.save(folder / f"{name}.safetensors")
    return folder


def naive_ece(labels, probabilities):
    confidence = probabilities.max(axis=1)
    hit = probabilities.argmax(axis=1) == labels
    index = np.minimum((confidence * 10).astype(int), 9)
    return sum(abs((hit - confidence)[index == b].sum()) for b in range(10)) / len(labels)


def evaluate(files, *names, test="test", how=None, n_bootstrap=0):
    calibrators = [files / f"{name}.safetensors" for name in names]
    return evaluate_file(files / f"{test}.npz", calibrators, how, n_bootstrap=n_bootstrap)


def said_of(evaluation):
    return summarise(evaluation.results)


@pytest.mark.parametrize("how", ["all", "tasks", "16"])
def test_numbers_are_those_of_a_naive_computation(files, how):
    outputs = equable.Outputs.load(files / "test.npz")
    arc = equable.load(files / "arc.safetensors")
    groups = {"all": None, "tasks": outputs.tasks, "16": np.arange(len(outputs)) // 16}[how]
    after = arc.predict_proba(outputs.logits, groups=groups)
    before = np.exp(outputs.logits)
    before /= before.sum(axis=1, keepdims=True)
    plain, found = evaluate(files, "arc", how=how).to_dict()["methods"]
    eces = []
    for view, task in zip(found["views"], [3, 4, 7, None], strict=True):
        rows = np.full(len(outputs), True) if task is None else outputs.tasks == task
        y = outputs.labels[rows]
        p = after[rows]
        assert view["name"] == ("All rows" if task is None else f"Task {task}")
        assert view["count"] == rows.sum()
        assert view["accuracy"] == pytest.approx((p.argmax(axis=1) == y).mean())
        assert view["nll"] == pytest.approx(-np.log(p[np.arange(len(y)), y]).mean())
        assert view["ece"] == pytest.approx(naive_ece(y, p))
        assert view["delta_ece"] == pytest.approx(naive_ece(y, p) - naive_ece(y, before[rows]))
        temperature = arc.temperature(outputs.logits, groups=groups)[rows]
        assert view["temperature"]["q50"] == pytest.approx(np.median(temperature))
        assert view["accepted"] == equable.metrics.accepted_share(y, p)
        assert sum(view["reliability"]["count"]) == rows.sum()
        eces.append(view["ece"])
    assert found["comparison"]["average_ece"] == pytest.approx(np.mean(eces[:3]))
    assert found["worst_task"] == f"Task {[3, 4, 7][int(np.argmax(eces[:3]))]}"
    assert plain["views"][0]["delta_ece"] == 0


def test_one_temperature_harms_the_newest_task_and_the_sentences_say_so(files):
    first, second, *_ = said_of(evaluate(files, "ts", "dats", n_bootstrap=300))
    assert first.startswith("DATS: accuracy ")
    assert "harmed" not in first
    assert second.startswith("TS: ")
    assert second.endswith("harmed beyond noise: task 7.")


def test_without_bootstrap_the_sentences_state_the_direction_only(files):
    sentences = said_of(evaluate(files, "ts"))
    assert any("(here 0) and 20 rows" in sentence for sentence in sentences)
    assert "harmed" not in " ".join(sentences)


def test_a_change_within_noise_is_called_that(files, tmp_path):
    """The plain softmax saved as a calibrator changes nothing."""
    outputs = equable.Outputs.load(files / "test.npz")
    equable.Uncalibrated().fit(outputs.logits, outputs.labels).save(tmp_path / "same.safetensors")
    found = evaluate_file(files / "test.npz", [tmp_path / "same.safetensors"], n_bootstrap=50)
    assert any(
        said.startswith("Uncalibrated (same)") and "%, within noise;" in said for said in said_of(found)
    )
    assert [view["delta_ece"] for view in found.to_dict()["methods"][1]["views"]] == [0] * 4


# TaskMix, and batches of one task --------------------------------------------------------


@pytest.fixture(scope="module")
def mixed_files(files):
    """A saved TaskMix; the test rows sorted by task, shuffled, and in wards of one task each."""
    buffer = make_incremental(seed=1)
    equable.TaskMix().fit(buffer.logits, buffer.y, tasks=buffer.tasks).save(files / "taskmix.safetensors")
    outputs = equable.Outputs.load(files / "test.npz")
    rows = outputs[np.argsort(outputs.tasks, kind="stable")]
    rows.save(files / "sorted.npz")
    rows[np.random.default_rng(0).permutation(len(rows))].save(files / "shuffled.npz")
    equable.Outputs(rows.logits, rows.labels, tasks=rows.tasks, groups=rows.tasks).save(files / "wards.npz")
    return files


@pytest.mark.parametrize("how", ["tasks", "all"])
def test_the_gain_of_taskmix_stands_beside_that_in_shuffled_batches(mixed_files, how):
    """The batches are those of a run: tasks numbered from 0, seed 0."""
    found = evaluate(mixed_files, "taskmix", how=how).results
    outputs = equable.Outputs.load(mixed_files / "test.npz")
    groups = batches_of(np.searchsorted([3, 4, 7], outputs.tasks), 0)["mixed", 32]
    calibrator = equable.load(mixed_files / "taskmix.safetensors")
    after = calibrator.predict_proba(outputs.logits, groups=groups)
    sides = [(p.argmax(axis=1) == outputs.labels).mean() for p in (outputs.logits, after)]
    mixed = " → ".join(f"{100 * side:.1f}" for side in sides)
    headline, assumed, *_ = summarise(found)
    assert headline.startswith("TaskMix: accuracy ")
    assert f" % (in shuffled batches of 32: {mixed} %); average ECE" in headline
    assert_words(assumed, "TaskMix changes predicted classes", "few tasks", "label shift")
    assert "one task's test set" not in assumed
    tiles = run_page(found, [], []).tiles
    assert ("Accuracy, shuffled", f"{mixed} %", "batches of 32, all rows pooled") in tiles


def test_other_calibrators_have_no_such_sentence(files):
    found = evaluate(files, "dats", "arc").results
    assert "shuffled" not in " ".join(summarise(found))
    assert "Accuracy, shuffled" not in {name for name, *_ in run_page(found, [], []).tiles}


@pytest.mark.parametrize(
    ("test", "how", "calibrator", "noted"),
    [
        ("sorted", None, "taskmix", True),
        ("shuffled", "tasks", "dats", True),
        ("sorted", "32", "arc", True),
        ("sorted", "32", "ts", False),
        ("shuffled", "32", "taskmix", False),
        ("sorted", "1", "taskmix", False),
        ("sorted", "500", "taskmix", False),
        ("sorted", "all", "taskmix", False),
        ("wards", "file", "taskmix", False),
        ("flat", "32", "arc", False),
    ],
)
def test_batches_of_one_task_are_noted(mixed_files, test, how, calibrator, noted):
    about = evaluate(mixed_files, calibrator, test=test, how=how).results.file.about
    assert ("hold rows of one task" in about) == noted
    if noted:
        assert_words(about, "unknown in use", "arrive mixed", "shuffle the rows", "--groups 32")


@pytest.mark.filterwarnings("ignore::equable.errors.ConvergenceWarning")
def test_the_terminal_has_the_note_of_a_temperature_at_its_bound(files, tmp_path):
    outputs = equable.Outputs.load(files / "test.npz")
    wrong = (outputs.labels + 1) % 9
    equable.TemperatureScaling(prior_strength=0).fit(outputs.logits, wrong).save(tmp_path / "ts.safetensors")
    drawn = terminal_tables(evaluate_file(files / "test.npz", [tmp_path / "ts.safetensors"]).results)
    for table in drawn:
        assert "‡" in "".join(str(cell) for cell in table.columns[0].cells)
        assert table.caption.plain.endswith("‡ A temperature ended at its bound, 0.05 or 100: TS.")


def cut(files, target, counts):
    """Write the first rows of each task, as many as `counts`; the ECE of few rows is mostly noise."""
    outputs = equable.Outputs.load(files / "test.npz")
    rows = [np.flatnonzero(outputs.tasks == task)[:n] for task, n in zip((3, 4, 7), counts, strict=True)]
    outputs[np.concatenate(rows)].save(target)
    return target


@pytest.mark.parametrize(
    ("counts", "harm"),
    [
        ((300, 300, 1), False),
        ((1, 300, 300), True),  # task 7 has rows enough
        ((19, 300, 3), False),
        ((5, 5, 5), False),
    ],
)
def test_a_task_of_few_rows_is_no_evidence(files, tmp_path, counts, harm):
    path = cut(files, tmp_path / "few.npz", counts)
    found = evaluate_file(path, [files / "ts.safetensors"], n_bootstrap=100)
    sentences = said_of(found)
    assert sentences[-1].endswith("and 20 rows per task that are not identical.")
    assert ("harmed beyond noise: task 7" in " ".join(sentences)) == harm
    views = found.to_dict()["methods"][1]["views"][:3]
    assert [view["delta_ece_interval"] is None for view in views] == [n < 20 for n in counts]
    tables = {table.name: table for table in build_tables(found.results)}
    assert ("intervals" in tables) == (counts[2] >= 20)
    if "intervals" in tables:
        cells = tables["intervals"].sections[0].rows[-1].cells
        columns = [column.key for column in tables["intervals"].columns]
        assert [key for key, cell in zip(columns, cells, strict=True) if cell.low is not None] == [
            "delta_last_ece"
        ]


@pytest.mark.parametrize("rows", [[0], [0] * 500, [0, 1, 2]])
def test_few_or_equal_rows_without_tasks_are_no_evidence(files, tmp_path, rows):
    equable.Outputs.load(files / "flat.npz")[rows].save(tmp_path / "few.npz")
    sentences = said_of(evaluate_file(tmp_path / "few.npz", [files / "dats.safetensors"]))
    assert sentences[-1].endswith("and 20 rows per task that are not identical.")
    assert "points" not in " ".join(sentences)


@pytest.mark.parametrize("n", [1, 39])
def test_few_replicates_are_refused(files, n):
    with raises_naming(InputError, "--bootstrap must", "0", "at least 40", f"got {n}"):
        evaluate(files, "ts", n_bootstrap=n)


def test_rows_without_tasks_are_one_view(files):
    found = evaluate(files, "arc", test="flat", n_bootstrap=50)
    _, arc = found.to_dict()["methods"]
    assert [view["name"] for view in arc["views"]] == ["All rows"]
    assert found.facts["groups"] == "all"
    assert arc["views"][0]["ece"] == pytest.approx(arc["comparison"]["pooled_ece"])
    assert "task" not in " ".join([found.results.file.about, *said_of(found)])
    assert {table.name for table in build_tables(found.results)} == {"main", "intervals"}


def test_a_single_task_is_no_task(files, tmp_path):
    outputs = equable.Outputs.load(files / "test.npz")
    outputs[outputs.tasks == 4].save(tmp_path / "one.npz")
    (plain,) = evaluate_file(tmp_path / "one.npz", n_bootstrap=0).to_dict()["methods"]
    assert [view["name"] for view in plain["views"]] == ["All rows"]


def test_a_single_row(files, tmp_path):
    equable.Outputs.load(files / "test.npz")[:1].save(tmp_path / "row.npz")
    calibrators = [files / "dats.safetensors", files / "arc.safetensors"]
    found = evaluate_file(tmp_path / "row.npz", calibrators, n_bootstrap=50).to_dict()
    assert found["rows"] == 1
    assert all(np.isfinite(view["ece"]) for method in found["methods"] for view in method["views"])


def test_equal_seeds_give_equal_numbers(files):
    first, second = (evaluate(files, "dats", n_bootstrap=50).to_dict() for _ in range(2))
    assert first == second
    json.dumps(first, allow_nan=False)


def test_labels_tell_files_apart():
    ts = equable.TemperatureScaling()
    arc = equable.ARC()
    plain = equable.Uncalibrated()
    files = [Path("a/cal.x"), Path("b/cal.x"), Path("c/other.x")]
    assert labels_of(files[:1], [arc]) == ["ARC"]
    assert labels_of(files[1:], [ts, arc]) == ["TS", "ARC"]
    assert labels_of(files[1:], [ts, ts]) == ["TS (cal)", "TS (other)"]
    assert labels_of(files[:2], [ts, ts]) == ["TS (a/cal)", "TS (b/cal)"]
    deep = [Path("/data/here") / file for file in files[:2]]
    assert labels_of(deep, [ts, ts]) == ["TS (a/cal)", "TS (b/cal)"]
    assert labels_of([Path("rc.safetensors")], [ts]) == ["TS (rc)"]
    assert labels_of(files[:1], [plain]) == ["Uncalibrated (cal)"]
    with raises_naming(InputError, "calibrator must", "once", "TS (a/cal)"):
        labels_of([files[0]] * 2, [ts, ts])


def test_labels_are_needed(files, tmp_path):
    outputs = equable.Outputs.load(files / "test.npz")
    equable.Outputs(outputs.logits, tasks=outputs.tasks).save(tmp_path / "bare.npz")
    with raises_naming(FileFormatError, "bare.npz must", "labels", "logits, tasks"):
        evaluate_file(tmp_path / "bare.npz")


def test_tables_hold_the_numbers_and_mark_the_best(files):
    found = evaluate(files, "ts", "dats", n_bootstrap=50)
    dats = found.to_dict()["methods"][2]
    tables = {table.name: table for table in build_tables(found.results)}
    main = tables["main"]
    row = next(r for r in main.sections[0].rows if r.label == "DATS")
    cells = dict(zip([c.key for c in main.columns], row.cells, strict=True))
    assert cells["average_ece"].value == pytest.approx(100 * dats["comparison"]["average_ece"])
    assert cells["average_ece"].best
    assert cells["worst_ece"].value == pytest.approx(100 * max(view["ece"] for view in dats["views"][:3]))
    assert [section.title for section in tables["tasks"].sections] == [
        *(f"Task {task} (300 rows)" for task in (3, 4, 7)),
        "All rows (900 rows)",
    ]
    assert all(len(section.rows) == 3 for section in tables["tasks"].sections)
    floors = [section.rows[2].cells[4].value for section in tables["tasks"].sections]
    assert floors == pytest.approx([100 * view["noise_floor"] for view in dats["views"]])
    rows = {r.label: r.cells for r in tables["intervals"].sections[0].rows}
    keys = [column.key for column in tables["intervals"].columns]
    low, high = dats["comparison"]["intervals"]["max_delta_ece"]
    shown = rows["DATS"][keys.index("max_delta_ece")]
    assert (shown.low, shown.high) == pytest.approx((100 * low, 100 * high))


def test_terminal_tables_fit_80_columns(files):
    from rich.console import Console

    for drawn in terminal_tables(evaluate(files, "ts", "dats", "arc").results):
        drawn.columns[0].no_wrap = True
        with (console := Console(width=80)).capture() as capture:
            console.print(drawn)
        printed = capture.get()
        last = [str(cell).rstrip("*\u00a0") for cell in drawn.columns[-1].cells if str(cell)]
        assert last
        assert all(any(text in line for line in printed.splitlines()) for text in last)
        assert "…" not in printed
