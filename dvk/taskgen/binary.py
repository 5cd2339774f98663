"""Operators of two tensors, with a second operand that is a weight, another input, or an earlier value."""

from __future__ import annotations

import math

from dvk.taskgen.pointwise import bounded, unary
from dvk.taskgen.program import TaskProgram
from dvk.taskgen.sizes import ONE, Shape, same
from dvk.taskgen.unary_operators import ACTIVATIONS, NAMED
from dvk.taskgen.values import Sample, TaskValue, UnfitOperands, deviation, mapped, rms


def channel_dim(x: TaskValue, channels_first: bool) -> int:
    """The dimension that weights belong to."""
    return 1 if channels_first and x.rank > 2 else x.rank - 1


def weight_shape(program: TaskProgram, x: TaskValue, channels_first: bool) -> Shape:
    """The shape of a learned gain or bias of `x`: mostly one number per channel."""
    dice, at = program.dice, channel_dim(x, channels_first)
    if not x.rank or (x.rank == 1 and dice.chance(0.5)):
        return (ONE,) if x.rank else ()
    if dice.chance(0.06):
        return (ONE,)
    if x.rank > 2 and not channels_first and dice.chance(0.15):
        return x.shape[-2:]
    channel = (x.shape[at], *([ONE] * (x.rank - at - 1)))
    return (ONE, *channel) if len(channel) == x.rank - 1 > 1 and dice.chance(0.2) else channel


def weight(program: TaskProgram, x: TaskValue, channels_first: bool, role: str) -> TaskValue:
    """A learned operand for `x`; role: gain, bias or slope."""
    shape = weight_shape(program, x, channels_first)
    if role == "bias":
        return program.parameter(
            shape,
            0.0,
            program.dice.pick((0.3, 0.5)),
            program.dice.pick((("bias", "shift"), ("beta", "offset"))),
        )
    return program.parameter(
        shape, 1.0, 0.5, program.dice.pick((("weight", "gain"), ("gamma", "layer_scale")))
    )


def other_input(
    program: TaskProgram,
    x: TaskValue,
    kind: str = "normal",
    names: tuple[str, ...] = ("y", "other", "z"),
) -> TaskValue:
    """A further input that broadcasts to `x`: mostly of the same shape.

    Raises:
        UnfitOperands: there are enough inputs.
    """
    dice = program.dice
    if len(program.inputs) >= 4 or not x.rank:
        raise UnfitOperands("enough inputs")
    style = dice.weighted({"same": 5, "row": 1.2, "column": 1.2, "partial": 0.8})
    shape = x.shape
    if style == "row" and x.rank > 1:
        shape = x.shape[1:]
    elif style == "column" and x.rank > 1:
        shape = (*x.shape[:-1], ONE)
    elif style == "partial" and x.rank > 2:
        at = dice.between(1, x.rank - 2)
        shape = (*x.shape[:at], ONE, *x.shape[at + 1 :])
    return program.input(shape, names, kind)


def balanced(a: Sample, b: Sample) -> None:
    """Require two terms of a sum to be of similar magnitude: rounding would lose the smaller one.

    Raises:
        UnfitOperands: they are not.
    """
    x, y = deviation(a), deviation(b)
    if not 0.08 < x / max(y, 1e-9) < 12:
        raise UnfitOperands("one term drowns the other")


def factors(a: Sample, b: Sample) -> None:
    """Require two factors to vary.

    Raises:
        UnfitOperands: one is nearly constant.
    """
    if min(deviation(s) / max(rms(s), 1e-9) for s in (a, b)) < 0.06:
        raise UnfitOperands("a factor is constant")


def result_shape(x: TaskValue, y: TaskValue) -> Shape:
    """Shape after broadcasting; `x` has the full one.

    Raises:
        UnfitOperands: they do not broadcast to the shape of `x`.
    """
    if y.rank > x.rank:
        raise UnfitOperands("of higher rank")
    for mine, theirs in zip(reversed(x.shape), reversed(y.shape), strict=False):
        if theirs[1:] not in (mine[1:], (1, 1)):
            raise UnfitOperands("sizes differ")
    return x.shape


