"""Draws of one task's inputs: native ones, those of a family, and calls with other arguments than the example's.

Families are drawn with a smaller batch if the native one is large (`case_keys.reduced`) and the reference accepts it, all from one native
draw, since drawing it costs as much as a full one.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch.utils import _pytree as pytree

from dvk.harness.checking.case_keys import InputSetKey, indexes_outside, reduced
from dvk.harness.checking.input_arguments import Arguments
from dvk.harness.checking.input_families import NATIVE, NONFINITE, QUANTISED, derive, kind_of
from dvk.harness.checking.quantised_draws import redrawn
from dvk.harness.checking.quantised_operands import (
    NO_OPERANDS,
    SOURCES,
    Operands,
    may_be_code,
    observed,
)
from dvk.harness.checking.reference_runs import Answer, InputDraw, Reference
from dvk.harness.checking.rounded_codes import RoundedCodes
from dvk.harness.seeds import derived
from dvk.harness.transport.calls import call, put_buffers
from dvk.harness.transport.memory_budget import release_cached
from dvk.records import ShapeVariant
from dvk.tasks import entry
from dvk.tasks.build import BuiltTask
from dvk.tasks.input_sampler import Call
from dvk.tasks.trees import map_tensors, named_tensors

MOST_TEXTS = 8
T = TypeVar("T")


class Drawing:
    """Source of the inputs of one task.

    Args:
        built: the reference.
        reference: the reference's runs.
        seed: secret seed.
        operands: quantised operands of its calls.
    """

    def __init__(
        self, built: BuiltTask, reference: Reference, seed: int, operands: Operands = NO_OPERANDS
    ):
        self.built, self.reference, self.seed = built, reference, seed
        self._operands = operands.inputs
        self.small = reduced(built.task)
        self._pools: dict[int, Call] = {}
        self._arguments: Arguments | None = None

    def cheap(self) -> str:
        """Return the variant in which families are drawn: the reduced batch, if there is one and the reference accepts it."""
        if self.small is not None and not self._pools:
            try:
                draw = self.drawn(InputSetKey(self.small.name, NATIVE, 0, 0))[0]
                if indexes_outside(
                    self.small,
                    self.built.task,
                    [t for _, t in named_tensors((draw.args, draw.kwargs))],
                ):
                    raise ValueError(
                        "integers may index what is smaller now"
                    )  # which kills the process on a GPU
                self.reference.run(draw)
            except Exception:  # noqa: BLE001 - a size of our choosing: the native one will do
                self.small = None
        return self.small.name if self.small is not None else NATIVE

    def answered(self, key: InputSetKey, draw: InputDraw) -> Answer | None:
        """Return the reference's answer to a draw; None if it refuses words of any bits, which as bad indices kill the process on a GPU.

        Raises:
            Exception: the reference does.
        """
        packed = any(operand.role == "packed" for operand in self._operands.values())
        if packed and key.family == QUANTISED and self.built.task.device != "cpu":
            return self.reference.try_inputs(draw, other_arguments=False)
        return self.reference.run(draw)

    def drawn(
        self, key: InputSetKey, keep_sign: bool = False, keep_numbers: bool = False
    ) -> tuple[InputDraw, list[torch.Tensor]]:
        """Return the inputs of a key, and the native tensors that its family changed; `keep_numbers`: the call's integers stay."""
        small = self.small
        if small is not None and key.variant == small.name:
            args, kwargs = self._pool(small, max(key.weights, 1))
        else:
            args, kwargs = self.built.inputs(key.seed, key.variant)
        seed = derived(self.seed, "call", key.seed)
        along: list[torch.Tensor] | None = [] if self.built.task.train and key.backward else None
        native = InputDraw(
            args, kwargs, seed, key.weights, key.backward, other_mode=key.other_mode, along=along
        )
        changed: list[torch.Tensor] = []
        if key.family == NATIVE:
            return native, changed
        domain = self.reference.domain(native)
        generator = torch.Generator(self.built.task.device).manual_seed(key.seed + 1)
        loose: list[bool] = []
        chance = random.Random(key.seed)
        spares = key.family in NONFINITE and chance.random() < 0.8
        """Return which inputs to spoil, not always all: the effect of one may hide the effect of another."""

        def other(tensor: torch.Tensor) -> torch.Tensor:
            kind, operand = kind_of(tensor, domain), self._operands.get(len(loose))
            loose.append(kind != "fixed")
            if key.family == QUANTISED:
                how = (generator, keep_sign, key.weights % 2 == 0)
                made = redrawn(operand, tensor, *how) if operand else tensor
            elif spares and chance.random() < 0.5:
                made = tensor
            else:
                made = derive(key.family, tensor, kind, generator, keep_sign)
            if made is not tensor:
                changed.append(tensor)
            return made

        made = map_tensors(other, (args, kwargs))
        if spares and not changed:
            loose, spares = [], False
            made = map_tensors(other, (args, kwargs))
        told = ""
        if key.family == QUANTISED and not keep_sign and not keep_numbers:
            made, told = _with_other_zero_points(made, chance)
        args, kwargs = made
        made_draw = InputDraw(
            args, kwargs, seed, key.weights, key.backward, loose, along=along, told=told
        )
        return made_draw, changed

    def arguments(self, bears: Callable[[InputDraw], bool]) -> Arguments:
        """Return how the call's arguments vary; determined on first use.

        Args:
            bears: returns whether the reference accepts a call.
        """
        if self._arguments is None:
            native = self.drawn(
                InputSetKey(self.cheap(), NATIVE, 0, derived(self.seed, "arguments"))
            )[0]
            forward = self.built.model.forward
            names, absent = self._leaves(native, forward)
            data = partial(_is_data, self.reference, native)
            seed = derived(self.seed, "varied")
            self._arguments = Arguments(
                native, names, absent, _texts(forward), bears, self.reference.uses, data, seed
            )
        return self._arguments

    def _pool(self, small: ShapeVariant, number: int) -> Call:
        if number not in self._pools:
            self._pools[number] = self.built.inputs(derived(self.seed, "pool", number), small)
        return self._pools[number]

    def _leaves(self, native: InputDraw, forward: Callable[..., Any]) -> tuple[list[str], set[int]]:
        """Return names of a call's leaves, and the numbers of those that may be None."""
        positional = self.built.input_names(native.args)
        optional = {p.name for p in entry.parameters(forward) if p.default is None}
        names: list[str] = []
        absent: set[int] = set()
        for number, (path, _) in enumerate(
            pytree.tree_flatten_with_path((native.args, native.kwargs))[0]
        ):
            steps: list[Any] = [
                getattr(step, "idx", getattr(step, "key", getattr(step, "name", step)))
                for step in path
            ]
            first = positional[steps[1]] if steps[0] == 0 else str(steps[1])
            names.append(".".join([first, *map(str, steps[2:])]))
            if len(steps) == 2 and first in optional:
                absent.add(number)
        return names, absent


