"""Record the modules whose mode, train or eval, forward reads during tracing: a graph depends on those modes alone.

`training` is an instance attribute, and a class property takes precedence over it: the property sees the reads during tracing. Reads by
    PyTorch's tracers do not count.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

TRACERS = (
    "torch.export",
    "torch._export",
    "torch.fx",
    "torch._dynamo",
    "torch._functorch",
    "torch._subclasses",
    "torch.utils",
    "dvk",
)
"""Packages that read modes for other purposes."""


@contextmanager
def reading(model: Any) -> Iterator[dict[str, bool]]:
    """Record, during the block, the paths of modules in `model` whose mode is read, each with its mode; the model itself is ``."""
    import torch

    paths = {id(module): path for path, module in model.named_modules()}
    found: dict[str, bool] = {}

    def read(module: Any) -> bool:
        if "training" not in vars(module):
            raise AttributeError("training")  # a ScriptModule stores it elsewhere
        mode = bool(vars(module)["training"])
        asker = str(sys._getframe(1).f_globals.get("__name__"))
        if id(module) in paths and not any(
            asker == name or asker.startswith(f"{name}.") for name in TRACERS
        ):
            found.setdefault(paths[id(module)], mode)
        return mode

    def write(module: Any, mode: bool) -> None:
        vars(module)["training"] = mode

    torch.nn.Module.training = property(read, write)  # type: ignore[assignment]
    try:
        yield found
    finally:
        del torch.nn.Module.training


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
