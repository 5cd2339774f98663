"""Runs of the reference by other algorithms, layouts and orders of its own precision class: what an honest program may do.

    plain        PyTorch's own kernels in place of oneDNN's and cuDNN's
    layout       convolutions in channels-last
    order        products in two halves of their sum, or over its reversed terms; norms and sums over the reversed values
    library      cuDNN's deterministic algorithms, and the fastest that it finds
    threads      one thread where the judge uses several, on a CPU

None of them changes the program: every one is PyTorch computing the same operators. An operator that one of them cannot run leaves that
variation out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

Contexts = Callable[[], AbstractContextManager[Any]]

LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}
_SUMS = frozenset({"sum", "mean", "var", "std", "var_mean", "logsumexp"})


def other_algorithms(device: str) -> dict[str, Contexts]:
    """Return the variations of a device, by name, as contexts of one call."""
    contexts: dict[str, Contexts] = {"plain": plain, "layout": OtherLayout, "order": OtherOrder}
    if device == "cuda":
        contexts["deterministic"] = lambda: _cudnn(deterministic=True)
        contexts["benchmark"] = lambda: _cudnn(benchmark=True)
    elif torch.get_num_threads() > 1:
        contexts["threads"] = _one_thread
    return contexts


@contextmanager
def plain() -> Iterator[None]:
    """Run the body without oneDNN, cuDNN and fused attention."""
    with ExitStack() as stack:
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield


def _cudnn(deterministic: bool = False, benchmark: bool = False) -> AbstractContextManager[None]:
    flags: AbstractContextManager[None] = torch.backends.cudnn.flags(
        enabled=True,
        benchmark=benchmark,
        deterministic=deterministic,
        allow_tf32=torch.backends.cudnn.allow_tf32,
    )
    return flags


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class OtherLayout(TorchDispatchMode):
    """Run the body's convolutions in channels-last; results keep the strides that the program expects."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # see `RoundingNoise`

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _name(func) != "convolution" or args[0].dim() not in LAYOUTS:
            return func(*args, **(kwargs or {}))
        form = LAYOUTS[args[0].dim()]
        laid = [t.contiguous(memory_format=form) for t in args[:2]]
        result = func(*laid, *args[2:], **(kwargs or {}))
        return result.contiguous() if args[0].is_contiguous() else result


class OtherOrder(TorchDispatchMode):
    """Run the body with the terms of its sums in another order."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # see `RoundingNoise`

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, _name(func)
        if name == "convolution":
            return _convolution(func, *args, **kwargs)
        if name in ("mm", "bmm"):
            return _product(func, *args)
        if name == "addmm" and not kwargs:
            bias, left, right = args
            return _product(torch.ops.aten.mm.default, left, right) + bias
        if "batch_norm" in name and "backward" not in name and args[0].dim() > 1:
            first, *others = func(args[0].flip(0), *args[1:], **kwargs)
            return (first.flip(0), *others)
        if name in _SUMS and args[0].dim():
            return func(
                args[0].flip(_dims(args) or tuple(range(args[0].dim()))), *args[1:], **kwargs
            )
        return func(*args, **kwargs)


def _name(func: Any) -> str:
    name: str = func._schema.name.partition("::")[2]
    return name


def _dims(args: Any) -> tuple[int, ...]:
    """Return the dimensions of a reduction's second argument; empty if there are none."""
    given = args[1] if len(args) > 1 else ()
    if isinstance(given, int) and not isinstance(given, bool):
        return (given,)
    return tuple(given) if isinstance(given, (list, tuple)) else ()


def _sums_in_own_type(tensor: torch.Tensor) -> bool:
    """Whether a part of a sum is as precise as the accumulator; in 16 bits, rounding it would be a coarser program."""
    return tensor.dtype.itemsize >= 4


def _product(func: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    half = left.shape[-1] // 2
    if half == 0 or not _sums_in_own_type(left):
        result: torch.Tensor = func(left.flip(-1), right.flip(-2))
        return result
    last: torch.Tensor = func(left[..., half:], right[..., half:, :])
    return last + func(left[..., :half], right[..., :half, :])


def _convolution(func: Any, x: torch.Tensor, w: torch.Tensor, bias: Any, *rest: Any) -> Any:
    """The inputs' channels in two halves; `rest` is stride, padding, dilation, transposed, output_padding, groups."""
    transposed, groups, half = rest[3], rest[5], x.shape[1] // 2 if x.dim() > 2 else 0
    if groups != 1 or half == 0:
        return func(x, w, bias, *rest)
    if not _sums_in_own_type(x):
        return func(x.flip(1), w.flip(0 if transposed else 1), bias, *rest)
    first, last = (w[:half], w[half:]) if transposed else (w[:, :half], w[:, half:])
    return func(x[:, half:], last, bias, *rest) + func(x[:, :half], first, None, *rest)