def _with_other_zero_points(call: Any, chance: random.Random) -> tuple[Any, str]:
    """Return a call with its integers at the ends of a code's range or within, since they may be zero points, and the change in words."""
    told = []

    def other(leaf: Any) -> Any:
        if type(leaf) is not int or not 1 < abs(leaf) < 256:
            return leaf
        most = 15 if 0 < leaf < 16 else 127 if leaf < 0 else 255
        made = chance.choice((0, most, chance.randint(1, most - 1)))
        told.append(str(made))
        return made

    made = pytree.tree_map(other, call)
    return made, "with " + ", ".join(told) if told else ""


def quantises(built: BuiltTask) -> bool:
    """Whether some output is quantised: in a type of 8-bit floats, or rounded to integers of 8 bits in a call on native inputs."""
    kinds = [spec.dtype for spec in built.task.outputs]
    if any(kind.startswith("float8") for kind in kinds):
        return True
    if not any(kind in ("int8", "uint8") for kind in kinds):
        return False
    watch = RoundedCodes()
    _called(built, lambda args, kwargs: call(built.model, args, kwargs, 0, under=watch), None)
    return watch.found


def operands_of(built: BuiltTask) -> Operands:
    """Return the quantised operands of a task, from one call on native inputs; none if that fails."""
    model = built.model
    kept = model.state_dict(keep_vars=True)
    state = {n: t for n, t in kept.items() if isinstance(t, torch.Tensor)}
    if not any(map(may_be_code, state.values())) and not any(
        getattr(torch, spec.dtype) in SOURCES or spec.dtype.startswith("float8")
        for spec in built.task.inputs
    ):
        return NO_OPERANDS

    def watched(args: list[Any], kwargs: dict[str, Any]) -> Operands:
        inputs = [t for _, t in named_tensors((args, kwargs))]
        return observed(lambda: call(model, args, kwargs, 0), inputs, state)

    return _called(built, watched, NO_OPERANDS)


def _called(built: BuiltTask, run: Callable[[list[Any], dict[str, Any]], T], failed: T) -> T:
    """Return what `run` does with native inputs, or `failed`; the reference's buffers are put back."""
    args, kwargs = built.inputs(0)
    before = {name: value.clone() for name, value in built.model.named_buffers()}
    try:
        return run(args, kwargs)
    except Exception:  # noqa: BLE001 - a reference that does not run is found out where it is judged
        return failed
    finally:
        put_buffers(built.model, before)
        release_cached()


def _is_data(reference: Reference, native: InputDraw, tensor: torch.Tensor) -> bool:
    return kind_of(tensor, reference.domain(native)) != "fixed"


def _texts(forward: Callable[..., Any]) -> tuple[str, ...]:
    """Return words in the code of forward that an argument may be compared with."""
    code = getattr(inspect.unwrap(forward), "__code__", None)
    texts = [
        c
        for c in (code.co_consts if code is not None else ())
        if isinstance(c, str) and c.isidentifier()
    ]
    return tuple(texts[:MOST_TEXTS])
