"""Every lowering rule on tensors without dimensions, without elements, with one element, and on operands that broadcast to no elements.

Operands are made from the operator's schema: tensors of the given shapes, and small numbers, dimensions and booleans for the rest. Calls
that eager refuses are skipped. Run it whole:

    python -m tests.composer.ranks
"""

from __future__ import annotations

import itertools
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dvk.composer import applicable
from dvk.composer.lowering.dispatch import CODEGEN_RULES, RULES
from tests.composer.programs import Program, compiled, differences, leaves

Shape = tuple[int, ...]
ALONE: tuple[Shape, ...] = (
    (),
    (0,),
    (1,),
    (0, 3),
    (3, 0),
    (1, 1),
    (1, 3),
    (2, 0, 3),
    (1, 1, 1, 1),
    (0, 2, 3, 4),
)
PAIRS: tuple[tuple[Shape, Shape], ...] = (
    ((), ()),
    ((), (0,)),
    ((1,), ()),
    ((3,), ()),
    ((0,), (1,)),
    ((3, 1), (1, 0)),
    ((0, 1), (1, 3)),
    ((2, 0, 3), (3,)),
    ((1,), (1, 1)),
    ((3, 0), (0, 2)),
    ((1, 1), (1, 1)),
    ((0, 3), (0, 3)),
    ((0, 3), (3, 2)),
)
"""Shapes of two tensors; further ones are like the second."""
ONE = (("float",), ("long",), ("bool",))
TWO = (("float",), ("float", "long"), ("bool", "float"), ("long",))
"""Types of tensors; further ones are like the last."""
NUMBERS = {"Scalar": 2.0, "float": 0.5, "number": 2.0}
SPECIAL = {
    "dim": 0,
    "diagonal": 0,
    "reduction": 0,
    "correction": 1,
    "p": 2.0,
    "ord": 2.0,
    "eps": 1e-5,
    "num_groups": 1,
    "groups": 1,
}
"""Values of arguments by name, if they have no default."""
UNDEFINED = ("empty", "empty_like", "new_empty", "empty_strided")
"""Operators whose results are uninitialised memory."""


def tensor(shape: Shape, kind: str) -> torch.Tensor:
    """Values of both signs, indices 0, or both truth values."""
    values = torch.linspace(-1.25, 2.0, max(torch.Size(shape).numel(), 1))[
        : torch.Size(shape).numel()
    ].reshape(shape)
    return {"float": values, "long": torch.zeros(shape, dtype=torch.int64), "bool": values > 0}[
        kind
    ]


def overloads(name: str) -> Iterator[Any]:
    """The overloads of an operator that return tensors and write nothing."""
    packet = getattr(torch.ops.aten, name, None)
    for overload in packet.overloads() if packet is not None else ():
        operator = getattr(packet, overload)
        schema = operator._schema
        if not schema.is_mutable and schema.returns and "Dimname" not in str(schema):
            yield operator


def given(
    operator: Any, shapes: Sequence[Shape], kinds: Sequence[str]
) -> tuple[list[Any], list[torch.Tensor]] | None:
    """Arguments with None in place of tensors, and the tensors; None if one cannot be generated."""
    args: list[Any] = []
    tensors: list[torch.Tensor] = []

    def one() -> None:
        number = min(len(tensors), len(shapes) - 1)
        tensors.append(tensor(shapes[number], kinds[min(len(tensors), len(kinds) - 1)]))

    for argument in operator._schema.arguments:
        text, name = str(argument.type), argument.name
        if argument.kwarg_only or (argument.has_default_value() and "Tensor" not in text):
            break
        if text == "Tensor":
            one()
            args.append(tensors[-1])
        elif text in ("List[Tensor]", "List[Optional[Tensor]]"):
            one()
            one()
            args.append(tensors[-2:])
        elif text.startswith("Optional"):
            args.append(None)
        elif name in SPECIAL and text in ("int", "float", "number", "Scalar"):
            args.append(SPECIAL[name])
        elif text in NUMBERS:
            args.append(NUMBERS[text])
        elif text == "int":
            args.append(0 if "dim" in name else 1)
        elif text == "bool":
            args.append(True)
        elif text.startswith("List[int]"):
            args.append(
                list(shapes[0])
                if "size" in name or "shape" in name
                else [0]
                if "dim" in name
                else [1]
            )
        else:
            return None
    return (args, tensors) if tensors else None


