"""The layers of the package: which module may import which, read from the source without importing."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from source_imports import Import, imports

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "equable"

FOUNDATION = ("errors", "arrays", "files", "outputs")
SIBLINGS = ("calibrators", "metrics", "datasets", "scenarios")

# group inside reports → the groups it may import
REPORT_GROUPS: dict[str, tuple[str, ...]] = {
    "distinct_names": (),
    "templates": (),
    "results": ("distinct_names",),
    "paper": (),
    "sentences": ("distinct_names", "results", "paper"),
    "tables": ("results", "paper", "sentences", "templates"),
    "figures": ("results", "paper", "sentences", "templates"),
    "page_sections": ("results", "sentences", "tables", "figures"),
    "page": ("results", "tables", "figures", "page_sections", "templates"),
    "report": ("distinct_names", "results", "tables", "figures", "page_sections", "page"),
    "monitor_page": ("results", "figures", "page_sections", "page"),
}
# part of the package → the other parts it may import; the first pattern that fits a module counts
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "errors": (),
    "arrays": ("errors",),
    "files": ("errors",),
    "outputs": ("errors", "arrays", "files"),
    "calibrators": FOUNDATION,
    "metrics": FOUNDATION,
    "datasets": (*FOUNDATION, "scenarios"),
    "scenarios": FOUNDATION,
    "decisions": (*FOUNDATION, "calibrators", "metrics"),
    "training.settings": (*FOUNDATION, "training.learners"),
    "training.learners": (*FOUNDATION, "training", "training.settings"),
    "training": (*FOUNDATION, *SIBLINGS, "training.settings", "training.learners"),
    "benchmark.train": (*FOUNDATION, *SIBLINGS, "training", "training.settings", "benchmark"),
    "benchmark": (*FOUNDATION, *SIBLINGS, "decisions", "training.settings", "benchmark.train"),
    **{
        f"reports.{name}": (
            *(*FOUNDATION, *SIBLINGS, "decisions", "training.settings", "benchmark"),
            *(f"reports.{group}" for group in groups),
        )
        for name, groups in REPORT_GROUPS.items()
    },
    "reports": (),
    "deploy": (
        *FOUNDATION,
        *SIBLINGS,
        "decisions",
        "benchmark",
        *(f"reports.{name}" for name in REPORT_GROUPS),
    ),
    "integrations": (*FOUNDATION, "calibrators", "metrics"),
    "cli": (
        *FOUNDATION,
        *SIBLINGS,
        "decisions",
        "training",
        "training.settings",
        "benchmark.train",
        "benchmark",
        *(f"reports.{name}" for name in REPORT_GROUPS),
        "deploy",
        "integrations",
    ),
}
#: Groups of modules inside benchmark; a group imports itself and those before it.
BENCHMARK_GROUPS = {
    "config": "main_metrics settings config config_errors settings_layers grid user_methods methods "
    "oracles lascal task_outputs",
    "folder": "run_folder environment progress run_data lease",
    "scoring": "score_record score_method score decide batching ablate process_pool unknown",
    "running": "train workers seed_process run status",
}
# what is heavy or dangerous → the only parts that may import it
ONLY_IN: dict[str, tuple[str, ...]] = {
    "torch": (
        "training.[!s]*",
        "training.scenario_training",
        "training.sgd",
        "benchmark.train",
        "integrations",
    ),
    "safetensors.torch": ("training", "benchmark.train", "integrations"),
    "pickle": ("datasets.pickles",),
    **dict.fromkeys(("cloudpickle", "dill", "joblib", "marshal", "shelve"), ()),
}
# what may be imported only inside a function, so that it is loaded when it is needed
LAZY = ("matplotlib",)
FORBIDDEN_FILES = ("utils.py", "helpers.py", "misc.py", "common.py")
MAX_LINES = {"src": 350, "tests": 400, "speed": 400, "published": 400}


def fits(name: str, pattern: str) -> bool:
    """Whether a module matches the pattern or is inside its package."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def part_of(name: str) -> str | None:
    """The row of MAY_IMPORT for a module of the package, named without ``equable.``."""
    return next((pattern for pattern in MAY_IMPORT if fits(name, pattern)), None)


def violations(module: str, source: str) -> list[str]:
    """What a module (named without ``equable.``) imports against the tables above."""
    tree = ast.parse(source)
    found = [
        f"line {item.line}: {module} must not import {item.name}: {reason}"
        for item in imports(tree)
        if (reason := refusal(module, item))
    ]
    return found + [
        f"line {node.value.lineno}: allow_pickle=True"
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False"
    ]


