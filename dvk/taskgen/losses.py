"""Losses: comparisons of a value with a target, per element, per row, or as one number."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from dvk.taskgen.program import TaskProgram
from dvk.taskgen.reductions import softmax
from dvk.taskgen.values import TaskValue, UnfitOperands, mapped

FAMILIES = {
    "mse": "mse_loss",
    "l1": "l1_loss",
    "smooth_l1": "smooth_l1_loss",
    "huber": "huber_loss",
    "bce": "bce_logits",
    "soft_margin": "soft_margin_loss",
    "kl": "kl_div",
    "cross_entropy": "cross_entropy",
    "cosine": "cosine_similarity",
    "distance": "pairwise_distance",
}


MODULES = {
    "mse": "MSELoss",
    "l1": "L1Loss",
    "smooth_l1": "SmoothL1Loss",
    "huber": "HuberLoss",
    "bce": "BCEWithLogitsLoss",
    "soft_margin": "SoftMarginLoss",
    "kl": "KLDivLoss",
}


def loss(program: TaskProgram, x: TaskValue) -> TaskValue:
    """A loss of `x` against a new input.

    Raises:
        UnfitOperands: `x` cannot be a prediction.
    """
    dice = program.dice
    if x.rank < 2 or x.half or len(program.inputs) > 3:
        raise UnfitOperands("no prediction")
    if not x.tied:
        reduction = "none"
    else:
        reduction = dice.weighted({"mean": 4, "sum": 1, "none": 1.5})
    kinds = {"mse": 2.0, "l1": 1.5, "smooth_l1": 1.5, "huber": 1.5, "bce": 1.5, "soft_margin": 1.0}
    if x.rank == 2 and 3 <= x.shape[1].small and x.shape[1].native <= 60000:
        kinds |= {"cross_entropy": 2.5, "kl": 1.0, "cosine": 1.2, "distance": 0.7}
    kind = dice.weighted(kinds)
    if kind in ("cosine", "distance"):
        return _by_row(program, x, kind)
    if kind == "cross_entropy":
        return _cross_entropy(program, x, reduction)
    more, word = (
        "",
        {"bce": "binary_cross_entropy_with_logits", "kl": "kl_div"}.get(kind, FAMILIES[kind]),
    )
    target = program.input(
        x.shape,
        ("target", "labels", "reference"),
        {"bce": "unit", "soft_margin": "sign", "kl": "probabilities"}.get(kind, "normal"),
    )
    function: Callable[[float, float], float]
    if kind == "kl":
        x = softmax(program, x, x.rank - 1, log=True)
        reduction = "none" if reduction == "none" else dice.pick(("sum", "batchmean"))
        function = _kl
    elif kind == "bce":
        function = _bce
    elif kind == "soft_margin":
        function = _soft_margin
    elif kind in ("smooth_l1", "huber"):
        width = dice.pick((0.3, 0.5, 1.0, 1.5))
        more = f", {'beta' if kind == 'smooth_l1' else 'delta'}={width}" if width != 1.0 else ""
        function = partial(_huber, width=width)
    else:
        function = _square if kind == "mse" else _distance
    each = mapped(function, x.sample, target.sample)
    families = (FAMILIES[kind], *(("mul",) if reduction == "batchmean" else ()))
    chosen = f", reduction='{reduction}'" if reduction != "mean" or dice.chance(0.2) else ""
    if dice.chance(0.3):
        name = program.module(
            f"nn.{MODULES[kind]}({(chosen + more).removeprefix(', ')})", ("criterion", "loss")
        )
        text = f"{name}({{0}}, {{1}})"
    else:
        text = f"F.{word}({{0}}, {{1}}{more}{chosen})"
    return _finished(program, f"{kind}_loss", families, text, [x, target], each, reduction)


def _huber(a: float, b: float, width: float) -> float:
    size = abs(a - b)
    return 0.5 * size * size if size < width else width * (size - 0.5 * width)


def _square(a: float, b: float) -> float:
    return (a - b) ** 2


def _distance(a: float, b: float) -> float:
    return abs(a - b)


def _bce(a: float, b: float) -> float:
    return max(a, 0.0) - a * b + math.log1p(math.exp(-abs(a)))


def _soft_margin(a: float, b: float) -> float:
    return math.log1p(math.exp(-a * b))


def _kl(a: float, b: float) -> float:
    return b * (math.log(b) - a) if b > 0 else 0.0


def _finished(
    program: TaskProgram,
    name: str,
    families: tuple[str, ...],
    text: str,
    arguments: list[TaskValue],
    each: list[float],
    reduction: str,
) -> TaskValue:
    if reduction == "none":
        return program.emit(name, families, text, arguments, each)
    program.whole = True
    size = math.fsum(each) / len(each)
    plausible = [size * (0.5 + program.dice.random()) for _ in range(64)]
    return program.emit(name, families, text, arguments, plausible, shape=())


def _by_row(program: TaskProgram, x: TaskValue, kind: str) -> TaskValue:
    other = program.input(x.shape, ("other", "target", "anchor"))
    if kind == "cosine":
        if x.shape[1].native > 2048:
            raise UnfitOperands("angles of long rows are all alike")
        sample = program.normal_sample(0.0, 1 / math.sqrt(x.shape[1].native))
        text = program.dice.pick(
            ("F.cosine_similarity({0}, {1}, dim=-1)", "F.cosine_similarity({0}, {1}, dim=1)")
        )
        return program.emit(
            "cosine_similarity", ("cosine_similarity",), text, [x, other], sample, shape=x.shape[:1]
        )
    size = math.sqrt(
        x.shape[1].native
        * math.fsum((a - b) ** 2 for a, b in zip(x.sample, other.sample, strict=True))
        / 64
    )
    sample = tuple(size * (0.9 + 0.2 * program.dice.random()) for _ in range(64))
    return program.emit(
        "pairwise_distance",
        ("pairwise_distance",),
        "F.pairwise_distance({0}, {1})",
        [x, other],
        sample,
        shape=x.shape[:1],
        floor=0.0,
    )


def _cross_entropy(program: TaskProgram, x: TaskValue, reduction: str) -> TaskValue:
    dice = program.dice
    labels = program.labels(x.shape[:1], x.shape[1])
    smoothing = dice.pick((0.0, 0.0, 0.05, 0.1))
    more = f", label_smoothing={smoothing}" if smoothing else ""
    chosen = f", reduction='{reduction}'" if reduction != "mean" else ""
    width = math.log(x.shape[1].native)
    each = [width - v for v in x.sample]
    if dice.chance(0.3):
        name = program.module(
            f"nn.CrossEntropyLoss({(more + chosen).removeprefix(', ')})", ("criterion", "loss")
        )
        text = f"{name}({{0}}, {{1}})"
    else:
        text = f"F.cross_entropy({{0}}, {{1}}{more}{chosen})"
    if reduction == "none":
        return program.emit(
            "cross_entropy", ("cross_entropy",), text, [x, labels], each, shape=x.shape[:1]
        )
    return _finished(
        program, "cross_entropy", ("cross_entropy",), text, [x, labels], each, reduction
    )
