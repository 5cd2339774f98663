"""Sizes of a program's main input, by layout: rows, tokens, maps, heads, series, volumes, or one flat dimension.

Every layout gets the wanted number of elements, about: the inner sizes are drawn first, and the outermost one is what remains.
"""

from __future__ import annotations

from collections.abc import Callable

from dvk.taskgen.program import TaskProgram
from dvk.taskgen.sizes import (
    BATCHES,
    CHANNELS,
    DEPTHS,
    HEADS,
    LENGTHS,
    SIDES,
    WIDTHS,
    DeviceProfile,
    Shape,
    near,
    up_to,
    width,
)


def main_shape(
    program: TaskProgram, profile: DeviceProfile, half_range: bool = False
) -> tuple[Shape, bool]:
    """Sizes of the main input, and whether its channels precede its spatial dimensions."""
    dice = program.dice
    elements = dice.log_uniform(profile.low, profile.high / (4 if half_range else 1.5))
    layout = dice.weighted(
        {"rows": 5, "tokens": 4, "maps": 4, "heads": 1.2, "series": 1, "volumes": 0.9, "flat": 0.3}
    )
    return LAYOUTS[layout](program, elements), layout in ("maps", "volumes", "series")


def _flat(program: TaskProgram, elements: float) -> Shape:
    dice = program.dice
    return (
        program.constant(
            "COUNT",
            near(dice, elements, (1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)),
            dice.pick((37, 64, 101)),
        ),
    )


def _rows(program: TaskProgram, elements: float) -> Shape:
    dice = program.dice
    inner = width(dice, min(elements / 2, 65536))
    rows = near(dice, max(1.0, elements / inner), (*BATCHES, *WIDTHS))
    return (
        program.constant(dice.pick(("ROWS", "BATCH", "N")), rows, dice.pick((3, 5, 6, 7))),
        program.constant(dice.pick(("WIDTH", "FEATURES", "DIM", "COLUMNS")), inner),
    )


def _tokens(program: TaskProgram, elements: float) -> Shape:
    dice = program.dice
    inner = width(dice, min(elements / 8, 8192))
    tokens = up_to(dice, elements / inner, LENGTHS)
    batch = max(1, round(elements / inner / tokens))
    return (
        program.constant("BATCH", near(dice, batch, BATCHES), dice.pick((2, 3))),
        program.constant(dice.pick(("TOKENS", "SEQ", "LENGTH")), tokens, dice.pick((4, 5, 7))),
        program.constant(dice.pick(("WIDTH", "DIM", "HIDDEN_SIZE")), inner),
    )


def _heads(program: TaskProgram, elements: float) -> Shape:
    dice = program.dice
    depth = dice.pick(DEPTHS)
    tokens = up_to(dice, elements / depth / 4, LENGTHS)
    heads = up_to(dice, elements / depth / tokens, HEADS)
    batch = max(1, round(elements / depth / tokens / heads))
    last = (
        program.constant("DEPTH", depth) if dice.chance(0.6) else program.constant("KEYS", tokens)
    )
    batch = max(1, round(batch * depth / last.native))
    return (
        program.constant("BATCH", near(dice, batch, BATCHES), 2),
        program.constant("HEADS", heads, dice.pick((2, 3))),
        program.constant("QUERIES" if last.text == "KEYS" else "TOKENS", tokens, dice.pick((4, 6))),
        last,
    )


def _volumes(program: TaskProgram, elements: float) -> Shape:
    dice = program.dice
    side = up_to(dice, (elements / 8) ** (1 / 3), (4, 7, 8, 12, 14, 16, 24, 32, 56))
    channels = up_to(dice, elements / side**3, CHANNELS)
    batch = max(1, round(elements / side**3 / channels))
    return (
        program.constant("BATCH", near(dice, batch, BATCHES), 2),
        program.constant("CHANNELS", channels),
        program.constant("FRAMES", side, dice.pick((4, 6))),
        (space := program.constant("SIDE", side, dice.pick((6, 8)))),
        space,
    )


def _series(program: TaskProgram, elements: float) -> Shape:
    dice = program.dice
    length = up_to(dice, elements / 4, (*LENGTHS, 16000, 16384))
    channels = up_to(dice, elements / length, CHANNELS)
    batch = max(1, round(elements / length / channels))
    return (
        program.constant("BATCH", near(dice, batch, BATCHES), dice.pick((2, 3))),
        program.constant("CHANNELS", channels),
        program.constant("LENGTH", length, dice.pick((12, 16, 17))),
    )


def _maps(program: TaskProgram, elements: float) -> Shape:
    dice = program.dice
    side = up_to(dice, max(7.0, (elements / 8) ** 0.5), SIDES)
    channels = up_to(dice, elements / side**2, CHANNELS)
    batch = max(1, round(elements / side**2 / channels))
    square = program.constant(
        "SIDE" if dice.chance(0.6) else "HEIGHT", side, dice.pick((7, 8, 9, 12))
    )
    other = square
    if square.text == "HEIGHT":
        other = program.constant(
            "WIDTH",
            up_to(dice, side * 1.5, SIDES) if dice.chance(0.5) else side,
            dice.pick((8, 10, 11)),
        )
    return (
        program.constant("BATCH", near(dice, batch, BATCHES), dice.pick((2, 3))),
        program.constant("CHANNELS", channels),
        square,
        other,
    )


LAYOUTS: dict[str, Callable[[TaskProgram, float], Shape]] = {
    "rows": _rows,
    "tokens": _tokens,
    "maps": _maps,
    "heads": _heads,
    "series": _series,
    "volumes": _volumes,
    "flat": _flat,
}
"""The sizes of a layout with about that many elements."""
