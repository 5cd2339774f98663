"""Pack linears that read one input into one linear with their concatenated weights: q, k and v, or a gate and its value.

[x·W₁ᵀ, x·W₂ᵀ, …] = x·[W₁; W₂; …]ᵀ, the same sums row by row, so exact up to the order in which a library adds. The packed weight is
recomputed whenever a weight is written; it is as large as all of them. Readers take slices of the one result.
"""

from __future__ import annotations

from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.effects import pinned
from dvk.composer.rewrites.edit import outputs_as_before, packet, rebuilt, ref, sees_layout
from dvk.records import Graph, Node


def rewrite(graph: Graph) -> Graph | None:
    """The packed graph, or None if no two linears read one input."""
    if sees_layout(graph):
        return None
    nodes = {n.name: n for n in graph.nodes}
    kept = pinned(graph)
    alike: dict[tuple[str, bool], list[Node]] = {}
    for node in graph.nodes:
        if packet(node) == "linear" and node.name not in kept and not node.kwargs:
            held = [nodes[ref(v) or ""] for v in node.args[1:] if v is not None]
            plain = (
                all(n.op in ("param", "buffer") and n.dtype == node.dtype for n in held)
                and len(held[0].shape or ()) == 2
            )
            # A bias may broadcast.
            if (
                plain
                and node.shape
                and 0 not in node.shape
                and all(n.shape == node.shape[-1:] for n in held[1:])
            ):
                alike.setdefault((ref(node.args[0]) or "", len(held) == 2), []).append(node)
    replacement: dict[str, list[Node]] = {}
    for (_, biased), group in alike.items():
        if len(group) > 1:
            replacement.update(_packed(group, biased, nodes))
    if not replacement:
        return None
    return outputs_as_before(rebuilt(graph, replacement, {}), graph, set(replacement))


def _packed(group: list[Node], biased: bool, nodes: dict[str, Node]) -> dict[str, list[Node]]:
    """Slices that replace the linears, and, before the first of them, the packed linear."""
    first = group[0]
    widths = [(node.shape or ())[-1] for node in group]
    held = [
        [nodes[ref(node.args[at]) or ""] for node in group] for at in ((1, 2) if biased else (1,))
    ]
    made = []
    for letter, sources in zip("wb", held, strict=False):
        shape = (sum(widths), *(sources[0].shape or ())[1:])
        names = ", ".join(f"{letter}{n}" for n in range(len(sources)))
        made.append(
            Node(
                name=f"{first.name}_p{letter}",
                op="derived",
                args=tuple({"ref": s.name} for s in sources),
                shape=shape,
                dtype=first.dtype,
                strides=contiguous_strides(shape),
                kwargs={"make": f"lambda {names}: torch.cat(({names}))"},
            )
        )
    shape = (*(first.shape or ())[:-1], sum(widths))
    strides = contiguous_strides(shape)
    whole = Node(
        name=f"{first.name}_p",
        op="aten.linear.default",
        args=(first.args[0], *({"ref": n.name} for n in made)),
        shape=shape,
        dtype=first.dtype,
        strides=strides,
    )
    result: dict[str, list[Node]] = {}
    for node, width, start in zip(
        group, widths, (sum(widths[:n]) for n in range(len(widths))), strict=True
    ):
        part = node.model_copy(
            update={
                "op": "aten.slice.Tensor",
                "strides": strides,
                "kwargs": {},
                "args": ({"ref": whole.name}, len(shape) - 1, start, start + width),
            }
        )
        result[node.name] = [part] if result else [*made, whole, part]
    return result
