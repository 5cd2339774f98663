"""Views, concatenations and casts: they cost nothing, or a copy, and change the input of the operators around them."""

from __future__ import annotations

from dvk.taskgen.binary import combine, gated
from dvk.taskgen.program import TaskProgram
from dvk.taskgen.sizes import ONE
from dvk.taskgen.values import TaskValue, UnfitOperands


def halves(program: TaskProgram, x: TaskValue, dim: int) -> list[TaskValue]:
    """Split `x` into two equal parts.

    Raises:
        UnfitOperands: its size is odd.
    """
    dice, length = program.dice, x.shape[dim]
    if not length.divisible(2) or length.small < 4:
        raise UnfitOperands("odd")
    half = length.over(2)
    shape = (*x.shape[:dim], half, *x.shape[dim + 1 :])
    where = dim - x.rank if dim == x.rank - 1 and dice.chance(0.7) else dim
    text = dice.pick(
        (
            f"{{0}}.chunk(2, dim={where})",
            f"torch.chunk({{0}}, 2, dim={where})",
            f"{{0}}.split({{0}}.shape[{where}] // 2, dim={where})",
            f"torch.split({{0}}, {{0}}.size({where}) // 2, {where})",
        )
    )
    # The two parts of one tensor must have different numbers: the second one's rows are reversed.
    turned = tuple(x.sample[8 * r + (k + 3) % 8] for r in range(8) for k in range(8))
    return program.emit_several(text, x, [(shape, x.sample), (shape, turned)])


def gated_halves(program: TaskProgram, x: TaskValue, channels_first: bool) -> TaskValue:
    """GLU and its relatives: one part of the channels times an activation of the other."""
    dim = 1 if channels_first and x.rank > 2 else x.rank - 1
    if program.dice.chance(0.15) and x.shape[dim].divisible(2):
        where = dim - x.rank if dim == x.rank - 1 else dim
        shape = (*x.shape[:dim], x.shape[dim].over(2), *x.shape[dim + 1 :])
        text = program.dice.pick((f"F.glu({{0}}, dim={where})", f"nn.GLU(dim={where})"))
        module = text if text.startswith("nn.") else ""
        sample = [v * 0.5 for v in x.sample]
        return program.emit(
            "glu", ("glu",), "{m}({0})" if module else text, [x], sample, shape=shape, module=module
        )
    first, second = halves(program, x, dim)
    if program.dice.chance(0.3):
        first, second = second, first
    if program.dice.chance(0.15):
        return combine(program, first, second, program.dice.pick(("max", "mul", "add")))
    return gated(program, first, second)


def transposed(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Transpose two dimensions, or reverse all of them."""
    dice = program.dice
    if x.rank < 2:
        raise UnfitOperands("one dimension")
    if x.rank == 2:
        a, b, text = 0, 1, dice.pick(("{0}.t()", "{0}.T", "{0}.transpose(0, 1)"))
    else:
        a = dice.between(0, x.rank - 2)
        b = dice.between(a + 1, x.rank - 1)
        text = dice.pick((f"{{0}}.transpose({a}, {b})", f"torch.transpose({{0}}, {a}, {b})"))
        if dice.chance(0.4):
            order = list(range(x.rank))
            order[a], order[b] = order[b], order[a]
            text = f"{{0}}.permute({', '.join(map(str, order))})"
    shape = list(x.shape)
    shape[a], shape[b] = shape[b], shape[a]
    return program.emit(
        "transpose", (), text, [x], x.sample, shape=tuple(shape), floor=x.floor, view=True
    )


def joined(program: TaskProgram, x: TaskValue, y: TaskValue) -> TaskValue:
    """Concatenate two values of one shape along the last dimension or the channels."""
    dice = program.dice
    if (
        x is y
        or [d[1:] for d in x.shape] != [d[1:] for d in y.shape]
        or not x.rank
        or x.dtype != y.dtype
    ):
        raise UnfitOperands("shapes differ")
    at = 1 if x.rank > 2 and dice.chance(0.6) else x.rank - 1
    shape = (*x.shape[:at], x.shape[at].times(2), *x.shape[at + 1 :])
    where = at - x.rank if at == x.rank - 1 else at
    text = dice.pick(
        (f"torch.cat([{{0}}, {{1}}], dim={where})", f"torch.cat(({{0}}, {{1}}), {where})")
    )
    sample = tuple(v for pair in zip(x.sample[::2], y.sample[1::2], strict=True) for v in pair)
    return program.emit("cat", ("cat",), text, [x, y], sample, shape=shape)


def sliced(program: TaskProgram, x: TaskValue) -> TaskValue:
    """A slice of the last dimension, or every other element of it."""
    dice, length = program.dice, x.shape[-1] if x.rank else ONE
    if not length.divisible(2) or length.small < 8:
        raise UnfitOperands("too short")
    text = dice.pick(
        (
            "{0}[..., ::2]",
            "{0}[..., 1::2]",
            "{0}[..., : {0}.shape[-1] // 2]",
            "{0}[..., {0}.shape[-1] // 2 :]",
        )
    )
    return program.emit(
        "slice",
        (),
        text,
        [x],
        x.sample,
        shape=(*x.shape[:-1], length.over(2)),
        floor=x.floor,
        view=True,
    )


def cast(program: TaskProgram, x: TaskValue, dtype: str) -> TaskValue:
    """Another floating type."""
    dice = program.dice
    short = {"float32": "float", "float16": "half", "bfloat16": "bfloat16"}[dtype]
    text = dice.pick(
        (f"{{0}}.{short}()", f"{{0}}.to(torch.{dtype})", f"{{0}}.to(dtype=torch.{dtype})")
    )
    return program.emit(f"to_{dtype}", (), text, [x], x.sample, dtype=dtype, floor=x.floor)
