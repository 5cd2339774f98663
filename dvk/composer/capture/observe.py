"""Run an exported program once on the real inputs and record the actual result of every operator.

The shapes, dtypes and strides that torch.export records come from PyTorch's meta functions, which sometimes differ from the kernels: batch
norm of a permuted tensor, convolutions whose input has one channel, losses of two dtypes. A fused program must reproduce the kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import Any

import torch

MODES = ("is_grad_enabled", "is_inference_mode_enabled")
"""Functions of torch whose answers a drop-in's callers decide; both return False during a capture."""


@contextmanager
def mode_reads(model: torch.nn.Module, opposite: str = "") -> Iterator[set[str]]:
    """Record names of `MODES` that code outside torch calls during the block, as torch's or as globals next to a class of the model.

    Args:
        opposite: the function that gives such code the other answer.
    """
    found: set[str] = set()

    def noting(name: str, function: Callable[[], bool]) -> Callable[[], bool]:
        def ask() -> bool:
            # torch's own modules ask whether to record operators for gradients, and then nothing requires any.
            if str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0] == "torch":
                return function()
            found.add(name)
            return function() is not (name == opposite)

        return ask

    kinds = {
        kind
        for part in model.modules()
        for kind in type(part).__mro__
        if kind.__module__.partition(".")[0] != "torch"
    }
    spaces = {
        id(f.__globals__): f.__globals__
        for kind in kinds
        for f in vars(kind).values()
        if isinstance(f, FunctionType)
    }
    places = [vars(torch), *spaces.values()]
    make_tables()
    before = [
        (place, key, name, value)
        for name in MODES
        for place in places
        for key, value in place.items()
        if value is getattr(torch, name)
    ]
    for place, key, name, function in before:
        place[key] = noting(name, function)
    try:
        yield found
    finally:
        for place, key, _, function in before:
            place[key] = function


def make_tables() -> None:
    """Have Dynamo make its tables of torch's functions. It makes them once, from what torch holds then: a recorder among them would make
    `torch.is_grad_enabled` unknown to torch.compile for the rest of the process."""
    with suppress(ImportError, AttributeError):  # private names
        from torch._dynamo import trace_rules
        from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

        trace_rules.lookup(torch.is_grad_enabled)
        TorchInGraphFunctionVariable._get_handlers()


@contextmanager
def following_data() -> Iterator[None]:
    """Turn `x.data`, read outside torch, into the operator `detach` during the block: tracing loses writes into it otherwise."""
    whole: Any = torch._C.TensorBase.data

    def read(self: Any) -> Any:
        if str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0] in ("torch", "dvk"):
            return whole.__get__(self)
        return self.detach()

    torch.Tensor.data = property(read, whole.__set__)  # type: ignore[assignment]
    try:
        yield
    finally:
        del torch.Tensor.data


class _Observer(torch.fx.Interpreter):
    def __init__(self, program: Any):
        super().__init__(program.graph_module)
        self.seen: dict[str, tuple[tuple[int, ...], str, tuple[int, ...]]] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, torch.Tensor) and result.layout is torch.strided:
            self.seen[n.name] = (
                tuple(result.shape),
                str(result.dtype).removeprefix("torch."),
                tuple(result.stride()),
            )
        return result


def observe(
    program: Any, args: list[Any]
) -> dict[str, tuple[tuple[int, ...], str, tuple[int, ...]]]:
    """Map node names to the shape, dtype and strides of the result; empty if the program cannot run by itself.

    Weights, buffers, inputs and the state of the random generators stay unchanged.
    """
    held = {**program.constants, **program.state_dict}
    given = iter(args)
    values = []
    for spec in program.graph_signature.input_specs:
        value = held[spec.target] if spec.target is not None else next(given)
        # A generator would otherwise continue from the state that this run leaves.
        values.append(
            _copy(value)
            if isinstance(value, torch.Tensor)
            else value.clone_state()
            if isinstance(value, torch.Generator)
            else value
        )
    observer = _Observer(program)
    devices = [
        d for d in {v.device for v in values if isinstance(v, torch.Tensor)} if d.type == "cuda"
    ]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices):
            observer.run(*values)
    except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError):
        return {}
    return observer.seen


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, overlapping ones included."""
    if not tensor.numel() or tensor.layout is not torch.strided:
        return tensor.detach().clone()
    span = 1 + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    memory = tensor.detach().as_strided((span,), (1,)).clone()
    return memory.as_strided(tensor.shape, tensor.stride())
