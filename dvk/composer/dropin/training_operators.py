"""A training step as two operators of PyTorch, the second registered as the derivative of the first (`register_autograd`)."""

from __future__ import annotations

import ast
from functools import partial

from dvk.composer.dropin.facts import Fused, keyed
from dvk.composer.dropin.forward import held_name, parameter
from dvk.composer.dropin.results import Results
from dvk.composer.dropin.stepping import method
from dvk.composer.ir import structures
from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.text import literal
from dvk.records import Node


def refusal(one: Fused, most: int) -> str:
    """Why a training step cannot be a pair of operators; empty if it can.

    Args:
        most: tensors that an operator may take.
    """
    found, back, training = one.program.results, one.backward, one.captured.training
    assert back is not None and training is not None
    if isinstance(found, str):
        return found
    if one.captured.structure:
        return "its training step takes nested arguments"
    if any("_dvk_values" in line or "self" in line for line in back.lines):
        return "the backward of its training step derives tensors from others"
    if len([n for n in training.backward.nodes if n.op == "input"]) > most:
        return f"the backward of its training step takes more than {most} tensors"
    names = _parts(found)[0]
    made = [m.name for m in found.made]
    if found.lines or len(set(names)) < len(names) or not set(names) <= set(made):
        return "a result of its training step is a view"
    return ""


def _parts(found: Results) -> tuple[list[str], str]:
    """The texts of the results, and the text of the tuple of what is saved, in the result of a forward program."""
    tree = ast.parse(found.text, mode="eval").body
    assert isinstance(tree, ast.Tuple)
    results, saved = tree.elts
    assert isinstance(results, ast.Tuple)
    return [ast.unparse(one) for one in results.elts], ast.unparse(saved)


def result(one: Fused, found: Results) -> str:
    """The text of what the module returns."""
    names, _ = _parts(found)
    refs = structures.refs(one.captured.graph.outputs)
    return structures.expression(
        one.captured.graph.outputs, lambda name: names[refs.index(name)], partial(literal, name=str)
    )


def derivative(device: str, number: int, one: Fused, name: str, found: Results) -> str:
    """The text that registers the backward program, below its forward's operator.

    Args:
        name: of the forward's operator, with its namespace.
    """
    training = one.captured.training
    assert training is not None
    inputs = [node for node in training.backward.nodes if node.op == "input"]
    takes = [parameter(str(node.target)) for node in inputs]
    nodes = {node.name: node for node in training.backward.nodes}
    grads = [nodes[ref] for ref in structures.refs(training.backward.outputs)]
    # A result may be returned for two gradients, or share memory with an operand: `owned` and `dvk_distinct` copy.
    made = "".join(f"({_layout(node)}, False), " for node in grads)
    taken = ", ".join(f"Tensor x{at}" for at in range(len(inputs)))
    given = ", ".join("Tensor" for _ in grads)
    schema = f"({taken}) -> {f'({given})' if len(grads) > 1 else given}"
    results, saved = _parts(found)
    operands = [parameter(str(n.target)) for n in one.inputs]
    operands += [held_name(n) for _, n in keyed(one.program.weights)]
    place = {path: at for at, path in enumerate((*training.inputs, *training.weights))}
    sources = [place.get(str(n.target)) for n in one.inputs]
    sources += [place.get(str(n.target)) for n in one.program.weights]
    outputs = [m.name for m in found.made]
    program = f"_dvk_program_{number + 1}"
    back = f"dvk_fused.{method('back', number)}(None, [{', '.join(takes)}])"
    if one.captured.under is not None:
        back = f"dvk_cast_off({device!r}, lambda: {back})"
    return f'''


def {program}_back({", ".join(takes)}):
    return dvk_distinct({back})


def {program}_saved({", ".join([*operands, *outputs])}):
    return {saved}


dvk_differentiable(
    _dvk_operator_{number + 1},
    dvk_operator(
        "{name}_back",
        "{schema}",
        (({"".join(f"({_layout(node)}), " for node in inputs)}), ({made})),
        {device!r},
        lambda: ModelNew._dvk_load(),
        {program}_back,
    ),
    {program}_saved,
    {tuple(outputs.index(name) for name in results)!r},
    {tuple(bool(one) for one in training.pulled)!r},
    {tuple(sources)!r},
)'''


def _layout(node: Node) -> str:
    shape = node.shape or ()
    strides = node.strides if node.strides is not None else contiguous_strides(shape)
    return f"{shape!r}, {strides!r}, torch.{node.dtype}"
