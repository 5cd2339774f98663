"""Where an eager call of a model spends its time: every submodule, with what it was called with."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dvk.harness.profiling.blocks import WHOLE, measured
from dvk.tasks.trees import map_tensors

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential, nn.ParameterList)
"""Modules whose parts may be called one by one."""
TORCH = "torch."


@dataclass(frozen=True)
class SubmoduleTime:
    """A submodule in one call of the model."""

    path: str
    kind: str
    """Import path of its class."""
    parent: str | None
    """Path of the nearest module around it that is no container; None: the model itself."""
    calls: int
    inputs: str
    """Shapes and dtypes of its first call."""
    structure: str
    """Classes and shapes of weights of all that it holds."""
    own_ms: float
    """Milliseconds in all of its calls, without the parts inside."""
    ms: float
    """Milliseconds in all of its calls."""
    weighted: int
    """Modules inside that hold weights themselves."""


@dataclass(frozen=True)
class ModelProfile:
    """One call: its milliseconds, and its parts in the order of their first call."""

    ms: float
    parts: tuple[SubmoduleTime, ...]


def profile(model: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> ModelProfile:
    """Call the model a few times, warm, and time every submodule: forward, also of a model that is to train.

    A backward's parts cannot be told apart by hooks that wait for the device; its share by block is about the forward's.

    Raises:
        Exception: whatever the model raises.
    """
    seen: dict[str, str] = {}
    calls: dict[str, int] = {}
    named = dict(model.named_modules())

    def look(path: str, module: nn.Module) -> Any:
        def before(_: nn.Module, given: tuple[Any, ...], named_too: dict[str, Any]) -> None:
            seen.setdefault(path, signature(module, given, named_too))
            calls[path] = calls.get(path, 0) + 1

        return module.register_forward_pre_hook(before, with_kwargs=True)

    inside = {p: m for p, m in named.items() if p and not isinstance(m, CONTAINERS)}
    handles = [look(path, module) for path, module in inside.items()]
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    called = [path for path in seen]
    times = _times(model, args, kwargs, called)
    whole: dict[str, float] = {path: 0.0 for path in called}
    for path in called:
        for outer in (path, *_around(path)):
            if outer in whole:
                whole[outer] += times[path]
    parts = [
        SubmoduleTime(
            path=path,
            kind=kind_of(inside[path]),
            parent=next((outer for outer in _around(path) if outer in seen), None),
            calls=calls[path],
            inputs=seen[path],
            structure=structure(inside[path]),
            own_ms=times[path],
            ms=whole[path],
            weighted=sum(bool(m._parameters) for m in inside[path].modules()),
        )
        for path in called
    ]
    return ModelProfile(times[WHOLE], tuple(parts))


def captured(
    model: nn.Module, args: Sequence[Any], kwargs: dict[str, Any], paths: Sequence[str]
) -> dict[str, tuple[list[Any], dict[str, Any]]]:
    """Return what the modules at these paths get in their first call, copied before they run."""
    found: dict[str, tuple[list[Any], dict[str, Any]]] = {}

    def keep(path: str) -> Any:
        def before(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            if path not in found:
                copied = map_tensors(lambda t: t.detach().clone(), (list(given), dict(named)))
                found[path] = copied

        return before

    handles = [
        model.get_submodule(path).register_forward_pre_hook(keep(path), with_kwargs=True)
        for path in paths
    ]
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return found


def kind_of(module: nn.Module) -> str:
    """Return the import path of a module's class."""
    return f"{type(module).__module__}.{type(module).__qualname__}"


def structure(module: nn.Module) -> str:
    """Return classes of all modules inside, and names, shapes and dtypes of their weights."""
    return "; ".join(
        f"{path}:{type(part).__qualname__}("
        + ", ".join(
            f"{name}={described(held)}"
            for name, held in [*part._parameters.items(), *part._buffers.items()]
            if held is not None
        )
        + ")"
        for path, part in module.named_modules()
    )


def signature(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return what a call was given, by the parameters' names."""
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # a C function, or a call that fails anyway
        bound = {**{str(n): value for n, value in enumerate(args)}, **kwargs}
    return ", ".join(f"{name}={described(value)}" for name, value in bound.items())


def described(value: Any) -> str:
    """Return dtype and shape of a tensor, the structure of a container, plain values, the class of anything else."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix(TORCH)}{list(value.shape)}".replace(" ", "")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {described(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(map(described, value)) + ")"
    plain = value is None or isinstance(value, (bool, int, float, str))
    return repr(value) if plain else type(value).__name__


def _around(path: str) -> list[str]:
    """Paths of the modules around one, from the nearest."""
    names = path.split(".")
    return [".".join(names[:count]) for count in range(len(names) - 1, 0, -1)]


def _times(
    model: nn.Module, args: Sequence[Any], kwargs: dict[str, Any], paths: Sequence[str]
) -> dict[str, float]:
    """Milliseconds without nested parts, by path, and of the `WHOLE` call; the hooks that measure are taken out again."""
    kept = {m: (dict(m._forward_pre_hooks), dict(m._forward_hooks)) for m in model.modules()}
    try:
        return measured(model, args, kwargs, paths, min)
    finally:
        for module, (before, after) in kept.items():
            module._forward_pre_hooks.clear()
            module._forward_pre_hooks.update(before)
            module._forward_hooks.clear()
            module._forward_hooks.update(after)
