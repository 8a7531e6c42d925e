"""Optional packages, imported when first needed."""

from __future__ import annotations

import importlib
from types import ModuleType

from equable.errors import MissingExtraError


def require(module: str, purpose: str) -> ModuleType:
    """Import `module`, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = {"PIL": "Pillow"}.get(module.split(".")[0], module)
        raise MissingExtraError(
            f"{purpose} needs {package}; install it with: pip install 'equable[train]'"
        ) from error
