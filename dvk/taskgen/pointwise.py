"""Operators of one tensor: their names, their spellings, and their effect on a number.

Every spelling of an operator runs ATen operators of the same families (`aten.family`), so the spelling never decides the side of the
split.
"""

from __future__ import annotations

import math

from dvk.taskgen.program import TaskProgram
from dvk.taskgen.unary_operators import NAMED, Unary, softplus
from dvk.taskgen.values import TaskValue, UnfitOperands, mapped


def unary(program: TaskProgram, x: TaskValue, operator: Unary) -> TaskValue:
    """Apply a named operator, with a safe operand if it may leave the domain.

    Raises:
        UnfitOperands: the result would be degenerate.
    """
    dice = program.dice
    if operator.needs:
        x = bounded(program, x, operator.needs)
    sample = mapped(operator.function, x.sample)
    if max(abs(a - b) for a, b in zip(sample, x.sample, strict=True)) < 1e-3 * (
        max(map(abs, sample)) + 1e-9
    ):
        raise UnfitOperands("changes nothing")
    surfaces = [s for s in operator.surfaces if not s.endswith("!")]
    if x.origin == "value" and dice.chance(0.25):
        surfaces = [s for s in operator.surfaces if s.endswith("!")] or surfaces
    surface = dice.pick(surfaces)
    plain = operator.surfaces[0] if surface.endswith("!") else ""
    surface = surface.rstrip("!")
    families = operator.families or (operator.name,)
    module = surface if surface.startswith("nn.") else ""
    return program.emit(
        operator.name,
        families,
        "{m}({0})" if module else surface,
        [x],
        sample,
        floor=operator.floor,
        module=module,
        plain=plain,
    )


def bounded(program: TaskProgram, x: TaskValue, needs: str) -> TaskValue:
    """`x`, or a function of it that is surely positive (0.05 at least) or nonnegative."""
    dice = program.dice
    floor = -math.inf if x.floor is None else x.floor
    if floor < 0:
        x = unary(
            program,
            x,
            NAMED[dice.weighted({"abs": 3, "square": 2, "softplus": 1, "relu": 1, "sigmoid": 1})],
        )
        floor = x.floor or 0.0
    if needs == "positive" and floor < 0.05:
        x = shifted(program, x, dice.pick((0.1, 0.5, 1.0)))
    return x


def shifted(program: TaskProgram, x: TaskValue, by: float) -> TaskValue:
    """`x` plus a number."""
    dice = program.dice
    number = program.number(by) if by > 0 else repr(by)
    text = (
        dice.pick(("{0} + %s", "%s + {0}", "torch.add({0}, %s)", "{0}.add(%s)", "{0} + %s"))
        % number
    )
    if by < 0:
        text = f"{{0}} - {-by}"
    floor = None if x.floor is None else x.floor + by
    return program.emit("shift", ("add",), text, [x], [v + by for v in x.sample], floor=floor)


def scaled(program: TaskProgram, x: TaskValue, by: float) -> TaskValue:
    """`x` times a number."""
    number = program.number(by)
    text = (
        program.dice.pick(("{0} * %s", "%s * {0}", "torch.mul({0}, %s)", "{0}.mul(%s)", "{0} * %s"))
        % number
    )
    return program.emit(
        "scale",
        ("mul",),
        text,
        [x],
        [v * by for v in x.sample],
        floor=0.0 if x.floor is not None and x.floor >= 0 < by else None,
    )


def divided(program: TaskProgram, x: TaskValue, by: float) -> TaskValue:
    """`x` divided by a positive number."""
    text = program.dice.pick(("{0} / %s", "torch.div({0}, %s)", "{0}.div(%s)")) % program.number(by)
    return program.emit(
        "divide",
        ("mul",),
        text,
        [x],
        [v / by for v in x.sample],
        floor=0.0 if x.floor is not None and x.floor >= 0 else None,
    )


def subtracted_from(program: TaskProgram, x: TaskValue, number: float) -> TaskValue:
    """A number minus `x`."""
    return program.emit("rsub", ("add",), f"{number} - {{0}}", [x], [number - v for v in x.sample])


