"""Modules of images, matrix products and attention with special numbers in their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.composer.special_inputs import INF, Case, image, matrix, weight, zeroed

IMAGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "max": lambda x: F.max_pool2d(x, 2),
    "max_padded": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_near": lambda x: F.max_pool2d(x, 3, 1, 1),
    "max_dilated": lambda x: F.max_pool2d(x, 2, 2, 1, dilation=2),
    "max_ceil": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "max_wide": lambda x: F.max_pool2d(x, (7, 5), 1, (3, 2)),
    "max_relu": lambda x: F.max_pool2d(F.relu(x), 3, 2, 1),
    "relu_max": lambda x: F.relu(F.max_pool2d(x, 3, 2, 1)),
    "max_gelu": lambda x: F.max_pool2d(F.silu(x), 2),
    "avg": lambda x: F.avg_pool2d(x, 2),
    "avg_padded": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "avg_valid": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "avg_wide": lambda x: F.avg_pool2d(x, (7, 5), 1, (3, 2)),
    "adaptive_avg": lambda x: F.adaptive_avg_pool2d(x, (3, 1)),
    "adaptive_avg1": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive_max": lambda x: F.adaptive_max_pool2d(x, (3, 1)),
    "adaptive_max1": lambda x: F.adaptive_max_pool2d(x, 1),
    "max1d": lambda x: F.max_pool1d(x[0], 3, 2, 1),
    "avg1d": lambda x: F.avg_pool1d(x[0], 3, 2, 1),
    "max3d": lambda x: F.max_pool3d(x, (1, 3, 3), 2, (0, 1, 1)),
    "avg3d": lambda x: F.avg_pool3d(x, 2),
    "lp": lambda x: F.lp_pool2d(x, 2, 2),
    "pad": lambda x: F.pad(x, (1, 2, 1, 0)) * 2,
    "pad_inf": lambda x: F.pad(x, (1, 1), value=-INF) + 1,
    "reflect": lambda x: F.pad(x, (1, 2, 1, 1), mode="reflect") * 2,
    "pad_max": lambda x: F.pad(x, (1, 1, 1, 1), value=-INF).amax(3),
    "batch_norm": lambda x: F.batch_norm(
        x, torch.tensor([0.1, INF, 2.0]), torch.tensor([1.0, 2.0, 0.0])
    ),
    "group_norm": lambda x: F.group_norm(x, 3),
    "instance_norm": lambda x: F.instance_norm(x),
    "mean": lambda x: x.mean((2, 3)),
    "amax": lambda x: x.amax((0, 2, 3)),
    "channels": lambda x: torch.softmax(x, 1),
    "sum1": lambda x: x.sum(1),
    "max1": lambda x: x.amax(1),
    "upsample": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear") * 2,
    "nearest": lambda x: F.interpolate(x, scale_factor=2.0) + 1,
    "cat": lambda x: torch.cat([x, x.abs()], 1) * 2,
    "shuffle": lambda x: F.channel_shuffle(x[:, :2].contiguous(), 2) + 1,
    "roll": lambda x: x.roll(2, 3) * 2,
    "tril": lambda x: x.tril() * 2,
    "triu": lambda x: x.triu(1) + 1,
    "unfold": lambda x: F.unfold(x, 3, padding=1) * 2,
    "masked": lambda x: x * (x > 0),
    "masked_sum": lambda x: (x * (x > 0)).sum(3),
}


PRODUCTS: dict[str, Case] = {
    "linear": Case(
        lambda x, w, b: F.relu(F.linear(x, w, b)), (matrix(9, 24), weight(17, 24), weight(17)), 1e-4
    ),
    "linear_zeros": Case(
        lambda x, w: F.linear(x, w), (matrix(9, 24), zeroed(weight(17, 24))), 1e-4
    ),
    "linear_weight": Case(lambda x, w: F.linear(x, w) * 2, (weight(9, 24), matrix(17, 24)), 1e-4),
    "skinny": Case(lambda x, w: F.linear(x, w), (matrix(9, 24)[:1], zeroed(weight(130, 24))), 1e-4),
    "matmul": Case(
        lambda x, y: torch.matmul(x, y),
        (matrix(9, 24).expand(2, 9, 24).clone(), zeroed(weight(2, 24, 40))),
        1e-4,
    ),
    "long": Case(lambda x, w: F.linear(x, w), (matrix(9, 700), zeroed(weight(5, 700))), 1e-4),
    "one": Case(lambda x, w: F.linear(x, w), (matrix(9, 24), zeroed(weight(1, 24))), 1e-4),
    "vector": Case(lambda x, w: x @ w, (matrix(9, 24), zeroed(weight(24))), 1e-4),
    "collapsed": Case(
        lambda x, w, b: F.linear(x, w, b).sum(1),
        (matrix(9, 24), zeroed(weight(17, 24)), weight(17)),
        1e-4,
    ),
    "conv": Case(
        lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)),
        (image(), zeroed(weight(4, 3, 3, 3)), weight(4)),
        1e-4,
    ),
    "conv_strided": Case(
        lambda x, w: F.conv2d(x, w, None, 2, 1), (image(), weight(4, 3, 3, 3)), 1e-4
    ),
    "depthwise": Case(
        lambda x, w: F.silu(F.conv2d(x, w, None, 1, 1, groups=3)),
        (image(), zeroed(weight(3, 1, 3, 3))),
        1e-4,
    ),
    "depthwise_strided": Case(
        lambda x, w: F.conv2d(x, w, None, 2, 2, 2, groups=3),
        (image(), zeroed(weight(3, 1, 3, 3))),
        1e-4,
    ),
    "pointwise": Case(lambda x, w: F.conv2d(x, w), (image(), zeroed(weight(5, 3, 1, 1))), 1e-4),
    "conv1d": Case(
        lambda x, w: F.conv1d(x, w, None, 1, 2), (image()[0], zeroed(weight(4, 9, 5))), 1e-4
    ),
    "transposed": Case(
        lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 1),
        (image(), zeroed(weight(3, 4, 3, 3))),
        1e-4,
    ),
    "transposed1": Case(
        lambda x, w, b: F.relu(F.conv_transpose2d(x, w, b, 1, 1)),
        (image(), zeroed(weight(3, 4, 3, 3)), weight(4)),
        1e-4,
    ),
    "transposed4": Case(
        lambda x, w: F.conv_transpose2d(x, w, None, 4), (image(), zeroed(weight(3, 2, 2, 2))), 1e-4
    ),
    "scaled": Case(
        lambda x, w, b: F.linear(x, w, b) * 0.5,
        (matrix(9, 24), zeroed(weight(17, 24)), weight(17)),
        1e-4,
    ),
}


PRODUCTS["transposed_even"] = Case(
    lambda x, w: F.conv_transpose2d(x, w, None, 2, 1), (image(), zeroed(weight(3, 4, 4, 4))), 1e-4
)


def keys(masked: int, value: float) -> tuple[torch.Tensor, ...]:
    """q, k and v with heads, one special number in key `masked`."""
    q, k, v = (
        weight(2, 3, 8, 16),
        weight(2, 3, 8, 16).flip(2).clone(),
        weight(2, 3, 8, 16).roll(5, 3).clone(),
    )
    k[:, :, masked, 3] = value
    return q, k, v


PAD = torch.zeros(2, 8, dtype=torch.bool)
PAD[:, 5:] = True
PAD[1, :3] = True
ROWS_OUT = torch.zeros(8, 8, dtype=torch.bool)
ROWS_OUT[:, 5:], ROWS_OUT[2] = True, True
EARLIER = torch.ones(8, 8, dtype=torch.bool).triu(1)


def attended(mask: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Attention with this masking of the scores."""
    return lambda q, k, v, *more: torch.softmax(mask(q @ k.transpose(-1, -2) * 0.25, *more), -1) @ v


