"""Small networks: blocks of common models, with randomly drawn parts.

A block may fail if a drawn part does not suit; the caller then draws another program.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dvk.taskgen import binary, heads, norms, pointwise, reductions, unary_operators, views
from dvk.taskgen.program import TaskProgram
from dvk.taskgen.sizes import (
    BATCHES,
    CHANNELS,
    DEPTHS,
    HEADS,
    LENGTHS,
    SIDES,
    Dim,
    Shape,
    near,
    up_to,
)
from dvk.taskgen.values import TaskValue, UnfitOperands

MODELS = (64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 1536, 2048, 3072, 4096)


def _rows(program: TaskProgram, per_element: float) -> tuple[Shape, Dim]:
    """[batch, width] or [batch, tokens, width] such that `per_element` · width multiply-adds per element are affordable."""
    dice, profile = program.dice, program.profile
    width = up_to(dice, min(4096.0, (profile.flops / 16 / per_element) ** 0.5), MODELS)
    elements = min(
        dice.log_uniform(profile.low, profile.high / 8), profile.flops / per_element / width
    )
    rows = max(2, int(elements / width))
    inner = program.constant(dice.pick(("WIDTH", "DIM", "FEATURES", "EMBED")), width)
    if dice.chance(0.4):
        return (
            program.constant("BATCH", near(dice, rows, (*BATCHES, 1024, 2048)), 5),
            inner,
        ), inner
    tokens = up_to(dice, rows, LENGTHS)
    return (
        program.constant("BATCH", max(1, rows // tokens), 2),
        program.constant(dice.pick(("TOKENS", "SEQ")), tokens, dice.pick((4, 5))),
        inner,
    ), inner


def _maps(program: TaskProgram, per_element: float) -> TaskValue:
    """Feature maps such that `per_element` multiply-adds per element are affordable."""
    dice, profile = program.dice, program.profile
    elements = min(dice.log_uniform(profile.low, profile.high / 8), profile.flops / per_element)
    side = up_to(dice, max(8.0, (elements / 8) ** 0.5), SIDES)
    channels = up_to(dice, elements / side**2, tuple(c for c in CHANNELS if c % 8 == 0))
    batch = max(1, int(elements / side**2 / channels))
    space = program.constant(dice.pick(("SIDE", "SIZE")), side, dice.pick((8, 9, 12)))
    return program.input(
        (
            program.constant("BATCH", near(dice, batch, BATCHES), 2),
            program.constant("CHANNELS", channels),
            space,
            space,
        ),
        dice.pick((("x",), ("images",), ("features",))),
    )


def _hidden(program: TaskProgram, width: Dim, factors: tuple[int, ...] = (1, 2, 3, 4)) -> Dim:
    factor = program.dice.pick(factors)
    return (
        width
        if factor == 1
        else program.constant(
            program.dice.pick(("HIDDEN", "INNER")), width.native * factor, width.small * factor
        )
    )


def _extras(program: TaskProgram, x: TaskValue, channels_first: bool) -> TaskValue:
    """Up to two pointwise steps."""
    dice = program.dice
    for _ in range(dice.pick((0, 0, 1, 1, 2))):
        kind = dice.weighted({"scale": 2, "shift": 1, "clamp": 1, "weight": 2, "act": 1})
        try:
            with program.attempt():
                if kind == "scale":
                    x = pointwise.scaled(program, x, dice.pick((0.5, 0.7, 1.5, 2.0)))
                elif kind == "shift":
                    x = pointwise.shifted(program, x, dice.pick((0.1, 0.5, 1.0)))
                elif kind == "clamp":
                    x = pointwise.clamped(program, x)
                elif kind == "weight":
                    x = binary.weighted_by(program, x, channels_first)
                else:
                    x = binary.activated(program, x)
        except UnfitOperands:
            continue
    return x


def mlp(program: TaskProgram) -> TaskValue:
    """A few linear layers with activations, perhaps norms, perhaps a final step."""
    dice = program.dice
    shape, width = _rows(program, 6)
    x = program.input(shape, dice.pick((("x",), ("inputs",), ("features",))))
    for layer in range(dice.pick((1, 2, 2, 3))):
        x = heads.linear(program, x, _hidden(program, width, (1, 2, 4) if layer == 0 else (1, 2)))
        if dice.chance(0.35):
            x = norms.any_norm(program, x, False)
        x = _extras(program, binary.activated(program, x), False)
    ending = dice.weighted({"none": 2, "linear": 2, "softmax": 2, "log_softmax": 1, "mean": 1})
    if ending in ("linear", "softmax", "log_softmax"):
        x = heads.linear(
            program, x, program.constant("CLASSES", dice.pick((10, 16, 64, 100, 128, 256)))
        )
    if ending.endswith("softmax"):
        x = reductions.softmax(program, x, x.rank - 1, ending.startswith("log"))
    return (
        reductions.reduce(
            program, x, dice.pick(("mean", "sum", "amax")), (x.rank - 1,), dice.chance(0.3)
        )
        if ending == "mean"
        else x
    )


def feed_forward(program: TaskProgram) -> TaskValue:
    """Norm, linear, activation or gate, linear, residual."""
    dice = program.dice
    shape, width = _rows(program, 10)
    x = program.input(shape, dice.pick((("x",), ("hidden_states",), ("tokens",))))
    y = norms.any_norm(program, x, False) if dice.chance(0.75) else x
    hidden = _hidden(program, width, (1, 2, 4))
    form = dice.weighted({"plain": 3, "halves": 2, "two": 2})
    if form == "plain":
        y = _extras(program, binary.activated(program, heads.linear(program, y, hidden)), False)
    elif form == "halves":
        y = views.gated_halves(program, heads.linear(program, y, hidden.times(2)), False)
    else:
        up = heads.linear(program, y, hidden)
        y = binary.gated(program, up, heads.linear(program, y, hidden))
    y = heads.linear(program, y, width)
    y = _extras(program, y, False)
    y = binary.combine(program, x, y, "add") if dice.chance(0.8) else y
    return norms.any_norm(program, y, False) if dice.chance(0.25) else y


def attention(program: TaskProgram) -> TaskValue:
    """Scores of queries and keys, scaled, biased or masked, softmax, and the weighted values."""
    dice, profile = program.dice, program.profile
    depth = dice.pick(DEPTHS)
    budget = min(
        profile.flops / depth / 2, profile.high / 2, dice.log_uniform(profile.low, profile.high)
    )
    tokens = up_to(dice, (budget / 2) ** 0.5, LENGTHS)
    lead = max(2, int(budget / tokens**2))
    many = dice.chance(0.6)
    inside = (
        program.constant("TOKENS", tokens, dice.pick((5, 6, 7))),
        program.constant("DEPTH", depth),
    )
    if many:
        count = up_to(dice, lead, HEADS)
        batch: Shape = (
            program.constant("BATCH", max(1, min(lead // count, 64)), 2),
            program.constant("HEADS", count, 2),
        )
    else:
        batch = (program.constant("BATCH", min(lead, 256), 3),)
    query, key = (
        program.input((*batch, *inside), (name,))
        for name in dice.pick((("q", "k"), ("query", "key")))
    )
    turned = program.emit(
        "transpose",
        (),
        dice.pick(("{0}.transpose(-2, -1)", "{0}.transpose(-1, -2)")),
        [key],
        key.sample,
        shape=(*batch, inside[1], inside[0]),
        view=True,
    )
    scores = heads.product(program, query, turned)
    root = round(1 / math.sqrt(depth), 4)
    scores = (
        pointwise.scaled(program, scores, root)
        if dice.chance(0.6)
        else pointwise.divided(program, scores, round(math.sqrt(depth), 4))
    )
    heads_of = (batch[1],) if many else ()
    for kind in dice.shuffled(("bias", "mask", "cap"))[: dice.pick((0, 1, 1, 2))]:
        scores = _changed_scores(program, scores, kind, (*heads_of, inside[0], inside[0]))
    weights = reductions.softmax(program, scores, scores.rank - 1)
    if dice.chance(0.35):
        return weights
    value = program.input((*batch, *inside), dice.pick((("v",), ("value",))))
    y = heads.product(program, weights, value)
    return _extras(program, y, False)


def _changed_scores(
    program: TaskProgram, scores: TaskValue, kind: str, bias_shape: Shape
) -> TaskValue:
    """Attention scores with a bias, under a mask, or capped by tanh."""
    if kind == "bias":
        names = ("bias", "relative_bias")
        bias = program.parameter(bias_shape, 0.0, 0.5, names, buffer=False)
        return binary.combine(program, scores, bias, "add")
    if kind == "mask":
        return binary.masked(program, scores)
    cap = program.dice.pick((2.0, 5.0))
    bounded = pointwise.unary(
        program, pointwise.divided(program, scores, cap), unary_operators.NAMED["tanh"]
    )
    return pointwise.scaled(program, bounded, cap)


def gate_of_experts(program: TaskProgram) -> TaskValue:
    """A softmax gate over a few outputs, which it weights and sums."""
    dice = program.dice
    shape, width = _rows(program, 4)
    x = program.input(shape)
    experts = program.constant("EXPERTS", dice.pick((4, 6, 8, 16)), 4)
    gate = heads.linear(program, x, experts)
    gate = reductions.softmax(
        program,
        pointwise.scaled(program, gate, dice.pick((2.0, 3.0))) if dice.chance(0.5) else gate,
        gate.rank - 1,
    )
    other = program.input((*shape[:-1], experts, width), ("outputs", "expert_outputs"))
    wide = program.emit(
        "unsqueeze",
        (),
        dice.pick(("{0}.unsqueeze(-1)", "{0}[..., None]")),
        [gate],
        gate.sample,
        shape=(*gate.shape, Dim("1", 1, 1)),
        floor=0.0,
        view=True,
    )
    mixed = program.emit(
        "mul",
        ("mul",),
        dice.pick(("{0} * {1}", "{1} * {0}")),
        [wide, other],
        [a * b for a, b in zip(gate.sample, other.sample, strict=True)],
        shape=other.shape,
    )
    y = reductions.reduce(program, mixed, "sum", (mixed.rank - 2,), False)
    y = _extras(program, y, False)
    return binary.combine(program, x, y, "add") if dice.chance(0.4) else y


def conv_block(program: TaskProgram) -> TaskValue:
    """Convolutions with norms and activations, perhaps a shortcut, perhaps a pool."""
    dice = program.dice
    x = _maps(program, 700)
    y = x
    for layer in range(dice.pick((1, 2, 2))):
        keep = dice.chance(0.5)
        y = heads.convolution(
            program,
            y,
            y.shape[1] if keep else None,
            stride=1,
            kernel=dice.pick((1, 3, 3, 5)),
            bias=dice.chance(0.4),
        )
        if dice.chance(0.75):
            y = norms.any_norm(program, y, True)
        y = binary.activated(program, y) if layer == 0 or dice.chance(0.6) else y
        y = _extras(program, y, True)
    if [d[1:] for d in x.shape] == [d[1:] for d in y.shape] and dice.chance(0.7):
        y = binary.combine(program, y, x, "add")
        y = binary.activated(program, y) if dice.chance(0.6) else y
    return heads.pool(program, y) if dice.chance(0.35) else y


def separable(program: TaskProgram) -> TaskValue:
    """Depthwise, then pointwise convolution, as mobile networks and ConvNeXt do."""
    dice = program.dice
    x = _maps(program, 300)
    y = heads.convolution(program, x, depthwise=True, stride=1, kernel=dice.pick((3, 5, 7)))
    y = norms.any_norm(program, y, True)
    y = binary.activated(program, y) if dice.chance(0.7) else y
    y = heads.convolution(
        program, y, y.shape[1] if dice.chance(0.6) else None, stride=1, kernel=1, depthwise=False
    )
    y = norms.batch_norm(program, y) if dice.chance(0.4) else binary.activated(program, y)
    y = _extras(program, y, True)
    return (
        binary.combine(program, y, x, "add")
        if [d[1:] for d in x.shape] == [d[1:] for d in y.shape]
        else y
    )


def squeeze_excite(program: TaskProgram) -> TaskValue:
    """Channel means through a bottleneck to a gate on the channels."""
    dice = program.dice
    x = _maps(program, 60)
    y = _extras(
        program,
        norms.any_norm(program, x, True) if dice.chance(0.6) else binary.activated(program, x),
        True,
    )
    z = reductions.reduce(program, y, "mean", (2, 3), True)
    for acts in (("relu", "silu", "gelu"), ("sigmoid", "hardsigmoid")):
        if dice.chance(0.7):
            z = heads.convolution(program, z, z.shape[1], stride=1, kernel=1, depthwise=False)
        else:
            z = binary.weighted_by(program, z, True)
        z = pointwise.unary(program, z, unary_operators.NAMED[dice.pick(acts)])
    y = binary.combine(program, y, z, "mul")
    return binary.combine(program, y, x, "add") if dice.chance(0.5) else y


def classifier(program: TaskProgram) -> TaskValue:
    """Convolution, activation, pooling to one number per channel, and a linear layer."""
    dice = program.dice
    x = _maps(program, 700)
    y = heads.convolution(program, x, stride=dice.pick((1, 2)), kernel=3, depthwise=False)
    y = norms.any_norm(program, y, True) if dice.chance(0.6) else y
    y = binary.activated(program, y)
    y = heads.pool(program, y, dice.pick(("max", "avg"))) if dice.chance(0.5) else y
    y = reductions.reduce(program, y, dice.pick(("mean", "amax")), (2, 3), False)
    y = heads.linear(program, y, program.constant("CLASSES", dice.pick((10, 16, 64, 100, 200))))
    ending = dice.weighted({"none": 2, "softmax": 1, "log_softmax": 1, "act": 1})
    if ending == "act":
        return binary.activated(program, y)
    return y if ending == "none" else reductions.softmax(program, y, 1, ending.startswith("log"))


def up_and_join(program: TaskProgram) -> TaskValue:
    """A decoder step: transposed convolution, a skip input concatenated or added, norm, activation."""
    dice = program.dice
    x = _maps(program, 400)
    y = heads.transposed_convolution(program, x)
    skip = program.input(y.shape, ("skip", "encoder"))
    y = (
        views.joined(program, y, skip)
        if dice.chance(0.5)
        else binary.combine(program, y, skip, "add")
    )
    y = norms.any_norm(program, y, True) if dice.chance(0.7) else y
    return _extras(program, binary.activated(program, y), True)


def modulated(program: TaskProgram) -> TaskValue:
    """Norm, then scale and shift from further inputs, gate and residual, as diffusion transformers do."""
    dice = program.dice
    shape, width = _rows(program, 1)
    x = program.input(shape)
    y = norms.any_norm(program, x, False)
    scale, shift = (
        program.input((*shape[:-2], Dim("1", 1, 1), width) if len(shape) > 2 else shape, (n,))
        for n in ("scale", "shift")
    )
    scale = pointwise.shifted(program, scale, 1.0)
    y = binary.combine(program, binary.combine(program, y, scale, "mul"), shift, "add")
    if dice.chance(0.5):
        y = binary.activated(program, y)
    if dice.chance(0.5):
        y = binary.combine(program, y, binary.weight(program, y, False, "gain"), "mul")
    y = _extras(program, y, False)
    return binary.combine(program, x, y, "add") if dice.chance(0.7) else y


def projected_gate(program: TaskProgram) -> TaskValue:
    """Two projections of one input, one gating the other, with a norm before or after."""
    dice = program.dice
    shape, width = _rows(program, 6)
    x = program.input(shape)
    y = norms.any_norm(program, x, False) if dice.chance(0.5) else x
    a = heads.linear(program, y, width)
    b = heads.linear(program, y, width)
    y = binary.gated(
        program,
        norms.any_norm(program, a, False) if dice.chance(0.5) else binary.activated(program, a),
        b,
    )
    y = _extras(program, y, False)
    return (
        binary.combine(program, x, y, dice.pick(("add", "add", "lerp"))) if dice.chance(0.6) else y
    )


NETWORKS: dict[str, tuple[Callable[[TaskProgram], TaskValue], float]] = {
    "mlp": (mlp, 2.0),
    "feed_forward": (feed_forward, 2.0),
    "attention": (attention, 2.0),
    "experts": (gate_of_experts, 0.8),
    "conv_block": (conv_block, 2.0),
    "separable": (separable, 1.0),
    "squeeze_excite": (squeeze_excite, 1.0),
    "classifier": (classifier, 1.0),
    "decoder": (up_and_join, 0.8),
    "modulation": (modulated, 1.0),
    "gate": (projected_gate, 1.2),
}


def network(program: TaskProgram) -> str:
    """Write one of the networks; returns its name.

    Raises:
        UnfitOperands: the parts drawn do not suit one another.
    """
    name = program.dice.weighted({n: weight for n, (_, weight) in NETWORKS.items()})
    program.outputs = [NETWORKS[name][0](program)]
    if len(program.operators) < 3:
        raise UnfitOperands("too short")
    return name
