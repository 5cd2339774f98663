"""Cross-entropy of a linear's result, in chunks of rows: neither the logits nor their gradient are held for a training step.

The pair is replaced before the joint graph is traced, where its logits would take much memory. `runtime.chunked_loss` computes it, with
three matrix products as eager does.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from dvk import target
from dvk.composer.ir.effects import walk_refs
from dvk.composer.ir.nodes import BYTES
from dvk.composer.ir.steps import CHUNKED_LOSS
from dvk.composer.runtime.chunked_loss import dvk_chunked_loss
from dvk.records import Graph, Node

LARGE = 1 << 26
"""Bytes of logits beyond which they are computed in chunks."""
CHUNK = 1 << 26
"""Bytes of the logits of a chunk, at least, unless that is more than a quarter of them."""
LEAST_ROWS = 16
TILE = 128
"""Rows and columns of a product that one multiprocessor computes at a time in libraries' kernels for large matrices."""
RESHAPES = (
    "aten.view.default",
    "aten.reshape.default",
    "aten.flatten.using_ints",
    "aten.contiguous.default",
)
REDUCTIONS = {1: True, 2: False}
"""Number of a reduction → whether it is a mean. Without one, the gradients depend on a cotangent that comes later."""

_libraries: list[torch.library.Library] = []


def with_chunked_losses(graph: Graph, device: str = "cpu") -> Graph:
    """The graph with such pairs replaced; itself if there are none."""
    nodes = {node.name: node for node in graph.nodes}
    readers: dict[str, int] = {}

    def count(name: str) -> None:
        readers[name] = readers.get(name, 0) + 1

    for node in graph.nodes:
        walk_refs([*node.args, node.kwargs], count)
    walk_refs(graph.outputs, count)
    made: list[Node] = []
    for node in graph.nodes:
        linear = _linear_of(node, nodes, readers)
        made += [node] if linear is None else _chunked(node, linear, nodes, device)
    if len(made) == len(graph.nodes):
        return graph
    _register()
    return graph.model_copy(update={"nodes": tuple(_used(made, graph.outputs))})


def _linear_of(loss: Node, nodes: dict[str, Node], readers: dict[str, int]) -> Node | None:
    """The linear whose result a loss alone reads, as rows of classes."""
    if loss.op != "aten.cross_entropy_loss.default" or loss.kwargs:
        return None
    defaults: list[Any] = [None, 1]
    weight, reduction = [*loss.args, *defaults[len(loss.args) - 2 :]][2:4]
    logits = nodes[loss.args[0]["ref"]]
    if weight is not None or reduction not in REDUCTIONS or len(logits.shape or ()) != 2:
        return None
    target = nodes[loss.args[1]["ref"]]
    classes = (logits.shape or ())[-1]
    if target.dtype != "int64" or BYTES[str(logits.dtype)] * math.prod(logits.shape or ()) < LARGE:
        return None
    while logits.op in RESHAPES and readers[logits.name] == 1:
        logits = nodes[logits.args[0]["ref"]]
    alone = readers[logits.name] == 1 and (logits.shape or (0,))[-1] == classes
    return logits if logits.op == "aten.linear.default" and alone else None


def rows_of_chunk(
    rows: int, width: int, row_bytes: int, sms: int | None, narrow: bool = False
) -> int:
    """Rows of logits in memory at a time.

    The product for the gradient of x has the fewest elements, chunk × width: its tiles must occupy all multiprocessors of a GPU. A chunk as
    large as the weight's gradient, which has as many rows as the weight is wide, costs no memory: the backward holds two such gradients. A
    chunk is never more than half of what all logits would take.

    Args:
        row_bytes: of the logits.
        sms: multiprocessors; None on a CPU.
        narrow: logits of a half type, whose softmax is computed in float32 beside them.
    """
    fewest = max(LEAST_ROWS, 1 << ((CHUNK // row_bytes) or 1).bit_length() - 1)
    if sms is None:
        return fewest
    wave = TILE * max(sms // -(-width // TILE), 1)
    free = width // 2 if narrow else width
    most = max(rows // (4 if narrow else 2) // TILE * TILE, LEAST_ROWS)
    return min(-(-max(fewest, free) // wave) * wave, max(most, fewest))


def _chunked(loss: Node, linear: Node, nodes: dict[str, Node], device: str) -> list[Node]:
    x, weight, *bias = linear.args
    defaults: list[Any] = [None, 1, -100, 0.0]
    reduction, ignored, smoothing = [*loss.args, *defaults[len(loss.args) - 2 :]][3:]
    assert linear.shape is not None
    row = linear.shape[-1] * BYTES[str(linear.dtype)]
    sms = target.of_machine(device).gpu.sms if device == "cuda" else None
    width = (nodes[x["ref"]].shape or (1,))[-1]
    narrow = BYTES[str(linear.dtype)] < 4
    rows = rows_of_chunk(math.prod(linear.shape[:-1]), width, row, sms, narrow)
    given = (x, weight, *(bias or [None]), loss.args[1], REDUCTIONS[reduction], ignored)
    name = f"{loss.name}_chunked"
    call = Node(name=name, op=CHUNKED_LOSS, args=(*given, float(smoothing), rows))
    first = loss.model_copy(update={"op": "getitem", "args": ({"ref": name}, 0), "kwargs": {}})
    return [call, first]


def _used(nodes: list[Node], outputs: Any) -> list[Node]:
    """Without linears and reshapes that nothing reads any more."""
    needed: set[str] = set()
    walk_refs(outputs, needed.add)
    kept = []
    for node in reversed(nodes):
        if node.name in needed or node.op not in (*RESHAPES, "aten.linear.default"):
            walk_refs([*node.args, node.kwargs], needed.add)
            kept.append(node)
    return kept[::-1]


def _register() -> None:
    """Make the operator known to PyTorch, for tracing."""
    if _libraries:
        return
    library = torch.library.Library("dvk", "FRAGMENT")
    _libraries.append(library)
    library.define(
        "chunked_loss(Tensor x, Tensor weight, Tensor? bias, Tensor target, bool mean, int ignored, float smoothing, int rows)"
        " -> (Tensor, Tensor, Tensor, Tensor)"
    )
    library.impl("chunked_loss", dvk_chunked_loss, "CompositeExplicitAutograd")

    def empty(x: Any, weight: Any, bias: Any, *_: Any) -> Any:
        several = weight.new_empty(weight.shape[0] if bias is not None else 0)
        contiguous = torch.contiguous_format
        return (
            x.new_empty(()),
            torch.empty_like(x, memory_format=contiguous),
            torch.empty_like(weight, memory_format=contiguous),
            several,
        )

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.has_bias = inputs[2] is not None
        ctx.save_for_backward(*output[1:])

    def backward(ctx: Any, tangent: Any, *_: Any) -> Any:
        to_x, to_weight, to_bias = ctx.saved_tensors
        of_bias = tangent * to_bias if ctx.has_bias else None
        return tangent * to_x, tangent * to_weight, of_bias, *[None] * 5

    torch.library.register_fake("dvk::chunked_loss", empty, lib=library)
    torch.library.register_autograd("dvk::chunked_loss", backward, setup_context=setup, lib=library)
