"""Find torch calls of a text that fail: each is made on tensors without memory, which have only a shape and a type.

A text is read, never run: names, numbers, indexing, arithmetic and calls of the functions named here, on at least one tensor. Other values
are unknown, and so are values that depend on them.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from dvk.composer.ir.affine import contiguous_strides
from dvk.records import Node

FUNCTIONS = frozenset(
    """
    linear matmul mm bmm addmm baddbmm conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    scaled_dot_product_attention batch_norm layer_norm group_norm instance_norm rms_norm softmax log_softmax sum mean amax amin max min
    prod var std logsumexp linalg_vector_norm cumsum cumprod logcumsumexp cummax cummin sort topk flip roll cat stack embedding
    index_select gather pad max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d pixel_shuffle
    pixel_unshuffle add sub mul div neg abs pow square sqrt rsqrt reciprocal exp log log1p expm1 erf sin cos tanh sigmoid relu relu6 gelu
    silu elu selu celu mish softplus softshrink hardswish hardsigmoid hardtanh leaky_relu log_sigmoid logsigmoid clamp clamp_min clamp_max
    maximum minimum where masked_fill lerp mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits
    soft_margin_loss cross_entropy_loss nll_loss kl_div margin_ranking_loss hinge_embedding_loss cosine_similarity pairwise_distance
