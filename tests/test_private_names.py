"""A name that starts with an underscore is used in its own module only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Names with one underscore that code of the repository uses from elsewhere, and why.
PRIVATE_ALLOWED = {
    "os._exit": "documented: ends a forked process at once",
    "_asdict": "documented method of named tuples",
    "_replace": "documented method of named tuples",
    "_fields": "documented attribute of named tuples",
    "torch._foreach_add_": "one operation for all parameters; optimisers of torch use it too",
    "torch._foreach_mul_": "as torch._foreach_add_",
    "torch._higher_order_ops.while_loop.while_loop": "has no public name yet",
    "torch.nn.modules.batchnorm._BatchNorm": "the base class of all batch norms has no public name",
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def own_names(tree: ast.AST) -> set[str]:
    """Names that a module defines: functions, classes, and attributes that its methods set on self."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if ast.unparse(node.value) == "self":
                names.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def private_uses(source: str) -> list[str]:
    """Private names of other modules that a module imports, or uses of objects other than self."""
    tree = ast.parse(source)
    own = own_names(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [(name, node.lineno) for name in names if any(map(is_private, name.split(".")))]
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            owner = ast.unparse(node.value)
            if owner not in ("self", "cls", "super()") and node.attr not in PRIVATE_ALLOWED:
                found.append((f"{owner}.{node.attr}", node.lineno))
    return [f"line {line}: {name} is private" for name, line in found if name not in PRIVATE_ALLOWED]


@pytest.mark.parametrize("folder", ["src", "speed", "published"])
def test_private_names_stay_in_their_module(folder):
    for path in sorted((ROOT / folder).rglob("*.py")):
        assert private_uses(path.read_text(encoding="utf-8")) == [], path


def test_the_checker_sees_private_names():
    assert private_uses("from equable.arrays import (\n    as_count,\n    _kind,\n)") != []
    assert private_uses("calibrator._fit(rows)") != []
    assert private_uses("self.base._fit(rows)") != []
    assert private_uses("class A:\n    def f(self):\n        self._f = super()._g()") == []
    assert private_uses("class A:\n    def _g(self): ...\ndef f(a):\n    return a._g()") == []
