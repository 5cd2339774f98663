"""Run an exported program once on the real inputs and note what every operator really returned.

The shapes, dtypes and strides that torch.export records come from PyTorch's meta functions, which in places
differ from the kernels: batch norm of a permuted tensor, convolutions whose input has one channel,
losses of two dtypes. A fused program must reproduce the kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch

MODES = ("is_grad_enabled", "is_inference_mode_enabled")
"""Functions of torch whose answers a drop-in's callers decide; while a module is captured both are False."""


@contextmanager
def asked(model: torch.nn.Module) -> Iterator[set[str]]:
    """Names of `MODES` that code outside of torch calls meanwhile, as torch's or as globals beside a class of the model."""
    found: set[str] = set()

    def noting(name: str, function: Callable[[], bool]) -> Callable[[], bool]:
        def ask() -> bool:
            # torch's own modules ask whether to record what wants gradients, and then nothing does.
            if str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0] != "torch":
                found.add(name)
            return function()

        return ask

    kinds = {kind for part in model.modules() for kind in type(part).__mro__ if kind.__module__.partition(".")[0] != "torch"}
    spaces = {id(f.__globals__): f.__globals__ for kind in kinds for f in vars(kind).values() if isinstance(f, FunctionType)}
    places = [vars(torch), *spaces.values()]
    before = [(place, key, name, value) for name in MODES for place in places for key, value in place.items()
              if value is getattr(torch, name)]
    for place, key, name, function in before:
        place[key] = noting(name, function)
    try:
        yield found
    finally:
        for place, key, _, function in before:
            place[key] = function


@contextmanager
def following_data() -> Iterator[None]:
    """`x.data`, read outside of torch, is meanwhile an operator, `detach`: tracing loses what is written into it otherwise."""
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
            self.seen[n.name] = (tuple(result.shape), str(result.dtype).removeprefix("torch."), tuple(result.stride()))
        return result


def observe(program: Any, args: list[Any]) -> dict[str, tuple[tuple[int, ...], str, tuple[int, ...]]]:
    """Node name → shape, dtype and strides of its result; empty where the program cannot be run by itself.

    Weights, buffers, inputs and the state of the random generators are left as they are.
    """
    held = {**program.constants, **program.state_dict}
    given = iter(args)
    values = []
    for spec in program.graph_signature.input_specs:
        value = held[spec.target] if spec.target is not None else next(given)
        # A generator would otherwise go on from where this run leaves it.
        values.append(_copy(value) if isinstance(value, torch.Tensor) else
                      value.clone_state() if isinstance(value, torch.Generator) else value)
    observer = _Observer(program)
    devices = [d for d in {v.device for v in values if isinstance(v, torch.Tensor)} if d.type == "cuda"]
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
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    memory = tensor.detach().as_strided((span,), (1,)).clone()
    return memory.as_strided(tensor.shape, tensor.stride())
