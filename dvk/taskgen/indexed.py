"""Operators that look elements up or count them: gathers, scatters, arguments of maxima, windows, rounding, and recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Callable

from dvk.taskgen.heads import affordable, mixed
from dvk.taskgen.moved import long_rows
from dvk.taskgen.program import TaskProgram
from dvk.taskgen.sizes import Dim, count, up_to
from dvk.taskgen.values import TaskValue, UnfitOperands, mapped, rows, unrowed

ROUNDINGS: dict[str, Callable[[float], float]] = {
    "round": round,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
}
ENDINGS = ("argmax", "argmin")
"""Their results are indices: nothing follows."""


def indexed(program: TaskProgram, x: TaskValue, channels_first: bool) -> TaskValue:
    """One of these operators that suits the layout."""
    maps = channels_first and x.rank == 4
    kind = program.dice.weighted(
        {
            "gather": 2,
            "scatter": 1,
            "windows": 2 if maps else 0,
            "rounded": 1.5,
            "interleaved": 1.5,
            "multiplied": 1,
            "distances": 1.5 if x.rank == 3 and not channels_first else 0,
            "recurrent": 1.5 if x.rank == 3 and not channels_first else 0,
            "compared": 1.5,
            "step": 1.0 if x.rank == 3 and not channels_first else 0,
        }
    )
    return {
        "gather": gathered,
        "scatter": scattered,
        "windows": windows,
        "rounded": rounded,
        "interleaved": interleaved,
        "multiplied": multiplied,
        "distances": distances,
        "recurrent": recurrent,
        "compared": compared,
        "step": step,
    }[kind](program, x)


def gathered(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Elements of each row at indices that are another input."""
    length = long_rows(x, 4)
    few = program.constant("TAKEN", max(2, length.native // program.dice.pick((1, 2, 8))), 3)
    ids = program.labels((*x.shape[:-1], few), length)
    text = program.dice.pick(("torch.gather({0}, -1, {1})", "{0}.gather(-1, {1})"))
    return program.emit(
        "gather", ("gather",), text, [x, ids], x.sample, shape=(*x.shape[:-1], few), floor=x.floor
    )


def scattered(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Sums of the elements of each row by a class that is another input."""
    length = long_rows(x, 8)
    bins = program.constant("BINS", max(2, length.native // program.dice.pick((2, 4, 8))), 3)
    if length.native > 64 * bins.native or x.half:
        raise UnfitOperands("sums that are too long")
    ids = program.labels(x.shape, bins)
    sizes = ", ".join(d.text for d in (*x.shape[:-1], bins))
    text = f"{{0}}.new_zeros({sizes}).scatter_add(-1, {{1}}, {{0}})"
    each = math.sqrt(length.native / bins.native)
    return program.emit(
        "scatter_add",
        ("new_zeros", "scatter_add"),
        text,
        [x, ids],
        [v * each for v in x.sample],
        shape=(*x.shape[:-1], bins),
    )


def argument(program: TaskProgram, x: TaskValue) -> TaskValue:
    """The place of the largest or smallest element of each row: the end of a program."""
    long_rows(x, 4)
    if x.half or x.rank < 2:
        raise UnfitOperands("ties")  # equal elements have no first in 16 bits that all agree on
    kind = program.dice.pick(ENDINGS)
    text = program.dice.pick((f"torch.{kind}({{0}}, dim=-1)", f"{{0}}.{kind}(-1)"))
    places = [float(v) for v in range(64)]
    return program.emit(kind, (kind,), text, [x], places, shape=x.shape[:-1], dtype="int64")


def windows(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Sliding windows as columns."""
    kernel = program.dice.pick((2, 3))
    if min(min(d[1:]) for d in x.shape[2:]) < kernel:
        raise UnfitOperands("smaller than a window")
    size = program.dice.pick(
        ((kernel, kernel, 0), (3, 1, 1))
        if all(d.divisible(kernel) for d in x.shape[2:])
        else ((3, 1, 1),)
    )
    side, stride, padding = size
    height, width = (d if stride == 1 else d.over(stride) for d in x.shape[2:])
    options = f"{side}" + (f", stride={stride}" if stride != 1 else "")
    options += f", padding={padding}" if padding else ""
    text = program.dice.pick((f"F.unfold({{0}}, {options})", f"nn.Unfold({options})"))
    module = text if text.startswith("nn.") else ""
    return program.emit(
        "unfold",
        ("im2col",),
        "{m}({0})" if module else text,
        [x],
        x.sample,
        shape=(x.shape[0], x.shape[1].times(side * side), height.by(width)),
        module=module,
    )


def rounded(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Rounding to a grid, as in quantization, or one way of rounding."""
    dice = program.dice
    if x.half:
        raise UnfitOperands("a grid that 16 bits do not have")
    kind = dice.weighted({"round": 3, "floor": 1, "ceil": 0.7, "trunc": 0.7})
    steps = dice.pick((4.0, 8.0, 16.0, 32.0))
    sample = mapped(lambda v: ROUNDINGS[kind](v * steps) / steps, x.sample)
    text = f"torch.{kind}({{0}} * {steps}) / {steps}"
    return program.emit(kind, ("mul", kind, "mul"), text, [x], sample)


def interleaved(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Pairs of neighbours turned by a right angle, as rotary embeddings do."""
    length = long_rows(x, 4)
    if not length.divisible(2):
        raise UnfitOperands("odd rows")
    text = "torch.stack((-{0}[..., 1::2], {0}[..., 0::2]), dim=-1).flatten(-2)"
    sample = [-v if n % 2 else v for n, v in enumerate(x.sample)]
    return program.emit("interleave", ("mul", "stack"), text, [x], sample)


def multiplied(program: TaskProgram, x: TaskValue) -> TaskValue:
    """The product of each row's elements, made factors near 1."""
    length = long_rows(x, 4)
    if length.native > 4096:
        raise UnfitOperands("it vanishes or explodes")
    reach = round(0.5 / math.sqrt(length.native), 3) or 0.001
    text = program.dice.pick(
        (
            f"torch.prod(1.0 + {reach} * torch.tanh({{0}}), dim=-1, keepdim=True)",
            f"(1.0 + {reach} * torch.tanh({{0}})).prod(-1, keepdim=True)",
        )
    )
    factors = [
        [math.exp(reach * math.sqrt(length.native) * program.dice.normal())] * len(row)
        for row in rows(x.sample, False)
    ]
    one = Dim("1", 1, 1)
    return program.emit(
        "prod",
        ("tanh", "mul", "add", "prod"),
        text,
        [x],
        unrowed(factors, False),
        shape=(*x.shape[:-1], one),
    )


def distances(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Distances of all rows to rows of another input."""
    points = program.constant("POINTS", up_to(program.dice, 512, (16, 50, 64, 100, 128, 256, 512)))
    affordable(program, count(x.shape) * points.native)
    if x.half:
        raise UnfitOperands("half distances")
    other = program.input((x.shape[0], points, x.shape[2]), ("points", "codes", "centres"))
    size = math.sqrt(2 * x.shape[2].native)
    return program.emit(
        "cdist",
        ("cdist",),
        "torch.cdist({0}, {1})",
        [x, other],
        program.normal_sample(0.1, size / 8, size),
        shape=(*x.shape[:2], points),
        floor=0.0,
    )


def recurrent(program: TaskProgram, x: TaskValue) -> TaskValue:
    """An LSTM or a GRU along the second dimension."""
    dice = program.dice
    steps, inside = x.shape[1:]
    hidden = program.constant("HIDDEN", up_to(dice, 256, (16, 32, 48, 64, 100, 128, 256)))
    if steps.native > 512 or inside.native > 1024:
        raise UnfitOperands("too many steps")
    affordable(program, 4 * count(x.shape[:2]) * hidden.native * (hidden.native + inside.native))
    kind = dice.weighted({"LSTM": 2, "GRU": 1.5})
    name = program.module(
        f"nn.{kind}({inside.text}, {hidden.text}, batch_first=True)",
        (kind.lower(), "recurrent", "rnn"),
    )
    return program.emit(
        kind.lower(),
        (kind.lower(),),
        f"{name}({{0}})[0]",
        [x],
        mixed(program, x, 0.3),
        shape=(x.shape[0], steps, hidden),
    )


def compared(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Elements where they exceed a number, zero elsewhere."""
    at = program.dice.pick((-0.5, 0.0, 0.1, 0.25))
    kind = program.dice.pick(("gt", "lt"))
    sign = {"gt": ">", "lt": "<"}[kind]
    text = program.dice.pick((f"{{0}} * ({{0}} {sign} {at})", f"({{0}} {sign} {at}) * {{0}}"))
    sample = [v if (v > at) == (kind == "gt") else 0.0 for v in x.sample]
    return program.emit(f"{kind}_mask", ("where", "mul"), text, [x], sample)


def step(program: TaskProgram, x: TaskValue) -> TaskValue:
    """One place of the second dimension, as of a sequence's last token."""
    if not program.operators or min(x.shape[1][1:]) < 2 or min(x.shape[0][1:]) < 2:
        raise UnfitOperands("nothing to pick")
    text = program.dice.pick(("{0}[:, -1]", "{0}[:, 0]"))
    shape = (x.shape[0], x.shape[2])
    return program.emit("step", (), text, [x], x.sample, shape=shape, floor=x.floor, view=True)