def combine(program: TaskProgram, x: TaskValue, y: TaskValue, kind: str) -> TaskValue:
    """`x kind y`, `y` broadcast; kinds: add sub mul div max min lerp logaddexp gate.

    Raises:
        UnfitOperands: the result would be degenerate.
    """
    shape = result_shape(x, y)
    if kind == "gate":
        return gated(program, x, y)
    if kind in ("add", "sub"):
        return _sum(program, x, y, kind, shape)
    if kind in ("max", "min"):
        return _extremum(program, x, y, kind, shape)
    combined = {"mul": _product, "div": _quotient, "lerp": _between, "logaddexp": _logaddexp}
    return combined[kind](program, x, y, shape)


def _sum(program: TaskProgram, x: TaskValue, y: TaskValue, kind: str, shape: Shape) -> TaskValue:
    dice = program.dice
    if x is not y:
        balanced(x.sample, y.sample)
    factor: float = 1 if kind == "add" else -1
    if kind == "add" and dice.chance(0.12) and x is not y:
        factor = dice.pick((0.3, 0.5, 0.7))
        text = f"torch.add({{0}}, {{1}}, alpha={factor})"
    else:
        text = dice.pick(
            ("{0} + {1}", "{0} + {1}", "torch.add({0}, {1})", "{0}.add({1})", "{1} + {0}")
            if kind == "add"
            else ("{0} - {1}", "{0} - {1}", "torch.sub({0}, {1})", "{0}.sub({1})")
        )
    plain = ""
    if kind == "add" and x.origin == "value" and x is not y and dice.chance(0.08):
        text, factor, plain = "{0}.add_({1})", 1, "{0} + {1}"
    return program.emit(
        kind,
        ("add",),
        text,
        [x, y],
        [a + factor * b for a, b in zip(x.sample, y.sample, strict=True)],
        shape=shape,
        plain=plain,
        floor=_sum_floor(x, y) if kind == "add" else None,
    )


def _product(program: TaskProgram, x: TaskValue, y: TaskValue, shape: Shape) -> TaskValue:
    factors(x.sample, y.sample)
    text = program.dice.pick(
        ("{0} * {1}", "{0} * {1}", "torch.mul({0}, {1})", "{0}.mul({1})", "{1} * {0}")
    )
    values = mapped(lambda a, b: a * b, x.sample, y.sample)
    floor = 0.0 if (x.floor or -1) >= 0 and (y.floor or -1) >= 0 else None
    return program.emit("mul", ("mul",), text, [x, y], values, shape=shape, floor=floor)


def _quotient(program: TaskProgram, x: TaskValue, y: TaskValue, shape: Shape) -> TaskValue:
    y = bounded(program, y, "positive")
    factors(x.sample, y.sample)
    text = program.dice.pick(("{0} / {1}", "torch.div({0}, {1})", "{0}.div({1})", "{0} / {1}"))
    values = mapped(lambda a, b: a / b, x.sample, y.sample)
    return program.emit("div", ("mul",), text, [x, y], values, shape=shape)


def _extremum(
    program: TaskProgram, x: TaskValue, y: TaskValue, kind: str, shape: Shape
) -> TaskValue:
    chosen = sum(a > b for a, b in zip(x.sample, y.sample, strict=True))
    if not 10 <= chosen <= 54:
        raise UnfitOperands("one side always wins")
    word, function = ("maximum", max) if kind == "max" else ("minimum", min)
    text = program.dice.pick((f"torch.{word}({{0}}, {{1}})", f"{{0}}.{word}({{1}})"))
    values = mapped(function, x.sample, y.sample)
    return program.emit(word, (word,), text, [x, y], values, shape=shape)


def _between(program: TaskProgram, x: TaskValue, y: TaskValue, shape: Shape) -> TaskValue:
    balanced(x.sample, y.sample)
    by = program.dice.pick((0.2, 0.3, 0.6, 0.75))
    text = program.dice.pick((f"torch.lerp({{0}}, {{1}}, {by})", f"{{0}}.lerp({{1}}, {by})"))
    values = [a + by * (b - a) for a, b in zip(x.sample, y.sample, strict=True)]
    return program.emit("lerp", ("lerp",), text, [x, y], values, shape=shape)


def _logaddexp(program: TaskProgram, x: TaskValue, y: TaskValue, shape: Shape) -> TaskValue:
    balanced(x.sample, y.sample)
    text = program.dice.pick(("torch.logaddexp({0}, {1})", "{0}.logaddexp({1})"))
    values = mapped(lambda a, b: max(a, b) + math.log1p(math.exp(-abs(a - b))), x.sample, y.sample)
    return program.emit("logaddexp", ("logaddexp",), text, [x, y], values, shape=shape)


def _sum_floor(x: TaskValue, y: TaskValue) -> float | None:
    return x.floor + y.floor if x.floor is not None and y.floor is not None else None


