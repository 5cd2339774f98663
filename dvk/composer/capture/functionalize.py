"""Turn writes into memory that only the graph holds into operators without writes.

`y.add_(1)` and `torch.add(x, 1, out=y)` become `aten.add` if `y` is a temporary without later-read views: kernels may then compute it. A
write stays if the operator without it would give another shape, type or memory order, as when a float16 tensor is added to a float32 one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dvk.composer.ir.effects import (
    REBINDING,
    AliasClasses,
    is_step,
    packet_of,
    refs,
    rename,
    schema,
    shared,
    twin,
    written,
)
from dvk.records import Graph, Node


def functionalized(graph: Graph) -> Graph:
    """The graph with as few writes as possible; runs where torch is loaded."""
    if not any(written(node) for node in graph.nodes):
        return graph
    memory = AliasClasses(graph.nodes)
    at = {node.name: position for position, node in enumerate(graph.nodes)}
    members: dict[str, list[Node]] = {}
    last_read = dict.fromkeys(refs(graph.outputs), len(graph.nodes))
    for position, node in enumerate(graph.nodes):
        members.setdefault(memory.of(node.name), []).append(node)
        for name in refs([list(node.args), node.kwargs]):
            last_read[name] = max(last_read.get(name, -1), position)
    made = {node.name: node for node in graph.nodes}
    kept = {
        memory.of(name)
        for node in graph.nodes
        if node.op == "left"
        for name in refs([list(node.args), node.kwargs])
    }
    """Memory that code left to PyTorch may hold on to."""
    now: dict[str, str] = {}
    """Name → current name of its value."""
    same: dict[str, set[str]] = {}
    """Name → names of the same tensor."""
    nodes: list[Node] = []
    for position, node in enumerate(graph.nodes):
        args, kwargs = rename(list(node.args), now), rename(node.kwargs, now)
        new = node.model_copy(update={"args": tuple(args), "kwargs": kwargs})
        targets = written(node)
        if len(targets) == 1:
            (target,) = targets
            known = same.setdefault(target, {target})
            declared = schema(node.op)
            if (
                declared is not None
                and declared.results == ("Tensor",)
                and packet_of(node.op) not in REBINDING
            ):
                known.add(node.name)
                same[node.name] = known
                others = [
                    m
                    for m in members[memory.of(target)]
                    if m.name not in known and at[m.name] < position
                ]
                held = ("input", "param", "buffer", "const", "left")
                alone = memory.of(target) not in kept and all(
                    m.op not in held and packet_of(m.op) != "as_strided"
                    for m in members[memory.of(target)]
                )  # which sees memory outside the tensor
                # The operator may read while it writes if it reads the target under another name.
                if (
                    alone
                    and not any(last_read.get(m.name, -1) >= position for m in others)
                    and (pure := _pure(new, made)) is not None
                ):
                    new = pure
                    now.update(dict.fromkeys(known, node.name))
        nodes.append(new)
    return graph.model_copy(update={"nodes": tuple(nodes), "outputs": rename(graph.outputs, now)})


def reshaped(graph: Graph) -> Node | None:
    """The operator that gives a tensor with aliases another shape, type or memory order; None without one.

    After `out=` resizes an input, or `y.t_()` transposes what `y.contiguous()` may alias, a graph does not show which tensors are the same.
    """
    memory = AliasClasses(tuple(_result_by_result(graph)))
    parts = {
        (node.args[0]["ref"], node.args[1]): node for node in graph.nodes if node.op == "getitem"
    }
    nodes = {node.name: node for node in graph.nodes}
    same: dict[str, set[str]] = {}
    for position, node in enumerate(graph.nodes):
        given_back = [target for target in written(node) if target in shared(node)]
        for number, target in enumerate(given_back):
            result = node if node.shape is not None else parts.get((node.name, number))
            if result is None:
                continue
            known = same.setdefault(target, {target, node.name})
            same[result.name] = known
            known.add(result.name)
            if _layout(result) != _layout(nodes[target]):
                # A view that is made later is one of what the tensor is then.
                shares = {
                    n.name for n in graph.nodes[:position] if memory.of(n.name) == memory.of(target)
                } - known
                # `torch.max(y, 0, out=(y, i))` resizes what it still reads: PyTorch's meta functions give another shape.
                outs = _outs(node)
                read = refs([list(node.args), [v for k, v in node.kwargs.items() if k not in outs]])
                held = nodes[target].op in ("input", "param", "buffer", "const")
                if shares or held or (outs and known & set(read)):
                    return node
    return None


def _result_by_result(graph: Graph) -> Iterator[Node]:
    """The operators, of those with several results (`torch.sort(x, out=(values, indices))`) each result as its one operand: results
    share no memory with each other."""
    several = {
        node.name: shared(node)
        for node in graph.nodes
        if node.shape is None and len(written(node)) > 1 and not is_step(node)
    }
    for node in graph.nodes:
        if node.op == "getitem" and node.args[1] < len(
            operands := several.get(node.args[0]["ref"], [])
        ):
            yield node.model_copy(update={"args": ({"ref": operands[node.args[1]]}, 0)})
        elif node.name not in several:
            yield node


def _layout(node: Node) -> tuple[Any, ...]:
    return node.shape, node.dtype, _strides(node.shape, node.strides)


def _outs(node: Node) -> set[str]:
    """Names of the operator's `out` arguments."""
    declared = schema(node.op)
    arguments = declared.arguments if declared is not None else ()
    return {a.name for a in arguments if a.written and a.by_name}


