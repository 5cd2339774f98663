"""Grammar of `--extra-input`: another set of inputs, given by its differences from the first. Parses only.

    NAME=SPEC; NAME=SPEC; …     those that differ, as `--input` writes them: "x=float32[32,1024]"
    SPEC; SPEC; …               all of them, in order: "float32[32,1024]; float32[32,1]"

Omitted parts are as in the first set: how values are drawn, and inputs that are not named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dvk.errors import TaskError
from dvk.records import TensorSpec
from dvk.tasks.specs import FLOATS, INTEGERS, named, parse_input, parse_inputs

HINT = 'write e.g. --extra-input "x=float32[32,1024]", or all inputs in order: --extra-input "float32[32,1024]; float32[32,1]"'
_BETWEEN = re.compile(r""";(?=(?:[^'"]*['"][^'"]*['"])*[^'"]*$)""")
"""A semicolon outside of quotes."""


def specs(text: str, given: Sequence[str], inputs: Sequence[TensorSpec]) -> tuple[str, ...]:
    """Return the whole set as `--input` specs.

    Args:
        text: one `--extra-input`.
        given: the `--input` specs of the first set; empty where the file has get_inputs().
        inputs: the first set's tensors, as examined.

    Raises:
        TaskError: it does not follow the grammar, or names something twice.
    """
    items = [item.strip() for item in _BETWEEN.split(text) if item.strip()]
    if not items:
        raise TaskError("it describes no input", HINT)
    first = {parse_input(spec).name: spec for spec in given} or {
        t.name: _like(t) for t in inputs if _can_be_told(t)
    }
    labels = [named(item) for item in items]
    if not any(labels):
        if len(items) != len(first):
            listed = ", ".join(f"`{name}`" for name in first)
            raise TaskError(
                f"it describes {len(items)} of the inputs {listed}",
                "describe all in order, or name those that differ: x=…",
            )
        items = [f"{name}={item}" for name, item in zip(first, items, strict=True)]
    elif not all(labels):
        raise TaskError(
            f"`{items[labels.index(None)]}` has no name",
            "name every input, or none and describe all in order",
        )
    told = {
        spec.name: _whole(item, first.get(spec.name))
        for spec, item in zip(parse_inputs(items), items, strict=True)
    }
    return tuple({**first, **told}.values())


def _whole(item: str, before: str | None) -> str:
    """Complete a spec with the first set's way to draw values."""
    spec, old = parse_input(item), parse_input(before) if before is not None else None
    if (
        old is None
        or spec.dtype is None
        or not item.endswith("]")
        or _kind(spec.dtype) != _kind(old.dtype)
    ):
        return item
    return item + str(before).rpartition("]")[2]


def _kind(dtype: str | None) -> str:
    return (
        ""
        if dtype is None
        else "float"
        if dtype in FLOATS
        else "integer"
        if dtype in INTEGERS
        else dtype
    )


def _can_be_told(tensor: TensorSpec) -> bool:
    """Whether a tensor is not inside a list or dict, nor empty, nor complex: those are as get_inputs() gives them."""
    return (
        "." not in tensor.name
        and 0 not in tensor.shape
        and tensor.dtype in (*FLOATS, *INTEGERS, "bool")
    )


def _like(tensor: TensorSpec) -> str:
    return f"{tensor.name}={tensor.dtype}[{','.join(map(str, tensor.shape))}]:like"
