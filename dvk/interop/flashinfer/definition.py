"""Definition: an operator's axes, inputs and outputs, and reference code with a function `run`."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dvk.errors import UsageError
from dvk.interop.flashinfer.axes import (
    Axis,
    Sizes,
    checked,
    evaluate,
    is_number,
    names_in,
    read_axes,
    resolve,
)
from dvk.interop.flashinfer.fields import Fields

RUN = "run"
DTYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
)
"""Names that are torch's. The schema's 4-bit floats are not among them: PyTorch packs two to an element, and has no arithmetic for them."""
TAKEN = ("Model", "get_inputs", "get_init_inputs", "get_shape_variants")
"""Names that a task file has for itself."""


@dataclass(frozen=True)
class TensorEntry:
    """One input or output: names of its axes, None for a Python number."""

    name: str
    shape: tuple[str, ...] | None
    dtype: str


@dataclass(frozen=True)
class Definition:
    """An operator. `raw` is its JSON object, `where` names it in messages."""

    name: str
    op_type: str
    axes: dict[str, Axis]
    inputs: tuple[TensorEntry, ...]
    outputs: tuple[TensorEntry, ...]
    reference: str
    constraints: tuple[str, ...]
    inputs_function: str
    """Function of the reference code that makes all inputs (SOL-ExecBench); empty if there is none."""
    raw: dict[str, Any]
    where: str

    @cached_property
    def bindings(self) -> dict[str, tuple[str, int]]:
        """Variable axis → the first input that has it, and the dimension."""
        found: dict[str, tuple[str, int]] = {}
        for entry in self.inputs:
            for dimension, axis in enumerate(entry.shape or ()):
                if axis in self.axes and self.axes[axis].kind == "var":
                    found.setdefault(axis, (entry.name, dimension))
        return found

    def sizes(self, given: Mapping[str, int], fields: Fields) -> Sizes:
        """All sizes of a workload.

        Raises:
            UsageError: see `resolve`; an unknown axis, or a constraint that does not hold.
        """
        if unknown := sorted(given.keys() - self.axes.keys()):
            raise fields.error(f"has the axis `{unknown[0]}`, which `{self.name}` does not have")
        sizes = resolve(self.axes, given, fields)
        if (broken := self.violated(sizes)) is not None:
            told = ", ".join(f"{name}={sizes[name]}" for name in sorted(names_in(broken)))
            raise fields.error(f"breaks the constraint `{broken}` of `{self.name}`: {told}")
        return sizes

    def resized(self, given: Mapping[str, int]) -> Sizes | None:
        """All sizes for other ones of the variables; None if an expression or a constraint does not allow them."""
        try:
            sizes = resolve(self.axes, given, Fields({}, self.name))
        except UsageError:
            return None
        return sizes if self.violated(sizes) is None else None

    def violated(self, sizes: Sizes) -> str | None:
        """A constraint of axes alone that these sizes break; those that read inputs' values are for the reference code."""
        for text in self.constraints:
            if names_in(text) <= sizes.keys():
                try:
                    if not evaluate(text, sizes):
                        return text
                except ValueError:
                    continue  # it calls something
        return None

    @property
    def constrained(self) -> set[str]:
        """Axes that a constraint names."""
        return {name for text in self.constraints for name in names_in(text)} & self.axes.keys()

    def shape(self, entry: TensorEntry, sizes: Sizes) -> tuple[int, ...]:
        """The sizes of an input or output; empty for a number."""
        return tuple(int(axis) if is_number(axis) else sizes[axis] for axis in entry.shape or ())


def read_definition(value: Any, where: str) -> Definition:
    """A definition from its JSON.

    Raises:
        UsageError: it does not follow the schema, or has what dvk does not support.
    """
    fields = Fields(value, where)
    name = fields.text("name")
    fields.where = f"definition `{name}`"
    axes = read_axes(fields)
    inputs, outputs = _entries(fields, "inputs", axes), _entries(fields, "outputs", axes)
    if both := {one.name for one in inputs} & {one.name for one in outputs}:
        raise fields.error(f"has `{min(both)}` among inputs and outputs")
    definition = Definition(
        name=name,
        op_type=fields.optional_text("op_type") or "unknown",
        axes=axes,
        inputs=inputs,
        outputs=outputs,
        reference=fields.text("reference"),
        constraints=tuple(checked(text, fields) for text in fields.texts("constraints")),
        inputs_function=fields.optional_text("custom_inputs_entrypoint"),
        raw=fields.value,
        where=where,
    )
    _check_code(definition, fields)
    if not definition.inputs_function:
        variables = [axis for axis, of in axes.items() if of.kind == "var"]
        if unbound := [axis for axis in variables if axis not in definition.bindings]:
            raise fields.error(
                f"has the variable axis `{unbound[0]}`, which no input binds",
                "give an input that dimension, or make the axis const or expr",
            )
    return definition


def _entries(fields: Fields, what: str, axes: Mapping[str, Axis]) -> tuple[TensorEntry, ...]:
    found = []
    for name, value in fields.mapping(what).items():
        one = Fields(value, f"{what[:-1]} `{name}` of {fields.where}")
        if not name.isidentifier() or keyword.iskeyword(name):
            raise one.error("has a name that is no Python parameter")
        shape = one.value.get("shape")
        if shape is not None and (
            not isinstance(shape, list) or not all(isinstance(axis, str) for axis in shape)
        ):
            raise one.error("has a `shape` that is neither null nor a list of axes")
        if unknown := [a for a in shape or () if a not in axes and not is_number(a)]:
            raise one.error(f"has the undefined axis `{unknown[0]}`")
        dtype = one.text("dtype")
        if dtype not in DTYPES:
            raise one.error(
                f"has the unsupported dtype `{dtype}`", f"dvk reads {', '.join(DTYPES)}"
            )
        found.append(TensorEntry(name, None if shape is None else tuple(shape), dtype))
    if not found:
        raise fields.error(f"has no {what}")
    return tuple(found)


def _check_code(definition: Definition, fields: Fields) -> None:
    try:
        body = ast.parse(definition.reference).body
    except (SyntaxError, ValueError, RecursionError) as error:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise fields.error(f"has a reference that is not Python: {said}") from None
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    if RUN not in functions:
        raise fields.error("has a reference without a top-level function `run`")
    for node in body:
        named = getattr(node, "name", "")
        if named in TAKEN:
            raise fields.error(f"has a reference that defines `{named}`", "rename it there")
    if definition.inputs_function and definition.inputs_function not in functions:
        raise fields.error(f"has no function `{definition.inputs_function}` that makes its inputs")
    asked = functions[RUN].args
    names = [a.arg for a in (*asked.posonlyargs, *asked.args)]
    if asked.vararg is None and len(names) - len(asked.defaults) > len(definition.inputs):
        raise UsageError(
            f"{fields.where}: run({', '.join(names)}) takes more than its {len(definition.inputs)} inputs",
            "inputs and the parameters of `run` have the same order",
        )
