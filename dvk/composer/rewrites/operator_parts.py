"""Decompose operators without a lowering rule as PyTorch itself does.

PyTorch states how most operators are made of simpler ones (`torch._decomp`, and composite operators). An operator is decomposed where all
of its parts have rules, so that kernels can hold them; a part without a rule would be one more call.
"""

from __future__ import annotations

import functools
import logging
import operator
from typing import Any

from dvk.composer.ir import structures
from dvk.composer.ir.effects import draws, is_view, pinned
from dvk.composer.ir.text import spelled
from dvk.composer.lowering.dispatch import CODEGEN_RULES, RULES
from dvk.composer.rewrites.edit import packet, reads, split_outputs
from dvk.records import Graph, Node

OWN_INDICES = ("grid_sampler", "upsample")
"""Beginnings of the names of operators that compute the indices at which they read: all of them are valid, and none is negative."""
ON_GPU = ("grid_sampler",)
"""Beginnings of the names of operators that are decomposed on a GPU alone: PyTorch's CPU kernel lets a NaN among the places show."""
BORDER, REFLECTED = 1, 2
"""What `grid_sample` reads outside of the image. CUDA's kernel takes a NaN for the first place of either; the reflected one is not
decomposed."""
FEW_CHANNELS = 8
"""Channels from which an image is copied to another layout: a read of 32 bytes holds as many."""
OTHERWISE = ("cdist", "convolution", "gru", "lstm", "rnn_relu", "rnn_tanh")
"""Operators of a library, and those with a recipe that decomposes them better."""
UNLIKE = ("multi_margin_loss", "multilabel_margin_loss")
"""Operators whose parts let a NaN show that PyTorch's kernel compares away."""
UNSAID = ("layout", "pin_memory", "non_blocking")
"""Operands that say what is usual."""
MOST_PARTS = 400
"""Parts beyond which an operator stays: a resampling with wide windows is unrolled."""


def rewrite(graph: Graph, device: str) -> Graph | None:
    """The graph with the parts of operators that have no rule, or None without any."""
    if not any(_is_unruled(node, device) for node in graph.nodes):
        return None
    nodes, kept = {node.name: node for node in graph.nodes}, pinned(graph)

    def apart(node: Node) -> tuple[list[Any], list[Node]] | None:
        if node.name in kept or not _is_unruled(node, device):
            return None
        given = [nodes[name] for name in dict.fromkeys(reads(node))]
        if not all(_is_plain(n) for n in given):
            return None
        image = _channels_inside(node, given[0]) if device == "cuda" else None
        called = node
        if image is not None:
            given[0] = image
            called = node.model_copy(update={"args": ({"ref": image.name}, *node.args[1:])})
        parts = _traced(called.model_dump_json(), tuple(n.model_dump_json() for n in given), device)
        if parts is None or node.shape is None:
            return parts
        results, made = parts
        last = node.model_copy(
            update={"op": "aten.alias.default", "args": (results[0],), "kwargs": {}}
        )
        return results, [*([] if image is None else [image]), *made, last]

    return split_outputs(graph, apart)


def _is_unruled(node: Node, device: str) -> bool:
    name = packet(node)
    if not name or name.endswith("_cell") or name in (*OTHERWISE, *UNLIKE):
        return False
    if is_view(node) or draws(node) or _has_rule(node.op):
        return False
    if name.startswith("grid_sampler") and node.args[3] == REFLECTED:
        return False
    return device == "cuda" or not name.startswith(ON_GPU)


def _channels_inside(node: Node, image: Node) -> Node | None:
    """The image to sample with its channels next to each other: all of them are read at one place, which may be any."""
    shape = image.shape or ()
    if not packet(node).startswith("grid_sampler") or len(shape) != 4 or shape[1] < FEW_CHANNELS:
        return None
    _, channels, rows, columns = shape
    strides = (channels * rows * columns, 1, columns * channels, channels)
    if image.strides == strides:
        return None
    return image.model_copy(
        update={
            "name": f"{node.name}_image",
            "op": "aten.contiguous.default",
            "args": ({"ref": image.name},),
            "kwargs": {"memory_format": {"memory_format": "channels_last"}},
            "strides": strides,
            "target": None,
        }
    )


