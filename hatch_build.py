"""Compile the package's few lines of C while it is built; without a compiler the package is plain Python."""

from __future__ import annotations

import re
import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledCode(BuildHookInterface):
    """Put the compiled library beside its source, and into the wheel, which is then for this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it gathers the files; `version` is "standard" or "editable"."""
        source = Path(self.root, "src", "equable", "metrics", "compile.py")
        try:
            library, reason = runpy.run_path(str(source))["compile_library"]()
        except Exception as error:  # whatever it is, the package does without
            library, reason = None, repr(error)
        if library is None:
            self.app.display_warning(f"equable is built without compiled code, slower: {reason}")
        elif version == "standard":
            build_data["force_include"][str(library)] = f"equable/metrics/{library.name}"
            build_data["pure_python"] = False
            # the library knows nothing of Python's version
            build_data["tag"] = f"py3-none-{re.sub('[-.]', '_', sysconfig.get_platform())}"
