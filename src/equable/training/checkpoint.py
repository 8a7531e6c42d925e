"""Tensors and JSON facts in one safetensors file, written atomically."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from equable.errors import FileFormatError
from equable.files import write_bytes


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and JSON facts to `path`, atomically."""
    # safetensors needs row-major memory that no two tensors share; channels_last weights and weights
    # with two names are copied.
    plain = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    # One entry: safetensors writes several in any order, but equal weights must give equal bytes.
    text = json.dumps({**facts, "sha256": _digest(plain, facts)}, sort_keys=True)
    write_bytes(path, save(plain, metadata={"facts": text}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            facts: dict[str, Any] = json.loads((file.metadata() or {})["facts"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError) as error:
        raise FileFormatError(
            f"{path} must be a file of equable's training; it is damaged or foreign: {error}"
        ) from error
    if facts.pop("sha256", None) != _digest(tensors, facts):
        raise FileFormatError(f"{path} must be as it was written; its SHA-256 differs")
    return tensors, facts


def _digest(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> str:
    """SHA-256 of names, types, shapes and bytes; safetensors does not detect a changed byte."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_weights(network: nn.Module, weights: Mapping[str, Tensor], where: object) -> None:
    """Copy weights into a network; a weight too many, missing or of another shape is an error."""
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        kind = type(network).__name__
        raise FileFormatError(f"{where}: weights must be those of {kind}: {error}") from error


def add_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as ``prefix/name``."""
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors named ``prefix/name``, as ``name``."""
    start = f"{prefix}/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
