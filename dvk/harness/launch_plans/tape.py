"""Recording of a candidate's computation on fake tensors, operator by operator, in order.

A `Tape` is a layer over a `FakeTensorMode`: each ATen operator is recorded with its operands before the fake mode computes its result's
layout. Values are numbered. A tensor is recognised by its object as long as its layout is unchanged; one that appeared unseen (`.data`,
swapped parameters) is a view of known memory.

Addresses are made up: each storage gets a separate range whose start is aligned as real memory is, so that conclusions of a compiler from
an address hold later.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from dvk.harness.launch_plans import gpu_layouts
from dvk.harness.launch_plans.calls import Layout
from dvk.harness.launch_plans.operators import depends_on_values, refusal, written
from dvk.harness.launch_plans.plan import Aten, Const, KernelLaunch, NotReducible, references

BASE = 0x7A00_0000_0000
"""First made-up address."""
SPAN = 1 << 32
"""Least size of a storage's range."""
MAX_CONST_BYTES = 16 << 20


@dataclass
class TapeStep:
    """A node with facts that decide whether it stays."""

    node: Aten | KernelLaunch
    writes: tuple[int, ...] = ()
    """Memory written in place."""
    creates: dict[int, int] = field(default_factory=dict)
    """Memory made here → the first value in it."""
    overwrites: int | None = None
    """Memory that this node overwrites completely."""
    problem: str | None = None
    """Why a plan cannot contain it."""


class Refusals(list[str]):
    """Reasons for refusals, kept here since a candidate may catch the exception."""

    def refuse(self, reason: str) -> NotReducible:
        """Return an exception to raise; the reason stays."""
        self.append(reason)
        return NotReducible(reason)