def gated(program: TaskProgram, x: TaskValue, y: TaskValue) -> TaskValue:
    """`x` times an activation of `y`."""
    dice = program.dice
    names = {
        "sigmoid": 3,
        "silu": 3,
        "gelu": 2,
        "tanh": 1,
        "relu": 1,
        "gelu_tanh": 1,
        "hardsigmoid": 0.7,
        "softplus": 0.4,
    }
    gate = unary(program, y, NAMED[dice.weighted(names)])
    return combine(program, x, gate, "mul")


def weighted_by(program: TaskProgram, x: TaskValue, channels_first: bool) -> TaskValue:
    """A learned gain, bias, bound or both applied to `x`."""
    dice = program.dice
    kind = dice.weighted({"gain": 3, "bias": 4, "both": 2, "addcmul": 0.8, "max": 0.4, "min": 0.4})
    if kind == "gain":
        return combine(program, x, weight(program, x, channels_first, "gain"), "mul")
    if kind == "bias":
        return combine(
            program,
            x,
            weight(program, x, channels_first, "bias"),
            dice.pick(("add", "add", "add", "sub")),
        )
    if kind == "both":
        return combine(
            program,
            combine(program, x, weight(program, x, channels_first, "gain"), "mul"),
            weight(program, x, channels_first, "bias"),
            "add",
        )
    if kind == "addcmul":
        bias, gain = (
            weight(program, x, channels_first, "bias"),
            weight(program, x, channels_first, "gain"),
        )
        balanced(x.sample, bias.sample)
        result_shape(x, bias)
        factors(x.sample, gain.sample)
        text = dice.pick(("torch.addcmul({1}, {0}, {2})", "{1}.addcmul({0}, {2})"))
        return program.emit(
            "addcmul",
            ("addcmul",),
            text,
            [x, bias, gain],
            mapped(lambda a, b, c: b + a * c, x.sample, bias.sample, gain.sample),
        )
    return combine(program, x, weight(program, x, channels_first, "bias"), kind)


def masked(program: TaskProgram, x: TaskValue) -> TaskValue:
    """`x` where a boolean input is true, else a number or another value."""
    dice = program.dice
    mask = other_input(program, x, "mask", ("mask", "keep"))
    fill = dice.pick((0.0, 0.0, -1.0, 0.5))
    form = dice.weighted({"where": 2, "fill": 2, "times": 1})
    kept = [v if keep else fill for v, keep in zip(x.sample, mask.sample, strict=True)]
    if form == "fill":
        text = dice.pick(
            (
                f"{{0}}.masked_fill(~{{1}}, {fill})",
                f"torch.masked_fill({{0}}, ~{{1}}, {fill})",
                f"{{0}}.masked_fill({{1}}.logical_not(), {fill})",
            )
        )
        return program.emit("masked_fill", ("where",), text, [x, mask], kept)
    if form == "times":
        return program.emit(
            "mask_times",
            ("mul",),
            "{0} * {1}",
            [x, mask],
            [v * k for v, k in zip(x.sample, mask.sample, strict=True)],
        )
    if x.half:
        fill = 0.0
    text = dice.pick((f"torch.where({{1}}, {{0}}, {fill})", f"{{0}}.where({{1}}, {fill})"))
    kept = [v if keep else fill for v, keep in zip(x.sample, mask.sample, strict=True)]
    return program.emit("where", ("where",), text, [x, mask], kept)


def chosen(program: TaskProgram, x: TaskValue, y: TaskValue) -> TaskValue:
    """Select one value where an input's element is positive, and another elsewhere."""
    judge = next(
        (
            v
            for v, _ in program.dice.shuffled(program.inputs)
            if v.dtype == x.dtype and same(v.shape, x.shape)
        ),
        None,
    )
    if judge is None or x is y or not same(x.shape, y.shape):
        raise UnfitOperands("nothing to choose by")
    balanced(x.sample, y.sample)
    sample = [a if c > 0 else b for a, b, c in zip(x.sample, y.sample, judge.sample, strict=True)]
    return program.emit(
        "choose", ("where",), "torch.where({2} > 0, {0}, {1})", [x, y, judge], sample
    )


def activated(program: TaskProgram, x: TaskValue) -> TaskValue:
    """An activation, weighted by frequency of use."""
    return unary(
        program, x, program.dice.weighted({operator: operator.weight for operator in ACTIVATIONS})
    )