def refusal(module: str, item: Import) -> str | None:
    """Why a module may not import this, or None."""
    if item.name.startswith("."):
        return "imports are absolute"
    for heavy, allowed in ONLY_IN.items():
        if fits(item.name, heavy) and not any(fits(module, pattern) for pattern in allowed):
            return f"only {allowed or 'nobody'} may"
    if not item.lazy and any(fits(item.name, pattern) for pattern in LAZY):
        return "only inside functions"
    return layer_refusal(part_of(module), item.name)


def layer_refusal(own: str | None, name: str) -> str | None:
    if not name.startswith("equable.") or name.startswith("equable.__"):
        return None
    if own is None:
        return "its own part is not in the table of layers"
    target = part_of(name.removeprefix("equable."))
    if target == own or target in MAY_IMPORT[own]:
        return None
    return f"{own} may import {MAY_IMPORT[own]}"


def module_files() -> list[Path]:
    """All modules but the package's front door, which names everything and imports nothing."""
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def benchmark_violations(module: str, source: str) -> list[str]:
    """Imports of a benchmark module from a group after its own."""
    groups = list(BENCHMARK_GROUPS)
    group_of = {name: group for group in groups for name in BENCHMARK_GROUPS[group].split()}
    own = groups.index(group_of[module])
    found = []
    for item in imports(ast.parse(source)):
        target = item.name.removeprefix("equable.benchmark.")
        if target != item.name and groups.index(group_of[target]) > own:
            found.append(f"line {item.line}: {module} ({groups[own]}) must not import {target}")
    return found


def test_the_groups_of_benchmark_have_one_direction():
    files = [path for path in (PACKAGE / "benchmark").glob("*.py") if path.stem != "__init__"]
    assert {path.stem for path in files} == set(" ".join(BENCHMARK_GROUPS.values()).split())
    for path in files:
        assert benchmark_violations(path.stem, path.read_text(encoding="utf-8")) == []
    assert benchmark_violations("score", "from equable.benchmark.run import run") != []
    assert benchmark_violations("score", "from equable.benchmark import run") != []
    assert benchmark_violations("config", "def f():\n    import equable.benchmark.run_folder") != []
    assert benchmark_violations("score", "from equable import benchmark\nbenchmark.run.run()") != []


def test_packages_have_one_direction():
    graph: dict[str, set[str]] = {}
    for part, others in MAY_IMPORT.items():
        packages = {other.split(".")[0] for other in others}
        graph.setdefault(part.split(".")[0], set()).update(packages - {part.split(".")[0]})
    order = list(TopologicalSorter(graph).static_order())  # a circle is a CycleError
    assert order.index("training") < order.index("benchmark") < order.index("reports") < order.index("cli")


def test_reports_run_nothing():
    running = {f"equable.benchmark.{name}" for name in BENCHMARK_GROUPS["running"].split()} - {
        "equable.benchmark.status"
    }
    for path in [*(PACKAGE / "reports").rglob("*.py"), *(PACKAGE / "deploy").rglob("*.py")]:
        found = {item.name for item in imports(ast.parse(path.read_text(encoding="utf-8")))}
        assert found & running == set(), path


def test_layers_hold():
    for path in module_files():
        assert violations(module_name(path), path.read_text(encoding="utf-8")) == []


def test_the_front_door_imports_nothing():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    eager = {item.name for item in imports(tree) if not item.lazy}
    assert eager <= {"importlib", "typing", "__future__"}


def test_every_part_is_in_the_table():
    parts = {module_name(path).split(".")[0] for path in module_files()}
    assert parts <= {pattern.split(".")[0] for pattern in MAY_IMPORT}


def test_no_drawers_for_odds_and_ends():
    assert [path.name for path in module_files() if path.name in FORBIDDEN_FILES] == []


def lengths_of(folder: str) -> dict[str, int]:
    """File → its number of lines."""
    return {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / folder).rglob("*.py")
    }


@pytest.mark.parametrize("folder", MAX_LINES)
def test_no_file_is_too_long_to_read(folder):
    assert {name: n for name, n in lengths_of(folder).items() if n > MAX_LINES[folder]} == {}


