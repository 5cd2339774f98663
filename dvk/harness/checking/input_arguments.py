"""Variation of non-floating inputs, as far as the reference accepts it: numbers, flags, masks, lengths, indices, labels.

A kernel that hard-codes the example's scale, never reads a mask that happens to be full, or ignores `ignore_index` is right on every draw
of get_inputs(). So everything other than floating data is varied in three families:

    arguments   masks with rows of every density, integers over their whole range, special values of the reference among
                them, other numbers and flags
    edges       one value throughout: a mask that is full, empty or causal, equal, smallest, largest or sorted integers
    exceptions  the example's, except a few single elements that a sample of the inputs does not reveal

Trials once per task find which variations are allowed (`Bears`): the call must run, have the native call's structure and be finite where
that is. An indexing integer has the range of what it indexes (`input_usage`), any other the example's, and 0 or 1 if accepted. Values that
are accepted by accident, such as indices counted from the end, are not required of a kernel and not drawn; sorted integers that index
nothing stay sorted, indices of writes stay distinct.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dvk.harness.checking import input_variations
from dvk.harness.checking.input_usage import Use
from dvk.harness.checking.input_variations import Maker
from dvk.harness.checking.reference_runs import InputDraw

EDGES, EXCEPTIONS = "edges", "exceptions"
MOST_NUMBERS = 4
"""Other values used per number, of twice as many that are tried."""
MOST_TRIED = 64
"""Most calls of the reference in all: a call of many arguments keeps some of them."""
REDUCTIONS = ("mean", "sum", "none")

Bears = Callable[[InputDraw], bool]
Uses = Callable[[InputDraw, list[torch.Tensor]], list[Use]]


@dataclass(frozen=True)
class Varied:
    """A leaf of the call and its variation: a maker for tensors, other values for the rest."""

    name: str
    make: Maker | None = None
    values: tuple[Any, ...] = ()
    orders: tuple[dict[int, int], ...] = ()
    """Reorderings of a list of integers that may not change alone, by leaf: sizes of parts have the same sum in any order."""


class Arguments:
    """Variations of the arguments of one task's calls.

    Args:
        native: a call of the size at which they are varied.
        names: names of its leaves.
        absent: numbers of leaves that may be None by the signature of forward.
        texts: constants of forward that an argument may be compared with.
        bears: returns whether the reference accepts a call.
        uses: returns how it uses integers and masks of a call.
        varies: returns whether a floating tensor is data, which other families vary.
        seed: secret seed.
    """

    def __init__(
        self,
        native: InputDraw,
        names: list[str],
        absent: set[int],
        texts: tuple[str, ...],
        bears: Bears,
        uses: Uses,
        varies: Callable[[torch.Tensor], bool],
        seed: int,
    ):
        self._native, self._bears, self._random = native, bears, random.Random(seed)
        self._leaves, self._spec = pytree.tree_flatten((native.args, native.kwargs))
        self._tried = 0
        self.varied: dict[int, Varied] = {}
        whole = [n for n, leaf in enumerate(self._leaves) if _counts(leaf)]
        known = (
            dict(zip(whole, uses(native, [self._leaves[n] for n in whole]), strict=True))
            if whole
            else {}
        )
        for number, leaf in enumerate(self._leaves):
            if isinstance(leaf, torch.Tensor):
                varied = Varied(
                    names[number],
                    self._maker(number, leaf, known.get(number), varies),
                    self._values(number, absent, ()),
                )
            else:
                varied = Varied(names[number], None, self._values(number, absent, texts))
            if varied.make is not None or varied.values:
                self.varied[number] = varied
        self._order_lists(names)

    def draws(self, native: InputDraw, family: str, seed: int) -> Iterator[tuple[InputDraw, str]]:
        """Yield variations of a native call, with non-tensor changes in words; the boldest first, fewer at a time later."""
        chance = random.Random(seed)
        order = chance.sample(sorted(self.varied), len(self.varied))
        if (
            family == EDGES
        ):  # a number's sign before a tensor's edges: each may be what the reference does not bear
            order.sort(key=lambda number: self.varied[number].make is not None)
        for attempt, chosen in enumerate([order, order, *[[number] for number in order]]):
            yield self._drawn(native, set(chosen), family, chance, attempt != 1)

    def _drawn(
        self, native: InputDraw, chosen: set[int], family: str, chance: random.Random, negated: bool
    ) -> tuple[InputDraw, str]:
        leaves, told = list(pytree.tree_leaves((native.args, native.kwargs))), []
        for number in sorted(chosen):
            one, leaf = self.varied[number], leaves[number]
            if one.orders and family != EXCEPTIONS:
                order = chance.choice(one.orders)
                for place, value in order.items():
                    leaves[place] = value
                told.append(f"{one.name}={list(order.values())}")
            other = (
                bool(one.values)
                and (one.make is None or chance.random() < 0.25)
                and family != EXCEPTIONS
            )
            if other:
                leaves[number] = chance.choice(
                    _turned(leaf, one.values, negated) if family == EDGES else one.values
                )
                told.append(f"{one.name}={_shown(leaves[number])}")
            elif one.make is not None:
                made = input_variations.with_strides_kept(one.make, leaf, chance, family == EDGES)
                leaves[number] = (
                    input_variations.few(leaf, made, chance) if family == EXCEPTIONS else made
                )
        return self._with(native, leaves), ", ".join(told)

    def _with(self, native: InputDraw, leaves: list[Any]) -> InputDraw:
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return replace(native, args=args, kwargs=kwargs)

    # ------------------------------------------------------------ finding out

    def _order_lists(self, names: list[str]) -> None:
        groups: dict[str, list[int]] = {}
        for number, leaf in enumerate(self._leaves):
            if type(leaf) is int and number not in self.varied and "." in names[number]:
                groups.setdefault(names[number].rpartition(".")[0], []).append(number)
        for name, numbers in groups.items():
            given = [self._leaves[number] for number in numbers]
            others = [order for order in (given[::-1], given[1:] + given[:1]) if order != given]
            borne = tuple(
                order
                for order in (dict(zip(numbers, other, strict=True)) for other in others)
                if self._bears_leaves(order)
            )
            if borne:
                self.varied[numbers[0]] = Varied(name, orders=borne)

    def _bears_leaf(self, number: int, value: Any) -> bool:
        return self._bears_leaves({number: value})

    def _bears_leaves(self, values: dict[int, Any]) -> bool:
        self._tried += 1
        if self._tried > MOST_TRIED:
            return False
        leaves = [values.get(number, leaf) for number, leaf in enumerate(self._leaves)]
        return self._bears(self._with(self._native, leaves))

    def _bears_maker(self, number: int, make: Maker) -> bool:
        leaf = self._leaves[number]
        return all(
            self._bears_leaf(
                number, input_variations.with_strides_kept(make, leaf, self._random, False)
            )
            for _ in range(2)
        )

    def _maker(
        self,
        number: int,
        leaf: torch.Tensor,
        use: Use | None,
        varies: Callable[[torch.Tensor], bool],
    ) -> Maker | None:
        if leaf.numel() == 0 or leaf.layout is not torch.strided:
            return None
        if leaf.dtype is torch.bool:
            makers = input_variations.masks(leaf)
        elif use is not None:
            makers = input_variations.integers(
                leaf,
                use,
                lambda value: self._bears_leaf(number, _with_one(leaf, value, self._random)),
            )
        elif leaf.is_floating_point() and not varies(leaf):
            makers = input_variations.few_floats(leaf)
        else:
            return None
        return next((make for make in makers if self._bears_maker(number, make)), None)

    def _values(self, number: int, absent: set[int], texts: tuple[str, ...]) -> tuple[Any, ...]:
        """Return the accepted values other than the leaf's."""
        leaf = self._leaves[number]
        tried = [None] if number in absent and leaf is not None else []
        if not isinstance(leaf, torch.Tensor):
            tried = [*_others(leaf, self._sizes(), texts, self._random)[: 2 * MOST_NUMBERS], *tried]
        result: list[Any] = []
        for value in tried:
            if len(result) < MOST_NUMBERS and self._bears_leaf(number, value):
                result.append(value)
        return tuple(result)

    def _sizes(self) -> set[int]:
        return {
            size for leaf in self._leaves if isinstance(leaf, torch.Tensor) for size in leaf.shape
        }


