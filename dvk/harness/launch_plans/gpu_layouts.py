"""Layouts of results of operators whose fake versions ask for a GPU: a recorder has none.

PyTorch finds these layouts by questions to cuDNN or the device, or has no version for fake tensors at all. A wrong guess here shows in the
replay, where every result's layout is compared with the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""Channels-last formats by the number of dimensions."""


def guess(func: Any, args: Sequence[Any]) -> Any:
    """Return tensors like those that the operator makes, from fake operands; None if it is not known here."""
    rule = RULES.get(func)
    return None if rule is None else rule(*args)


def _convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    more: Sequence[int],
    groups: int,
    *_: bool,
) -> torch.Tensor:
    count = x.dim() - 2
    steps, ahead, gaps, behind = (
        [*values] * count if len(values) == 1 else [*values]
        for values in (stride, padding, dilation, more)
    )
    spans = [gap * (size - 1) for gap, size in zip(gaps, weight.shape[2:], strict=True)]
    sizes = list(zip(x.shape[2:], steps, ahead, spans, behind, strict=True))
    if transposed:
        outer = [(n - 1) * step - 2 * pad + span + extra + 1 for n, step, pad, span, extra in sizes]
    else:
        outer = [(n + 2 * pad - span - 1) // step + 1 for n, step, pad, span, _ in sizes]
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    made = torch.empty((x.shape[0], channels, *outer), dtype=x.dtype, device=x.device)
    last = any(map(_is_channels_last, (x, weight)))
    return made.to(memory_format=LAST[made.dim()]) if last else made


def _is_channels_last(tensor: torch.Tensor) -> bool:
    form = LAST.get(tensor.dim())
    return (
        form is not None and tensor.is_contiguous(memory_format=form) and not tensor.is_contiguous()
    )


def _grid_sampled(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    return torch.empty((*x.shape[:2], *grid.shape[1:-1]), dtype=x.dtype, device=x.device)


def _gru_cell(
    gates: torch.Tensor, _: torch.Tensor, hidden: torch.Tensor, *__: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The new state, and what a backward would need: five values of each element."""
    rows, width = hidden.shape
    return torch.empty_like(hidden), torch.empty(
        (rows, 5 * width), dtype=hidden.dtype, device=hidden.device
    )


RULES: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.convolution.default: _convolution,
    torch.ops.aten._convolution.default: _convolution,
    torch.ops.aten.cudnn_grid_sampler.default: _grid_sampled,
    torch.ops.aten._thnn_fused_gru_cell.default: _gru_cell,
}
