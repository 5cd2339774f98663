"""A captured graph as a query: its operators in the skills' vocabulary, cut to the rarest.

Only operators and unusual dtypes count; SSA names, sizes and other literals carry no information on technique.
`_softmax` becomes `softmax`, `addmm` also `linear` and `matmul`; a word is useful when few skills have it,
so rarity in the library decides which are kept.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dvk.skills.library import Library

QUERY_TERMS = 32
"""Rarest terms of the graph's listing in a retrieval query."""
NUM_RANKED = 20
"""Skills that retrieval ranks for a task, for the order of recipes."""

if TYPE_CHECKING:
    from dvk.records import Graph

_LINE = re.compile(r"^\w+: (?P<dtype>\w+|\?)(?:\[[^\]]*\])? = (?P<op>[\w.:]+)\(")
_WRAPPING = re.compile(r"^_*(?:native_|cudnn_|miopen_|mkldnn_|efficient_|flash_|fused_)*")
_TAIL = re.compile(r"(?:_legit|_no_training|_no_stats|_functional|_forward|_with_update)+$")

_ACTIVATIONS = (
    "relu gelu silu sigmoid tanh mish elu celu selu leaky_relu hardtanh hardswish hardsigmoid softplus relu6 prelu "
    "log_sigmoid glu"
).split()
_ARITHMETIC = (
    "add sub rsub mul div pow exp log sqrt rsqrt abs neg erf sin cos maximum minimum clamp clamp_min clamp_max where "
    "lerp addcmul addcdiv reciprocal square sign round floor masked_fill gt lt ge le eq ne logical_and logical_not "
    "remainder fmod floor_divide tan asin acos atan atan2 sinh cosh asinh acosh atanh log1p log2 log10 exp2 expm1 fmax fmin copysign "
    "hypot isnan isinf isfinite isclose nan_to_num bitwise_and bitwise_or bitwise_xor"
).split()
_WORDS = {
    # matmuls
    "addmm": "linear matmul epilogue",
    "mm": "matmul",
    "bmm": "matmul batched",
    "baddbmm": "matmul batched epilogue",
    "linear": "matmul",
    "matmul": "",
    "einsum": "matmul",
    "addmv": "matmul",
    "mv": "matmul",
    "dot": "matmul reduction",
    # convolutions
    "convolution": "conv2d conv",
    "conv1d": "conv convolution",
    "conv2d": "conv convolution channels_last",
    "conv3d": "conv convolution",
    "conv_transpose2d": "conv transposed convolution",
    # rows and reductions
    "softmax": "row",
    "log_softmax": "softmax logsumexp row",
    "logsumexp": "softmax reduction",
    "layer_norm": "normalization row",
    "rms_norm": "normalization row",
    "group_norm": "normalization",
    "instance_norm": "normalization",
    "batch_norm": "normalization fold",
    "sum": "reduction",
    "mean": "reduction",
    "amax": "max reduction",
    "amin": "min reduction",
    "max": "reduction",
    "min": "reduction",
    "prod": "reduction",
    "norm": "reduction",
    "linalg_vector_norm": "vector_norm norm reduction",
    "var": "variance reduction",
    "std": "variance reduction",
    "var_mean": "variance normalization",
    "argmax": "reduction",
    "argmin": "reduction",
    "any": "reduction",
    "all": "reduction",
    "count_nonzero": "reduction",
    "nansum": "sum reduction",
    "nanmean": "mean reduction",
    "cumsum": "scan",
    "cumprod": "scan",
    "topk": "sort",
    # attention and losses
    "scaled_dot_product_attention": "attention softmax",
    "nll_loss": "cross_entropy loss",
    "nll_loss2d": "cross_entropy nll_loss loss",
    "cross_entropy_loss": "cross_entropy loss",
    "mse_loss": "loss reduction",
    "l1_loss": "loss reduction",
    "smooth_l1_loss": "loss reduction",
    "huber_loss": "loss reduction",
    "kl_div": "loss reduction",
    "binary_cross_entropy": "loss",
    "binary_cross_entropy_with_logits": "binary_cross_entropy loss",
    # elementwise
    **dict.fromkeys(_ACTIVATIONS, "activation elementwise"),
    **dict.fromkeys(_ARITHMETIC, "elementwise"),
    "to": "cast",
    "to_copy": "cast",
    "convert_element_type": "cast",
    "dropout": "random mask",
    "bernoulli": "dropout random mask",
    # data movement
    "cat": "concat",
    "stack": "concat",
    "embedding": "gather",
    "gather": "index",
    "index": "gather",
    "index_select": "gather index",
    "scatter": "index",
    "scatter_add": "scatter atomics",
    "index_add": "scatter atomics",
    "transpose": "strided",
    "permute": "transpose strided",
    "t": "transpose",
    "contiguous": "strided",
    "clone": "copy contiguous",
    "pad": "padding",
    "constant_pad_nd": "padding",
    "roll": "",
    "max_pool2d": "pooling",
    "max_pool2d_with_indices": "max_pool2d pooling",
    "avg_pool2d": "pooling",
    "adaptive_avg_pool2d": "pooling",
    "upsample_nearest2d": "upsample interpolate",
    "upsample_bilinear2d": "upsample interpolate",
}
"""Search terms besides the operator's own name."""
_TOGETHER = (
    ({"matmul", "softmax"}, "attention"),
    ({"mean", "rsqrt"}, "rms_norm normalization"),
    ({"matmul", "sum"}, "collapse"),
    ({"sigmoid", "mul"}, "silu gated"),
)
"""Names of groups of operators that occur together, for modules that spell them out."""
_ENGLISH = {"t", "to", "any", "all", "where", "eq", "ge", "gt", "le", "lt", "ne"}
"""Operators whose names, as words, mean nothing in a text."""
_SILENT = set(
    "view reshape unsafe_view expand unsqueeze squeeze detach alias getitem slice select flatten".split()
)
"""Operators without data movement: no skill is about them."""
_DTYPES = {
    "float16": "float16 fp16 half",
    "bfloat16": "bfloat16 bf16 half",
    "float64": "float64 double",
    "int8": "int8 quantization",
    "uint8": "uint8 quantization",
}


