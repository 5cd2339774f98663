"""The methods of a drop-in's training step: the call of both programs, the backward, and the original for gradients of gradients."""

from __future__ import annotations

import textwrap
from functools import partial

from dvk.composer.capture.captured import SAVED
from dvk.composer.dropin.facts import Fused, Held, keyed
from dvk.composer.dropin.forward import parameter
from dvk.composer.dropin.namespace import OWNER
from dvk.composer.ir import structures
from dvk.composer.ir.text import literal
from dvk.records import Node, Task


def methods(task: Task, number: int, one: Fused, held: Held) -> str:
    """The text of the methods of one training program; `number` counts the programs of the drop-in."""
    return "\n\n".join(
        [_step(task, number, one, held), _back(number, one), _original(task, number, one)]
    )


def thawed(fused: Fused, held: Held) -> tuple[int, ...]:
    """Positions of weights and buffers that the program reads and computes no gradients of."""
    training = fused.captured.training
    assert training is not None
    return tuple(
        held[key]
        for key, node in keyed(fused.program.weights)
        if str(node.target) in training.frozen
    )


def method(name: str, number: int) -> str:
    """The name of a method of one of several programs."""
    return f"_dvk_{name}" if number == 0 else f"_dvk_{name}_{number + 1}"


def _step(task: Task, number: int, one: Fused, held: Held) -> str:
    training = one.captured.training
    assert training is not None
    places = {str(node.target): held[key] for key, node in keyed(one.program.weights)}
    sources = [parameter(path) for path in training.inputs]
    sources += [f"_dvk_w[{places[path]}]" for path in training.weights]
    names = (
        method("run", number),
        method("back", number),
        "" if training.random else method("plainly", number),
    )
    refs = structures.refs(one.captured.graph.outputs)
    result = structures.expression(
        one.captured.graph.outputs,
        lambda name: f"_dvk_r[{refs.index(name)}]",
        partial(literal, name=str),
    )
    given = "".join(f"{name}, " for name in one.takes)
    weights = ["_dvk_w = self._dvk_weights"] if training.weights else []
    pulled = None if all(one is True for one in training.pulled) else training.pulled
    body = "\n".join(
        [
            *weights,
            f"_dvk_r = dvk_stepped((self, {names!r}, {pulled!r}, ({given})), ({', '.join(sources)},))",
            f"return {result}",
        ]
    )
    return f"    def {method('step', number)}({', '.join(['self', *one.takes])}):\n{textwrap.indent(body, ' ' * 8)}"


def _back(number: int, one: Fused) -> str:
    training, program = one.captured.training, one.backward
    assert training is not None and program is not None
    inputs = [node for node in training.backward.nodes if node.op == "input"]
    takes = [parameter(str(node.target)) for node in inputs]
    ready = [_ready(name, node) for name, node in zip(takes, inputs, strict=True)]
    renewed = (
        ["_, _dvk_values = dvk_renew(self)"]
        if any("_dvk_values" in line for line in program.lines)
        else []
    )
    unpacked = [f"{', '.join(takes)}, = _dvk_given", "_dvk_given.clear()"]
    body = "\n".join([*unpacked, *renewed, *ready, *program.lines, f"return {program.result}"])
    return f"    def {method('back', number)}(self, _dvk_given):\n{textwrap.indent(body, ' ' * 8)}"


def _ready(name: str, node: Node) -> str:
    """A line that gives an operand of the backward its layout. Only a tangent may have another shape: the forward made the others."""
    if str(node.target).startswith(SAVED):
        return f"if {name}.stride() != {node.strides!r}: {name} = dvk_strided({name}, {node.strides!r})"
    return f"{name} = dvk_strided({name}, {node.strides!r}, {node.shape!r}, torch.{node.dtype})"


def _original(task: Task, number: int, one: Fused) -> str:
    """The original on a call's arguments, for gradients of gradients; its nested arguments are not rebuilt."""
    named = one.captured.by_name
    arguments, names = one.arguments, one.captured.arguments
    free = len(arguments) - named
    given = [
        text if place < free else f"{name}={text}"
        for place, (name, text) in enumerate(zip(names, arguments, strict=True))
    ]
    if one.captured.structure:
        body = 'raise RuntimeError("a drop-in with nested arguments has no gradient of a gradient: use the original")'
    else:
        whom = "super().forward" if task.kind == "module" else OWNER
        body = f"return {whom}({', '.join(given)})"
    return (
        f"    def {method('plainly', number)}({', '.join(['self', *one.takes])}):\n        {body}"
    )
