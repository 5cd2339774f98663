"""A captured task as a definition with one workload: the module's weights become inputs, the file's text the reference code.

Inputs are random as the schema draws them, whatever get_inputs() does. The first dimension of all inputs is a variable axis if the task
accepts other sizes there and every output has it; other sizes are constants.
"""

from __future__ import annotations

import re
from typing import Any

from dvk.agents.task_context import TaskContext
from dvk.interop.flashinfer.definition import DTYPES, TAKEN
from dvk.records import TensorSpec
from dvk.records.graph import Node

BATCH = "batch"
_NUMBERS = {bool: "bool", int: "int64", float: "float32"}
"""Kinds of plain arguments that the schema has."""
RENAMED = "reference_"
"""Prefix of names that a task file has for itself."""
MODULE = '''
import torch as _torch

_dvk_held = {{}}


def _dvk_module(device):
    """The module on a device; its weights are not used."""
    if device not in _dvk_held:
        given = {init}
        pairs = len(given) == 2 and isinstance(given[0], (list, tuple)) and isinstance(given[1], dict)
        args, named = given if pairs else (given, {{}})
        _dvk_held[device] = {entry}(*args, **named).to(device){mode}
    return _dvk_held[device]


def run({names}):
    weights = {{{weights}}}
    return _torch.func.functional_call(_dvk_module({first}.device), weights, ({arguments}))
'''
FUNCTION = """

def run({names}):
    return {entry}({names})
"""


class NotDefinable(Exception):
    """The schema cannot say what the task is; the message says why."""


def definition_of(context: TaskContext) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON of the definition and of its workload.

    Raises:
        NotDefinable: says why.
    """
    task = context.task
    arguments, weights = _checked(context)
    axes: dict[str, Any] = {}
    batch = _batch(context)
    inputs: dict[str, Any] = {}
    sources: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, TensorSpec):
            inputs[name] = {"shape": _axes(value.shape, axes, batch), "dtype": value.dtype}
            sources[name] = {"type": "random"}
        else:
            inputs[name] = {"shape": None, "dtype": _NUMBERS[type(value)]}
            sources[name] = {"type": "scalar", "value": value}
    for name, node in weights.items():
        shape = tuple(map(int, node.shape or ()))
        inputs[name] = {"shape": _axes(shape, axes, None), "dtype": node.dtype}
        sources[name] = {"type": "random"}
    outputs = {
        f"out{number or ''}": {"shape": _axes(spec.shape, axes, batch), "dtype": spec.dtype}
        for number, spec in enumerate(task.outputs)
    }
    definition = {
        "name": re.sub(r"\W+", "_", task.name),
        "op_type": "module",
        "axes": axes,
        "inputs": inputs,
        "outputs": outputs,
        "reference": _reference(context, {name: str(n.target) for name, n in weights.items()}),
    }
    given = {BATCH: batch} if batch is not None else {}
    return definition, {"uuid": task.id, "axes": given, "inputs": sources}


def _checked(context: TaskContext) -> tuple[dict[str, Any], dict[str, Node]]:
    """Each parameter's tensor or number, and the weights by the names that they get.

    Raises:
        NotDefinable: see `definition_of`.
    """
    task, captured = context.task, context.captured
    if captured is None:
        raise NotDefinable(f"its operators cannot be captured: {context.cannot}")
    if task.beside or task.package:
        raise NotDefinable("it imports other files")
    if task.stochastic or task.written_inputs or captured.structure:
        raise NotDefinable("it draws random numbers, writes inputs, or takes lists of tensors")
    tensors = {spec.name: spec for spec in task.inputs}
    arguments = {
        name: tensors.get(name, captured.constants.get(name)) for name in captured.arguments
    }
    for name, value in arguments.items():
        if isinstance(value, TensorSpec):
            if not _is_drawn(value.dtype):
                raise NotDefinable(
                    f"its input `{name}` is {value.dtype}, and random ones would not fit it"
                )
        elif type(value) not in _NUMBERS:
            raise NotDefinable(f"its input `{name}` is neither a tensor nor a number")
    nodes = [n for n in captured.graph.nodes if n.op in ("param", "buffer") and n.target]
    weights = {str(n.target).replace(".", "_"): n for n in nodes}
    if len(weights) < len(nodes) or weights.keys() & arguments.keys():
        raise NotDefinable("a weight has the name of another input")
    for node in nodes:
        if node.shape is None or not _is_drawn(str(node.dtype)):
            raise NotDefinable(f"its weight `{node.target}` is {node.dtype}")
    return arguments, weights


def _is_drawn(dtype: str) -> bool:
    """Whether random values of the dtype make sense: of floats."""
    return dtype in DTYPES and dtype.startswith(("float", "bfloat"))


def _batch(context: TaskContext) -> int | None:
    """The size of the first dimension of all inputs and outputs, if the task accepts others."""
    task = context.task
    firsts = {spec.shape[0] if spec.shape else None for spec in (*task.inputs, *task.outputs)}
    all_firsts = {(spec.name, 0) for spec in task.inputs}
    vary = any(
        variant.name.startswith(BATCH) and {(n, d) for n, d, _ in variant.changes} == all_firsts
        for variant in task.shape_variants
    )
    return firsts.pop() if vary and len(firsts) == 1 else None


def _axes(shape: tuple[int, ...], axes: dict[str, Any], batch: int | None) -> list[str]:
    """Names of a shape's axes, entered among them."""
    names = []
    for dimension, size in enumerate(shape):
        name = BATCH if dimension == 0 and batch is not None else f"n{size}"
        axes[name] = {"type": "var"} if name == BATCH else {"type": "const", "value": size}
        names.append(name)
    return names


def _reference(context: TaskContext, weights: dict[str, str]) -> str:
    task, captured = context.task, context.captured
    assert captured is not None
    source = re.sub(
        rf"\b({'|'.join(TAKEN)}|run)\b", lambda found: RENAMED + found[1], task.source
    ).rstrip()
    entry = RENAMED + task.entry if task.entry in (*TAKEN, "run") else task.entry
    arguments = ", ".join(captured.arguments)
    if task.kind == "function":
        return source + "\n" + FUNCTION.format(names=arguments, entry=entry)
    init = f"{RENAMED}get_init_inputs()" if "def get_init_inputs" in task.source else "[]"
    return (
        source
        + "\n"
        + MODULE.format(
            init=init,
            entry=entry,
            mode=".eval()" if task.mode == "eval" else "",
            names=", ".join([*captured.arguments, *weights]),
            weights=", ".join(f"{path!r}: {name}" for name, path in weights.items()),
            first=next(spec.name for spec in task.inputs),
            arguments=arguments + ("," if captured.arguments else ""),
        )
    )
