"""The calls that a running model makes, as a folder of task files for `dvk eval`, weighted by how often each is made.

    with dvk.capture(model) as calls:        dvk capture calls -- python serve.py
        serve(model)
    calls.save("calls")

A call is a module's class, its weights' shapes, and the shapes, dtypes and plain values of its arguments: layers that differ in values
alone are one call. The first module and the first arguments of each are kept until `save` writes them. Without a choice these are the
modules with weights, of classes outside of torch, that contain no other such module: so no time is counted twice.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils import _pytree as pytree
from torch.utils.hooks import RemovableHandle

from dvk.api.written import write
from dvk.errors import DvkError, UsageError
from dvk.tasks.ambient import enabled
from dvk.tasks.trees import map_tensors, take_apart_kinds

INDEX = "index.json"
LAUNCHES = "launches"
"""Key of `index.json`: how often a task's call was made."""
MOST_KINDS = 64
"""Kinds of call kept of one class: each holds copies of its arguments, and a number that counts steps makes every call a new kind."""


@dataclass
class RecordedCall:
    """One kind of call: the first module and arguments that it was seen with, and how often."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    label: str
    launches: int = 0


class Calls:
    """Records calls while it is entered.

    Attributes:
        found: the calls by what tells them apart.
        under_autocast: calls left out since a task's module would compute them without autocast.
        beyond: calls left out by class, since MOST_KINDS other kinds of it were seen before.

    Args:
        module: whose sub-modules, itself included, are watched; None: all modules of the process.
        only: classes' names, or paths in `module`, to record instead of the usual choice.
    """

    def __init__(self, module: nn.Module | None = None, only: Sequence[str] = ()):
        self.found: dict[str, RecordedCall] = {}
        self.under_autocast = 0
        self.beyond: Counter[type[nn.Module]] = Counter()
        self._kinds: Counter[type[nn.Module]] = Counter()
        self._only, self._watched = frozenset(only), None
        if module is not None:
            self._watched = {id(part): name for name, part in module.named_modules()}
        self._handle: RemovableHandle | None = None
        self._chosen: dict[int, tuple[nn.Module, bool]] = {}

    def __enter__(self) -> Calls:
        self._handle = register_module_forward_hook(self._seen, with_kwargs=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            self._handle.remove()

    def _seen(self, module: nn.Module, args: Any, kwargs: Mapping[str, Any], _: Any) -> None:
        if torch.compiler.is_compiling() or not self._is_chosen(module):
            return
        if _is_under_autocast(module, args, kwargs):
            self.under_autocast += 1
            return
        kind = type(module)
        kept = [(name, tuple(t.shape), str(t.dtype)) for name, t in module.state_dict().items()]
        key = repr((kind, module.training, _told_apart((args, dict(kwargs))), kept))
        call = self.found.get(key)
        if call is None:
            if self._kinds[kind] == MOST_KINDS:
                self.beyond[kind] += 1
                return
            with torch.no_grad():
                mine, named = map_tensors(lambda t: t.detach().clone(), (tuple(args), dict(kwargs)))
            call = self.found[key] = RecordedCall(module, mine, named, _label(args, kwargs))
            self._kinds[kind] += 1
        call.launches += 1

    def _is_chosen(self, module: nn.Module) -> bool:
        known = self._chosen.get(id(module))
        if known is None or known[0] is not module:
            known = self._chosen[id(module)] = module, self._choose(module)
        return known[1]

    def _choose(self, module: nn.Module) -> bool:
        if self._watched is not None and id(module) not in self._watched:
            return False
        if self._only:
            path = self._watched[id(module)] if self._watched is not None else None
            return type(module).__name__ in self._only or path in self._only
        return _has_own(module) and not any(
            _has_own(part) for part in module.modules() if part is not module
        )

    def save(self, folder: str | Path) -> Path:
        """Write a task file for each call and `index.json` with their launches; what is left out is named on stderr.

        Raises:
            UsageError: nothing was recorded, nothing of it can be written, or the folder is not empty.
        """
        place = Path(folder)
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise UsageError(f"`{place}` is not an empty folder", "choose another one")
        self._say_left_out()
        if not self.found:
            raise UsageError(
                "no call was recorded",
                "run the model while it records; name classes to record, e.g. only=['Block']",
            )
        place.mkdir(parents=True, exist_ok=True)
        rows: list[dict[str, Any]] = []
        for call in sorted(self.found.values(), key=lambda one: -one.launches):
            kind = type(call.module).__name__
            name = f"{kind}_{len(rows) + 1}"
            try:
                written = write(call.module, call.args, call.kwargs)
            except DvkError as error:
                print(f"left out: {kind} {call.label}: {error.message}", file=sys.stderr)
                continue
            text = Path(written.spec.rpartition(":")[0]).read_text(encoding="utf-8")
            named = "" if written.entry == "Model" else f"\n\nModel = {written.entry}\n"
            (place / f"{name}.py").write_text(text.rstrip() + "\n" + named, encoding="utf-8")
            rows.append(
                {"name": name, "class": kind, "call": [call.label], LAUNCHES: call.launches}
            )
        if not rows:
            raise UsageError("nothing that was recorded can be written", "see the messages above")
        (place / INDEX).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        return place

    def _say_left_out(self) -> None:
        if self.under_autocast:
            print(
                f"left out: {self.under_autocast} calls under torch.autocast, which the tasks are not run under; "
                "run the model without it, e.g. in bfloat16",
                file=sys.stderr,
            )
        for kind, count in self.beyond.items():
            print(
                f"left out: {count} calls of {kind.__name__}, which differ from the first {MOST_KINDS} kinds",
                file=sys.stderr,
            )


def capture(module: nn.Module | None = None, only: Sequence[str] = ()) -> Calls:
    """Record the calls of a running model's modules: a context manager, whose `save(FOLDER)` writes them for `dvk eval FOLDER`.

    Args:
        module: the model; None watches all modules of the process.
        only: classes' names, or paths in the model, to record instead of the usual choice: modules with weights, of classes outside of
            torch, that contain no other such module.
    """
    return Calls(module, only)


def _has_own(module: nn.Module) -> bool:
    """Whether it has weights and is of a class outside of torch."""
    return not type(module).__module__.startswith("torch.") and any(
        True for _ in module.parameters()
    )


def _is_under_autocast(module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether autocast is on for a device of its weights or arguments."""
    leaves = [*module.parameters(), *pytree.tree_leaves((args, dict(kwargs)))]
    devices = {one.device.type for one in leaves if isinstance(one, torch.Tensor)} - {"meta"}
    return any(enabled(device) for device in devices)


def _told_apart(tree: Any) -> Any:
    """What distinguishes arguments: structure, tensors' shapes and dtypes, plain values, the types of other objects."""
    take_apart_kinds(tree)
    leaves, structure = pytree.tree_flatten(tree)
    return structure, [_leaf(one) for one in leaves]


def _leaf(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    plain = (bool, int, float, str, torch.dtype, torch.device)
    # The text of another object may hold its address, which is a new one in each call.
    return value if value is None or isinstance(value, plain) else type(value)


def _tensor(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _described(tree: Any) -> Any:
    """Arguments with tensors as shapes and dtypes."""
    return map_tensors(_tensor, tree)


def _label(args: Any, kwargs: Mapping[str, Any]) -> str:
    """Arguments as text: `float32[2, 8], mask=None`."""
    parts = [str(one) for one in _described(args)]
    parts += [f"{name}={one}" for name, one in _described(dict(kwargs)).items()]
    return re.sub(r"\s+", " ", ", ".join(parts))[:200]