""".split()
)
METHODS = frozenset(
    "view reshape permute transpose contiguous expand unsqueeze squeeze flatten t narrow new_empty".split()
)
WORDS = frozenset(
    """dtype dim keepdim correction approximate alpha beta value mode is_causal scale reduction memory_format weight bias
    padding stride dilation groups""".split()
)
"""Keywords that set neither where a result is allocated nor its destination."""
OWN = (
    "meta",
    "storage",
    "view size is not compatible",
    "not implemented",
    "could not run",
    "overflow",
)
"""Errors that might not occur for a tensor with memory contain these."""
_NAME = re.compile(r"\b[a-z]\w*")
_OPERATIONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


class _Unknown(Exception):
    """The value is unknown."""


class HostCalls:
    """The values of a text's host lines, in order."""

    def __init__(self, nodes: Mapping[str, Node], sizes: Mapping[str, int]):
        self.nodes, self.values = nodes, dict[str, Any](sizes)

    def listed(self, name: str) -> None:
        """A tensor as listed."""
        node = self.nodes[name]
        shape, kind = tuple(map(int, node.shape or ())), getattr(torch, str(node.dtype), None)
        strides = tuple(map(int, node.strides or contiguous_strides(shape)))
        self.values.pop(name, None)
        if isinstance(kind, torch.dtype):
            self.values[name] = torch.empty_strided(shape, strides, dtype=kind, device="meta")

    def assigned(self, name: str, value: str) -> str | None:
        """Evaluate a line `name = value`; PyTorch's error, or None if there is none."""
        # A call may change the shape of an operand in place.
        for gone in (*_NAME.findall(name), *(_NAME.findall(value) if "_(" in value else ())):
            self.values.pop(gone, None)
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kind = self._of(ast.parse(value.strip(), mode="eval").body)
        except (NotImplementedError, RecursionError):  # RuntimeErrors unrelated to the call
            return None
        except (
            TypeError,
            ValueError,
            IndexError,
            RuntimeError,
            AssertionError,
        ) as error:  # PyTorch's own shape rules assert, too
            said = str(error).strip() or type(error).__name__
            return None if any(word in said.lower() for word in OWN) else said.splitlines()[0][:200]
        except Exception:  # noqa: BLE001 - not known, or a rule of PyTorch's has tripped over what a model wrote
            return None
        if name.isidentifier():
            self.values[name] = kind
        return None

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a tensor; None if unknown."""
        tensor = self.values.get(name)
        return tuple(tensor.shape) if isinstance(tensor, torch.Tensor) else None

    def _of(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return (
                node.value
                if isinstance(node.value, (str, bool, type(None)))
                else _operand(node.value)
            )
        if isinstance(node, ast.Name) and node.id in self.values:
            return self.values[node.id]
        if isinstance(node, (ast.Tuple, ast.List)):
            parts = [self._of(part) for part in node.elts]
            return parts if isinstance(node, ast.List) else tuple(parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -_operand(self._of(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
            return _operand(
                _OPERATIONS[type(node.op)](
                    _operand(self._of(node.left)), _operand(self._of(node.right))
                )
            )
        if isinstance(node, ast.Slice):
            return slice(
                *(
                    None if part is None else self._of(part)
                    for part in (node.lower, node.upper, node.step)
                )
            )
        if isinstance(node, ast.Subscript):
            whole, index = self._of(node.value), self._of(node.slice)
            if isinstance(whole, torch.Tensor) or (
                isinstance(whole, (tuple, list)) and type(index) is int
            ):
                return whole[index]
        if isinstance(node, ast.Attribute) and _path(node)[:1] == ["torch"]:
            if isinstance(
                result := getattr(torch, node.attr, None), (torch.dtype, torch.memory_format)
            ):
                return result
        if isinstance(node, ast.Call) and WORDS.issuperset(str(k.arg) for k in node.keywords):
            return self._call(
                node.func,
                [self._of(a) for a in node.args],
                {str(k.arg): self._of(k.value) for k in node.keywords},
            )
        raise _Unknown

    def _call(self, called: ast.expr, given: list[Any], named: dict[str, Any]) -> Any:
        path = _path(called)
        if path == ["nhwc"] and len(given) == 1 and isinstance(given[0], torch.Tensor):
            return given[0].contiguous(memory_format=torch.channels_last)
        if path and path[0] in ("torch", "F"):
            tensors = [
                a
                for part in given
                for a in (part if isinstance(part, list) else [part])
                if isinstance(a, torch.Tensor)
            ]
            if tensors:
                try:
                    return _function(path)(*given, **named)
                except RuntimeError as error:
                    said, _, cited = str(error).partition("\n")
                    if "Declaration: " not in cited:
                        raise
                    # The types do not suit the operator; but with memory a tensor of one number may be used as a number.
                    raise (
                        ValueError(said) if all(tensor.dim() for tensor in tensors) else _Unknown
                    ) from None
        elif isinstance(called, ast.Attribute) and called.attr in METHODS:
            whole = self._of(called.value)
            if isinstance(whole, torch.Tensor):
                return getattr(whole, called.attr)(*given, **named)
        raise _Unknown


def _path(node: ast.expr) -> list[str]:
    """`torch.ops.aten.std.dim` in parts; empty for other names."""
    if isinstance(node, ast.Name):
        return [node.id]
    inner = _path(node.value) if isinstance(node, ast.Attribute) else []
    return [*inner, node.attr] if inner and isinstance(node, ast.Attribute) else []


def _function(path: list[str]) -> Any:
    """The function of that name, if it is one of those checked here.

    Raises:
        ValueError: there is no operator of that name.
    """
    if len(path) == 5 and path[:3] == ["torch", "ops", "aten"]:
        packet = getattr(torch.ops.aten, path[3], None)
        if packet is None or path[4] not in packet.overloads():
            raise ValueError(f"there is no {'.'.join(path)}")
        if path[3] in FUNCTIONS and not path[4].endswith("out"):
            return getattr(packet, path[4])
    if len(path) == 2 and path[1] in FUNCTIONS:
        return getattr(torch if path[0] == "torch" else F, path[1])
    raise _Unknown


def _operand(value: Any) -> Any:
    """A tensor, or a number of sensible size."""
    if isinstance(value, torch.Tensor) or (type(value) in (int, float) and abs(value) < 1 << 40):
        return value
    raise _Unknown


__all__ = ["HostCalls"]
