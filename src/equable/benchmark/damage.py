"""Which files of a run are as they were written, told without computing anything.

Records (``done.json``, scores, regimes, ``settings.json``) are compared with the SHA-256 they carry. Weights
and stored outputs must have their full length; their bits are not compared with the SHA-256 in ``done.json``,
which may mean gigabytes: scoring does that for outputs, the next `equable run` for all.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from equable.benchmark.records import Score
from equable.benchmark.score import NOISE_FLOOR
from equable.benchmark.store import OUTPUT_FILES
from equable.errors import FileFormatError
from equable.storage import bears_its_seal, read_sealed


@dataclass
class Look:
    """Which files of a run are whole; those that are there but are not are remembered."""

    run: Path
    damaged: list[str] = field(default_factory=list)

    def read(self, path: Path, read: Callable[[Path], Any]) -> Any:
        """What the file holds; None where it is missing or damaged."""
        if not path.is_file():
            return None
        try:
            return read(path)
        except FileNotFoundError:  # gone since
            return None
        except (FileFormatError, TypeError):
            self.damaged.append(str(path.relative_to(self.run)))
            return None

    def scores(self, folder: Path, seed: int) -> set[str]:
        """Names of the seed's scores that are whole, also of methods that are none of the run's any more."""
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
        mine = [name for name in names if name.startswith(f"seed-{seed}_task-") and name.endswith(".json")]
        return {name for name in mine if self.read(folder / name, whole_record) is not None}

    def has_task(self, folder: Path) -> bool:
        """Whether a task is trained and all it left is there."""
        facts = self.read(folder / "done.json", _record)
        if facts is None:
            return False
        found = [self.read(folder / name, _length) for name in facts.get("files", OUTPUT_FILES)]
        return None not in found


def whole_record(path: Path) -> bool:
    """True of a record as it was written; anything else is a `FileFormatError`."""
    if not bears_its_seal(path.read_bytes()):
        is_score = path.parent.name == "scores" and not path.stem.endswith(f"_{NOISE_FLOOR}")
        (Score.load if is_score else _record)(path)
    return True


def _record(path: Path) -> dict[str, Any]:
    value = read_sealed(path)
    if not isinstance(value, dict):
        raise FileFormatError(f"{path} must be a record of equable; it is something else")
    return value


def _length(path: Path) -> int:
    """Bytes of a file; one that ends before it should is a `FileFormatError`."""
    size = path.stat().st_size
    if path.suffix == ".npz":
        with open(path, "rb") as stream:
            whole = zipfile.is_zipfile(stream)  # the list of its arrays stands at the end
    else:
        whole = path.suffix != ".safetensors" or size == _said_length(path)
    if not whole:
        raise FileFormatError(f"{path} must be as long as it was written; its end is missing")
    return size


def _said_length(path: Path) -> int:
    """Bytes of a safetensors file: 8 for the header's length, the header, and the tensors it tells of."""
    with open(path, "rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        try:
            header = json.loads(stream.read(min(size, path.stat().st_size)))
            ends = [part["data_offsets"][1] for name, part in header.items() if name != "__metadata__"]
        except (ValueError, AttributeError, LookupError) as error:
            raise FileFormatError(f"{path} must be a safetensors file; it is damaged: {error}") from error
    return 8 + size + max(ends, default=0)
