"""Small modules × inputs with NaN, infinities, huge and tiny values: the required results of every back end under every schedule.

One tensor holds all patterns, one per row, so that a case is one program; `columns` transposes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

NAN, INF = math.nan, math.inf
LEFT = ("transposed", "transposed4", "conv1d")
"""Matmuls that no exact recipe computes."""
NO_KERNEL = ("hypot", "rsub")
"""Operators that may stay with PyTorch."""
TINY = 1e-42
"""A denormal of float32."""
SCALARS = (
    NAN,
    INF,
    -INF,
    0.0,
    -0.0,
    1e30,
    -1e30,
    3e38,
    -3e38,
    TINY,
    -TINY,
    1e-30,
    0.5,
    -0.5,
    1.0,
    -1.0,
    2.5,
    -2.5,
    3.5,
    -3.0,
    20.5,
    -20.5,
    88.0,
    -88.0,
    100.0,
    -104.0,
    6.0,
    65504.0,
    65520.0,
    1e5,
    -1e5,
    16777217.0,
)


def rows(length: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """[patterns, length]: finite numbers with special ones at the row's start, middle and end, and rows of one value alone."""
    usual = torch.linspace(-2, 2, length).roll(length // 3)
    found = [usual]
    for values in ((NAN,), (INF,), (-INF,), (INF, -INF), (-INF, NAN), (NAN, INF)):
        for at in (0, length // 2, length - 2, length - len(values)):
            row = usual.clone()
            row[at : at + len(values)] = torch.tensor(values)
            found.append(row)
    found += [
        torch.full((length,), value) for value in (NAN, INF, -INF, 0.0, -0.0, 3.0, 1e30, TINY)
    ]
    last = torch.full((length,), -INF)
    last[-1] = 1.0
    first = torch.full((length,), -INF)
    first[0] = NAN
    found += [
        last,
        first,
        usual * 1e30,
        usual.abs() * 1e35,
        usual * 1e-40,
        -usual.abs(),
        usual * 40,
    ]
    return torch.stack(found).to(dtype)


def scalars(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Every special value, three times over, so that it falls into vector lanes and the remainder loop."""
    return torch.tensor(SCALARS * 3 + (NAN, INF, 1.0)).to(dtype)


def pairs(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Every special value with every other."""
    x = torch.tensor(SCALARS[:22]).to(dtype)
    return x[:, None].expand(-1, len(x)).contiguous(), x.expand(len(x), -1).contiguous()


def image(height: int = 9, width: int = 11) -> torch.Tensor:
    """[2, 3, height, width] with special values in the corners, at the borders and inside, and a plane of -inf."""
    x = torch.linspace(-2, 2, 6 * height * width).roll(17).reshape(2, 3, height, width).clone()
    x[0, 0, 0, 0], x[0, 0, -1, -1], x[0, 1, 3, 4], x[0, 1, -1, 2] = NAN, NAN, INF, -INF
    x[1, 0] = -INF
    x[1, 1, 2, 2], x[1, 1, 2, 3], x[1, 1, 6, 7], x[1, 2, 0, 5], x[1, 2, 4, 0] = (
        INF,
        -INF,
        NAN,
        -INF,
        3e38,
    )
    return x


@dataclass(frozen=True)
class Case:
    """One program."""

    function: Callable[..., Any]
    args: tuple[torch.Tensor, ...]
    relative: float = 2e-5
    """Largest difference of finite results, relative to the value plus `scale`."""
    scale: torch.Tensor | None = None
    """One number per row of the results."""
    zero: bool = False
    """The sign of zeros counts."""


UNARY: dict[str, Callable[[torch.Tensor], Any]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "clamp": lambda x: x.clamp(-0.5, 0.75),
    "clamp_min": lambda x: x.clamp_min(0.25),
    "clamp_max": lambda x: x.clamp_max(0.25),
    "clamp_inf": lambda x: x.clamp(-INF, 2.0),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "elu": F.elu,
    "celu": F.celu,
    "celu2": lambda x: F.celu(x, 0.5),
    "selu": F.selu,
    "elu2": lambda x: F.elu(x, 0.3),
    "leaky": lambda x: F.leaky_relu(x, 0.1),
    "softplus": F.softplus,
    "softplus2": lambda x: F.softplus(x, 2.0, 5.0),
    "logsigmoid": F.logsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    "exp": torch.exp,
    "log": torch.log,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "exp2": torch.exp2,
    "log2": torch.log2,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "erf": torch.erf,
    "abs": torch.abs,
    "neg": torch.neg,
    "sign": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": torch.round,
    "frac": torch.frac,
    "square": torch.square,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "nan_to_num": torch.nan_to_num,
    "nan_to_num2": lambda x: torch.nan_to_num(x, 1.0, 2.0, -2.0),
    "pow2": lambda x: x**2,
    "pow3": lambda x: x**3,
    "pow0.5": lambda x: x**0.5,
    "pow-0.5": lambda x: x**-0.5,
    "pow-1": lambda x: x**-1,
    "pow-3": lambda x: x**-3,
    "pow1.7": lambda x: x**1.7,
    "pow-2.5": lambda x: x**-2.5,
    "pow0": lambda x: x**0,
    "2**x": lambda x: 2.0**x,
    "0.5**x": lambda x: 0.5**x,
    "times0": lambda x: x * 0,
    "x-x": lambda x: x - x,
    "x/x": lambda x: x / x,
    "1/x": lambda x: 1 / x,
    "div0": lambda x: x / 0.0,
    "not": torch.logical_not,
    "eq": lambda x: x == x,
    "gt": lambda x: x > 0.0,
    "le": lambda x: x <= 0.5,
    "ne": lambda x: x != 0.5,
    "where": lambda x: torch.where(x > 0, x, -x),
    "where0": lambda x: torch.where(x.isnan(), 0.0, x),
    "masked_fill": lambda x: x.masked_fill(x < 0, -INF),
    "plus0": lambda x: x + 0.0,
    "minus0": lambda x: 0.0 - x,
    "log_softplus": lambda x: torch.log(F.softplus(x)),
    "half": lambda x: x.half().float(),
    "bfloat16": lambda x: x.bfloat16().float(),
    "addcdiv": lambda x: torch.addcdiv(x, x, x, value=0.5),
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "eq": torch.eq,
    "ne": torch.ne,
    "hypot": torch.hypot,
    "div_trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "logaddexp": torch.logaddexp,
    "xlogy": torch.xlogy,
    "pow": torch.pow,
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "lerp2": lambda x, y: torch.lerp(x, y, 0.7),
    "clamp": lambda x, y: torch.clamp(x, y, y + 1),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=2.0),
    "mse": lambda x, y: F.mse_loss(x, y, reduction="none"),
    "l1": lambda x, y: F.l1_loss(x, y, reduction="none"),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, reduction="none", beta=0.5),
    "rsub": lambda x, y: torch.rsub(x, y, alpha=2),
    "huber": lambda x, y: F.huber_loss(x, y, reduction="none", delta=2.0),
    "and": torch.logical_and,
    "or": torch.logical_or,
    "soft_margin": lambda x, y: F.soft_margin_loss(x, y, reduction="none"),
    "prelu": lambda x, y: torch.where(x > 0, x, y * x),
    "bce_logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
    "bce_logits_pos": lambda x, y: F.binary_cross_entropy_with_logits(
        x, y, reduction="none", pos_weight=torch.full_like(y, 2.0)
    ),
    "kl": lambda x, y: F.kl_div(x, y, reduction="none"),
    "kl_log": lambda x, y: F.kl_div(x, y, reduction="none", log_target=True),
    "where": lambda x, y: torch.where(x > y, x, y),
    "glu": lambda x, y: F.glu(torch.cat([x, y], 1), 1),
}


def known_mean(var: torch.Tensor, mean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Skip non-finite means: eager's is infinite or NaN, depending on the position of the infinity in the row."""
    return var, mean.nan_to_num(0.0, 0.0, 0.0)


ROWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "softmax": lambda x: torch.softmax(x, 1),
    "log_softmax": lambda x: torch.log_softmax(x, 1),
    "softmin": lambda x: F.softmin(x, 1),
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "sum": lambda x: x.sum(1),
    "mean": lambda x: x.mean(1),
    "prod": lambda x: x.prod(1),
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(1),
    "max": lambda x: x.max(1).values,
    "min": lambda x: x.min(1).values,
    "max_pair": lambda x: tuple(x.max(1)),
    "min_pair": lambda x: tuple(x.min(1)),
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(1),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(1),
    "var_mean": lambda x: known_mean(*torch.var_mean(x, 1)),
    "norm1": lambda x: torch.linalg.vector_norm(x, 1, 1),
    "norm2": lambda x: x.norm(dim=1),
    "norm_inf": lambda x: torch.linalg.vector_norm(x, INF, 1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[1:]),
    "group_norm": lambda x: F.group_norm(x[:, :, None], 1),
    "instance_norm": lambda x: F.instance_norm(x[:, None]),
    "normalize": lambda x: F.normalize(x, dim=1),
    "masked_softmax": lambda x: torch.softmax(x.masked_fill(x < -1, -INF), 1),
    "tanh_softmax": lambda x: torch.softmax(30 * torch.tanh(x / 30), 1),
    "relu_max": lambda x: F.relu(x).amax(1),
    "gelu_layer_norm": lambda x: F.layer_norm(F.gelu(x), x.shape[1:]),
    "log_sum": lambda x: torch.log(x.exp().sum(1)),
    "log_sum_by_hand": lambda x: torch.log(torch.exp(x - x.amax(1, keepdim=True)).sum(1)),
    "entropy": lambda x: -(x.softmax(1) * x.softmax(1).log()).sum(1),
    "centred": lambda x: x - x.mean(1, keepdim=True),
    "over_max": lambda x: x / x.amax(1, keepdim=True),
    "softmax_max": lambda x: torch.softmax(x, 1) + x.amax(1, keepdim=True),
    "softmax_where": lambda x: torch.where(x > 1e3, 0.0, torch.softmax(x, 1)),
    "cosine": lambda x: F.cosine_similarity(x, x.flip(0).clone(), 1),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(1),
    "cummax": lambda x: tuple(x.cummax(1)),
    "cummin": lambda x: tuple(x.cummin(1)),
    "cummax_values": lambda x: x.cummax(1).values,
    "all_sum": lambda x: (x.abs() < 3).sum(1),
    "nll": lambda x: F.nll_loss(x, torch.arange(len(x), device=x.device) % 3, reduction="none"),
    "cross_entropy": lambda x: F.cross_entropy(
        x, torch.arange(len(x), device=x.device) % x.shape[1], reduction="none"
    ),
    "cross_entropy_smooth": lambda x: F.cross_entropy(
        x, torch.arange(len(x), device=x.device) % 5, reduction="none", label_smoothing=0.1
    ),
    "mean_of_all": lambda x: x[:1].mean() + x[-3:].amax(),
    "pairwise": lambda x: F.pairwise_distance(x, x.flip(0).clone()),
}

COLUMNS = [name for name in ROWS if name not in ("group_norm", "instance_norm", "mean_of_all")]
"""Rows that may also be strided in memory."""
LOOSE = {
    "gelu_layer_norm": 1e-3,
    "layer_norm": 1e-3,
    "group_norm": 1e-3,
    "instance_norm": 1e-3,
    "prod": 1e-4,
    "cumprod": 1e-4,
}
"""Norms of rows of equal values divide a rounding error by the root of epsilon."""


def row_case(name: str, length: int) -> Case:
    """Rows with special values."""
    x = rows(length)
    if name in ("prod", "cumprod"):
        x = torch.where(x.isfinite() & (x != 0), x.sign() * x.abs().clamp(0.9, 1.1), x)
    return Case(
        ROWS[name], (x,), LOOSE.get(name, 2e-5), x.nan_to_num(0, 0, 0).abs().amax(1).double()
    )


def columns(case: Case) -> Case:
    """The same with rows that are strided in memory."""
    return Case(
        lambda x: case.function(x.t()), (case.args[0].t().contiguous(),), case.relative, case.scale
    )


def wrong(found: Any, expected: Any, case: Case) -> str:
    """The first difference in words; empty if NaN, infinities and numbers are in the right elements."""
    leaves = torch.utils._pytree.tree_leaves
    for number, (a, b) in enumerate(zip(leaves(found), leaves(expected), strict=True)):
        a, b = a.cpu(), b.cpu()
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"#{number}: {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
        if not b.is_floating_point():
            bad = a != b
        else:
            a, b = a.double(), b.double()
            size = b.abs()
            if case.scale is not None and b.dim() and len(b) == len(case.scale):
                size = size + case.scale.reshape(-1, *(1 for _ in b.shape[1:]))
            same = (a == b) | (a.isnan() & b.isnan())
            bad = ~same & ~(
                a.isfinite() & b.isfinite() & ((a - b).abs() <= case.relative * size + 1e-6)
            )
            if case.zero:
                bad |= (a == 0) & (b == 0) & (a.signbit() != b.signbit())
        if bad.any():
            at = tuple(bad.nonzero()[0].tolist())
            return f"#{number}{list(at)}: {a[at].item()} instead of {b[at].item()}, {int(bad.sum())} in all"
    return ""


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


def weight(*shape: int) -> torch.Tensor:
    """Moderate numbers of both signs, none of them 0."""
    values = torch.linspace(-1, 1, math.prod(shape) + 3)[2:-1]
    return (
        torch.where(values.abs() < 1e-3, 0.25, values)
        .roll(math.prod(shape) // 3)
        .reshape(shape)
        .clone()
    )


def matrix(count: int, width: int) -> torch.Tensor:
    """[count, width] with special values here and there."""
    x = weight(count, width).clone()
    x[0, 0], x[1, -1], x[2, width // 2], x[3, 1], x[3, 2] = NAN, INF, -INF, INF, -INF
    x[4, 0], x[5] = 1e30, 0.0
    return x


def zeroed(value: torch.Tensor) -> torch.Tensor:
    """With zeros, which an infinity turns into NaN."""
    value = value.clone()
    value.view(-1)[::5] = 0.0
    return value


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
ODD: dict[str, Callable[[], tuple[torch.Tensor, ...]]] = {
    **{
        f"{value} in key {at}": (lambda at=at, value=value: keys(at, value))
        for at in (0, 6)
        for value in (NAN, INF)
    },  # type: ignore[misc]
    "NaN in values": lambda: (lambda q, k, v: (q, k, v.index_fill(2, torch.tensor([6]), NAN)))(
        *keys(0, 0.0)
    ),
    "inf in a query": lambda: (lambda q, k, v: (q.index_fill(2, torch.tensor([0, 2]), INF), k, v))(
        *keys(0, 0.0)
    ),
    "huge": lambda: (lambda q, k, v: (q * 1e25, k * 1e25, v))(*keys(0, 0.0)),
    "usual": lambda: keys(0, 0.5),
}

SQUARED = (
    "var",
    "std",
    "var_mean",
    "norm2",
    "layer_norm",
    "rms_norm",
    "group_norm",
    "instance_norm",
    "normalize",
    "gelu_layer_norm",
    "cosine",
    "pairwise",
    "lp",
)
"""Operators that square their operand: if the square overflows, PyTorch's GPU kernels have other answers than its CPU kernels."""


def halves() -> dict[str, Case]:
    """float16 that overflows between operators."""
    functions: dict[str, Callable[[torch.Tensor], Any]] = {
        "product": lambda x: (x * x) * 1e-3,
        "exp": lambda x: torch.exp(x) * 1e-3,
        "difference": lambda x: (x * x) - (x * x),
        "row sum": lambda x: x.abs().sum(-1, keepdim=True) * 1e-3 + x,
    }
    return {
        f"{name} of halves": Case(f, (scalars(torch.float16)[:96].reshape(3, 32),), 5e-3)
        for name, f in functions.items()
    }


def few_for_kernels() -> dict[str, Case]:
    """Cases that interpreters of Triton and CUDA finish in a minute; operators one by one, because one kernel of them all is slow to
    interpret."""
    names = (
        "relu",
        "clamp",
        "gelu",
        "gelu_tanh",
        "mish",
        "logsigmoid",
        "hardswish",
        "softplus",
        "elu",
        "sign",
        "pow-3",
        "pow1.7",
        "round",
    )
    found = {name: Case(UNARY[name], (scalars(),)) for name in names}
    found |= {
        name: Case(BINARY[name], pairs())
        for name in ("maximum", "bce_logits", "pow", "clamp", "logaddexp")
    }
    rowwise = (
        "softmax",
        "logsumexp",
        "amin",
        "max_pair",
        "argmin",
        "var_mean",
        "layer_norm",
        "cummax",
        "cumsum",
        "relu_max",
        "norm_inf",
    )
    found |= {f"{name} of rows": row_case(name, 37) for name in rowwise} | halves()
    return found | {
        f"{name} of columns": columns(row_case(name, 37))
        for name in ("softmax", "amax", "layer_norm")
    }


def for_gpu(exact_division: bool) -> dict[str, Case]:
    """The whole table, on values for which PyTorch has one answer on every device.

    Args:
        exact_division: quotients by numbers above 2^126, and of denormals, are IEEE's; Triton's `/` gives 0 for them.
    """

    def usual(x: torch.Tensor, name: str = "") -> torch.Tensor:
        odd = x.isfinite() & (x != 0) & ((x.abs() > 1e37) | (x.abs() < 1e-37))
        return x if exact_division and name not in OTHERWISE_ON_GPU else torch.where(odd, 1.25, x)

    def small(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.isfinite() & (x.abs() > 1e15), x * 1e-35, x)

    def given(case: Case, name: str = "") -> Case:
        args = tuple(
            small(usual(a, name)) if name in SQUARED else usual(a, name) for a in case.args
        )
        return Case(case.function, args, max(case.relative, 1e-4), case.scale)

    found = {
        name: given(Case(f, (scalars(),))) for name, f in UNARY.items() if name != "log_softplus"
    }
    found |= {
        f"{name} of two": given(Case(f, pairs()), name)
        for name, f in BINARY.items()
        if name not in NO_KERNEL
    }
    found |= {
        f"{name} of rows": given(row_case(name, 37), name)
        for name in ROWS
        if name not in NOISY_ON_GPU
    }
    found |= {
        f"{name} of long rows": given(row_case(name, 1100), name)
        for name in ROWS
        if not name.startswith(("prod", "cumprod")) and name not in NOISY_ON_GPU
    }
    found |= {
        f"{name} of columns": given(columns(row_case(name, 37)), name)
        for name in COLUMNS
        if name not in NOISY_ON_GPU
    }
    found |= {
        f"{name} of images": given(Case(f, (image(),)), name)
        for name, f in IMAGES.items()
        if name not in NOT_ON_GPU
    }
    return found | halves()


OTHERWISE_ON_GPU = ("addcmul",)
"""PyTorch's kernels for GPUs multiply in another order near overflow."""
NOISY_ON_GPU = ("gelu_layer_norm",)
"""Gelu of a constant row: it passes the rounding of the mean on, which differs by device."""
NOT_ON_GPU = ("batch_norm", "group_norm", "instance_norm", "upsample")
"""Cases of images: the libraries' answers for infinities differ."""