Call = tuple[str, Any, list[torch.Tensor]]
"""A name, a function of tensors, and the tensors."""


def cases(name: str) -> Iterator[list[Call]]:
    """Calls for which eager has an answer, grouped by overload and types."""
    for operator in overloads(name):
        count = sum("Tensor" in str(a.type) for a in operator._schema.arguments)
        shapes: Sequence[Sequence[Shape]] = [(s,) for s in ALONE] if count < 2 else PAIRS
        for kinds in ONE if count < 2 else TWO:
            found = [
                call for shape in shapes if (call := _call(operator, shape, kinds)) is not None
            ]
            if found:
                yield found


def _call(operator: Any, shapes: Sequence[Shape], kinds: Sequence[str]) -> Call | None:
    made = given(operator, shapes, kinds)
    if made is None or (
        operator.name().startswith("aten::binary_cross_entropy") and len({*shapes}) > 1
    ):
        return None  # eager reads beyond a target with fewer elements
    function = _called(operator, *made)
    try:
        with FakeTensorMode() as fake:
            shape = [
                r.shape
                for r in leaves(function(*map(fake.from_tensor, made[1])))
                if isinstance(r, torch.Tensor)
            ]
        if [r.shape for r in leaves(function(*made[1])) if isinstance(r, torch.Tensor)] != shape:
            return None  # some operators read beyond their operands
    except Exception:  # noqa: BLE001 - what eager or capture's tensors refuse is no case
        return None
    return f"{operator.name()} {list(map(list, shapes))} {', '.join(kinds)}", function, made[1]


def _called(operator: Any, args: list[Any], tensors: list[torch.Tensor]) -> Any:
    place = {id(t): n for n, t in enumerate(tensors)}

    def put(value: Any, now: Sequence[torch.Tensor]) -> Any:
        if isinstance(value, torch.Tensor):
            return now[place[id(value)]]
        return [put(v, now) for v in value] if isinstance(value, list) else value

    def function(*now: torch.Tensor) -> Any:
        return operator(*(put(a, now) for a in args))

    return function


def faults(names: Sequence[str]) -> tuple[int, dict[str, str]]:
    """Number of calls, and the errors of some."""
    found: dict[str, str] = {}
    made: list[tuple[list[Call], Program]] = []
    for calls in (calls for name in names for calls in cases(name)):
        try:
            made.append((calls, together(calls)))
        except Exception as error:  # noqa: BLE001 - this is what the sweep looks for
            found[calls[0][0]] = f"composer: {type(error).__name__}: {str(error)[:200]}"
    for start in range(0, len(made), 100):
        compiled(program for _, program in made[start : start + 100])
    for calls, program in made:
        try:
            torch.manual_seed(0)
            want = program.eager()
            torch.manual_seed(0)
            got = program.run()
        except Exception as error:  # noqa: BLE001 - this is what the sweep looks for
            found[calls[0][0]] = f"program: {type(error).__name__}: {str(error)[:200]}"
            continue
        for (label, _, _), mine, theirs in zip(calls, got, want, strict=True):
            if wrong := differences(mine, theirs):
                found[label] = "; ".join(wrong)
    return sum(len(calls) for calls, _ in made), found


def together(calls: Sequence[Call]) -> Program:
    """One program that makes all calls and returns their results."""
    functions = [(function, len(tensors)) for _, function, tensors in calls]

    def every(*tensors: torch.Tensor) -> tuple[Any, ...]:
        left = iter(tensors)
        return tuple(function(*itertools.islice(left, count)) for function, count in functions)

    return Program(
        every, *(tensor for _, _, tensors in calls for tensor in tensors), recipes=_every
    )


def _every(graph: Any) -> tuple[str, ...]:
    return tuple(applicable(graph, "cpu", "cpp"))


def rules() -> list[str]:
    """Operators that some rule lowers."""
    return sorted({*RULES, *CODEGEN_RULES} - {*UNDEFINED})


def quiet() -> None:
    """Silence PyTorch's reports on operators that are tried and refused."""
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.CRITICAL)


def main() -> int:
    quiet()
    names = sys.argv[1:] or rules()
    count, wrong = 0, 0
    for start in range(0, len(names), 20):
        more, found = faults(names[start : start + 20])
        count, wrong = count + more, wrong + len(found)
        for label, text in found.items():
            print(f"{label}: {text}", flush=True)
    print(f"{count} calls, {wrong} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