# The checker on planted sources: module, source, words of the complaint (None: allowed).
PLANTED = [
    ("errors", "import equable.arrays", "errors may import"),
    ("arrays", "from equable.files import read_npz", "arrays may import"),
    ("outputs", "from equable import calibrators", "outputs may import"),
    ("calibrators.temperature", "from equable.metrics import accuracy", "calibrators may import"),
    ("metrics.compare_tasks", "from equable.scenarios.tasks import Task", "metrics may import"),
    (
        "scenarios.memories",
        "def f():\n    from equable.calibrators import DATS",
        "line 2: .*memories",
    ),
    ("calibrators.base", "from equable.training import train_scenario", "calibrators may import"),
    ("calibrators.stream", "from equable.decisions import Monitor", "calibrators may import"),
    ("decisions.monitor", "from equable.benchmark import batching", "decisions may import"),
    ("benchmark.score", "def f():\n    from equable.training import train_scenario", "benchmark may import"),
    ("benchmark.run", "def f():\n    from equable.reports import report", "benchmark may import"),
    ("reports.page", "from equable.benchmark import train", "page may import"),
    ("benchmark.score", "import torch", "only .*training.* may"),
    ("reports.results.load", "from equable.reports.sentences import summarise", "results may import"),
    ("reports.figures.bars", "from equable.reports.tables.main import METRIC_COLUMNS", "figures may import"),
    ("reports.tables.main", "from equable.reports import figures", "tables may import"),
    ("benchmark.score", "def f():\n    import torch.nn", "only .*training.* may"),
    ("integrations.torch", "from equable.training import train_scenario", "integrations may import"),
    ("training.scenario_training", "from equable.benchmark import run_folder", "training may import"),
    ("training.scenario_training", "from equable.cli import main", "training may import"),
    ("training.settings", "def f():\n    import torch", "only .* may"),
    ("cli", "import torch", "only .* may"),
    ("calibrators.base", "from torch import Tensor", "only .* may"),
    ("calibrators.base", "import importlib\nimportlib.import_module('torch')", "line 2: .*torch"),
    ("calibrators.serialization", "from safetensors.torch import save", "only .* may"),
    ("metrics.reliability", "from matplotlib import pyplot", "only inside functions"),
    ("metrics.reliability", "class A:\n    import matplotlib", "only inside functions"),
    ("outputs", "import pickle", "only .*pickles.* may"),
    ("datasets.cifar", "import pickle", "only .*pickles.* may"),
    ("outputs", "import joblib", "nobody"),
    ("outputs", "np.load(path, allow_pickle=True)", "allow_pickle"),
    ("outputs", "np.load(path, allow_pickle=flag)", "allow_pickle"),
    ("outputs", "from . import arrays", "absolute"),
    ("outputs", "import equable\nequable.DATS()", "line 2: .* outputs may import"),
    ("outputs", "import equable as e\ne.DATS()", "line 2: .* outputs may import"),
    ("outputs", "from equable import DATS", "outputs may import"),
    ("reports.page", "from equable import benchmark\nbenchmark.train.train()", "line 2: .*page may import"),
    ("reports.page", "import equable as e\ne.benchmark.train.train()", "line 2: .*page may import"),
    ("calibrators.base", "from importlib import import_module as f\nf('torch')", "line 2: .*torch"),
    ("new_part", "from equable.errors import InputError", "not in the table"),
    ("errors", "import math", None),
    ("calibrators.base", "from equable import __version__", None),
    ("calibrators.base", "import equable\nequable.__version__", None),
    ("calibrators.base", "from equable.calibrators.newton import softmax", None),
    ("calibrators.base", "from equable.outputs import Outputs", None),
    ("training.scenario_training", "import torch\nfrom equable.scenarios.tasks import Scenario", None),
    ("benchmark.train", "import torch\nfrom equable.training import train_scenario", None),
    ("benchmark.run", "from equable.benchmark.train import train", None),
    ("benchmark.score", "from equable.benchmark.run_folder import Run", None),
    ("metrics.reliability", "def draw():\n    from matplotlib import pyplot", None),
    ("metrics.reliability", "if TYPE_CHECKING:\n    from matplotlib.axes import Axes", None),
    ("integrations.onnx", "from equable.calibrators import DATS", None),
    ("datasets.pickles", "import pickle", None),
    ("outputs", "np.load(path, allow_pickle=False)", None),
]


@pytest.mark.parametrize(("module", "source", "complaint"), PLANTED)
def test_the_checker_sees_planted_violations(module, source, complaint):
    found = violations(module, source)
    if complaint is None:
        assert found == []
    else:
        assert len(found) == 1
        assert re.search(complaint, found[0])
