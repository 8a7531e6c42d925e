"""The public names: each exists, no other is public, each has documentation, and importing is cheap."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import equable
import equable.cli
import equable.metrics
from equable.errors import MissingExtraError
from messages import raises_naming

PACKAGE = Path(equable.__file__).parent
NEEDED = inspect.Parameter.empty

# class → its settings and their defaults. A new calibrator adds a line here.
CALIBRATORS = {
    "Uncalibrated": {},
    "TemperatureScaling": {"loss": "nll", "prior_strength": 0.1},
    "EnsembleTemperatureScaling": {},
    "ParametrizedTemperatureScaling": {"top_k": 10, "hidden": (5, 5), "random_state": 0},
    "DATS": {
        "coverage": 0.6,
        "weights": "per_class",
        "aggregate": "mean",
        "metric": "cosine",
        "distance": "class",
        "prior_strength": 0.1,
    },
    "ARC": {"loss": "brier", "prior_strength": 5.0},
    "BiasCorrection": {"by": "task"},
    "TaskMix": {"odds": 10.0, "base": None},
}
DECISIONS = ("PredictionSets", "Referral", "Monitor")
# everything else of the front door
OTHERS = {"CALIBRATORS", "Outputs", "Stream", *DECISIONS, "load", "metrics", "__version__"}
METRICS = {
    "accuracy",
    "negative_log_likelihood",
    "brier_score",
    "expected_calibration_error",
    "classwise_ece",
    "maximum_calibration_error",
    "reliability_curve",
    "risk_coverage",
    "noise_floor",
    "compare_tasks",
    "ReliabilityDisplay",
}
# what metrics return, and a share beside `risk_coverage`
MORE_METRICS = {"ReliabilityCurve", "RiskCoverage", "TaskComparison", "TaskScores", "accepted_share"}
CALIBRATOR_METHODS = {
    "fit": {
        "logits": NEEDED,
        "y": NEEDED,
        "features": None,
        "tasks": None,
        "current": None,
        "sample_weight": None,
    },
    "predict_proba": {"logits": NEEDED, "features": None, "groups": None},
    "temperature": {"logits": NEEDED, "features": None, "groups": None},
    "save": {"path": NEEDED},
    "get_params": {"deep": True},
    "set_params": {},
}
SIGNATURES = {
    "Stream": {"calibrator": NEEDED, "window": 256},
    "Stream.update": {"logits": NEEDED, "features": None},
    "PredictionSets": {"calibrator": NEEDED, "confidence_level": 0.9, "guarantee": "task"},
    "PredictionSets.predict_set": {"logits": NEEDED, "features": None, "groups": None},
    "Referral": {"calibrator": NEEDED, "max_error": 0.05, "confidence_level": 0.9},
    "Referral.accept": {"logits": NEEDED, "features": None, "groups": None},
    "Monitor": {"calibrator": NEEDED, "window": 256, "keep": 100_000, "log": None},
    "Monitor.update": {"logits": NEEDED, "features": None},
    "Monitor.feedback": {"row_ids": NEEDED, "y": NEEDED},
    "Outputs": {"logits": NEEDED, "labels": None, "features": None, "tasks": None, "groups": None},
    "metrics.expected_calibration_error": {
        "y_true": NEEDED,
        "y_prob": NEEDED,
        "n_bins": 10,
        "strategy": "uniform",
        "debias": False,
    },
    "metrics.compare_tasks": {
        "y_true": NEEDED,
        "tasks": NEEDED,
        "before": NEEDED,
        "after": NEEDED,
        "n_bins": 10,
        "n_bootstrap": 0,
        "random_state": 0,
    },
}
# documented and callable objects of the list
DOCUMENTED = sorted(
    {*CALIBRATORS, *DECISIONS, "Outputs", "Stream", "load"} | {f"metrics.{name}" for name in METRICS},
)


def public(name):
    value = equable
    for part in name.split("."):
        value = getattr(value, part)
    return value


def defaults(function):
    skipped = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.name != "self" and p.kind not in skipped}


FROZEN = Path(__file__).parent / "frozen" / "commands.json"


def options_of(command, name=""):
    """Command → its arguments and options, of a command and all below it."""
    found = {name: sorted(word for param in command.params for word in (*param.opts, *param.secondary_opts))}
    for child, below in getattr(command, "commands", {}).items():
        found |= options_of(below, f"{name} {child}".strip())
    return found


def test_commands_and_options_are_those_stored():
    """``EQUABLE_FREEZE=1`` writes the file anew."""
    found = options_of(typer.main.get_command(equable.cli.app))
    if os.environ.get("EQUABLE_FREEZE"):
        FROZEN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    assert found == json.loads(FROZEN.read_text(encoding="utf-8"))


class TestNames:
    def test_the_list_is_exact(self):
        assert sorted(equable.__all__) == sorted({*CALIBRATORS, *OTHERS})
        assert len(set(equable.__all__)) == len(equable.__all__)

    def test_all_of_it_exists(self):
        for name in equable.__all__:
            assert getattr(equable, name) is not None
        assert set(equable.__all__) <= set(dir(equable))

    def test_metrics(self):
        assert set(equable.metrics.__all__) == METRICS | MORE_METRICS
        for name in equable.metrics.__all__:
            assert getattr(equable.metrics, name) is not None

    def test_an_unknown_name_is_an_attribute_error(self):
        with raises_naming(AttributeError, "'equable'", "'Dats'"):
            equable.Dats  # noqa: B018

    def test_the_table_of_calibrators_holds_the_public_classes(self):
        classes = {public(name) for name in CALIBRATORS}
        assert set(equable.CALIBRATORS.values()) == classes
        assert all(name == name.lower() for name in equable.CALIBRATORS)


class TestSignatures:
    def test_settings_of_calibrators(self):
        assert {name: defaults(public(name)) for name in CALIBRATORS} == CALIBRATORS

    @pytest.mark.parametrize("method", CALIBRATOR_METHODS)
    def test_methods_of_calibrators(self, method):
        expected = CALIBRATOR_METHODS[method]
        for name in CALIBRATORS:
            found = defaults(getattr(public(name), method))
            assert {key: found.get(key, "missing") for key in expected} == expected, name
            extra = {key: value for key, value in found.items() if key not in expected}
            assert all(value is not NEEDED for value in extra.values()), name

    def test_functions(self):
        assert {name: defaults(public(name)) for name in SIGNATURES} == SIGNATURES


def loaded_after(code):
    """The top-level modules loaded by a fresh interpreter that runs the code."""
    program = f"{code}\nimport sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


class TestImports:
    def test_the_front_door_loads_nothing_heavy(self):
        heavy = {"torch", "matplotlib", "sklearn", "scipy", "pydantic", "typer", "rich"}
        assert not heavy & loaded_after("import equable")

    @pytest.mark.parametrize(
        "code",
        [
            "import equable; equable.TemperatureScaling().fit([[2, 0], [0, 1], [1, 0]], [0, 1, 1])",
            "import equable; equable.DATS, equable.load, equable.CALIBRATORS",
            "import equable; equable.metrics.accuracy([0], [[0.8, 0.2]])",
            "import equable; equable.metrics.ReliabilityDisplay.from_predictions([0], [[0.8, 0.2]])",
        ],
    )
    def test_arrays_need_neither_torch_nor_scikit_learn_nor_matplotlib(self, code):
        assert not {"torch", "matplotlib", "sklearn"} & loaded_after(code)

    def test_the_benchmark_loads_torch_only_to_train(self):
        names = [name for name in MODULES if name.startswith("equable.benchmark")]
        code = "import contextlib, importlib\n" + "\n".join(
            f"with contextlib.suppress(ImportError): importlib.import_module({name!r})" for name in names
        )
        assert "torch" not in loaded_after(code)

    def test_the_command_line_starts_light(self):
        assert not {"torch", "matplotlib", "sklearn", "scipy"} & loaded_after("import equable.cli")

    def test_one_temperature_does_not_wait_for_scipy(self):
        code = "import equable; equable.TemperatureScaling().fit([[3.0, 1.0], [2.0, 1.0]], [0, 1])"
        assert "scipy" not in loaded_after(code)

    def test_the_check_can_fail(self):
        assert "scipy" in loaded_after("import equable, scipy")


def module_name(path):
    parts = ("equable", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = sorted(module_name(path) for path in PACKAGE.rglob("*.py"))
WITH_EXAMPLES = sorted(
    module_name(path) for path in PACKAGE.rglob("*.py") if ">>>" in path.read_text(encoding="utf-8")
)


def imported(name):
    """The module, or a skip where an optional dependency is not installed."""
    try:
        return importlib.import_module(name)
    except MissingExtraError as error:
        pytest.skip(str(error))
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] == "equable":
            raise
        pytest.skip(f"{name} needs {error.name}, which is not installed")


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tests = doctest.DocTestFinder(exclude_empty=True).find(imported(name), name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    report = []
    for test in tests:
        runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)


class TestDocumentation:
    def test_public_names_have_an_example(self):
        assert [name for name in DOCUMENTED if ">>>" not in (inspect.getdoc(public(name)) or "")] == []

    def test_everything_a_module_offers_has_a_docstring(self):
        """Modules that need a missing extra are left out."""
        for name in MODULES:
            try:
                module = imported(name)
            except pytest.skip.Exception:
                continue
            assert module.__doc__ or not Path(module.__file__).read_text(encoding="utf-8").strip(), name
            offered = [getattr(module, item) for item in getattr(module, "__all__", [])]
            callables = [item for item in offered if inspect.isclass(item) or inspect.isfunction(item)]
            assert [item.__name__ for item in callables if not item.__doc__] == [], name
