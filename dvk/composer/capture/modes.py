"""What of a module's modes, train or eval, matters: a graph depends on those alone that forward reads (`reads`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def without_effect(
    model: Any, read: dict[str, bool], program: Any, again: Callable[[], Any]
) -> tuple[str, ...]:
    """Those of the modes in `read` that the exported program does not depend on.

    Dropout with p = 0 has none. The user's code may read a mode and compute the same in both: it is traced in the other one.

    Args:
        again: exports the model as it is at the call.
    """
    import torch

    kinds = torch.nn.modules.dropout._DropoutNd
    idle, own = [], []
    for path in read:
        module = model.get_submodule(path)
        of_torch = type(module).__module__.partition(".")[0] == "torch"
        if of_torch and isinstance(module, kinds) and module.p == 0:
            idle.append(path)
        elif not of_torch:
            own.append(path)
    return (*idle, *(own if own and _same_in_other_mode(model, own, program, again) else ()))


def _same_in_other_mode(
    model: Any, paths: list[str], program: Any, again: Callable[[], Any]
) -> bool:
    modules = [model.get_submodule(path) for path in paths]
    before = [module.training for module in modules]
    for module in modules:
        module.training = not module.training
    try:
        return is_same(program, again)
    finally:
        for module, mode in zip(modules, before, strict=True):
            module.training = mode


def is_same(program: Any, again: Callable[[], Any]) -> bool:
    """Whether another export computes the same as the exported program."""
    import torch

    try:
        other = again()
    except Exception:  # noqa: BLE001 - the user's code may raise anything in a mode that is not asked for
        return False
    mine, theirs = program.constants, other.constants
    return (
        program.graph_module.code == other.graph_module.code
        and str(program.graph_signature) == str(other.graph_signature)
        and mine.keys() == theirs.keys()
        and all(
            torch.equal(value, theirs[name])
            if isinstance(value, torch.Tensor)
            else value is theirs[name]
            for name, value in mine.items()
        )
    )


def depending(model: Any, read: dict[str, bool]) -> tuple[str, ...]:
    """For reports: modules among those in `read` that are in train mode and may compute something else in eval mode.

    Dropout with p = 0 is not among them, nor is a recurrent layer without dropout.
    """
    import torch

    told = []
    for path, mode in read.items():
        module = model.get_submodule(path)
        idle = isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p == 0
        idle = (
            idle
            or isinstance(module, torch.nn.RNNBase)
            and (module.dropout == 0 or module.num_layers == 1)
        )
        if mode and not idle:
            told.append(
                f"{type(module).__name__} `{path}`" if path else "the module's own forward()"
            )
    return tuple(told)
