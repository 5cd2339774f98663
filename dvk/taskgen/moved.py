"""Operators that move or combine elements: padding, flips, resampling, indexing, sorting."""

from __future__ import annotations

from dvk.taskgen.heads import grown
from dvk.taskgen.program import ConstructorItem, TaskProgram
from dvk.taskgen.sizes import ONE, Dim, Shape
from dvk.taskgen.values import TaskValue, UnfitOperands, rows, unrowed


def moved(program: TaskProgram, x: TaskValue, channels_first: bool) -> TaskValue:
    """One of these operators that suits the layout."""
    maps = channels_first and x.rank == 4
    kind = program.dice.weighted(
        {
            "pad": 3,
            "flip": 1,
            "roll": 1,
            "repeat": 0.7,
            "triangle": 0.7 if x.rank > 1 else 0,
            "shuffle": 2.5 if maps else 0,
            "resample": 4 if channels_first and x.rank > 2 else 0,
            "select": 1,
            "sort": 0.6,
            "top": 0.6,
        }
    )
    return {
        "pad": padded,
        "flip": flipped,
        "roll": rolled,
        "repeat": repeated,
        "triangle": triangle,
        "shuffle": shuffled,
        "resample": resampled,
        "select": selected,
        "sort": ordered,
        "top": largest,
    }[kind](program, x)


def long_rows(x: TaskValue, least: int) -> Dim:
    """Require elements in the last dimension.

    Raises:
        UnfitOperands: it has fewer elements.
    """
    length = x.shape[-1] if x.rank else ONE
    if min(length.native, length.small) < least:
        raise UnfitOperands("too short")
    return length