def _pure(node: Node, made: dict[str, Node]) -> Node | None:
    """The operator that computes what `node` writes; None if there is none or its result would be another kind of tensor."""
    op = twin(node.op)
    if op is None:
        return None
    outs = _outs(node)
    kwargs = {name: value for name, value in node.kwargs.items() if name not in outs}
    new = node.model_copy(update={"op": op, "kwargs": kwargs})
    target = made[written(node)[0]]
    if outs and _layout(target) != _layout(node) and 0 not in (target.shape or ()):
        return None  # memory stays larger than its contents
    if (
        outs
        and set(refs([node.kwargs[name] for name in outs])) & set(refs([list(new.args), kwargs]))
        and not _is_pointwise(op)
    ):
        return None  # it writes what it reads
    return (
        new
        if _kind(new, made) == (node.shape, node.dtype, _strides(node.shape, node.strides))
        else None
    )


def _is_pointwise(op: str) -> bool:
    import torch

    _, packet, overload = op.split(".")
    return torch.Tag.pointwise in getattr(getattr(torch.ops.aten, packet), overload).tags


def _kind(node: Node, made: dict[str, Node]) -> tuple[Any, ...] | None:
    """Shape, dtype and strides of the operator's result, from PyTorch's functions without values; None if those cannot say."""
    import torch

    def value(encoded: Any) -> Any:
        if isinstance(encoded, (list, tuple)):
            return [value(part) for part in encoded]
        if not isinstance(encoded, dict):
            return encoded
        ((key, inner),) = encoded.items()
        if key == "ref":
            known = made[inner]
            if known.shape is None or known.strides is None or known.dtype is None:
                raise ValueError("not one tensor")
            return torch.empty_strided(
                known.shape, known.strides, dtype=getattr(torch, known.dtype), device="meta"
            )
        return (
            float(inner)
            if key == "float"
            else torch.device("meta")
            if key == "device"
            else getattr(torch, inner)
        )

    _, packet, overload = node.op.split(".")
    try:
        operator = getattr(getattr(torch.ops.aten, packet), overload)
        with torch.no_grad():
            result = operator(
                *value(node.args), **{name: value(given) for name, given in node.kwargs.items()}
            )
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, AttributeError):
        return None
    return (
        tuple(result.shape),
        str(result.dtype).removeprefix("torch."),
        _strides(tuple(result.shape), tuple(result.stride())),
    )


def _strides(shape: tuple[int, ...] | None, strides: tuple[int, ...] | None) -> tuple[int, ...]:
    """Strides, without those that no element depends on."""
    return tuple(stride for size, stride in zip(shape or (), strides or ()) if size > 1)
