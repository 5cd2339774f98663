"""Reductions, softmax and norms: over the last, first, middle or spatial dimensions, in several spellings."""

from __future__ import annotations

import math
import re

from dvk.taskgen.binary import combine, gated
from dvk.taskgen.pointwise import shifted
from dvk.taskgen.program import TaskProgram
from dvk.taskgen.sizes import ONE, Dim, Shape, count
from dvk.taskgen.values import (
    TaskValue,
    UnfitOperands,
    mapped,
    normalised,
    reduced,
    rows,
    spread,
    unrowed,
)

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
    found = []
    for row in rows(x.sample, first):
        peak = max(row)
        total = peak + math.log(
            length.native * math.fsum(math.exp(v - peak) for v in row) / len(row)
        )
        found.append([v - total if log else math.exp(v - total) for v in row])
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
        unrowed(found, first),
        floor=None if log else 0.0,
        module=module,
    )


def _norm_module(
    program: TaskProgram, constructor: str, affine: bool, bias: bool = True, reach: float = 0.5
) -> str:
    after = ["nn.init.uniform_({}.weight, 0.5, 1.5)"] if affine else []
    if affine and bias:
        after.append(f"nn.init.uniform_({{}}.bias, -{reach}, {reach})")
    return program.module(constructor, ("norm", "ln", "normalize"), after)