def padded(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Zero, reflected or replicated padding around the last dimension or the last two."""
    dice = program.dice
    long_rows(x, 4)
    mode = dice.weighted(
        {
            "constant": 3,
            "reflect": 1 if x.rank in (3, 4) else 0,
            "replicate": 1 if x.rank in (3, 4) else 0,
        }
    )
    both = x.rank == 4 and (mode != "constant" or dice.chance(0.6))
    if both and min(x.shape[-2][1:]) < 4:
        raise UnfitOperands("too short")
    left, right = dice.between(0, 2), dice.between(1, 2)
    around = [left, right] * (2 if both else 1)
    shape = tuple(
        grown(d, 1, left + right) if n >= x.rank - len(around) // 2 else d
        for n, d in enumerate(x.shape)
    )
    more = "" if mode == "constant" and dice.chance(0.7) else f", mode='{mode}'"
    text = f"F.pad({{0}}, ({', '.join(map(str, around))}){more})"
    return program.emit(
        f"pad_{mode}",
        ("pad",),
        text,
        [x],
        x.sample,
        shape=shape,
        floor=None if mode == "constant" else x.floor,
    )


def flipped(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Flip one dimension."""
    long_rows(x, 3)
    dim = program.dice.pick((-1, -1, x.rank - 1, 0))
    text = program.dice.pick(
        (f"{{0}}.flip({dim})", f"torch.flip({{0}}, dims=({dim},))", f"torch.flip({{0}}, [{dim}])")
    )
    turned = unrowed([row[::-1] for row in rows(x.sample, False)], False)
    return program.emit("flip", ("flip",), text, [x], turned, floor=x.floor)


def rolled(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Roll one dimension."""
    long_rows(x, 4)
    by, dim = program.dice.pick((1, 1, 2, -1, 3)), program.dice.pick((-1, -1, x.rank - 1, 0))
    text = program.dice.pick(
        (
            f"torch.roll({{0}}, {by}, {dim})",
            f"torch.roll({{0}}, shifts={by}, dims={dim})",
            f"{{0}}.roll({by}, {dim})",
        )
    )
    turned = unrowed([row[1:] + row[:1] for row in rows(x.sample, False)], False)
    return program.emit("roll", ("roll",), text, [x], turned, floor=x.floor)


def repeated(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Repeat every element of the last dimension."""
    length = long_rows(x, 3)
    text = program.dice.pick(
        ("{0}.repeat_interleave(2, dim=-1)", "torch.repeat_interleave({0}, 2, dim=-1)")
    )
    return program.emit(
        "repeat_interleave",
        ("repeat_interleave",),
        text,
        [x],
        x.sample,
        shape=(*x.shape[:-1], length.times(2)),
        floor=x.floor,
    )


def triangle(program: TaskProgram, x: TaskValue) -> TaskValue:
    """One triangle of the last two dimensions, with zeros in the other."""
    long_rows(x, 4)
    if min(x.shape[-2][1:]) < 4:
        raise UnfitOperands("too short")
    side = program.dice.pick(("tril", "triu"))
    text = program.dice.pick((f"{{0}}.{side}()", f"torch.{side}({{0}})"))
    return program.emit(
        side, (side,), text, [x], [v if n % 2 else 0.0 for n, v in enumerate(x.sample)]
    )


def shuffled(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Shuffle channels to positions or positions to channels."""
    channels, height, width = x.shape[1:]
    if channels.divisible(4) and program.dice.chance(0.6):
        shape: Shape = (x.shape[0], channels.over(4), height.times(2), width.times(2))
        text = program.dice.pick(("F.pixel_shuffle({0}, 2)", "nn.PixelShuffle(2)"))
        name = "pixel_shuffle"
    elif height.divisible(2) and width.divisible(2):
        shape = (x.shape[0], channels.times(4), height.over(2), width.over(2))
        text = program.dice.pick(("F.pixel_unshuffle({0}, 2)", "nn.PixelUnshuffle(2)"))
        name = "pixel_unshuffle"
    else:
        raise UnfitOperands("odd sides")
    module = text if text.startswith("nn.") else ""
    return program.emit(
        name,
        (name,),
        "{m}({0})" if module else text,
        [x],
        x.sample,
        shape=shape,
        floor=x.floor,
        module=module,
    )


def resampled(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Double every spatial dimension, by nearest neighbour or interpolation."""
    space = x.rank - 2
    smooth = {1: "linear", 2: "bilinear"}.get(space)
    if min(min(d[1:]) for d in x.shape[2:]) < 3:
        raise UnfitOperands("too short")
    shape = (*x.shape[:2], *(d.times(2) for d in x.shape[2:]))
    if smooth is None or program.dice.chance(0.6):
        text = program.dice.pick(
            (
                "F.interpolate({0}, scale_factor=2)",
                "F.interpolate({0}, scale_factor=2, mode='nearest')",
                "nn.Upsample(scale_factor=2)",
            )
        )
        name = f"upsample_nearest{space}d"
    else:
        corners = program.dice.pick(("", ", align_corners=False", ", align_corners=True"))
        text = program.dice.pick(
            (
                f"F.interpolate({{0}}, scale_factor=2, mode='{smooth}'{corners})",
                f"nn.Upsample(scale_factor=2, mode='{smooth}'{corners})",
            )
        )
        name = f"upsample_{smooth}{space}d"
    module = text if text.startswith("nn.") else ""
    return program.emit(
        name,
        (name,),
        "{m}({0})" if module else text,
        [x],
        x.sample,
        shape=shape,
        floor=x.floor,
        module=module,
    )


def selected(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Index the last dimension or the first by indices in a buffer."""
    dice = program.dice
    dim = 0 if x.rank > 1 and dice.chance(0.4) else x.rank - 1
    size = x.shape[dim]
    if min(size[1:]) < 4:
        raise UnfitOperands("too short")
    wanted = program.constant(
        "PICKED", max(2, size.native // dice.pick((1, 2, 4))), min(size.small, dice.pick((3, 5, 6)))
    )
    name = program.unique("picked", "index", "chosen")
    program.held.append(
        ConstructorItem(name, f"torch.randint({size.text}, ({wanted.text},))", buffer=True)
    )
    numbers = TaskValue((wanted,), "int64", x.sample, "held", tied=False, name=f"self.{name}")
    where = dim - x.rank if dim and dice.chance(0.5) else dim
    text = dice.pick(
        (f"torch.index_select({{0}}, {where}, {{1}})", f"{{0}}.index_select({where}, {{1}})")
    )
    return program.emit(
        "index_select",
        ("index_select",),
        text,
        [x, numbers],
        x.sample,
        shape=(*x.shape[:dim], wanted, *x.shape[dim + 1 :]),
        floor=x.floor,
    )


def ordered(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Sort the last dimension."""
    long_rows(x, 4)
    down = program.dice.chance(0.3)
    more = ", descending=True" if down else ""
    text = program.dice.pick(
        (f"torch.sort({{0}}, dim=-1{more})[0]", f"{{0}}.sort(dim=-1{more}).values")
    )
    return program.emit(
        "sort",
        ("sort",),
        text,
        [x],
        unrowed([sorted(row, reverse=down) for row in rows(x.sample, False)], False),
        floor=x.floor,
    )


def largest(program: TaskProgram, x: TaskValue) -> TaskValue:
    """The largest elements of the last dimension, in order."""
    length = long_rows(x, 8)
    part = program.dice.pick((2, 4, 8))
    few = f"{{0}}.shape[-1] // {part}"
    text = program.dice.pick(
        (f"torch.topk({{0}}, {few}, dim=-1)[0]", f"{{0}}.topk({few}, dim=-1).values")
    )
    sample = unrowed(
        [[max(row) + 0.3 * v for v in sorted(row, reverse=True)] for row in rows(x.sample, False)],
        False,
    )
    return program.emit(
        "topk",
        ("topk",),
        text,
        [x],
        sample,
        shape=(*x.shape[:-1], length.over(part)),
        floor=x.floor,
    )
