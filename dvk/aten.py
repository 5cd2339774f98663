"""The table of ATen operators that dvk treats specially: one row each, from which every other table of operators derives.

What PyTorch declares is not listed: aliases and writes come from schemas, random draws from tags (`dvk.composer.ir.effects`). A test
compares the rows with PyTorch's tags and schemas. This module loads no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

POINTWISE = ("arithmetic", "comparison", "logic", "activation")
"""Categories of elementwise operators."""
REARRANGING = ("view", "reshape", "cut", "move", "gather", "cast")
"""Categories of operators that put elements elsewhere, or convert them; `reshape` keeps their order, `cut` returns several views."""


@dataclass(frozen=True)
class AtenOperator:
    """One operator."""

    name: str
    category: str
    family: str | None = ""
    """Operators of one family count as the same in generated tasks; empty: the name itself; None: not counted."""
    words: str | None = ""
    """Search terms for skills besides the name; None: no skill is about it."""
    factors: tuple[int, int] | None = None
    """Positions of the two operands that are multiplied and summed."""
    bounds: tuple[float, float] = (-math.inf, math.inf)
    """Bounds of floating-point results, except NaN."""
    reduces: bool = False
    """Kernels that reduce rows compute it."""
    library: bool = False
    """A call of a library that returns fresh memory: a kernel may fuse its epilogue and overwrite its result."""
    in_torch: bool = False
    """`torch.NAME` takes the same positional arguments, at a lower call cost than torch.ops."""
    channels: bool = False
    """Its fake kernel guesses the layout of the result from that of a map of channels."""
    may_alias: bool = False
    """The result may be an operand, or a view of one, and the schema does not say so."""
    idempotent: bool = False
    """Applied twice it does what it does once."""
    decomposed: bool = False
    """A function of torch made of composable operators; whole it would stay a call of up to a dozen kernels."""
    autocast_inside: bool = False
    """Autocast affects it only inside: its operands are cast."""


def _rows(category: str, names: str, **traits: Any) -> list[AtenOperator]:
    return [AtenOperator(name, category, **traits) for name in names.split()]


OPERATORS: Mapping[str, AtenOperator] = {
    row.name: row
    for row in (
        *_rows("arithmetic", "abs", words="elementwise", bounds=(0.0, math.inf), idempotent=True),
        *_rows("arithmetic", "ceil trunc", idempotent=True),
        *_rows("arithmetic", "clamp_max clamp_min", family="clamp", words="elementwise"),
        *_rows("arithmetic", "clip", family="clamp"),
        *_rows("arithmetic", "conj_physical", may_alias=True),
        *_rows("arithmetic", "exp", words="elementwise", bounds=(0.0, math.inf), in_torch=True),
        *_rows("arithmetic", "floor round sign", words="elementwise", idempotent=True),
        *_rows("arithmetic", "log", words="elementwise", in_torch=True),
        *_rows("arithmetic", "masked_fill", family="where", words="elementwise"),
        *_rows("arithmetic", "rsub sub", family="add", words="elementwise"),
        *_rows("arithmetic", "special_erf", family="erf"),
        *_rows("arithmetic", "special_expit", family="sigmoid"),
        *_rows("arithmetic", "sqrt", words="elementwise", bounds=(0.0, math.inf)),
        *_rows("arithmetic", "square", family="mul", words="elementwise", bounds=(0.0, math.inf)),
        *_rows("arithmetic", "subtract", family="add"),
        *_rows(
            "arithmetic",
            "add addcdiv addcmul clamp copysign floor_divide fmax fmin fmod hypot lerp maximum minimum mul remainder rsqrt where",
            words="elementwise",
        ),
        *_rows(
            "arithmetic",
            "acos acosh asin asinh atan atan2 atanh cos cosh erf exp2 expm1",
            words="elementwise",
        ),
        *_rows("arithmetic", "log10 log1p log2 nan_to_num sin sinh tan", words="elementwise"),
        *_rows("arithmetic", "div neg pow reciprocal", family="mul", words="elementwise"),
        *_rows("arithmetic", "divide multiply negative true_divide", family="mul"),
        *_rows("comparison", "eq ge gt le lt ne", family="where", words="elementwise"),
        *_rows("comparison", "isclose isfinite isinf isnan", words="elementwise"),
        *_rows("logic", "bitwise_not logical_or", family="where"),
        *_rows("logic", "bitwise_xor", words="elementwise"),
        *_rows(
            "logic",
            "bitwise_and bitwise_or logical_and logical_not",
            family="where",
            words="elementwise",
        ),
        *_rows("activation", "_prelu_kernel", family="prelu"),
        *_rows("activation", "hardsigmoid", words="activation elementwise", bounds=(0.0, 1.0)),
        *_rows("activation", "hardtanh relu6", family="clamp", words="activation elementwise"),
        *_rows("activation", "relu tanh", words="activation elementwise", in_torch=True),
        *_rows(
            "activation",
            "sigmoid",
            words="activation elementwise",
            bounds=(0.0, 1.0),
            in_torch=True,
        ),
        *_rows(
            "activation",
            "celu elu gelu glu hardswish leaky_relu log_sigmoid mish prelu selu silu softplus",
            words="activation elementwise",
        ),
        *_rows("matmul", "addbmm", factors=(1, 2)),
        *_rows(
            "matmul",
            "addmm",
            family="matmul",
            words="linear matmul epilogue",
            factors=(1, 2),
            library=True,
            in_torch=True,
        ),
        *_rows("matmul", "addmv", words="matmul", factors=(1, 2)),
        *_rows(
            "matmul",
            "baddbmm",
            family="matmul",
            words="matmul batched epilogue",
            factors=(1, 2),
            library=True,
            in_torch=True,
        ),
        *_rows(
            "matmul",
            "bmm",
            family="matmul",
            words="matmul batched",
            factors=(0, 1),
            library=True,
            in_torch=True,
        ),
        *_rows("matmul", "dot", words="matmul reduction", factors=(0, 1)),
        *_rows(
            "matmul", "einsum", words="matmul", in_torch=True, may_alias=True, autocast_inside=True
        ),
        *_rows("outer", "kron", decomposed=True),
        *_rows("matmul", "linear", family="matmul", words="matmul", factors=(0, 1), library=True),
        *_rows("matmul", "matmul", factors=(0, 1), library=True, in_torch=True),
        *_rows(
            "matmul",
            "mm",
            family="matmul",
            words="matmul",
            factors=(0, 1),
            library=True,
            in_torch=True,
        ),
        *_rows("matmul", "mv", words="matmul", factors=(0, 1)),
        *_rows("outer", "outer", in_torch=True, decomposed=True),
        *_rows("matmul", "chain_matmul inner linalg_multi_dot tensordot", autocast_inside=True),
        *_rows("convolution", "_convolution", factors=(0, 1)),
        *_rows(
            "convolution",
            "conv1d conv3d",
            family="conv",
            words="conv convolution",
            library=True,
            in_torch=True,
            channels=True,
        ),
        *_rows(
            "convolution",
            "conv2d",
            family="conv",
            words="conv convolution channels_last",
            library=True,
            in_torch=True,
            channels=True,
        ),
        *_rows(
            "convolution",
            "conv_transpose1d conv_transpose3d",
            family="conv_transpose",
            library=True,
            in_torch=True,
            channels=True,
        ),
        *_rows(
            "convolution",
            "conv_transpose2d",
            family="conv_transpose",
            words="conv transposed convolution",
            library=True,
            in_torch=True,
            channels=True,
        ),
        *_rows(
            "convolution",
            "convolution",
            family="conv",
            words="conv2d conv",
            factors=(0, 1),
            library=True,
            channels=True,
        ),
        *_rows("attention", "scaled_dot_product_attention", words="attention softmax"),
        *_rows("reduction", "amax", words="max reduction", reduces=True),
        *_rows("reduction", "amin", words="min reduction", reduces=True),
        *_rows("reduction", "argmax argmin", words="reduction", in_torch=True),
        *_rows("reduction", "histogramdd sum_to_size", may_alias=True),
        *_rows("reduction", "linalg_norm", family="norm"),
        *_rows(
            "reduction",
            "linalg_vector_norm",
            family="norm",
            words="vector_norm norm reduction",
            reduces=True,
        ),
        *_rows("reduction", "max", family="amax", words="reduction", reduces=True),
        *_rows("reduction", "min", family="amin", words="reduction", reduces=True),
        *_rows("reduction", "nanmean", words="mean reduction", reduces=True),
        *_rows("reduction", "nansum", words="sum reduction", reduces=True),
        *_rows("reduction", "std", family="var", words="variance reduction", reduces=True),
        *_rows("reduction", "std_mean", family="var", reduces=True),
        *_rows("reduction", "var", words="variance reduction", reduces=True),
        *_rows("reduction", "var_mean", family="var", words="variance normalization", reduces=True),
        *_rows(
            "reduction", "all any count_nonzero mean norm prod sum", words="reduction", reduces=True
        ),
        *_rows("softmax", "_log_softmax _softmax", reduces=True),
        *_rows(
            "softmax", "log_softmax", words="softmax logsumexp row", reduces=True, in_torch=True
        ),
        *_rows("softmax", "logsumexp", words="softmax reduction", reduces=True),
        *_rows(
            "softmax", "softmax", words="row", bounds=(0.0, math.inf), reduces=True, in_torch=True
        ),
        *_rows(
            "normalization", "batch_norm", words="normalization fold", in_torch=True, channels=True
        ),
        *_rows(
            "normalization",
            "group_norm instance_norm",
            words="normalization",
            reduces=True,
            in_torch=True,
            channels=True,
        ),
        *_rows(
            "normalization", "layer_norm", words="normalization row", reduces=True, in_torch=True
        ),
        *_rows("normalization", "rms_norm", words="normalization row", reduces=True),
        *_rows("loss", "binary_cross_entropy", words="loss", reduces=True),
        *_rows(
            "loss",
            "binary_cross_entropy_with_logits",
            family="bce_logits",
            words="binary_cross_entropy loss",
            reduces=True,
        ),
        *_rows("loss", "cosine_similarity pairwise_distance soft_margin_loss", reduces=True),
        *_rows(
            "loss",
            "cross_entropy_loss nll_loss",
            family="cross_entropy",
            words="cross_entropy loss",
            reduces=True,
        ),
        *_rows("loss", "nll_loss2d", words="cross_entropy nll_loss loss"),
        *_rows("loss", "nll_loss_nd", family="cross_entropy", reduces=True),
        *_rows(
            "loss",
            "cosine_embedding_loss hinge_embedding_loss margin_ranking_loss poisson_nll_loss triplet_margin_loss",
            decomposed=True,
        ),
        *_rows(
            "loss",
            "huber_loss kl_div l1_loss mse_loss smooth_l1_loss",
            words="loss reduction",
            reduces=True,
        ),
        *_rows("scan", "cummax cummin"),
        *_rows("scan", "cumprod", words="scan"),
        *_rows("scan", "cumsum", words="scan", in_torch=True),
        *_rows("sort", "topk", words="sort"),
        *_rows(
            "pooling",
            "adaptive_avg_pool2d avg_pool2d",
            family="pool",
            words="pooling",
            channels=True,
        ),
        *_rows("pooling", "adaptive_avg_pool3d avg_pool3d", family="pool", channels=True),
        *_rows(
            "pooling", "max_pool2d", family="pool", words="pooling", in_torch=True, channels=True
        ),
        *_rows("pooling", "max_pool2d_with_indices", words="max_pool2d pooling"),
        *_rows(
            "pooling",
            "adaptive_avg_pool1d avg_pool1d max_pool1d max_pool3d",
            family="pool",
            in_torch=True,
            channels=True,
        ),
        *_rows(
            "resampling", "upsample_bilinear2d upsample_nearest2d", words="upsample interpolate"
        ),
        *_rows("dropout", "alpha_dropout feature_alpha_dropout feature_dropout", may_alias=True),
        *_rows(
            "dropout", "dropout", family=None, words="random mask", in_torch=True, may_alias=True
        ),
        *_rows("random", "bernoulli", words="dropout random mask"),
        *_rows("gather", "embedding", words="gather", in_torch=True),
        *_rows("gather", "gather", words="index"),
        *_rows("gather", "index", words="gather"),
        *_rows("gather", "index_select", words="gather index"),
        *_rows("scatter", "index_add scatter_add", words="scatter atomics"),
        *_rows("scatter", "scatter", words="index"),
        *_rows("move", "cat stack", words="concat", in_torch=True),
        *_rows("move", "clone", family=None, words="copy contiguous"),
        *_rows("move", "constant_pad_nd pad", words="padding"),
        *_rows("move", "contiguous", family=None, words="strided"),
        *_rows("move", "copy_"),
        *_rows("move", "lift_fresh_copy", family=None),
        *_rows(
            "move", "cartesian_prod channel_shuffle pixel_shuffle pixel_unshuffle", may_alias=True
        ),
        *_rows("move", "flip roll tril triu", in_torch=True),
        *_rows("cast", "_to_copy to", family=None, words="cast"),
        *_rows("cast", "to_mkldnn", may_alias=True),
        *_rows("cast", "type_as", family=None, may_alias=True),
        *_rows("view", "broadcast_tensors", family=None, may_alias=True),
        *_rows("view", "permute", family=None, words="transpose strided"),
        *_rows("view", "t", family=None, words="transpose"),
        *_rows("view", "transpose", family=None, words="strided"),
        *_rows("view", "alias detach expand select slice", family=None, words=None),
        *_rows("view", "as_strided diagonal swapaxes unfold view_as"),
        *_rows("view", "atleast_1d atleast_2d atleast_3d meshgrid", may_alias=True),
        *_rows("view", "detach_ expand_as lift_fresh mT movedim narrow numpy_T", family=None),
        *_rows("reshape", "_unsafe_view", family=None, words=None, may_alias=True),
        *_rows("reshape", "unflatten", family=None),
        *_rows("reshape", "flatten reshape squeeze unsqueeze view", family=None, words=None),
        *_rows("cut", "chunk split split_with_sizes unbind", family=None),
        *_rows("view", "unsafe_chunk unsafe_split unsafe_split_with_sizes", may_alias=True),
        *_rows("view", "dsplit hsplit vsplit"),
        *_rows("create", "empty empty_like"),
        *_rows(
            "create",
            "arange full full_like ones ones_like scalar_tensor zeros zeros_like",
            family=None,
        ),
        *_rows("check", "_assert_tensor_metadata", family=None),
    )
}


@cache
def having(trait: str) -> frozenset[str]:
    """Names of the operators with a true trait, such as `reduces`."""
    return frozenset(row.name for row in OPERATORS.values() if getattr(row, trait))


@cache
def of(*categories: str) -> frozenset[str]:
    """Names of the operators of some categories."""
    return frozenset(row.name for row in OPERATORS.values() if row.category in categories)


def family(name: str) -> str | None:
    """The family of any ATen operator; None if it is not counted."""
    row = OPERATORS.get(name)
    return name if row is None or row.family == "" else row.family


REDUCING = having("reduces")
LIBRARY = having("library")
FACTORS: Mapping[str, tuple[int, int]] = {
    row.name: row.factors for row in OPERATORS.values() if row.factors is not None
}
CONVOLUTIONS: Mapping[str, int] = {
    name: int(name[-2]) for name in of("convolution") if name.endswith("d")
}
"""Convolutions and transposed convolutions → number of dimensions of their window."""
