"""Every error is one line on standard error that names its cause: wrong usage, interrupts, closed pipes."""

import os
import subprocess
import sys

import numpy as np
import pytest

import equable.benchmark.config
import equable.datasets
from calling import call, refused
from messages import assert_words, raises_naming


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("nonsense",), "'nonsense'"),
        (("--colour",), "--colour"),
        (("evaluate", "--colour"), "--colour"),
        (("evaluate", "a-folder-with-a-long-name/" * 9 + "absent.npz"), "with-a-long-name/absent.npz"),
        (("evaluate", __file__, "--groups", "wards"), "--groups"),
        (("evaluate", __file__, "--bins", "0"), "--bins"),
        (("run",), "Missing argument"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(words, named):
    result = call(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("equable: ")
    assert result.stderr.count("\n") == 1
    assert named in result.stderr


@pytest.mark.parametrize("words", [(), ("datasets",)])
def test_a_command_without_words_prints_its_help_alone(words):
    result = call(*words)
    assert "Usage" in result.output
    assert "equable: " not in result.output


def test_only_commands_that_resume_say_so(monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(equable.datasets, "paper_table", stop)
    monkeypatch.setattr(equable.benchmark.config, "load_config", stop)
    result = call("datasets", "list")
    assert (result.exit_code, result.stderr) == (130, "equable: interrupted\n")
    result = call("run", "digits")
    assert (result.exit_code, result.stderr) == (130, "equable: interrupted; the same command resumes\n")


INTERRUPTED = """
import sys
import equable.datasets

def stop(*_, **__):
    raise KeyboardInterrupt

equable.datasets.paper_table = stop
from equable.cli import main

sys.argv = ["equable", "datasets", "list"]
main()
"""


def test_on_a_terminal_the_line_is_not_glued_to_a_progress_bar():
    reader, terminal = os.openpty()
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], stderr=terminal, check=False)
    os.close(terminal)
    assert (done.returncode, os.read(reader, 1000)) == (130, b"\r\nequable: interrupted\r\n")
    os.close(reader)


def test_interrupted_while_it_starts():
    code = (
        "import sys\n"
        "class Stop:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stop())\n"
        "import equable.cli\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "equable: interrupted\n")


def test_a_reader_that_stops_early_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)  # as `head` does once it has its lines
    words = [sys.executable, "-m", "equable.cli", "datasets", "list", "--json"]
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


# Errors of the file commands name the culprit --------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sets", "90"), r"--sets must be in \(0, 1\); got 90"),
        (("--max-error", "5"), r"--max-error must be in \(0, 1\); got 5"),
    ],
)
def test_options_are_named_as_they_are_written(source, tmp_path, options, message):
    words = ("apply", source / "ts.safetensors", source / "test.npz", *options, "-o", tmp_path / "p.npz")
    assert refused(call(*words), message)


def test_a_setting_of_a_method_is_not_blamed_on_the_file(source, tmp_path):
    words = ("-m", "ts", "--set", "prior_strength=1", "--set", "loss=mse", "-o", tmp_path / "cal")
    result = call("calibrate", source / "buffer.npz", *words)
    assert refused(result, r"--set loss=mse: loss must be one of .*'mse'")
    assert "buffer.npz" not in result.stderr


@pytest.mark.parametrize("name", ["q.csv", "q.safetensors", "q.npz.gz"])
def test_probabilities_end_in_npz(source, tmp_path, name):
    words = ("apply", source / "ts.safetensors", source / "test.npz", "-o", tmp_path / name)
    assert refused(call(*words), rf"--out must end in \.npz; got .*{name}")
    assert list(tmp_path.iterdir()) == []


def test_calibrators_end_in_safetensors(source, tmp_path):
    words = ("calibrate", source / "buffer.npz", "-m", "ts", "-o")
    assert refused(call(*words, tmp_path / "out.txt"), r"--out must end in \.safetensors; got .*out\.txt")
    assert list(tmp_path.iterdir()) == []
    assert call(*words, tmp_path / "OUT.SAFETENSORS").exit_code == 0


def test_text_is_no_npz_file(source, tmp_path):
    (tmp_path / "rows.npz").write_text("logit_0,logit_1\n1.5,2.5\n")
    result = call("evaluate", tmp_path / "rows.npz")
    assert refused(result, "rows.npz must be a whole npz file; it is neither a zip nor an npy file")
    assert "pickle" not in result.stderr


def test_swapped_arguments(source, tmp_path):
    cal = source / "ts.safetensors"
    rows = source / "test.npz"
    target = ("-o", tmp_path / "p.npz")
    assert refused(call("apply", rows, cal, *target), "test.npz must .*safetensors file; it is an npz file")
    message = "ts.safetensors must .*npz file; it is a safetensors file"
    assert refused(call("evaluate", cal, rows), message)


def test_the_array_that_does_not_belong_is_named(written, source, tmp_path):
    path = written(patient_id=np.arange(360))
    assert refused(call("evaluate", path), r"none but \[.*'logits'.*\]; 'patient_id' is none of them$")


def test_a_bad_label_is_named_with_its_row(served_outputs, written):
    labels = served_outputs.labels.astype(float)
    labels[7] = 2.5
    message = "labels must be whole numbers; got 2.5 in row 7, dtype float64"
    assert refused(call("evaluate", written(labels=labels)), message)
    labels[7] = -1
    result = call("evaluate", written(labels=labels))
    assert refused(result, r"labels must lie in 0 … 8 \(K = 9 classes\); got -1 in row 7$")
    first = np.flatnonzero(served_outputs.labels == 8)[0]
    result = call("evaluate", written(labels=served_outputs.labels + 1))
    assert refused(result, rf"; got 9 in row {first}; labels start at 0$")


def test_check_counts_the_unknown_rows(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 3))
    labels = np.arange(60) % 2
    np.savez(tmp_path / "v.npz", train_features=rows, train_labels=labels, oos_test_features=rows[:15] + 1)
    text = call("datasets", "check", tmp_path / "v.npz").stdout
    assert_words(text, "\nno splits given: 60 vectors (0 30, 1 30)\nunknown (test): 15 vectors\nusable")
    report = equable.datasets.check(tmp_path / "v.npz")
    assert (report.unknown, report.counts) == (15, {"not given": (30, 30)})


def test_rc_is_explained():
    with raises_naming(AttributeError, "'RC'", "TemperatureScaling", "calibration buffer"):
        _ = equable.RC