def layer_norm(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Layer norm over the last dimension, sometimes the last two."""
    dice = program.dice
    num = 2 if x.rank > 2 and dice.chance(0.12) and count(x.shape[-2:]) <= 1 << 20 else 1
    sizes = [d.text for d in x.shape[-num:]]
    if x.shape[-1].small < 3:
        raise UnfitOperands("too short")
    sample = normalised(x.sample, False)
    one = sizes[0] if num == 1 else f"({', '.join(sizes)})"
    eps = dice.pick(("", "", ", eps=1e-6", ", eps=1e-3"))
    form = dice.weighted({"module": 4, "plain": 1, "functional": 1})
    if form == "module":
        module = _norm_module(program, f"nn.LayerNorm({one}{eps})", True)
        return program.emit(
            "layer_norm", ("layer_norm",), f"{module}({{0}})", [x], sample, tied=False
        )
    if form == "plain":
        module = _norm_module(program, f"nn.LayerNorm({one}, elementwise_affine=False{eps})", False)
        return program.emit(
            "layer_norm", ("layer_norm",), f"{module}({{0}})", [x], sample, tied=False
        )
    shape = f"{{0}}.shape[-{num}:]"
    if dice.chance(0.5):
        return program.emit(
            "layer_norm", ("layer_norm",), f"F.layer_norm({{0}}, {shape})", [x], sample, tied=False
        )
    gain = program.parameter(x.shape[-num:], 1.0, 0.5, ("weight", "gamma"))
    bias = program.parameter(x.shape[-num:], 0.0, 0.5, ("bias", "beta"))
    return program.emit(
        "layer_norm",
        ("layer_norm",),
        f"F.layer_norm({{0}}, {shape}, {{1}}, {{2}}{eps})",
        [x, gain, bias],
        sample,
        tied=False,
    )


def rms_norm(program: TaskProgram, x: TaskValue) -> TaskValue:
    """RMS norm over the last dimension: the module, the function, or written out."""
    dice, length = program.dice, x.shape[-1]
    if length.small < 3:
        raise UnfitOperands("too short")
    found = []
    for row in rows(x.sample, False):
        size = math.sqrt(math.fsum(v * v for v in row) / len(row))
        if size < 1e-3:
            raise UnfitOperands("nothing to normalise")
        found.append([v / size for v in row])
    sample, eps = unrowed(found, False), dice.pick(("1e-6", "1e-5"))
    form = dice.weighted({"module": 3, "functional": 1, "written": 3})
    if form == "module":
        module = _norm_module(program, f"nn.RMSNorm({length.text}, eps={eps})", True, bias=False)
        return program.emit("rms_norm", ("rms_norm",), f"{module}({{0}})", [x], sample, tied=False)
    gain = program.parameter((length,), 1.0, 0.5, ("weight", "gain", "scale"))
    if form == "functional":
        return program.emit(
            "rms_norm",
            ("rms_norm",),
            f"F.rms_norm({{0}}, ({{0}}.shape[-1],), {{1}}, {eps})",
            [x, gain],
            sample,
            tied=False,
        )
    square = dice.pick(("{0}.pow(2)", "({0} * {0})", "{0}.square()", "({0} ** 2)"))
    text = f"{{0}} * torch.rsqrt({square}.mean(-1, keepdim=True) + {eps}) * {{1}}"
    return program.emit(
        "rms_norm_written",
        ("mul", "mean", "add", "rsqrt", "mul"),
        text,
        [x, gain],
        sample,
        tied=False,
    )


def group_norm(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Group norm of maps or series."""
    dice, channels = program.dice, x.shape[1]
    fitting = [g for g in (1, 2, 4, 8, 16, 32) if channels.divisible(g) and channels.small >= g]
    groups = dice.pick(fitting)
    if x.rank < 3 or math.prod(d.small for d in x.shape[1:]) // groups < 4:
        raise UnfitOperands("too little in a group")
    sample = normalised(x.sample, False)
    if dice.chance(0.75):
        affine = dice.chance(0.8)
        module = _norm_module(
            program,
            f"nn.GroupNorm({groups}, {channels.text}{'' if affine else ', affine=False'})",
            affine,
        )
        return program.emit(
            "group_norm", ("group_norm",), f"{module}({{0}})", [x], sample, tied=False
        )
    return program.emit(
        "group_norm", ("group_norm",), f"F.group_norm({{0}}, {groups})", [x], sample, tied=False
    )


def _absorbs(program: TaskProgram, x: TaskValue) -> None:
    """Refuse a norm over each channel's own elements that undoes a gain or bias of that channel just before it.

    Raises:
        UnfitOperands: it would.
    """
    made = next(s for s in program.statements if x in s.results) if x.origin != "input" else None
    if made is None:
        return
    called = re.match(r"self\.(\w+)\(", made.template)
    constructor = next((h.text for h in program.held if called and h.name == called[1]), "")
    biased = constructor.startswith(("nn.Conv", "nn.Linear")) and "bias=False" not in constructor
    if biased or "Norm" in constructor or any(a.origin == "held" for a in made.arguments):
        raise UnfitOperands("undone by the norm")


def instance_norm(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Instance norm of maps, series or volumes."""
    if (
        x.rank not in (3, 4, 5)
        or math.prod(d.small for d in x.shape[2:]) < 4
        or not x.shape[0].native > 0
    ):
        raise UnfitOperands("not maps")
    _absorbs(program, x)
    sample, size = normalised(x.sample, False), x.rank - 2
    if program.dice.chance(0.7):
        affine = program.dice.chance(0.6)
        module = _norm_module(
            program,
            f"nn.InstanceNorm{size}d({x.shape[1].text}{', affine=True' if affine else ''})",
            affine,
        )
        return program.emit(
            "instance_norm", ("instance_norm",), f"{module}({{0}})", [x], sample, tied=False
        )
    return program.emit(
        "instance_norm", ("instance_norm",), "F.instance_norm({0})", [x], sample, tied=False
    )


def batch_norm(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Batch norm: mostly in eval mode with drawn statistics, else with those of the batch."""
    dice, channels = program.dice, x.shape[1]
    kind = {2: "1d", 3: "1d", 4: "2d", 5: "3d"}.get(x.rank)
    if kind is None:
        raise UnfitOperands("not maps")
    if dice.chance(0.75):
        program.eval_mode = True
        after = (
            "nn.init.uniform_({}.weight, 0.5, 1.5)",
            "nn.init.uniform_({}.bias, -0.5, 0.5)",
            "{}.running_mean.normal_(0.0, 0.2)",
            "{}.running_var.uniform_(0.4, 1.2)",
        )
        module = program.module(
            f"nn.BatchNorm{kind}({channels.text})", ("norm", "bn", "batch_norm"), after
        )
        return program.emit(
            "batch_norm",
            ("batch_norm",),
            f"{module}({{0}})",
            [x],
            [1.1 * v + 0.1 for v in x.sample],
        )
    per_channel = math.prod(d.small for i, d in enumerate(x.shape) if i != 1)
    if per_channel < 4 or x.half:
        raise UnfitOperands("too small a batch")
    _absorbs(program, x)
    sample = normalised(x.sample, False)
    if dice.chance(0.6):
        module = _norm_module(
            program, f"nn.BatchNorm{kind}({channels.text}, track_running_stats=False)", True
        )
        return program.emit(
            "batch_norm_train", ("batch_norm",), f"{module}({{0}})", [x], sample, tied=False
        )
    return program.emit(
        "batch_norm_train",
        ("batch_norm",),
        "F.batch_norm({0}, None, None, training=True)",
        [x],
        sample,
        tied=False,
    )


def l2_normalised(program: TaskProgram, x: TaskValue, dim: int) -> TaskValue:
    """Unit vectors along one dimension."""
    length: Dim = x.shape[dim]
    if length.small < 3:
        raise UnfitOperands("too short")
    found = []
    for row in rows(x.sample, dim == 0 and x.rank > 1):
        size = math.sqrt(length.native * math.fsum(v * v for v in row) / len(row))
        if size < 1e-3:
            raise UnfitOperands("nothing to normalise")
        found.append([v / size for v in row])
    where = spelled(program, (dim,), x.rank)
    return program.emit(
        "normalize",
        ("norm", "clamp", "mul"),
        program.dice.pick(
            (f"F.normalize({{0}}, dim={where})", f"F.normalize({{0}}, p=2.0, dim={where})")
        ),
        [x],
        unrowed(found, dim == 0 and x.rank > 1),
        tied=False,
    )


def any_norm(program: TaskProgram, x: TaskValue, channels_first: bool) -> TaskValue:
    """A norm that suits the layout."""
    if channels_first and x.rank >= 3:
        kind = program.dice.weighted(
            {"group": 3, "instance": 2, "batch": 3, "layer": 0.3, "l2": 0.7}
        )
    else:
        kind = program.dice.weighted(
            {"layer": 4, "rms": 4, "l2": 1, "batch": 1.2 if x.rank == 2 else 0}
        )
    if x.rank < 2 or (kind == "l2" and program.whole):
        raise UnfitOperands("no rows")
    if kind == "l2":
        return l2_normalised(program, x, 1 if channels_first else x.rank - 1)
    return {
        "group": group_norm,
        "instance": instance_norm,
        "batch": batch_norm,
        "layer": layer_norm,
        "rms": rms_norm,
    }[kind](program, x)


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
