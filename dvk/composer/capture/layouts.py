"""Memory order of tensors during a capture: a module that asks for it must get eager's answer.

`x.contiguous()` records nothing where `x` is contiguous, and the capture decides that on fake tensors. Their order sometimes differs from
the kernels': dropout that is off copies there, and returns its input in eager. So such dropout is made an alias, and each question about
another operator's result is noted and checked once the program has run on real tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

ASKED = "dvk_asked_order"
"""Key of a traced node's `meta`: the memory formats of `is_contiguous` and `contiguous`, and None for `stride`."""
QUESTIONS = ("contiguous", "is_contiguous", "stride")


@contextmanager
def asked() -> Iterator[None]:
    """Note on traced nodes which of `QUESTIONS` code outside torch asks about their results during the block."""
    whole = {name: getattr(torch._C.TensorBase, name) for name in QUESTIONS}

    def noting(name: str) -> Any:
        def ask(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not str(sys._getframe(1).f_globals.get("__name__")).startswith(("torch", "dvk.")):
                given = [*args, *kwargs.values()]
                usual = None if name == "stride" else torch.contiguous_format
                _note(self, next((g for g in given if name != "stride"), usual))
            return whole[name](self, *args, **kwargs)

        return ask

    for name in QUESTIONS:
        setattr(torch.Tensor, name, noting(name))
    try:
        with _dropout_aliases():
            yield
    finally:
        for name in QUESTIONS:
            delattr(torch.Tensor, name)


def mistaken(
    program: Any, seen: Mapping[str, tuple[tuple[int, ...], str, tuple[int, ...]]]
) -> torch.fx.Node | None:
    """The first node about whose memory order the module got another answer than eager gives; None without one.

    Args:
        seen: node → shape, dtype and strides in eager, from `observe`.
    """
    for node in program.graph.nodes:
        traced = node.meta.get("val")
        if ASKED not in node.meta or node.name not in seen or not isinstance(traced, torch.Tensor):
            continue
        shape, _, strides = seen[node.name]
        if tuple(traced.shape) != shape:
            continue
        real = torch.empty_strided(shape, strides, device="meta")
        for question in node.meta[ASKED]:
            same = (
                traced.stride() == strides
                if question is None
                else traced.is_contiguous(memory_format=question)
                == real.is_contiguous(memory_format=question)
            )
            if not same:
                return node
    return None


def _note(tensor: Any, question: torch.memory_format | None) -> None:
    from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

    if (mode := get_proxy_mode()) is None:
        return
    slot: Any = get_proxy_slot(tensor, mode.tracer, default=None)
    if slot is not None:
        slot.proxy.node.meta.setdefault(ASKED, set()).add(question)


@contextmanager
def _dropout_aliases() -> Iterator[None]:
    """Give dropout that is off the layout of its input on fake tensors."""
    operator = torch.ops.aten.dropout.default
    before = dict(operator.py_kernels)

    def aliasing(kernel: Any) -> Any:
        def dropout(input: Any, p: float, train: bool | None) -> Any:
            if train and p != 0:
                return kernel(input, p, train)
            return torch.ops.aten.alias.default(input)

        return dropout

    operator.py_kernels.update({key: aliasing(kernel) for key, kernel in before.items()})
    operator._dispatch_cache.clear()
    try:
        yield
    finally:
        operator.py_kernels.update(before)
        operator._dispatch_cache.clear()
