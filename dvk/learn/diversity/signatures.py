"""Coarse operator signatures: a task's kind of fusion, whichever pointwise operators are in it.

`(linear, gelu, mul, softmax)` and `(linear, relu, add, log_softmax)` ask for the same kernel shape: a matmul, an
epilogue, a row reduction. Exact signatures of generated chains are nearly all different; there are some hundred families.
"""

from __future__ import annotations

from functools import lru_cache

_CLASSES = {
    "product": "linear mm addmm bmm baddbmm matmul einsum dot mv outer bilinear scaled_dot_product_attention",
    "conv": "conv1d conv2d conv3d convolution conv_transpose1d conv_transpose2d conv_transpose3d",
    "norm": "layer_norm native_layer_norm rms_norm group_norm native_group_norm batch_norm native_batch_norm instance_norm "
    "_native_batch_norm_legit_no_training normalize",
    "softmax": "softmax _softmax log_softmax _log_softmax logsumexp softmin cross_entropy cross_entropy_loss nll_loss",
    "reduce": "sum mean amax amin max min var std prod norm linalg_vector_norm argmax argmin any all var_mean mse_loss l1_loss "
    "smooth_l1_loss huber_loss kl_div cosine_similarity count_nonzero",
    "scan": "cumsum cumprod cummax cummin logcumsumexp",
    "pool": "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d adaptive_max_pool2d upsample_nearest2d interpolate",
    "move": "view reshape transpose permute expand cat stack slice select split chunk unsqueeze squeeze flatten contiguous clone "
    "copy t unbind index gather scatter embedding roll flip pad constant_pad_nd repeat narrow to _to_copy unflatten pixel_shuffle",
}
_CLASS_OF = {name: kind for kind, names in _CLASSES.items() for name in names.split()}
_LONGEST = 6
"""Steps of a family's name that keep their order; a longer signature is named by its set of classes."""


@lru_cache(maxsize=1 << 16)
def family(signature: tuple[str, ...]) -> str:
    """The classes of the operators in order, pointwise ones as `point`, data movement left out, repeats merged."""
    steps: list[str] = []
    for name in signature:
        kind = _CLASS_OF.get(name.rstrip("_"), "point")
        if kind != "move" and steps[-1:] != [kind]:
            steps.append(kind)
    if len(steps) > _LONGEST:
        return "long: " + " ".join(sorted(set(steps)))
    return " ".join(steps) or ("move" if signature else "unknown")
