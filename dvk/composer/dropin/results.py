"""What a program returns, split for an operator: tensors that it makes, and views of arguments and weights that are taken outside of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dvk.composer.ir import structures
from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.effects import AliasClasses, draws, shared, touched
from dvk.composer.ir.nodes import IRNode
from dvk.composer.lowering.whole_graph import PrimGraph
from dvk.records import Graph, Node

Layout = tuple[tuple[int, ...], tuple[int, ...], str]
"""Shape, strides and dtype."""


HELD = frozenset({"input", "param", "buffer", "const"})
"""Operators that stand for a tensor from outside."""


@dataclass(frozen=True)
class Made:
    """A tensor that the program makes and returns, or returns views of."""

    name: str
    layout: Layout
    fresh: bool
    """The program allocates it in this layout; a library call may choose another."""
    kept: bool = False
    """The program keeps it for its next call: it returns a copy."""

    @property
    def text(self) -> str:
        """The expression that returns it."""
        return f"{self.name}.clone()" if self.kept else self.name


@dataclass(frozen=True)
class Results:
    """The results of a program that can be an operator."""

    made: tuple[Made, ...]
    lines: tuple[str, ...] = ()
    """Lines to run outside, with the tensors bound to their names, before `text`."""
    text: str = ""
    """The expression that rebuilds the program's result outside."""
    whole: bool = False
    """The program returns its one tensor as it is."""
    seeded: bool = False
    """The program draws random numbers."""


def results(
    graph: Graph,
    prims: PrimGraph,
    names: Mapping[IRNode, str],
    allocated: Mapping[IRNode, Layout],
    lines: tuple[str, ...],
    text: str,
) -> Results | str:
    """The results of a program, or why it cannot be an operator.

    Args:
        names: names of the values that are alive when it returns.
        allocated: layouts of the tensors that it allocates.
        lines, text: what it does after its last step.
    """
    if any(node.op in ("left", "expect") for node in graph.nodes):
        return "it calls Python code that was left to PyTorch"
    changed = touched(graph.nodes)
    if any(n.name in changed for n in graph.nodes if n.op in HELD):
        return "it writes arguments or buffers"
    returned = structures.refs(graph.outputs)
    bases = {name: prims.values[name].base for name in returned}
    memory = AliasClasses(tuple(_result_by_result(graph)))
    held = {memory.of(n.name) for n in graph.nodes if n.op in HELD}
    made: dict[IRNode, Made] = {}
    for base in bases.values():
        if base.kind == "source" and (base.node is None or base.node.target is not None):
            continue
        if base in allocated:
            made[base] = Made(names[base], allocated[base], True)
            continue
        node = base.node
        if node is None or node.shape is None or node.dtype is None:
            return "the size or type of a result depends on values"
        if base.kind == "extern":
            mine = memory.of(node.name)
            others = {memory.of(n) for n, other in bases.items() if other is not base}
            if mine in others or mine in held:
                return "a result may share memory with an argument or another result"
        strides = node.strides or contiguous_strides(node.shape)
        made[base] = Made(
            names[base],
            (node.shape, strides, node.dtype),
            False,
            base.kind == "source" or node.op == "derived",
        )
    if not made:
        return "it computes no tensors"
    single = set(graph.outputs) == {"ref"} and text == next(iter(made.values())).text
    seeded = any(draws(node) for node in graph.nodes)
    return Results(tuple(made.values()), lines, text, single and not lines, seeded)


def _result_by_result(graph: Graph) -> Iterator[Node]:
    """The operators; results of one that returns several new tensors (`torch.max(x, 1)`) share no memory with each other."""
    several = {node.name for node in graph.nodes if node.shape is None and not shared(node)}
    for node in graph.nodes:
        apart = node.op == "getitem" and node.args[0]["ref"] in several
        yield node.model_copy(update={"args": ()}) if apart else node


def joined(found: Sequence[Results]) -> Results | str:
    """The results of programs of one graph, of which a call's sizes choose one, as those of one operator; or why they are not."""
    first, *others = map(_renamed, found)
    if any(
        (one.lines, one.text, _layouts(one)) != (first.lines, first.text, _layouts(first))
        for one in others
    ):
        return "its programs for several sizes return other tensors, or other views of them"
    every = list(zip(*(one.made for one in (first, *others)), strict=True))
    made = tuple(replace(ones[0], fresh=all(one.fresh for one in ones)) for ones in every)
    whole = all(one.whole for one in found)
    return replace(first, made=made, whole=whole, seeded=any(one.seeded for one in found))


def _layouts(one: Results) -> str:
    return repr([made.layout for made in one.made])  # the sizes by their formulas


def _renamed(one: Results) -> Results:
    """The results with names that do not depend on the program."""
    names = {made.name: f"_r{number}" for number, made in enumerate(one.made)}

    def new(text: str) -> str:
        return re.sub(r"\b_\w+", lambda word: names.get(word[0], word[0]), text)

    made = tuple(replace(each, name=names[each.name]) for each in one.made)
    return replace(one, made=made, lines=tuple(map(new, one.lines)), text=new(one.text))
