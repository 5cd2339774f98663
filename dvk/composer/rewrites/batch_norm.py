"""Fold a batch norm in eval mode into the convolution or linear before it.

y = γ·(Wx + b − μ)/√(σ² + ε) + β is again a convolution, with W' = W·s and b' = (b − μ)·s + β for s = γ/√(σ² + ε) per output channel. It is
exact in real arithmetic for every input; rounding differs in the last digits. The folded weights are recomputed whenever a weight or
statistic is written.

In float16, eager code stores Wx + b, where a value beyond 65504 is infinite. The folded convolution does not store it, and is exact only
if it stays finite (`rewrite_finite`).
"""

from __future__ import annotations

from dvk.composer.ir.effects import pinned
from dvk.composer.rewrites.edit import is_foldable, packet, rebuilt, ref, users
from dvk.records import Graph, Node


def rewrite(graph: Graph) -> Graph | None:
    """The folded graph, or None without such a pair that is exact for every input."""
    return _rewritten(graph, only_exact=True)


def rewrite_finite(graph: Graph) -> Graph | None:
    """The graph with pairs in float16 folded, or None without such a pair."""
    return _rewritten(graph, only_exact=False)


def _rewritten(graph: Graph, only_exact: bool) -> Graph | None:
    readers = users(graph)
    nodes = {n.name: n for n in graph.nodes}
    kept = pinned(graph)
    replacement: dict[str, list[Node]] = {}
    renamed: dict[str, str] = {}
    for norm in graph.nodes:
        if packet(norm) != "batch_norm" or norm.args[5]:
            continue
        first = nodes[ref(norm.args[0]) or ""]
        if packet(first) not in ("conv1d", "conv2d", "conv3d", "linear"):
            continue
        if packet(first) == "linear" and len(first.shape or ()) != 2:
            continue
        weight, bias = first.args[1], first.args[2] if len(first.args) > 2 else None
        held = [v for v in (weight, bias, *norm.args[1:5]) if v is not None]
        weights = [nodes[ref(v) or ""] for v in held]
        if any(n.dtype != first.dtype for n in weights) or norm.args[3] is None:
            continue
        if not is_foldable(first, weights, readers[first.name], kept, only_exact):
            continue
        new_weight, new_bias = _folded(first, norm, weight, bias, nodes)
        args = [first.args[0], {"ref": new_weight.name}, {"ref": new_bias.name}, *first.args[3:]]
        replacement[first.name] = [
            new_weight,
            new_bias,
            first.model_copy(update={"args": tuple(args)}),
        ]
        replacement[norm.name] = []
        renamed[norm.name] = first.name
    return rebuilt(graph, replacement, renamed) if renamed else None


def _folded(
    first: Node, norm: Node, weight: object, bias: object, nodes: dict[str, Node]
) -> tuple[Node, Node]:
    gamma, beta, mean, var = norm.args[1:5]
    eps = norm.args[7]
    given = {"w": weight, "b": bias, "g": gamma, "h": beta, "m": mean, "v": var}
    names = [k for k, v in given.items() if v is not None]
    scale = f"{'g' if gamma is not None else '1'} / torch.sqrt(v + {eps!r})"
    shape = nodes[ref(weight) or ""].shape or ()
    ones = ", ".join(["-1"] + ["1"] * (len(shape) - 1))
    header = f"lambda {', '.join(names)}: "
    # A clone keeps the weight's strides, from which the convolution chooses the layout of its result.
    new_bias = (
        f"({'b' if bias is not None else '0'} - m) * ({scale}){' + h' if beta is not None else ''}"
    )
    refs = tuple(v for v in given.values() if v is not None)
    source = nodes[ref(weight) or ""]
    made = source.model_copy(
        update={
            "name": f"{first.name}_w",
            "op": "derived",
            "args": refs,
            "target": None,
            "kwargs": {"make": f"{header}w.clone().mul_(({scale}).view({ones}))"},
        }
    )
    made_bias = made.model_copy(
        update={
            "name": f"{first.name}_b",
            "shape": (shape[0],),
            "strides": (1,),
            "kwargs": {"make": header + new_bias},
        }
    )
    return made, made_bias
