"""The folder of a grid: ``grid.toml``, a folder for each run, and the report of all runs together."""

from __future__ import annotations

from pathlib import Path

from equable.benchmark.grid import Grid
from equable.benchmark.run_folder import require_empty
from equable.errors import ConfigError
from equable.files import write_text

FILE = "grid.toml"


def require_grid(out: Path, grid: Grid) -> None:
    """Refuse a folder that is neither new, empty nor of a grid."""
    if not (out / FILE).exists():
        require_empty(out, "a grid folder", but=grid.runs)


def start_grid(out: Path, grid: Grid) -> None:
    """Write ``grid.toml``, unless it holds the same text already."""
    if not (out / FILE).exists() or (out / FILE).read_text(encoding="utf-8") != grid.text:
        write_text(out / FILE, grid.text)


def run_folders(path: Path) -> list[Path]:
    """The run folders of a grid's folder; of a run folder itself."""
    if (path / "config.toml").is_file():
        return [path]
    if not (path / FILE).is_file():
        raise ConfigError(f"{path} must be a run folder; it has no config.toml")
    return sorted(found.parent for found in path.glob("*/config.toml"))
