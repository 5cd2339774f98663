"""Small modules × inputs with NaN, infinities, huge and tiny values: the required results of every back end under every schedule.

One tensor holds all patterns, one per row, so that a case is one program; `columns` transposes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.composer.special_inputs import INF, NAN, Case, columns, image, pairs, rows, scalars
from tests.composer.special_modules import IMAGES, keys

LEFT = ("transposed", "transposed4", "conv1d")
"""Matmuls that no exact recipe computes."""
NO_KERNEL = ("hypot", "rsub")
"""Operators that may stay with PyTorch."""


UNARY: dict[str, Callable[[torch.Tensor], Any]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "clamp": lambda x: x.clamp(-0.5, 0.75),
    "clamp_min": lambda x: x.clamp_min(0.25),
    "clamp_max": lambda x: x.clamp_max(0.25),
    "clamp_inf": lambda x: x.clamp(-INF, 2.0),
    # oneDNN's gelu of -0 and of numbers far below 0 is +0 with AVX2, -0 with AVX-512: + 0.0 makes all of them +0.
    "gelu": lambda x: F.gelu(x) + 0.0,
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
