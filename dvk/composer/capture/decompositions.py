"""Operators of a training step that are traced in parts: PyTorch's own decompositions, and those that it has no better one for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

IN_PARTS = (
    aten._softmax,
    aten._log_softmax,
    aten.nll_loss_forward,
    aten.nll_loss2d_forward,
    aten.binary_cross_entropy,
    aten.smooth_l1_loss,
    aten.huber_loss,
    aten.soft_margin_loss,
    aten.mse_loss,
    aten.glu,
    aten._fused_rms_norm,
)
"""Forward operators whose parts a backward shares, besides those in PyTorch's core table."""
WHOLE = (
    "scaled_dot_product",
    "embedding_dense_backward",
    "convolution_backward",
    "upsample",
    "grid_sampler",
    "native_dropout",
    "aten.lerp.",
    "constant_pad_nd",
)
"""Operators that stay whole: PyTorch's kernel is better than its parts, or the composer's."""


def table() -> dict[Any, Callable[..., Any]]:
    """The decompositions of a training step, by operator."""
    from torch._decomp import core_aten_decompositions, get_decompositions

    made = dict(core_aten_decompositions())
    made.update(get_decompositions(list(IN_PARTS)))
    made = {
        op: function for op, function in made.items() if not any(word in str(op) for word in WHOLE)
    }
    return made | {
        aten.nll_loss_backward.default: nll_loss_backward,
        aten.addmm.default: addmm,
        aten.baddbmm.default: addmm,
        aten.native_dropout_backward.default: native_dropout_backward,
        aten.slice_backward.default: slice_backward,
        aten.select_backward.default: select_backward,
        aten.native_layer_norm.default: native_layer_norm,
        aten.native_group_norm.default: native_group_norm,
        aten._native_batch_norm_legit_functional.default: batch_norm_functional,
    }


def addmm(
    bias: torch.Tensor, one: torch.Tensor, other: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """`addmm` or `baddbmm` as a product and an epilogue; of 16 bits whole, since the product alone would be rounded once more. PyTorch's
    decomposition multiplies these in float32."""
    if one.dtype in HALVES:
        return NotImplemented
    product = torch.matmul(one, other)
    product = product if alpha == 1 else product * alpha
    return product + bias if beta == 1 else product + bias * beta


def native_dropout_backward(grad: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """Elementwise: it belongs in the kernel that computes `grad`."""
    return grad * mask.to(grad.dtype) * scale


def slice_backward(
    grad: torch.Tensor, sizes: list[int], dim: int, start: int, end: int, step: int
) -> torch.Tensor:
    """Zeros around the gradient, which its readers compute; PyTorch's decomposition writes it into a tensor of zeros."""
    if step != 1:
        return torch.slice_scatter(grad.new_zeros(sizes), grad, dim, start, end, step)
    size, inner = sizes[dim], len(sizes) - 1 - dim % len(sizes)
    ahead = min(max(start + size if start < 0 else start, 0), size)
    behind = size - ahead - grad.shape[dim]
    return torch.nn.functional.pad(grad, [0, 0] * inner + [ahead, behind])


def select_backward(grad: torch.Tensor, sizes: list[int], dim: int, index: int) -> torch.Tensor:
    """As `slice_backward`, of one element along `dim`."""
    dim %= len(sizes)
    index %= sizes[dim]
    return slice_backward(grad.unsqueeze(dim), sizes, dim, index, index + 1, 1)


def native_layer_norm(
    x: torch.Tensor,
    normalized: list[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As composed kernels compute it: the mean, then the mean square of what differs from it."""
    dims = list(range(x.dim() - len(normalized), x.dim()))
    centred, middle, scale = _statistics(x, dims, eps)
    y = _affine(centred * scale, weight, bias)
    return y.to(x.dtype), middle, scale


def native_group_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    batch: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As `native_layer_norm`, over the channels of each group."""
    grouped = x.reshape(batch, groups, channels // groups, size)
    centred, middle, scale = _statistics(grouped, [2, 3], eps)
    y = (centred * scale).reshape(x.shape)
    shape = [1, channels, *[1] * (x.dim() - 2)]
    y = _affine(y, *(None if t is None else t.reshape(shape) for t in (weight, bias)))
    return y.to(x.dtype), middle.reshape(batch, groups), scale.reshape(batch, groups)


def batch_norm_functional(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    """Batch norm, and the new running statistics."""
    dims = [0, *range(2, x.dim())]
    shape = [1, x.shape[1], *[1] * (x.dim() - 2)]
    if training:
        wide = x.float() if x.dtype in HALVES else x
        count = x.numel() // x.shape[1]
        middle = wide.mean(dims, keepdim=True)
        centred = wide - middle
        var = (centred * centred).mean(dims, keepdim=True)
        flat, spread = middle.reshape(-1), var.reshape(-1) * (count / max(count - 1, 1))
        running_mean = torch.lerp(running_mean, flat.to(running_mean.dtype), momentum)
        running_var = torch.lerp(running_var, spread.to(running_var.dtype), momentum)
        saved_mean, scale = flat, torch.rsqrt(var + eps)
    else:
        centred = x - running_mean.reshape(shape)
        scale = torch.rsqrt(running_var.reshape(shape) + eps)
        saved_mean = x.new_empty(0)
    y = _affine(centred * scale, *(None if t is None else t.reshape(shape) for t in (weight, bias)))
    saved_scale = scale.reshape(-1) if training else x.new_empty(0)
    return y.to(x.dtype), saved_mean, saved_scale, running_mean, running_var


HALVES = (torch.float16, torch.bfloat16)


def _statistics(
    x: torch.Tensor, dims: list[int], eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What differs from the mean, the mean and the reciprocal deviation along `dims`, which stay."""
    wide = x.float() if x.dtype in HALVES else x
    middle = wide.mean(dims, keepdim=True)
    centred = wide - middle
    return centred, middle, torch.rsqrt((centred * centred).mean(dims, keepdim=True) + eps)


def _affine(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None
) -> torch.Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def nll_loss_backward(
    grad: torch.Tensor,
    log_p: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> torch.Tensor:
    """Compare positions with targets instead of scattering into zeros: one fused pass, nothing of the logits' size in between."""
    column = log_p.dim() - 1
    kept = target != ignore_index
    safe = torch.where(kept, target, 0)
    each = -grad / total_weight if reduction == 1 else -grad
    each = each.expand(target.shape) if each.dim() < target.dim() or not each.dim() else each
    if weight is not None:
        each = each * weight[safe]
    each = torch.where(kept, each, torch.zeros_like(each))
    classes = torch.arange(log_p.shape[column], device=log_p.device)
    hit = classes == safe.unsqueeze(column)
    return torch.where(
        hit, each.unsqueeze(column), torch.zeros((), dtype=log_p.dtype, device=log_p.device)
    )