ATTENTION: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "plain": (attended(lambda s: s), ()),
    "padding": (attended(lambda s, pad: s.masked_fill(pad[:, None, None], -INF)), (PAD,)),
    "padding_low": (attended(lambda s, pad: s.masked_fill(pad[:, None, None], -1e9)), (PAD,)),
    "where": (attended(lambda s, keep: torch.where(keep[:, None, None], s, -INF)), (~PAD,)),
    "rows": (attended(lambda s, out: s.masked_fill(out, -INF)), (ROWS_OUT,)),
    "rows_low": (attended(lambda s, out: s.masked_fill(out, -1e9)), (ROWS_OUT,)),
    "additive": (
        attended(lambda s, bias: s + bias),
        (torch.zeros(8, 8).masked_fill(ROWS_OUT, -INF),),
    ),
    "additive_low": (
        attended(lambda s, bias: s + bias),
        (torch.zeros(8, 8).masked_fill(ROWS_OUT, -1e9),),
    ),
    "causal": (
        attended(
            lambda s: s.masked_fill(
                torch.ones(8, 8, dtype=torch.bool, device=s.device).triu(1), -INF
            )
        ),
        (),
    ),
    "causal_given": (attended(lambda s, out: s.masked_fill(out, -INF)), (EARLIER,)),
    "zeroed": (
        lambda q, k, v, pad: (
            (torch.softmax(q @ k.mT * 0.25, -1).masked_fill(pad[:, None, None], 0.0)) @ v
        ),
        (PAD,),
    ),
}
"""Hand-written attention, and its masks."""