def _counts(leaf: Any) -> bool:
    """Whether it is an integer tensor; masks are not."""
    dense = isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
    return (
        dense
        and leaf.dtype is not torch.bool
        and not (leaf.is_floating_point() or leaf.is_complex())
    )


def _with_one(leaf: torch.Tensor, value: int, chance: random.Random) -> torch.Tensor:
    made = leaf.clone(memory_format=torch.contiguous_format)
    made.view(-1)[chance.randrange(made.numel())] = value
    return made


def _others(
    value: Any, sizes: set[int], texts: tuple[str, ...], chance: random.Random
) -> list[Any]:
    """Return candidate values for a number, flag or word."""
    if isinstance(value, bool):
        return [not value]
    if type(value) is float:
        near = [
            value * chance.uniform(0.3, 0.9),
            value * chance.uniform(1.2, 2.5),
            value + chance.uniform(0.2, 0.7),
        ]
        return [other for other in (*near[:2], -value, 0.0, near[2], 1.0) if other != value]
    if type(value) is int:
        below = [chance.randint(1, value - 1), value // 2] if value > 1 else []
        around = (
            [value - 1, value + 1]
            if value >= 0 and value not in sizes
            else [value - 1]
            if value >= 1
            else [value + 1, value - 1]
        )
        values = dict.fromkeys([*below, *around, 0, 1])
        return [other for other in values if other != value and (other >= 0 or value < 0)]
    if isinstance(value, str):
        known = REDUCTIONS if value in REDUCTIONS else texts
        return [other for other in known if other != value]
    return []


def _turned(value: Any, others: tuple[Any, ...], negated: bool) -> tuple[Any, ...]:
    """Those of the other values of a number that have not its sign, without 0 if `negated`; all where none is so. Of an integer, such as a
    zero point, the farthest."""
    if type(value) is int and all(type(o) is int for o in others):
        return (max(others, key=lambda o: abs(o - value)),)
    turned = [o for o in others if type(value) is type(o) is float and o * value <= 0]
    return tuple((negated and [o for o in turned if o != 0]) or turned) or others


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else repr(value)
