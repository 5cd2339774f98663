"""Chains: sequences of operators with residuals, shared values and further inputs; and single operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dvk.taskgen import (
    binary,
    heads,
    indexed,
    losses,
    moved,
    norms,
    pointwise,
    reductions,
    scans,
    unary_operators,
    views,
)
from dvk.taskgen.dice import Dice
from dvk.taskgen.layouts import main_shape
from dvk.taskgen.program import TaskProgram
from dvk.taskgen.sizes import count
from dvk.taskgen.values import TaskValue, UnfitOperands

TRIES = 12
"""Operators drawn for one step before the chain is abandoned."""

Step = Callable[[TaskValue], TaskValue]


def main_kind(dice: Dice) -> str:
    """Values of the main input: mostly normal, sometimes positive."""
    return dice.weighted({"normal": 9, "positive": 0.7, "unit": 0.3})


class Chain:
    """A program grown operator by operator along one main value."""

    def __init__(self, program: TaskProgram):
        self.program, self.dice = program, program.dice
        shape, self.channels_first = main_shape(program, program.profile)
        self.x = program.input(
            shape,
            self.dice.pick(
                (("x",), ("x",), ("x",), ("inputs",), ("features",), ("hidden_states",))
            ),
            main_kind(self.dice),
        )
        self.values = [self.x]
        self.ended = False

    def first(self) -> bool:
        return self.channels_first and self.x.rank > 2

    def grow(self, num: int) -> None:
        """Add steps until there are `num` operators or none fits.

        Raises:
            UnfitOperands: no step fits any more and the chain is too short.
        """
        while len(self.program.operators) < num and not self.ended:
            self._step(num - len(self.program.operators))

    def _step(self, left: int) -> None:
        for _ in range(TRIES):
            kind, step = self.drawn(left)
            try:
                with self.program.attempt():
                    self.x = step(self.x)
            except UnfitOperands:
                continue
            self.values.append(self.x)
            self.ended = kind in ("loss", "total", "argument")
            return
        raise UnfitOperands("nothing fits")

    def drawn(self, left: int) -> tuple[str, Step]:
        """A kind of step and the step."""
        kind = self.dice.weighted(self._weights(left))
        return kind, self._steps()[kind]

    def _weights(self, left: int) -> dict[str, float]:
        """How likely each kind of step is now, with `left` operators to come."""
        first, position = self.first(), len(self.program.operators)
        wide = self.program.profile.wide
        return {
            "activation": 4.0,
            "unary": 2.5,
            "number": 2.4,
            "weight": 2.2,
            "clamp": 1.0,
            "leaky": 0.8,
            "shaped": 0.4,
            "power": 0.3,
            "shrink": 0.3,
            "residual": 2.2 if position else 0.3,
            "input": 2.2,
            "mask": 0.6,
            "norm": 2.2,
            "softmax": 1.4,
            "statistic": 1.8,
            "reduce": 2.6 if left <= 3 else 0.8,
            "halves": 1.0,
            "transpose": 0.4 if position else 0.0,
            "join": 0.3 if position else 0.0,
            "slice": 0.25,
            "choose": 0.3 if position else 0.0,
            "gate": 0.5 if position else 0.0,
            "pool": 1.0 if first else 0.0,
            "head": 6.0 if not position else 0.25,
            "loss": 3.0 if left <= 2 and position else 0.0,
            "total": 1.0 if left <= 1 and position else 0.0,
            "cast": 1.0 if self.x.half else 0.0,
            "moved": 1.6 * wide,
            "scan": 0.6 * wide,
            "indexed": 1.2 * wide,
            "argument": 0.6 * wide if left <= 1 and position else 0.0,
            "embedded": 0.25 * wide,
            "attention": 6.0 * wide if self.x.rank == 4 and not first and not position else 0.0,
        }

    def _steps(self) -> dict[str, Step]:
        """The step of each kind."""
        program, dice, first = self.program, self.dice, self.first()
        return {
            "activation": partial(binary.activated, program),
            "unary": lambda x: pointwise.unary(
                program,
                x,
                dice.weighted(
                    {
                        u: u.weight
                        for u in unary_operators.UNARY
                        if u not in unary_operators.ACTIVATIONS
                    }
                ),
            ),
            "number": self._with_number,
            "weight": lambda x: binary.weighted_by(program, x, first),
            "clamp": partial(pointwise.clamped, program),
            "leaky": partial(pointwise.leaky, program),
            "shaped": partial(pointwise.shaped, program),
            "power": partial(pointwise.power, program),
            "shrink": partial(pointwise.shrunk, program),
            "residual": self._with_earlier,
            "input": self._with_input,
            "mask": partial(binary.masked, program),
            "norm": lambda x: norms.any_norm(program, x, first),
            "softmax": self._softmax,
            "statistic": lambda x: reductions.with_statistic(program, x, first),
            "reduce": self._reduce,
            "halves": lambda x: views.gated_halves(program, x, first),
            "transpose": partial(views.transposed, program),
            "join": lambda x: views.joined(program, x, dice.pick(self.values)),
            "slice": partial(views.sliced, program),
            "choose": lambda x: binary.chosen(program, x, dice.pick(self.values)),
            "gate": lambda x: binary.gated(program, *dice.shuffled([x, self._earlier(x)])),
            "pool": partial(heads.pool, program),
            "head": lambda x: heads.head(program, x, first),
            "loss": partial(losses.loss, program),
            "total": partial(reductions.reduce_all, program),
            "cast": self._through_float,
            "moved": lambda x: moved.moved(program, x, first),
            "scan": partial(scans.scan, program),
            "indexed": lambda x: indexed.indexed(program, x, first),
            "argument": partial(indexed.argument, program),
            "embedded": partial(heads.embedded, program),
            "attention": partial(heads.attention, program),
        }

    def _with_number(self, x: TaskValue) -> TaskValue:
        program, dice = self.program, self.dice
        kind = dice.weighted({"scale": 4, "shift": 3, "divide": 1.5, "rsub": 0.8, "both": 1})
        by = dice.pick(
            (
                0.1,
                0.125,
                0.25,
                0.5,
                0.7,
                1.5,
                2.0,
                3.0,
                dice.number(0.2, 2.5),
                dice.number(-1.5, -0.3),
            )
        )
        if kind == "scale":
            return pointwise.scaled(program, x, by)
        if kind == "divide":
            return pointwise.divided(program, x, abs(by) + 0.5)
        if kind == "rsub":
            return pointwise.subtracted_from(program, x, dice.pick((1.0, 2.0, 0.5)))
        if kind == "both":
            return pointwise.shifted(
                program, pointwise.scaled(program, x, abs(by)), dice.pick((0.1, 0.5, 1.0, -0.5))
            )
        return pointwise.shifted(program, x, dice.pick((0.1, 0.5, 1.0, 2.0, -0.25, -1.0)))

    def _earlier(self, x: TaskValue) -> TaskValue:
        values = [
            v
            for v in self.values
            if v is not x
            and [d[1:] for d in v.shape] == [d[1:] for d in x.shape]
            and v.dtype == x.dtype
        ]
        if not values:
            raise UnfitOperands("nothing earlier fits")
        return values[0] if self.dice.chance(0.5) else self.dice.pick(values)

    def _with_earlier(self, x: TaskValue) -> TaskValue:
        kind = self.dice.weighted(
            {"add": 6, "mul": 2, "sub": 1, "max": 0.5, "lerp": 0.5, "logaddexp": 0.3, "div": 0.3}
        )
        return binary.combine(self.program, x, self._earlier(x), kind)

    def _with_input(self, x: TaskValue) -> TaskValue:
        kind = self.dice.weighted(
            {
                "add": 5,
                "mul": 4,
                "sub": 2,
                "max": 0.7,
                "min": 0.5,
                "lerp": 0.8,
                "logaddexp": 0.4,
                "div": 1,
                "gate": 2,
            }
        )
        names = {
            "add": ("residual", "skip", "y"),
            "mul": ("scale", "y", "other"),
            "gate": ("gate", "g"),
        }.get(kind, ("y", "other", "z"))
        other = binary.other_input(
            self.program, x, "positive" if kind == "div" else "normal", names
        )
        return binary.combine(self.program, x, other, kind)

    def _softmax(self, x: TaskValue) -> TaskValue:
        if not x.rank:
            raise UnfitOperands("no rows")
        dim = self.dice.weighted(
            {x.rank - 1: 5, (1 if x.rank > 1 else 0): 1.5 if self.channels_first else 0.8, 0: 0.3}
        )
        if x.sample and self.dice.chance(0.25):
            x = pointwise.scaled(self.program, x, self.dice.pick((0.5, 2.0, 3.0)))
        return reductions.softmax(self.program, x, dim, self.dice.chance(0.3))

    def _reduce(self, x: TaskValue) -> TaskValue:
        if not x.rank:
            raise UnfitOperands("no rows")
        dims = reductions.dims_of(self.program, x, self.first())
        kind = self.dice.weighted(
            {
                "sum": 3,
                "mean": 3,
                "amax": 2.5,
                "amin": 1,
                "var": 1,
                "std": 0.8,
                "norm": 1,
                "norm1": 0.4,
                "logsumexp": 1.5,
            }
        )
        y = reductions.reduce(self.program, x, kind, dims, self.dice.chance(0.35))
        if count(y.shape) < 2:
            raise UnfitOperands("one number")
        return y

    def _through_float(self, x: TaskValue) -> TaskValue:
        """Compute a few steps in float32 and convert back, as careful half-precision code does."""
        program = self.program
        wide = views.cast(program, x, "float32")
        y = self.dice.pick(
            (lambda v: norms.any_norm(program, v, self.first()), self._softmax, self._with_number)
        )(wide)
        if any(
            s.arguments and s.arguments[0] is wide and any(a.origin == "held" for a in s.arguments)
            for s in program.statements
        ) or any("self." in s.template for s in program.statements if wide in s.arguments):
            raise UnfitOperands("weights of another type")
        return views.cast(program, y, x.dtype)


def single(program: TaskProgram) -> None:
    """One operator, with the steps that make it safe.

    Raises:
        UnfitOperands: the operator drawn does not suit its input.
    """
    chain = Chain(program)
    dice, x = program.dice, chain.x
    wide = program.profile.wide
    kind = dice.weighted(
        {
            "unary": 4,
            "activation": 4,
            "reduce": 4,
            "norm": 3.5,
            "softmax": 3,
            "clamp": 0.5,
            "leaky": 0.6,
            "weight": 0.8,
            "input": 1.2,
            "head": 1.0,
            "pool": 1.0 if chain.first() else 0,
            "loss": 2,
            "halves": 0.6,
            "shaped": 0.5,
            "shrink": 0.3,
            "mask": 0.4,
            "moved": 2.5 * wide,
            "scan": 1.5 * wide,
            "indexed": 2.0 * wide,
            "argument": 0.5 * wide,
            "embedded": 0.3 * wide,
            "attention": 0.6 * wide,
        }
    )
    if kind == "loss":
        chain.x = losses.loss(program, x)
    elif kind == "argument":
        chain.x = indexed.argument(program, x)
    else:
        steps = _steps_of(chain, kind)
        chain.x = steps(x)
    if len(program.operators) > (2 if kind in ("loss", "halves") else 1):
        raise UnfitOperands("more than one operator")
    program.outputs = [chain.x]


def _steps_of(chain: Chain, kind: str) -> Step:
    """The step of that kind."""
    for _ in range(400):
        found, step = chain.drawn(1)
        if found == kind:
            return step
    raise UnfitOperands(f"no {kind} here")


def fusion(program: TaskProgram) -> None:
    """Two to twelve operators.

    Raises:
        UnfitOperands: no such chain fits the input drawn.
    """
    dice = program.dice
    chain = Chain(program)
    chain.grow(
        dice.weighted(
            {2: 1.5, 3: 3, 4: 3.5, 5: 3.5, 6: 3, 7: 2.5, 8: 2, 9: 1.5, 10: 1, 11: 0.7, 12: 0.5}
        )
    )
    if len(program.operators) < 2:
        raise UnfitOperands("too short")
    program.outputs = [chain.x]
    if dice.chance(0.1) and not chain.ended:
        kept = [v for v in chain.values[1:-1] if v.origin == "value" and v.dtype == chain.x.dtype]
        if kept:
            program.outputs.append(dice.pick(kept))


__all__ = ["Chain", "fusion", "single"]
