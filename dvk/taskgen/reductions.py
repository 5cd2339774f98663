"""Reductions, softmax and norms: over the last, first, middle or spatial dimensions, in several spellings."""

from __future__ import annotations

import math

from dvk.taskgen.binary import combine, gated
from dvk.taskgen.pointwise import shifted
from dvk.taskgen.program import TaskProgram
from dvk.taskgen.sizes import ONE, Shape, count
from dvk.taskgen.values import TaskValue, UnfitOperands, mapped, reduced, rows, spread, unrowed

REDUCTIONS = {
    "sum": ("sum",),
    "mean": ("mean",),
    "amax": ("amax",),
    "amin": ("amin",),
    "var": ("var",),
    "std": ("var",),
    "norm": ("norm",),
    "norm1": ("norm",),
    "logsumexp": ("logsumexp",),
}
"""Reduction → families."""


def dims_of(program: TaskProgram, x: TaskValue, channels_first: bool) -> tuple[int, ...]:
    """Dimensions to reduce, the last (or the spatial ones) most often."""
    dice = program.dice
    choices: dict[tuple[int, ...], float] = {(x.rank - 1,): 5.0}
    if x.rank > 1:
        choices[(0,)] = 1.2
    if x.rank > 2:
        choices[(1,)] = 1.5
        choices[tuple(range(2, x.rank))] = 4.0 if channels_first else 0.0
        choices[(x.rank - 2, x.rank - 1)] = 1.0
    if x.rank == 4 and channels_first:
        choices[(0, 2, 3)] = 0.8
    result = dice.weighted(choices)
    if not all(x.shape[d].small > 1 and x.shape[d].native > 1 for d in result):
        raise UnfitOperands("nothing to reduce")
    return result


def spelled(program: TaskProgram, dims: tuple[int, ...], rank: int) -> str:
    """The dimensions as people write them: -1 for the last one, a tuple for several."""
    last = program.dice.chance(0.7)
    several = len(dims) > 1 and 0 not in dims
    named = [
        d - rank if last and (d == rank - 1 and rank > 1 or several and d >= rank - 2) else d
        for d in dims
    ]
    return str(named[0]) if len(named) == 1 else f"({', '.join(map(str, named))})"


def without(shape: Shape, dims: tuple[int, ...], keep: bool) -> Shape:
    """The shape after reducing `dims`."""
    return tuple(
        ONE if d in dims else size for d, size in enumerate(shape) if keep or d not in dims
    )


def reduce(
    program: TaskProgram, x: TaskValue, kind: str, dims: tuple[int, ...], keep: bool
) -> TaskValue:
    """Reduce `dims` of `x`.

    Raises:
        UnfitOperands: the result would be degenerate.
    """
    dice, first = program.dice, dims == (0,) and x.rank > 1
    number = count(tuple(x.shape[d] for d in dims))
    if kind in ("var", "std") and math.prod(x.shape[d].small for d in dims) < 3:
        raise UnfitOperands("variance of too little")
    sample = spread(
        [reduced(dice, kind, row, number) for row in rows(x.sample, first)], first, keep
    )
    where = spelled(program, dims, x.rank)
    flag = ", keepdim=True" if keep else ""
    named = dice.pick(("", "dim="))
    text = (
        f"{{0}}.{kind}({named}{where}{flag})"
        if dice.chance(0.5)
        else f"torch.{kind}({{0}}, {named or 'dim='}{where}{flag})"
    )
    if kind == "norm":
        text = dice.pick(
            (
                f"{{0}}.norm(p=2, dim={where}{flag})",
                f"torch.linalg.vector_norm({{0}}, dim={where}{flag})",
                f"torch.norm({{0}}, dim={where}{flag})",
                f"{{0}}.norm(dim={where}{flag})",
            )
        )
    elif kind == "norm1":
        text = dice.pick(
            (
                f"{{0}}.norm(p=1, dim={where}{flag})",
                f"torch.linalg.vector_norm({{0}}, 1, dim={where}{flag})",
            )
        )
    elif kind in ("var", "std"):
        correction = dice.pick(("", ", unbiased=False", ", correction=0"))
        text = (
            f"{{0}}.{kind}(dim={where}{correction}{flag})"
            if dice.chance(0.5)
            else f"torch.{kind}({{0}}, dim={where}{correction}{flag})"
        )
    elif kind in ("amax", "amin") and len(dims) == 1 and dice.chance(0.35):
        text = (
            f"{{0}}.{kind[1:]}(dim={where}{flag}).values"
            if dice.chance(0.5)
            else f"torch.{kind[1:]}({{0}}, dim={where}{flag})[0]"
        )
    floor = (
        x.floor
        if kind in ("mean", "amax", "amin")
        else 0.0
        if kind in ("var", "std", "norm", "norm1")
        or (kind == "sum" and x.floor is not None and x.floor >= 0)
        else None
    )
    return program.emit(
        kind, REDUCTIONS[kind], text, [x], sample, shape=without(x.shape, dims, keep), floor=floor
    )


