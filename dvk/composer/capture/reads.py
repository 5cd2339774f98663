"""Record the attributes of modules that forward reads during tracing: a graph depends on those alone.

Names that PyTorch or a library sets on a module (marks of compilation, hooks, caches) are no condition of a drop-in unless forward reads
them. What is recorded are names; their values become the facts that a drop-in compares (`runtime.facts`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

TRACERS = (
    "torch.export",
    "torch._export",
    "torch.fx",
    "torch._dynamo",
    "torch._functorch",
    "torch._subclasses",
    "torch.utils",
    "torch.nn.utils.stateless",
    "torch.nn.utils._named_member_accessor",
    "dvk",
)
"""Packages that read attributes for other purposes."""
MODULE = "torch.nn.modules.module"
CALLING = frozenset(
    (
        "__getattr__",
        "__setattr__",
        "__delattr__",
        "__dir__",
        "_call_impl",
        "_wrapped_call_impl",
        "_slow_forward",
    )
)
"""Functions of `MODULE` that look into a module at every access or call; the access itself is recorded."""
KINDS = ("_parameters", "_buffers")
CHECKPOINTED = ("GradientCheckpointingLayer", "gradient_checkpointing")
"""A class of transformers, and the attribute that turns checkpoints around its forward on."""
Reads = dict[int, dict[str, None]]
"""Names that were read, by the id of the module."""


@contextmanager
def recording(model: Any) -> Iterator[Reads]:
    """Record, during the block, the attributes of the modules in `model` that are read, `training` included."""
    import torch

    found: Reads = {id(module): {} for module in model.modules()}

    def read(self: Any, name: str) -> Any:
        if id(self) in found and name not in found[id(self)] and _counts(sys._getframe(1), name):
            found[id(self)][name] = None
        return object.__getattribute__(self, name)

    torch.nn.Module.__getattribute__ = read  # type: ignore[method-assign]
    try:
        yield found
    finally:
        del torch.nn.Module.__getattribute__


def reader(frame: FrameType) -> FrameType:
    """The frame that reads an attribute, given the one that a property of the class sees."""
    within = frame.f_code.co_name == "read" and frame.f_globals.get("__name__") == __name__
    return frame.f_back if within and frame.f_back is not None else frame


def _counts(asker: FrameType | None, name: str) -> bool:
    """The reader is code that a graph may depend on: the module's own, and layers of PyTorch."""
    if name[:2] == "__" and name != "__dict__":
        return False
    while asker is not None and asker.f_globals.get("__name__") == MODULE:
        if asker.f_code.co_name in CALLING:
            # Calling a module reads its forward(), which may be another than its class's.
            return name == "forward"
        asker = asker.f_back  # as parameters() and children() read them for their caller
    where = str(asker.f_globals.get("__name__")) if asker is not None else ""
    return not any(where == one or where.startswith(f"{one}.") for one in TRACERS)


def modes(model: Any, reads: Reads) -> dict[str, bool]:
    """The modules whose mode, train or eval, was read, by path; the model itself is ``."""
    return {
        path: bool(vars(module)["training"])
        for path, module in model.named_modules()
        if "training" in reads.get(id(module), ()) and "training" in vars(module)
    }


def wanted(
    model: Any, reads: Reads, left: tuple[str, ...], free: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """The names that a drop-in's facts hold, by the path of the module, modes aside.

    Args:
        left: paths of submodules that are left to PyTorch: only their classes count.
        free: attributes that calls left to PyTorch change, by path and name.
    """
    import torch

    internal = vars(torch.nn.Module())
    result: dict[str, tuple[str, ...]] = {}
    reached = {
        id(child)
        for module in model.modules()
        for name, child in module._modules.items()
        if {name, "_modules"} & reads.get(id(module), {}).keys()
    }
    for path, module in model.named_modules(remove_duplicate=False):
        if any(f"{path}.".startswith(f"{one}.") for one in left):
            if path in left:
                result[path] = ("__class__",)
            continue
        names = dict.fromkeys(_expanded(module, reads.get(id(module), {})))
        kept = [
            name
            for name in names
            if (name not in internal or name == "_modules")
            and f"{path}.{name}" not in free
            and name not in module._modules
            and not (name == "forward" and not path)
            and not (not path and name == CHECKPOINTED[1] and _checkpoints(module))
            and not name.startswith("_dvk_")
            and not _is_computed(module, name)
        ]
        if path and (names or id(module) in reached):
            kept.insert(0, "__class__")
        if kept:
            result[path] = tuple(kept)
    return result


def _expanded(module: Any, names: dict[str, None]) -> Iterator[str]:
    """The names, and those of all weights or attributes if forward looks at them all."""
    for name in names:
        yield name
        for kind in KINDS:
            if name in (kind, "__dict__"):
                yield from vars(module).get(kind, ())
        if name == "__dict__":
            yield from vars(module)


def _checkpoints(module: Any) -> bool:
    """Its class wraps the `forward` of every subclass, that of a drop-in too: checkpoints are made around the kernels."""
    return any(kind.__name__ == CHECKPOINTED[0] for kind in type(module).__mro__)


def _is_computed(module: Any, name: str) -> bool:
    """The class computes the value by other reads. Methods count that may be replaced: `forward`, and those of the user's classes."""
    value = getattr(type(module), name, None)
    if name == "forward" or name in vars(module) or not hasattr(value, "__get__"):
        return False
    return str(getattr(value, "__module__", "torch")).partition(".")[0] == "torch"
