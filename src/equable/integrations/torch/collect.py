"""A model and a loader → `Outputs`, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from equable.arrays import SUSPICIOUS_ROWS, as_array, as_integers, refuse_probabilities
from equable.errors import InputError
from equable.integrations.torch.feature_hook import find_head, find_layer, run
from equable.outputs import Outputs, join_outputs


def collect(
    model: nn.Module,
    loader: Iterable[Any],
    features: nn.Module | str | Literal[False] | None = None,
    *,
    tasks: int | Sequence[int] | np.ndarray | None = None,
) -> Outputs:
    """Logits, labels, features and tasks of all rows of a loader: one pass in eval mode, without gradients.

    The model is not changed: modes are restored and hooks removed, also after an error. Inputs are sent to
    the device of its parameters.

    Parameters
    ----------
    model
        Returns logits (n, K), a pair (logits, features), or a mapping with "logits".
    loader
        Yields x, (x, y) or (x, y, task).
    features
        The penultimate layer, as a module or its dotted name. **Of an** ``nn.Linear`` **(the head)
        the input is taken, of any other layer the output**; both are flattened to (n, D). By default the
        features that the model returns, else the input of the one linear layer with K outputs; where there
        is not exactly one, the error names the candidates. False collects none.
    tasks
        The task of all rows, or the task of each class, (K,), looked up by label; by default the
        loader's third item.

    Examples
    --------
    >>> import torch
    >>> from equable.integrations.torch import collect
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    >>> loader = [(torch.randn(4, 8), torch.tensor([0, 1, 2, 0])), (torch.randn(2, 8), torch.tensor([1, 2]))]
    >>> outputs = collect(model, loader, tasks=[0, 0, 1])
    >>> outputs.logits.shape, outputs.features.shape, outputs.tasks.tolist()
    ((6, 3), (6, 5), [0, 0, 1, 0, 0, 1])
    """
    layer = find_layer(model, features) if isinstance(features, nn.Module | str) else None
    device = _device(model)
    parts: list[Outputs] = []
    for batch in loader:
        x, y, task = _split_batch(batch)
        x = _to_device(x, device)
        with torch.no_grad():  # tensors cached in inference mode would not be usable in training
            if not parts and features is None:
                layer = _layer_of_first_batch(model, x)
            logits, found = run(model, layer, (x,), {})
        parts.append(Outputs(logits, y, None if features is False else found, task))
    if not parts:
        raise InputError("loader must yield at least one batch; it yielded none")
    outputs = join_outputs(parts)
    refuse_probabilities(outputs.logits, SUSPICIOUS_ROWS)
    return outputs if tasks is None else _with_tasks(outputs, tasks)


def _layer_of_first_batch(model: nn.Module, x: Any) -> nn.Module | None:
    """The penultimate layer; the first batch shows the number of logits."""
    logits, own = run(model, None, (x,), {})
    return None if own is not None else find_head(model, logits.shape[-1])


def _split_batch(batch: Any) -> tuple[Any, Any, Any]:
    if isinstance(batch, Tensor):
        return batch, None, None
    if not isinstance(batch, tuple | list) or not 1 <= len(batch) <= 3:
        length = f" of length {len(batch)}" if isinstance(batch, tuple | list) else ""
        raise InputError(f"loader must yield x, (x, y) or (x, y, task); got a {type(batch).__name__}{length}")
    x, y, task = (*batch, None, None)[:3]
    return x, y, task


def _to_device(x: Any, device: torch.device) -> Any:
    """Tensors to the device, also inside tuples, lists and mappings."""
    if isinstance(x, Tensor):
        return x.to(device)
    if isinstance(x, Mapping):
        return {name: _to_device(value, device) for name, value in x.items()}
    if not isinstance(x, tuple | list):
        return x
    values = [_to_device(value, device) for value in x]
    named = hasattr(x, "_fields")  # a named tuple takes its values one by one
    return type(x)(*values) if named else type(x)(values)


def _device(model: nn.Module) -> torch.device:
    tensors: Iterable[Tensor] = chain(model.parameters(), model.buffers())
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def _with_tasks(outputs: Outputs, tasks: Any) -> Outputs:
    given = as_array(tasks, "tasks")
    if given.ndim == 0:
        rows = np.full(len(outputs), given)
    elif outputs.labels is None:
        raise InputError("tasks of each class need the rows' labels; the loader gave none")
    else:
        rows = as_integers(given, "tasks of each class", outputs.n_classes)[outputs.labels]
    return Outputs(outputs.logits, outputs.labels, outputs.features, rows)
