"""One forward pass in eval mode that returns logits and penultimate features; the model is not changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from equable.errors import InputError

SHOWN = 12


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode inside the block; the mode of each module is restored, also after an error."""
    changed = [module for module in model.modules() if module.training]
    for module in changed:
        module.training = False
    try:
        yield
    finally:
        for module in changed:
            module.training = True


def run(
    model: nn.Module,
    layer: nn.Module | None,
    inputs: tuple[Any, ...],
    named: Mapping[str, Any],
    *,
    guessed: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Logits (n, K) and features (n, D) of one batch.

    Features are those of `layer`; without one, or where it is `guessed`, those the model returns come first.
    """
    caught: list[Any] = []

    def catch(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        is_head = isinstance(module, nn.Linear)
        value = (args[0] if args else kwargs["input"]) if is_head else output
        # cloned: a later in-place activation would change it
        caught.append(value.clone() if isinstance(value, Tensor) else value)

    handle = None if layer is None else layer.register_forward_hook(catch, with_kwargs=True)
    try:
        with evaluating(model):
            output = model(*inputs, **named)
    finally:
        if handle is not None:
            handle.remove()
    logits, own = _split(output)
    if layer is None or (guessed and own is not None):
        return logits, _flattened(own)
    if len(caught) != 1:
        name = next(name for name, module in model.named_modules() if module is layer)
        rule = "the layer of the features must run once in a forward pass"
        raise InputError(f"{rule}; {name!r} ran {len(caught)} times")
    return logits, _flattened(caught[0])


def _split(output: Any) -> tuple[Tensor, Any]:
    """The logits, and the features where the model returns them itself."""
    if isinstance(output, Mapping) and "logits" in output:
        output = (output["logits"], output.get("features"))
    logits, features = output if isinstance(output, tuple | list) and len(output) == 2 else (output, None)
    if not isinstance(logits, Tensor) or not isinstance(features, Tensor | None):
        raise InputError(
            "the model must return logits, a pair (logits, features) or a mapping with 'logits'; "
            f"got {_type_name(output)}"
        )
    return logits, features


def _type_name(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of {[type(item).__name__ for item in value]}"
    return type(value).__name__


def _flattened(features: Any) -> Tensor | None:
    """Features as (n, D); maps such as (n, C, 1, 1) are flattened."""
    if features is None:
        return None
    if not isinstance(features, Tensor) or features.ndim < 2:
        shape = f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else _type_name(features)
        raise InputError(f"features must be a tensor with one row for each input; got {shape}")
    return features.flatten(1)


# Which layer -------------------------------------------------------------------------------------


def find_layer(model: nn.Module, features: nn.Module | str) -> nn.Module:
    """The layer that `features` means: a module of the model, or its dotted name."""
    modules: dict[str, nn.Module] = dict(model.named_modules())
    if isinstance(features, str):
        if features not in modules:
            raise InputError(
                f"features must name a layer of the model; got {features!r}. {_listed('Layers', modules)}"
            )
        return modules[features]
    if not any(features is module for module in modules.values()):
        raise InputError(f"features must be a layer of the model; got another {type(features).__name__}")
    return features


def find_head(model: nn.Module, n_classes: int) -> nn.Module:
    """The one linear layer with K outputs: the head, whose input is the penultimate representation."""
    heads = linear_heads(model, n_classes)
    if len(heads) == 1:
        return next(iter(heads.values()))
    shown = {
        f"{name} ({module.in_features} → {module.out_features})": module
        for name, module in (heads or linear_heads(model)).items()
    }
    raise InputError(
        f"features must name the penultimate layer: {len(heads) or 'no'} linear layers have {n_classes} "
        f"outputs, one for each logit, where the default needs exactly one. {_listed('Candidates', shown)}"
    )


def linear_heads(model: nn.Module, n_outputs: int | None = None) -> dict[str, nn.Linear]:
    """The linear layers by name, all or those with this many outputs."""
    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    return {n: module for n, module in linear.items() if n_outputs in (None, module.out_features)}


def _listed(what: str, modules: Mapping[str, nn.Module]) -> str:
    names = [name for name in modules if name]
    earlier = f" (and {len(names) - SHOWN} before them)" if len(names) > SHOWN else ""
    return f"{what}: {', '.join(names[-SHOWN:]) or 'none'}{earlier}"
