"""Normalisations: layer, RMS, group, instance and batch norm as modules or functions, and division by the L2 norm."""

from __future__ import annotations

import math
import re

from dvk.taskgen.program import TaskProgram
from dvk.taskgen.reductions import spelled
from dvk.taskgen.sizes import Dim, count
from dvk.taskgen.values import TaskValue, UnfitOperands, normalised, rows, unrowed


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
    values = []
    for row in rows(x.sample, False):
        size = math.sqrt(math.fsum(v * v for v in row) / len(row))
        if size < 1e-3:
            raise UnfitOperands("nothing to normalise")
        values.append([v / size for v in row])
    sample, eps = unrowed(values, False), dice.pick(("1e-6", "1e-5"))
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
    sample = []
    for row in rows(x.sample, dim == 0 and x.rank > 1):
        size = math.sqrt(length.native * math.fsum(v * v for v in row) / len(row))
        if size < 1e-3:
            raise UnfitOperands("nothing to normalise")
        sample.append([v / size for v in row])
    where = spelled(program, (dim,), x.rank)
    return program.emit(
        "normalize",
        ("norm", "clamp", "mul"),
        program.dice.pick(
            (f"F.normalize({{0}}, dim={where})", f"F.normalize({{0}}, p=2.0, dim={where})")
        ),
        [x],
        unrowed(sample, dim == 0 and x.rank > 1),
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
