"""Grammars of `--input`, `--init` and `--dtype`. Parses only: needs no torch, runs nothing.

    --input  NAME=DTYPE[DIM,DIM,…][<HIGH][:FILL]     x=float32[64,1024]   idx=int64[64]<1000   m=bool[8,8]
             NAME=LITERAL                            alpha=0.5            approximate='tanh'
    --init   LITERAL or NAME=LITERAL                 512                  eps=1e-5

FILL is `randn` (the default of floats), `rand`, `ones`, `zeros` or `same_class_places`. Integers are uniform in [0, HIGH), with HIGH 10 by
default; booleans are fair coins. `DTYPE[]` is a scalar tensor. `same_class_places` draws as the file's get_inputs() does, at this size;
inputs without a spec then come from get_inputs(), too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dvk.errors import TaskError

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
ALIASES = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "long": "int64",
    "int": "int32",
}
FILLS = ("randn", "rand", "ones", "zeros", "like")
DEFAULT_HIGH = 10
INPUT_HINT = 'write e.g. --input "x=float32[64,1024]", "idx=int64[64]<1000", "w=float16[8]:ones" or "alpha=0.5"'

_TENSOR = re.compile(
    r"(?P<dtype>[a-z]+\d*)\[(?P<dims>[\d,\s]*)\](?:<(?P<high>\d+))?(?::(?P<fill>\w+))?"
)
_NAMED = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*=(?!=)\s*(?P<value>.+)", re.DOTALL)


@dataclass(frozen=True)
class InputSpec:
    """One `--input`: a tensor to draw, or a plain value."""

    name: str
    dtype: str | None = None  # None: not a tensor, `value` counts
    shape: tuple[int, ...] = ()  # elements, outermost first
    high: int = DEFAULT_HIGH  # exclusive upper end of integers
    fill: str = "randn"
    value: Any = None


def parse_input(text: str) -> InputSpec:
    """Read one `--input`.

    Raises:
        TaskError: it does not follow the grammar.
    """
    named = _NAMED.fullmatch(text.strip())
    if named is None:
        raise TaskError(
            f"input `{text}` has no name: it begins with a parameter of forward and `=`", INPUT_HINT
        )
    name, value = named["name"], named["value"].strip()
    tensor = _TENSOR.fullmatch(value)
    if tensor is None:
        if (wrong := _wrong_in(value)) is not None:
            raise TaskError(f"cannot read input `{text}`: {wrong}", INPUT_HINT)
        return InputSpec(name, value=_literal(value, f"input `{text}`", INPUT_HINT))
    dtype = ALIASES.get(tensor["dtype"], tensor["dtype"])
    if dtype not in (*FLOATS, *INTEGERS, "bool"):
        known = ", ".join((*FLOATS, *INTEGERS, "bool"))
        raise TaskError(f"input `{text}`: unknown dtype `{dtype}`", f"use one of {known}")
    shape = _dimensions(tensor["dims"], text)
    fill = tensor["fill"] or "randn"
    if fill not in FILLS:
        raise TaskError(f"input `{text}`: unknown fill `{fill}`", f"use one of {', '.join(FILLS)}")
    if tensor["high"] is not None and dtype not in INTEGERS:
        raise TaskError(
            f"input `{text}`: `<` limits integers only",
            "drop it, or choose an integer dtype like int64",
        )
    if fill in ("randn", "rand") and tensor["fill"] and dtype not in FLOATS:
        raise TaskError(
            f"input `{text}`: `:{fill}` is for floats only",
            "integers are uniform: write `<HIGH` instead",
        )
    high = int(tensor["high"]) if tensor["high"] is not None else DEFAULT_HIGH
    if high < 1:
        raise TaskError(
            f"input `{text}`: no integer lies in [0, {high})", "give a limit of at least 1"
        )
    bits = 7 if dtype == "int8" else 8 if dtype == "uint8" else 15 if dtype == "int16" else 31
    if dtype != "int64" and dtype in INTEGERS and high > 2**bits:
        raise TaskError(
            f"input `{text}`: {dtype} cannot hold {high - 1}", "lower the limit or widen the dtype"
        )
    return InputSpec(name, dtype, shape, high, fill)


def named(text: str) -> str | None:
    """Return the name in `NAME=…`, None without one."""
    match = _NAMED.fullmatch(text.strip())
    return match["name"] if match else None


def parse_inputs(texts: Sequence[str]) -> list[InputSpec]:
    """Read all `--input` of one command line.

    Raises:
        TaskError: one does not follow the grammar, or a name is given twice.
    """
    specs = [parse_input(text) for text in texts]
    for index, spec in enumerate(specs):
        if spec.name in {earlier.name for earlier in specs[:index]}:
            raise TaskError(
                f"input `{spec.name}` is given twice", "give every parameter of forward one --input"
            )
    return specs


def parse_init(texts: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Read all `--init` of one command line into positional and named constructor arguments.

    Raises:
        TaskError: not a Python literal, a duplicate name, or a positional one after a named one.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    hint = "write Python literals, e.g. --init 512 --init eps=1e-5 --init \"mode='mean'\""
    for text in texts:
        named = _NAMED.fullmatch(text.strip())
        value = _literal(named["value"] if named else text, f"constructor argument `{text}`", hint)
        if named is None and kwargs:
            raise TaskError(
                f"constructor argument `{text}` follows a named one", "give positional --init first"
            )
        if named is None:
            args.append(value)
        elif named["name"] in kwargs:
            raise TaskError(
                f"constructor argument `{named['name']}` is given twice", "give every argument once"
            )
        else:
            kwargs[named["name"]] = value
    return args, kwargs


def parse_dtype(text: str) -> str:
    """Return the torch name of a floating dtype.

    Raises:
        TaskError: not one of float64, float32, float16, bfloat16 or their short names.
    """
    dtype = ALIASES.get(text.removeprefix("torch."), text.removeprefix("torch."))
    if dtype not in FLOATS:
        raise TaskError(f"unknown dtype `{text}`", f"use one of {', '.join(FLOATS)}")
    return dtype


def _dimensions(text: str, spec: str) -> tuple[int, ...]:
    pieces = [piece.strip() for piece in text.split(",")] if text.strip() else []
    if (wrong := next((piece for piece in pieces if not piece.isdigit()), None)) is not None:
        raise TaskError(
            f"cannot read the sizes of input `{spec}`: `{wrong}` is not a whole number", INPUT_HINT
        )
    if any(int(piece) == 0 for piece in pieces):
        raise TaskError(f"input `{spec}` is empty", "give sizes of at least 1")
    return tuple(int(piece) for piece in pieces)


def _wrong_in(value: str) -> str | None:
    """Return why a value that starts like a tensor is none; None if it does not start so."""
    begun = re.match(
        r"(?P<dtype>[A-Za-z_.]+\d*)\s*(?P<open>[\[(])(?P<dims>[^\])]*)(?P<close>[\])]?)(?P<rest>.*)",
        value,
        re.DOTALL,
    )
    if begun is None:
        return (
            f"`{value}` has no sizes, as in `{value}[64,1024]`"
            if ALIASES.get(value, value) in (*FLOATS, *INTEGERS, "bool")
            else None
        )
    if begun["open"] == "(" and ALIASES.get(begun["dtype"], begun["dtype"]) not in (
        *FLOATS,
        *INTEGERS,
        "bool",
    ):
        return None
    if (begun["open"], begun["close"]) != ("[", "]"):
        return f"sizes stand in brackets, as in `{begun['dtype']}[{begun['dims']}]`"
    if wrong := next(
        (piece.strip() for piece in begun["dims"].split(",") if not piece.strip().isdigit()), None
    ):
        return f"the size `{wrong}` is not a whole number"
    if begun["rest"]:
        return f"after the sizes `<HIGH` and `:FILL` may stand, not `{begun['rest'].strip()}`"
    return (
        f"`{begun['dtype']}` is no dtype"
        if not re.fullmatch(r"[a-z]+\d*", begun["dtype"])
        else f"`{value}` is no tensor"
    )


def _literal(text: str, what: str, hint: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise TaskError(f"{what} is not a Python literal", hint) from None
