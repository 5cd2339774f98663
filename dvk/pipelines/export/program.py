"""What the kernels of a drop-in take and give, read from its text: what a stateless operator must know.

The composer's drop-ins say it themselves: the first `ModelNew` runs the programs, the last one names weights and modes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dvk.errors import UsageError
from dvk.pipelines.export.proven import ProvenRun
from dvk.records import Task, TensorSpec

ENTRY = "ModelNew"


@dataclass(frozen=True)
class Weight:
    """A tensor of the module that the kernels read."""

    path: str
    layout: tuple[tuple[int, ...], tuple[int, ...], str] | None
    """Shape, strides in elements, dtype; None if the kernels take any."""

    @property
    def name(self) -> str:
        """Its name as a parameter of the operator."""
        return "w_" + "".join(c if c.isalnum() else "_" for c in self.path)


@dataclass(frozen=True)
class StatelessProgram:
    """Kernels that compute from tensors alone."""

    arguments: tuple[str, ...]
    """Parameters of the module's forward that the kernels were made with."""
    tensors: tuple[str, ...]
    """Those of them that are tensors."""
    constants: dict[str, Any]
    """Values of the others, the same for all sets of inputs."""
    weights: tuple[Weight, ...]
    modes: dict[str, bool]
    """Train or eval of the modules that the kernels depend on, by path."""
    number: int
    """Programs, one for each set of inputs."""
    outputs: int
    single: bool
    """Whether the result is one tensor, not a tuple."""
    original: str
    """Name of the original class or function in the drop-in."""
    calls: tuple[tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]], ...]
    """Tensors in and out of each set of inputs."""


def stateless(run: ProvenRun, what: str) -> StatelessProgram:
    """Return the drop-in's kernels as a stateless operator.

    Args:
        run: the winner.
        what: what is to be written, for the message.

    Raises:
        UsageError: they need more than tensors; the message says what.
    """
    try:
        return _read(run)
    except _NeedsMore as reason:
        raise UsageError(
            f"this drop-in cannot be exported as {what}: {reason}",
            "`--to python` takes every drop-in; or search with --own-kernels for kernels of another kind",
        ) from None


class _NeedsMore(Exception):
    """Why a drop-in is no function of tensors."""


def _read(run: ProvenRun) -> StatelessProgram:
    classes = [
        node
        for node in ast.parse(run.source).body
        if isinstance(node, ast.ClassDef) and node.name == ENTRY
    ]
    methods = {node.name: node for node in _functions(classes[0])} if classes else {}
    if len(classes) < 2 or "_dvk_run" not in methods:
        line = f" (it is {run.candidate.line})" if run.candidate.line else ""
        raise _NeedsMore(f"it has no kernels that the composer wrote{line}")
    facts = dict(_facts(classes[-1]))
    _refuse(classes[0], methods, facts, run.task)
    layouts = {
        position: (shape, strides, dtype)
        for position, shape, strides, dtype in facts.get("_dvk_layouts", ())
    }
    every = [n for n in methods if n.startswith("_dvk_run")]
    arguments = tuple(one.arg for one in methods["_dvk_run"].args.args[1:])
    outputs, single = _results(methods["_dvk_run"], run.task)
    base = classes[-1].bases[-1]
    named = {n.name for n in ast.walk(ast.parse(run.source)) if isinstance(n, ast.FunctionDef)}
    original = (
        base.id
        if run.task.kind == "module" and isinstance(base, ast.Name)
        else (run.task.entry if run.task.entry in named else "dvk_original")
    )
    tensors = tuple(name for name in arguments if name in {spec.name for spec in run.task.inputs})
    return StatelessProgram(
        arguments,
        tensors,
        _constants(methods, set(arguments) - set(tensors)),
        tuple(
            Weight(path, layouts.get(position))
            for position, path in enumerate(facts.get("_dvk_paths", ()))
        ),
        _modes(facts),
        len(every),
        outputs,
        single,
        original,
        tuple((task.inputs, task.outputs) for task in run.tasks),
    )