def query_from_graph(graph: Graph, library: Library, num_terms: int) -> str:
    """Search terms for `graph`: at most `num_terms` words that `library` has, rarest first.

    Words that no skill has are left out; the result may be empty.
    """
    frequency = {word: library.frequency(word) for word in graph_words(graph.listing())}
    known = [word for word, count in frequency.items() if count]
    return " ".join(sorted(known, key=lambda word: frequency[word])[:num_terms])


def graph_words(listing: str) -> list[str]:
    """The distinct words of a listing (`Graph.listing()`), in order of appearance, before any cut."""
    words: dict[str, None] = {}
    for line in listing.splitlines():
        if not (match := _LINE.match(line)):
            continue
        operator = _plain(match["op"])
        if operator not in _SILENT:
            own = "" if operator in _ENGLISH else operator
            words.update(dict.fromkeys(f"{own} {_WORDS.get(operator, '')}".split()))
        words.update(dict.fromkeys(_DTYPES.get(match["dtype"], "").split()))
    for parts, known_as in _TOGETHER:
        if parts <= words.keys():
            words.update(dict.fromkeys(known_as.split()))
    return list(words)


def _plain(op: str) -> str:
    """`aten._native_batch_norm_legit_no_training.default` → `batch_norm`; `relu_` → `relu`."""
    parts = re.split(r"\.|::", op)
    name = parts[1] if len(parts) > 1 and parts[0] in ("aten", "prims", "torchvision") else parts[0]
    plain = _TAIL.sub("", _WRAPPING.sub("", name).rstrip("_"))
    if "dot_product" in plain and "attention" in plain:  # one operator a kernel that may serve it
        return "scaled_dot_product_attention"
    return "batch_norm" if "batch_norm" in plain else plain or name
