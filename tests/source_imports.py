"""The imports of a module, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Import:
    """One module named by an import, and where."""

    name: str
    line: int
    lazy: bool  # inside a function, or for the type checker alone


def named_modules(package: str, name: str) -> str:
    """The module that ``from package import name`` names: a file of its own, or the package."""
    inside = ROOT / "src" / package.replace(".", "/") / name
    is_module = package == "equable" or inside.is_dir() or inside.with_suffix(".py").is_file()
    return f"{package}.{name}" if is_module else package


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Local name → what it names, for every import of a module's source."""
    names = {"__import__": "builtins.__import__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.asname: a.name for a in node.names if a.asname}
            names |= {(top := a.name.split(".")[0]): top for a in node.names if not a.asname}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return names


def imports(tree: ast.AST) -> Iterator[Import]:
    """Every import of a module's source, inside functions too, and every use of a module as an attribute."""
    yield from imports_below(tree, imported_names(tree), lazy=False)


def imports_below(tree: ast.AST, names: dict[str, str], lazy: bool) -> Iterator[Import]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield Import("." * node.level, node.lineno, lazy)
            else:
                modules = {named_modules(str(node.module), alias.name): None for alias in node.names}
                yield from (Import(name, node.lineno, lazy) for name in modules)
        elif isinstance(node, ast.Call) and (name := called_import(node, names)):
            yield Import(name, node.lineno, lazy)
        elif isinstance(node, ast.Attribute) and (name := attribute_of_package(node, names)):
            yield Import(name, node.lineno, lazy)
            continue  # a shorter part of the same chain is no other import
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports_below(node, names, lazy or is_function or is_type_checking(node))


def dotted_name(node: ast.AST, names: dict[str, str]) -> str:
    """What ``a.b.c`` names, where `a` was imported; empty for everything else."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute) and (before := dotted_name(node.value, names)):
        return f"{before}.{node.attr}"
    return ""


def attribute_of_package(node: ast.Attribute, names: dict[str, str]) -> str:
    """The module of the package that ``equable.benchmark.run.f`` or ``benchmark.run.f`` uses."""
    name = dotted_name(node, names)
    if not name.startswith("equable."):
        return ""
    module = "equable"
    for part in name.split(".")[1:]:
        longer = named_modules(module, part)
        if longer == module:
            break
        module = longer
    return module


def called_import(node: ast.Call, names: dict[str, str]) -> str | None:
    """The name in import_module("name") or __import__("name")."""
    first = node.args[0] if node.args else None
    called = dotted_name(node.func, names)
    if called in ("importlib.import_module", "builtins.__import__") and isinstance(first, ast.Constant):
        return str(first.value)
    return None


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