def reduce_all(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Reduce a value to one number.

    Raises:
        UnfitOperands: it would hardly change from one draw of the inputs to the next.
    """
    dice = program.dice
    if not x.tied or x.half:
        raise UnfitOperands("always the same number")
    kind = dice.weighted({"mean": 4, "sum": 1.5, "norm": 1})
    values = mapped(abs, x.sample) if kind == "norm" else x.sample
    size = math.fsum(values) / len(values)
    if abs(size) < 0.05:
        raise UnfitOperands("nothing but noise")
    program.whole = True
    text = {
        "mean": dice.pick(("{0}.mean()", "torch.mean({0})")),
        "sum": dice.pick(("{0}.sum()", "torch.sum({0})")),
        "norm": dice.pick(("{0}.norm()", "torch.linalg.vector_norm({0})")),
    }[kind]
    plausible = [size * (0.5 + program.dice.random()) for _ in range(64)]
    return program.emit(
        f"{kind}_all",
        REDUCTIONS[kind],
        text,
        [x],
        plausible,
        shape=(),
        floor=x.floor if kind == "mean" else None,
    )


def softmax(program: TaskProgram, x: TaskValue, dim: int, log: bool = False) -> TaskValue:
    """Softmax or log-softmax along one dimension.

    Raises:
        UnfitOperands: too short, or too sharp.
    """
    dice, first = program.dice, dim == 0 and x.rank > 1
    length = x.shape[dim]
    if length.small < 3 or length.native < 3:
        raise UnfitOperands("too short")
    sample = []
    for row in rows(x.sample, first):
        peak = max(row)
        total = peak + math.log(
            length.native * math.fsum(math.exp(v - peak) for v in row) / len(row)
        )
        sample.append([v - total if log else math.exp(v - total) for v in row])
    word = "log_softmax" if log else "softmax"
    where = spelled(program, (dim,), x.rank)
    module = f"nn.{'LogSoftmax' if log else 'Softmax'}(dim={where})"
    text = dice.pick(
        (
            f"F.{word}({{0}}, dim={where})",
            f"torch.{word}({{0}}, dim={where})",
            f"{{0}}.{word}({where})",
            f"{{0}}.{word}(dim={where})",
            module,
        )
    )
    module = text if text.startswith("nn.") else ""
    return program.emit(
        word,
        (word,),
        "{m}({0})" if module else text,
        [x],
        unrowed(sample, first),
        floor=None if log else 0.0,
        module=module,
    )


def with_statistic(program: TaskProgram, x: TaskValue, channels_first: bool) -> TaskValue:
    """Normalise rows of `x` by a statistic: minus the mean, over the norm, scaled to a range."""
    dice = program.dice
    dims = dims_of(program, x, channels_first)
    kind = dice.weighted(
        {
            "centre": 2,
            "peak": 2,
            "norm": 1.5,
            "std": 1,
            "standard": 1.5,
            "range": 1,
            "lse": 1,
            "gate": 1.5,
        }
    )
    if kind == "centre":
        return combine(program, x, reduce(program, x, "mean", dims, True), "sub")
    if kind == "peak":
        return combine(
            program, x, reduce(program, x, dice.pick(("amax", "amin")), dims, True), "sub"
        )
    if kind in ("norm", "std"):
        return combine(
            program,
            x,
            shifted(
                program,
                reduce(
                    program,
                    x,
                    dice.pick(("norm", "norm1")) if kind == "norm" else "std",
                    dims,
                    True,
                ),
                dice.pick((0.1, 0.5)),
            ),
            "div",
        )
    if kind == "lse":
        return combine(program, x, reduce(program, x, "logsumexp", dims, True), "sub")
    if kind == "gate":
        return gated(program, x, reduce(program, x, "mean", dims, True))
    if kind == "standard":
        mean, deviation = (
            reduce(program, x, "mean", dims, True),
            shifted(program, reduce(program, x, "std", dims, True), 0.1),
        )
        return combine(program, combine(program, x, mean, "sub"), deviation, "div")
    low, high = reduce(program, x, "amin", dims, True), reduce(program, x, "amax", dims, True)
    return combine(
        program,
        combine(program, x, low, "sub"),
        shifted(program, combine(program, high, low, "sub"), 0.1),
        "div",
    )
