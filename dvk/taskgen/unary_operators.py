"""The table of operators of one argument: how they are written, what they compute, and what their argument must satisfy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Unary:
    """An operator without parameters."""

    name: str
    function: Callable[[float], float]
    surfaces: tuple[str, ...]
    """Expressions of `{0}`; `nn.X(…)` is a submodule; a trailing `!` marks in-place forms."""
    families: tuple[str, ...] = ()
    floor: float | None = None
    needs: str = ""
    """`positive` or `nonnegative` operands."""
    weight: float = 1.0


def _sigmoid(v: float) -> float:
    return 1 / (1 + math.exp(-v)) if v > -700 else 0.0


def softplus(v: float) -> float:
    return max(v, 0.0) + math.log1p(math.exp(-abs(v)))


def _tanh_gelu(v: float) -> float:
    return 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))


def _hardsigmoid(v: float) -> float:
    return min(max(v + 3, 0.0), 6.0) / 6


def _selu(v: float) -> float:
    return 1.0507 * (v if v > 0 else 1.67326 * math.expm1(v))


def _forms(
    name: str, *more: str, module: str = "", functional: bool = False, inplace: bool = False
) -> tuple[str, ...]:
    forms = [f"torch.{name}({{0}})", f"{{0}}.{name}()"]
    if functional:
        forms = [f"F.{name}({{0}})"] + (
            forms if name in ("relu", "sigmoid", "tanh", "celu", "selu") else []
        )
        forms = [f for f in forms if name not in ("celu", "selu") or not f.startswith("{0}")]
    if inplace:
        forms += [f"torch.{name}_({{0}})!"] if not functional or name == "relu" else []
        forms += [f"F.{name}({{0}}, inplace=True)!"] if functional else [f"{{0}}.{name}_()!"]
        forms += [f"nn.{module}(inplace=True)!"] if module and functional else []
    return (*forms, *([f"nn.{module}()"] if module else []), *more)


UNARY = (
    Unary(
        "relu",
        lambda v: max(v, 0.0),
        (*_forms("relu", functional=True, module="ReLU", inplace=True), "{0}.relu_()!"),
        floor=0.0,
        weight=3,
    ),
    Unary(
        "sigmoid",
        _sigmoid,
        (*_forms("sigmoid", functional=True, module="Sigmoid"), "{0}.sigmoid_()!"),
        floor=0.0,
        weight=2,
    ),
    Unary(
        "tanh",
        math.tanh,
        (*_forms("tanh", functional=True, module="Tanh"), "{0}.tanh_()!"),
        weight=2,
    ),
    Unary(
        "gelu",
        lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))),
        ("F.gelu({0})", "nn.GELU()", "F.gelu({0}, approximate='none')"),
        weight=3,
    ),
    Unary(
        "gelu_tanh",
        _tanh_gelu,
        ("F.gelu({0}, approximate='tanh')", "nn.GELU(approximate='tanh')", "nn.GELU('tanh')"),
        ("gelu",),
        weight=2,
    ),
    Unary(
        "silu",
        lambda v: v * _sigmoid(v),
        _forms("silu", functional=True, module="SiLU", inplace=True),
        weight=3,
    ),
    Unary(
        "swish",
        lambda v: v * _sigmoid(v),
        ("{0} * torch.sigmoid({0})", "{0} * {0}.sigmoid()", "torch.sigmoid({0}) * {0}"),
        ("sigmoid", "mul"),
        weight=1.5,
    ),
    Unary(
        "mish",
        lambda v: v * math.tanh(softplus(v)),
        _forms("mish", functional=True, module="Mish"),
        weight=1.5,
    ),
    Unary(
        "elu",
        lambda v: v if v > 0 else math.expm1(v),
        _forms("elu", functional=True, module="ELU", inplace=True),
    ),
    Unary(
        "celu",
        lambda v: v if v > 0 else math.expm1(v),
        _forms("celu", functional=True, module="CELU"),
    ),
    Unary("selu", _selu, _forms("selu", functional=True, module="SELU")),
    Unary("softplus", softplus, ("F.softplus({0})", "nn.Softplus()"), floor=0.0, weight=1.5),
    Unary(
        "softsign",
        lambda v: v / (1 + abs(v)),
        ("F.softsign({0})", "nn.Softsign()"),
        ("abs", "add", "mul"),
    ),
    Unary(
        "logsigmoid",
        lambda v: -softplus(-v),
        ("F.logsigmoid({0})", "nn.LogSigmoid()"),
        ("log_sigmoid",),
    ),
    Unary(
        "tanhshrink",
        lambda v: v - math.tanh(v),
        ("{0} - torch.tanh({0})", "{0} - {0}.tanh()"),
        ("tanh", "add"),
        weight=0.7,
    ),
    Unary(
        "relu6",
        lambda v: min(max(v, 0.0), 6.0),
        ("F.relu6({0})", "nn.ReLU6()"),
        ("clamp",),
        floor=0.0,
    ),
    Unary(
        "hardtanh",
        lambda v: min(max(v, -1.0), 1.0),
        ("F.hardtanh({0})", "nn.Hardtanh()", "F.hardtanh({0}, inplace=True)!"),
        ("clamp",),
    ),
    Unary("hardsigmoid", _hardsigmoid, ("F.hardsigmoid({0})", "nn.Hardsigmoid()"), floor=0.0),
    Unary(
        "hardswish",
        lambda v: v * _hardsigmoid(v),
        ("F.hardswish({0})", "nn.Hardswish()", "F.hardswish({0}, inplace=True)!"),
        weight=1.5,
    ),
    Unary("exp", math.exp, _forms("exp", inplace=True), floor=0.0, weight=0.8),
    Unary("expm1", math.expm1, _forms("expm1"), weight=0.5),
    Unary("exp2", lambda v: 2.0**v, ("torch.exp2({0})", "{0}.exp2()"), floor=0.0, weight=0.5),
    Unary("log", math.log, _forms("log"), needs="positive"),
    Unary("log1p", math.log1p, _forms("log1p"), floor=0.0, needs="nonnegative"),
    Unary("log2", math.log2, _forms("log2"), needs="positive", weight=0.6),
    Unary("sqrt", math.sqrt, _forms("sqrt"), floor=0.0, needs="positive"),
    Unary("rsqrt", lambda v: 1 / math.sqrt(v), _forms("rsqrt"), floor=0.0, needs="positive"),
    Unary(
        "reciprocal",
        lambda v: 1 / v,
        (*_forms("reciprocal"), "1.0 / {0}"),
        ("mul",),
        floor=0.0,
        needs="positive",
    ),
    Unary("sin", math.sin, _forms("sin")),
    Unary("cos", math.cos, _forms("cos")),
    Unary("erf", math.erf, _forms("erf"), weight=0.8),
    Unary("abs", abs, (*_forms("abs", inplace=True), "abs({0})"), floor=0.0, weight=1.2),
    Unary("neg", lambda v: -v, (*_forms("neg"), "-{0}"), ("mul",), weight=0.7),
    Unary(
        "square",
        lambda v: v * v,
        (*_forms("square"), "{0} ** 2", "{0}.pow(2)", "{0} * {0}", "torch.pow({0}, 2)"),
        ("mul",),
        floor=0.0,
        weight=1.2,
    ),
    Unary(
        "cube",
        lambda v: v**3,
        ("{0} ** 3", "{0}.pow(3)", "torch.pow({0}, 3)"),
        ("mul",),
        weight=0.4,
    ),
    Unary(
        "squared_relu",
        lambda v: max(v, 0.0) ** 2,
        ("torch.relu({0}) ** 2", "F.relu({0}).square()", "torch.square({0}.relu())"),
        ("relu", "mul"),
        floor=0.0,
    ),
    Unary(
        "quick_gelu",
        lambda v: v * _sigmoid(1.702 * v),
        ("{0} * torch.sigmoid(1.702 * {0})", "{0} * ({0} * 1.702).sigmoid()"),
        ("mul", "sigmoid", "mul"),
    ),
    Unary(
        "log_of_softplus",
        lambda v: math.log(1 + math.exp(v)),
        ("torch.log(1 + torch.exp({0}))", "{0}.exp().add(1).log()"),
        ("exp", "add", "log"),
        floor=0.0,
        weight=0.4,
    ),
)
NAMED = {unary.name: unary for unary in UNARY}
ACTIVATIONS = tuple(
    u
    for u in UNARY
    if u.name
    in {
        "relu",
        "sigmoid",
        "tanh",
        "gelu",
        "gelu_tanh",
        "silu",
        "swish",
        "mish",
        "elu",
        "celu",
        "selu",
        "softplus",
        "softsign",
        "relu6",
        "hardtanh",
        "hardswish",
        "hardsigmoid",
        "squared_relu",
        "quick_gelu",
        "logsigmoid",
    }
)