def _refuse(
    program: ast.ClassDef, methods: dict[str, ast.FunctionDef], facts: dict[str, Any], task: Task
) -> None:
    words = {node.id for node in ast.walk(program) if isinstance(node, ast.Name)}
    paths = facts.get("_dvk_paths", ())
    reasons = {
        "it calls parts of the module that were left to PyTorch": facts.get("_dvk_calls"),
        "it writes weights or buffers": facts.get("_dvk_writes"),
        "it writes its inputs": task.written_inputs,
        "it keeps packed copies of weights": "dvk_renew" in words or "dvk_derived" in words,
        "its inputs are nested, or not all by position": any(
            name.startswith("_dvk_inside") for name in methods
        )
        or any("." in spec.name for spec in task.inputs),
        "it is a training step": any(name.startswith("_dvk_step") for name in methods),
        "its kernels serve a range of sizes": _ranged(methods),
        "it draws random numbers": task.stochastic,
        "some results leave the choice to the original": "dvk_else" in words,
        "a weight stands in it twice": len(set(paths)) < len(paths),
    }
    for reason, holds in reasons.items():
        if holds:
            raise _NeedsMore(reason)


def _ranged(methods: dict[str, ast.FunctionDef]) -> bool:
    """Whether conditions read sizes of their tensors, or programs share them."""
    fits = [node for name, node in methods.items() if name.startswith("_dvk_fits")]
    runs = [name for name in methods if name.startswith("_dvk_run")]
    reads = any(isinstance(n, ast.NamedExpr) for node in fits for n in ast.walk(node))
    return reads or len(fits) != len(runs)


def _results(run: ast.FunctionDef, task: Task) -> tuple[int, bool]:
    """How many tensors a program returns, and whether as one tensor."""
    last = run.body[-1]
    value = last.value if isinstance(last, ast.Return) else None
    if isinstance(value, ast.Tuple) and len(value.elts) == len(task.outputs):
        return len(value.elts), False
    if isinstance(value, (ast.Name, ast.Call, ast.Subscript)) and len(task.outputs) == 1:
        return 1, True
    raise _NeedsMore("its result is neither a tensor nor a tuple of tensors")


def _constants(methods: dict[str, ast.FunctionDef], names: set[str]) -> dict[str, Any]:
    """Values that the programs take of arguments that are no tensors: `x is None`, `x == 2` in their conditions."""
    constants: dict[str, set[str]] = {name: set() for name in names}
    for method in (node for name, node in methods.items() if name.startswith("_dvk_fits")):
        for node in ast.walk(method):
            if (
                isinstance(node, ast.Compare)
                and isinstance(node.left, ast.Name)
                and node.left.id in names
                and isinstance(node.ops[0], (ast.Eq, ast.Is))
            ):
                constants[node.left.id].add(ast.unparse(node.comparators[0]))
    if any(len(values) != 1 for values in constants.values()):
        raise _NeedsMore("its sets of inputs differ in values that are no tensors")
    return {name: ast.literal_eval(values.pop()) for name, values in constants.items()}


def _functions(owner: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    return (node for node in owner.body if isinstance(node, ast.FunctionDef))


def _modes(facts: dict[str, Any]) -> dict[str, bool]:
    """The modes that the programs depend on, by path."""
    older: dict[str, bool] = facts.get("_dvk_modes", {})  # of drop-ins before `_dvk_read`
    return older | {
        path: names["training"] == "True"
        for paths, names in facts.get("_dvk_read", ())
        for path in paths
        if "training" in names
    }


def _facts(owner: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    """Attributes of the last class that are literals; dtypes are read as their names."""
    for node in owner.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, ast.literal_eval(_Plain().visit(node.value))


class _Plain(ast.NodeTransformer):
    """Turns `torch.float32` into a string."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return ast.Constant(node.attr)