def clamped(program: TaskProgram, x: TaskValue) -> TaskValue:
    """`x` clamped to one or two bounds that cut off some of it.

    Raises:
        UnfitOperands: all or none of it is cut off.
    """
    dice, ordered = program.dice, sorted(x.sample)
    low, high = (round(ordered[dice.between(*span)], 2) for span in ((3, 14), (49, 60)))
    kind = dice.weighted({"both": 4, "low": 1.5, "high": 1.5})
    if low == high:
        raise UnfitOperands("too narrow")
    if kind == "low":
        text = dice.pick(
            (f"{{0}}.clamp(min={low})", f"torch.clamp({{0}}, min={low})", f"{{0}}.clamp_min({low})")
        )
        return program.emit(
            "clamp_min", ("clamp",), text, [x], [max(v, low) for v in x.sample], floor=low
        )
    if kind == "high":
        text = dice.pick(
            (
                f"{{0}}.clamp(max={high})",
                f"torch.clamp({{0}}, max={high})",
                f"{{0}}.clamp_max({high})",
            )
        )
        return program.emit(
            "clamp_max", ("clamp",), text, [x], [min(v, high) for v in x.sample], floor=x.floor
        )
    text = dice.pick(
        (
            f"torch.clamp({{0}}, {low}, {high})",
            f"{{0}}.clamp({low}, {high})",
            f"torch.clamp({{0}}, min={low}, max={high})",
            f"F.hardtanh({{0}}, {low}, {high})",
            f"{{0}}.clip({low}, {high})",
        )
    )
    return program.emit(
        "clamp", ("clamp",), text, [x], [min(max(v, low), high) for v in x.sample], floor=low
    )


def leaky(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Leaky ReLU with one of the usual slopes, or learned slopes (PReLU), or written out with where."""
    dice = program.dice
    slope = dice.pick((0.01, 0.05, 0.1, 0.2, 0.3))
    sample = [v if v > 0 else slope * v for v in x.sample]
    form = dice.weighted({"leaky": 4, "where": 1, "prelu": 1 if x.rank >= 2 else 0})
    if form == "where":
        text = dice.pick(
            (
                f"torch.where({{0}} > 0, {{0}}, {slope} * {{0}})",
                f"torch.where({{0}} >= 0, {{0}}, {{0}} * {slope})",
            )
        )
        # The branch is computed before the choice: compare, multiply, choose.
        return program.emit("where_leaky", ("where", "mul", "where"), text, [x], sample)
    if form == "prelu":
        channels = x.shape[1]
        constructor = dice.pick(("nn.PReLU()", f"nn.PReLU({channels.text})"))
        after = (
            ("nn.init.uniform_({}.weight, 0.1, 0.4)",) if "(" + channels.text in constructor else ()
        )
        module = program.module(constructor, ("act", "prelu", "activation"), after)
        return program.emit(
            "prelu",
            ("prelu",),
            f"{module}({{0}})",
            [x],
            [v if v > 0 else 0.25 * v for v in x.sample],
        )
    text = dice.pick(
        (
            f"F.leaky_relu({{0}}, {slope})",
            f"F.leaky_relu({{0}}, negative_slope={slope})",
            f"nn.LeakyReLU({slope})",
        )
    )
    module = text if text.startswith("nn.") else ""
    return program.emit(
        "leaky_relu", ("leaky_relu",), "{m}({0})" if module else text, [x], sample, module=module
    )


def power(program: TaskProgram, x: TaskValue) -> TaskValue:
    """A positive value to a fractional power."""
    x = bounded(program, x, "positive")
    exponent = program.dice.pick((1.5, 0.75, 0.25, 1.25, 2.5))
    text = program.dice.pick(
        (f"{{0}} ** {exponent}", f"torch.pow({{0}}, {exponent})", f"{{0}}.pow({exponent})")
    )
    return program.emit(
        "power", ("mul",), text, [x], mapped(lambda v: math.pow(v, exponent), x.sample), floor=0.0
    )


def shrunk(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Soft shrinkage."""
    reach = program.dice.pick((0.1, 0.2, 0.3, 0.5))
    text = program.dice.pick((f"F.softshrink({{0}}, {reach})", f"nn.Softshrink({reach})"))
    sample = [math.copysign(max(abs(v) - reach, 0.0), v) for v in x.sample]
    module = text if text.startswith("nn.") else ""
    return program.emit(
        "softshrink", ("softshrink",), "{m}({0})" if module else text, [x], sample, module=module
    )


def shaped(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Softplus or ELU with parameters."""
    dice = program.dice
    beta = dice.pick((0.5, 1.5, 2.0))
    if dice.chance(0.5):
        text = dice.pick((f"F.softplus({{0}}, beta={beta})", f"nn.Softplus(beta={beta})"))
        sample, name, floor = (
            mapped(lambda v: softplus(beta * v) / beta, x.sample),
            "softplus",
            0.0,
        )
    else:
        text = dice.pick(
            (f"F.elu({{0}}, {beta})", f"F.elu({{0}}, alpha={beta})", f"nn.ELU(alpha={beta})")
        )
        sample, name, floor = (
            mapped(lambda v: v if v > 0 else beta * math.expm1(v), x.sample),
            "elu",
            -beta,
        )
    module = text if text.startswith("nn.") else ""
    return program.emit(
        f"{name}_shaped",
        (name,),
        "{m}({0})" if module else text,
        [x],
        sample,
        floor=floor,
        module=module,
    )