class Tape(TorchDispatchMode):
    """The record of one candidate, from its constructor on."""

    def __init__(self, refusals: Refusals):
        super().__init__()
        self.refusals = refusals
        self.steps: list[TapeStep] = []
        self.layouts: dict[int, Layout] = {}
        self.memory: dict[int, int] = {}
        """Value → its memory, a number that stands for a storage."""
        self.consts: dict[int, Const] = {}
        self.cubins: dict[str, bytes] = {}
        self.trial = False
        """Whether an autotuner is trying a kernel: nothing then is part of the call."""
        self._objects: dict[int, tuple[int, Layout]] = {}
        self._storages: dict[int, tuple[int, int]] = {}  # storage → memory, its first value
        self._addresses: dict[int, int] = {}
        self._next_address = BASE
        self._kept: list[Any] = []  # ids and storages must not be reused

    # ------------------------------------------------------------------ values

    def leaf(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor that nothing here makes."""
        return self._bind(tensor)

    def value(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor.

        Raises:
            NotReducible: its origin is unknown.
        """
        if not isinstance(tensor, FakeTensor):
            return self._constant(tensor)
        layout = Layout.of(tensor)
        known = self._objects.get(id(tensor))
        if (
            known is not None
            and known[1] == layout
            and self._storages[storage_key(tensor)][0] == self.memory[known[0]]
        ):
            return known[0]
        held = self._storages.get(storage_key(tensor))
        if held is None:
            raise self.refusals.refuse("it uses a tensor of unknown origin")
        base = held[1]
        if self.layouts[base].dtype != layout.dtype:
            raise self.refusals.refuse("it sees memory under another type without an operator")
        made = self._bind(tensor)
        operands = {"ref": base}, list(layout.shape), list(layout.strides), layout.offset
        self._note(
            TapeStep(Aten(op="aten.as_strided.default", args=operands, kwargs={}, outs=(made,)))
        )
        return made

    def address(self, tensor: torch.Tensor) -> int:
        """Return a made-up address of the tensor's first element."""
        key = storage_key(tensor)
        if key not in self._addresses:
            storage = tensor.untyped_storage()
            self._kept.append(storage)
            self._addresses[key] = self._next_address
            self._next_address += SPAN * (1 + storage.nbytes() // SPAN)
        return self._addresses[key] + int(tensor.storage_offset()) * tensor.itemsize

    def is_address(self, number: int) -> bool:
        """Whether a number was made up by `address`."""
        return BASE <= number < self._next_address

    def _bind(self, tensor: torch.Tensor) -> int:
        value = len(self.layouts)
        layout = self.layouts[value] = Layout.of(tensor)
        self._objects[id(tensor)] = value, layout
        storage = tensor.untyped_storage()
        self._kept.append((tensor, storage))
        memory, _ = self._storages.setdefault(storage._cdata, (len(self._storages), value))
        self.memory[value] = memory
        return value

    def _constant(self, tensor: torch.Tensor) -> int:
        known = self._objects.get(id(tensor))
        if known is not None:
            return known[0]
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_quantized:
            raise self.refusals.refuse("it uses a tensor that was made outside of the recording")
        if tensor.numel() * tensor.itemsize > MAX_CONST_BYTES:
            raise self.refusals.refuse("a constant in its source is too large")
        value = self._bind(tensor)
        with torch._C._DisableTorchDispatch():  # the values themselves, no operators
            plain = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
            data = bytes(plain.untyped_storage())[: plain.numel()]
        layout = Layout(
            dtype=self.layouts[value].dtype,
            shape=tuple(tensor.shape),
            strides=tuple(dense(tensor.shape)),
            device="cpu",
        )
        self.layouts[value] = layout
        self._objects[id(tensor)] = value, layout
        self.consts[value] = Const(layout=layout, data=base64.b64encode(data).decode())
        return value

    # ------------------------------------------------------------------ operators

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "namespace", "") == "prim":
            return func(*args, **kwargs)
        if (
            func is torch.ops.aten._local_scalar_dense.default
            and getattr(args[0], "constant", None) is not None
        ):
            return func(*args, **kwargs)
        if getattr(func, "namespace", "") != "aten":
            raise self.refusals.refuse(f"it calls the custom operator {func}")
        if depends_on_values(func, args):
            raise self.refusals.refuse(
                f"what it does depends on a tensor's values ({func.overloadpacket.__name__})"
            )
        encoded = (
            [self._encode(a) for a in args],
            {name: self._encode(a) for name, a in kwargs.items()},
        )
        existed = {id(t) for t in tensors((args, kwargs))}
        memories = {self.memory[v] for v in references_of(encoded)}
        touched = {id(t): t for t in written(func, args, kwargs)}
        result = _made(func, args, kwargs)
        outs: list[int | None] = []
        step_creates: dict[int, int] = {}
        for item in result if isinstance(result, (tuple, list)) else [result]:
            if not isinstance(item, torch.Tensor) or id(item) in existed:
                outs.append(None)
                continue
            made = self._bind(item)
            outs.append(made)
            if self.memory[made] not in memories:
                step_creates.setdefault(self.memory[made], made)
        for tensor in touched.values():
            if (
                isinstance(tensor, FakeTensor) and id(tensor) in self._objects
            ):  # in-place transposes change its layout
                self._objects[id(tensor)] = self._objects[id(tensor)][0], Layout.of(tensor)
        writes = tuple(self._storages[storage_key(t)][0] for t in touched.values())
        problem = refusal(func, encoded, [self.layouts[v] for v in outs if v is not None])
        node = Aten(op=str(func), args=tuple(encoded[0]), kwargs=encoded[1], outs=tuple(outs))
        self._note(TapeStep(node, writes, step_creates, self._overwritten(func, args), problem))
        return result

    def note(self, func: Any, args: Any, kwargs: Any, result: torch.Tensor) -> torch.Tensor:
        """Record an operator that makes `result`, which was made while the tape was paused."""
        encoded = (
            [self._encode(a) for a in args],
            {name: self._encode(a) for name, a in kwargs.items()},
        )
        made = self._bind(result)
        node = Aten(op=str(func), args=tuple(encoded[0]), kwargs=encoded[1], outs=(made,))
        self._note(TapeStep(node, creates={self.memory[made]: made}))
        return result

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the tape in the body."""
        self.__exit__(None, None, None)
        try:
            yield
        finally:
            self.__enter__()

    def launch(self, node: KernelLaunch) -> None:
        """Record a kernel launch: it may write all its arguments."""
        self._note(TapeStep(node, tuple({self.memory[v] for v in references(node)})))

    def keep(self, code: bytes) -> str:
        """Return the key under which a plan names compiled code."""
        key = hashlib.sha256(code).hexdigest()[:24]
        self.cubins[key] = code
        return key

    def _note(self, step: TapeStep) -> None:
        if not self.trial:
            self.steps.append(step)

    def _overwritten(self, func: Any, args: Any) -> int | None:
        """Return the memory that `x.copy_(…)`, `x.zero_()` or `x.fill_(…)` overwrites completely."""
        if func.overloadpacket not in WHOLE or not isinstance(args[0], FakeTensor):
            return None
        target = args[0]
        whole = (
            target.numel() * target.itemsize == target.untyped_storage().nbytes()
            and target.is_contiguous()
        )
        return self._storages[storage_key(target)][0] if whole else None

    def _encode(self, operand: Any) -> Any:
        if isinstance(operand, torch.Tensor):
            return {"ref": self.value(operand)}
        if isinstance(operand, float):
            return {"float": repr(operand)} if not math.isfinite(operand) else operand
        if operand is None or isinstance(operand, (bool, int, str)):
            return operand
        if isinstance(operand, (list, tuple)):
            return [self._encode(item) for item in operand]
        if isinstance(operand, torch.dtype):
            return {"dtype": str(operand).removeprefix("torch.")}
        if isinstance(operand, torch.layout):
            return {"layout": str(operand).removeprefix("torch.")}
        if isinstance(operand, torch.memory_format):
            return {"memory_format": str(operand).removeprefix("torch.")}
        if isinstance(operand, torch.device):
            return {"device": operand.type}
        raise self.refusals.refuse(f"an operator is given a {type(operand).__name__}")


def _made(func: Any, args: Any, kwargs: Any) -> Any:
    """Return the results of an operator on fake tensors; by a rule where its fake version asks for a GPU."""
    try:
        return func(*args, **kwargs)
    except (RuntimeError, NotImplementedError):
        if kwargs or (guessed := gpu_layouts.guess(func, args)) is None:
            raise
        return guessed


WHOLE = {torch.ops.aten.copy_, torch.ops.aten.zero_, torch.ops.aten.fill_}


def storage_key(tensor: torch.Tensor) -> int:
    """Return an identity of a tensor's memory, valid while it is alive."""
    return int(tensor.untyped_storage()._cdata)


def dense(shape: Any) -> list[int]:
    """Return row-major strides."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return strides[::-1]


def tensors(tree: Any) -> list[torch.Tensor]:
    """Yield every tensor in nested lists, tuples and dicts."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    items = (
        tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else ()
    )
    return [t for item in items for t in tensors(item)]


def references_of(encoded: Any) -> list[int]:
    """Yield values in encoded operands."""
    if isinstance(encoded, dict) and set(encoded) == {"ref"}:
        return [encoded["ref"]]
    items = (
        encoded.values()
        if isinstance(encoded, dict)
        else encoded
        if isinstance(encoded, (list, tuple))
        else ()
    )
    return [v for item in items for v in references_of(item)]