def _has_rule(op: str) -> bool:
    space, _, name = op.partition(".")
    name = name.partition(".")[0]
    return space == "aten" and (name in RULES or name in CODEGEN_RULES)


def _is_plain(node: Node) -> bool:
    """A tensor of known sizes that are no formulas: the trace computes with numbers."""
    return (
        node.shape is not None
        and node.strides is not None
        and 0 not in node.shape
        and all(type(n) is int for n in node.shape)
    )


@functools.lru_cache(maxsize=256)
def _traced(text: str, given: tuple[str, ...], device: str) -> tuple[list[Any], list[Node]] | None:
    """References to the results of an operator and the nodes that compute them; None if a part has no rule."""
    import torch
    from torch._decomp import decomposition_table
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    node = Node.model_validate_json(text)
    operands = [Node.model_validate_json(one) for one in given]
    names = [n.name for n in operands]
    space: dict[str, Any] = {"torch": torch}
    lines = [f"def call({', '.join(names)}):", f"    return {spelled(node, str)}"]
    if packet(node).startswith("grid_sampler") and node.args[3] == BORDER:
        places = f"{names[1]}, -2.0, float('inf'), float('-inf')"
        lines.insert(1, f"    {names[1]} = torch.nan_to_num({places})")
    exec("\n".join(lines), space)
    table: dict[Any, Any] = {
        op: parts for op, parts in decomposition_table.items() if not _has_rule(str(op))
    }
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # a failing trace is reported there, too
    try:
        with FakeTensorMode(), torch.no_grad():
            fake = [
                torch.empty_strided(
                    n.shape or (), n.strides or (), dtype=getattr(torch, n.dtype or "")
                )
                for n in operands
            ]
            module = make_fx(space["call"], decomposition_table=table)(*fake)
    except Exception:  # noqa: BLE001 - a decomposition may raise anything
        # What PyTorch cannot trace stays a call, as without this recipe.
        return None
    finally:
        logging.disable(before)
    module.graph.eliminate_dead_code()
    if packet(node).startswith(OWN_INDICES):
        for read in module.graph.find_nodes(op="call_function", target=torch.ops.aten.index.Tensor):
            read.target = torch.ops.aten._unsafe_index.Tensor
    return _encoded(node.name, names, module.graph, device)


def _encoded(
    prefix: str, names: list[str], traced: Any, device: str
) -> tuple[list[Any], list[Node]] | None:
    """The traced graph as nodes."""
    inputs, seen = iter(names), dict[str, str]()
    made: list[Node] = []

    def encode(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [encode(v) for v in value]
        if hasattr(value, "op"):
            return {"ref": seen[value.name]}
        literal = structures.literal_of(value)
        return {"device": device} if literal == {"device": "cpu"} else literal

    for node in traced.nodes:
        if node.op == "placeholder":
            seen[node.name] = next(inputs)
        elif node.op == "output":
            values = node.args[0]
            return encode(values if isinstance(values, (list, tuple)) else [values]), made
        elif node.op == "call_function" and len(made) < MOST_PARTS:
            op, args = str(node.target), encode(node.args)
            kwargs = {k: encode(v) for k, v in node.kwargs.items() if k not in UNSAID}
            if node.target is operator.getitem:
                op = "getitem"
            elif op == "prims.convert_element_type.default":
                op, args, kwargs = "aten._to_copy.default", args[:1], {"dtype": args[1]}
            seen[node.name] = f"{prefix}_{len(made)}"
            part = Node(
                name=seen[node.name], op=op, args=tuple(args), kwargs=kwargs, **_layout(node)
            )
            if op != "getitem" and not is_view(part) and not _has_rule(op):
                return None
            made.append(part)
        else:
            return None
    return None


def _layout(node: Any) -> dict[str, Any]:
    value = node.meta.get("val")
    if not hasattr(value, "stride"):
        return {}
    return {
        "shape": tuple(map(int, value.shape)),
        "dtype": str(value.dtype).removeprefix("torch."),
        "strides": tuple(map(int, value.stride())),
    }
