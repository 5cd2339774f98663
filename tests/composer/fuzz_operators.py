"""Operators that random modules are made of."""

from __future__ import annotations

UNARY = (
    "torch.relu({})",
    "torch.tanh({})",
    "torch.sigmoid({})",
    "F.gelu({})",
    "F.silu({})",
    "torch.exp(-{}.abs())",
    "{}.abs()",
    "-{}",
    "torch.sqrt({}.abs() + 0.5)",
    "torch.sin({})",
    "{} * 0.7",
    "{} + 1.5",
    "1.0 - {}",
    "{}.clamp(-1.5, 1.25)",
    "F.leaky_relu({}, 0.2)",
    "F.softplus({})",
    "F.elu({})",
    "F.hardswish({})",
    "torch.log1p({}.abs())",
    "{} / 3.0",
    "torch.square({}) * 0.25",
    "F.mish({})",
    "torch.reciprocal({}.abs() + 1.0)",
    "{}.clone()",
    "torch.erf({})",
)
BINARY = (
    "{} + {}",
    "{} - {}",
    "{} * {}",
    "torch.maximum({0}, {1})",
    "{0} / ({1}.abs() + 1.0)",
    "torch.where({0} > {1}, {0}, {1} * 0.5)",
    "torch.lerp({0}, {1}, 0.3)",
    "{0}.masked_fill({1} > 0.4, 0.25)",
    "torch.where({1} < 0.1, 0.0, {0})",
    "torch.hypot({0}, {1})",
)
REDUCE = (
    "{}.sum({}, keepdim={}) * 0.2",
    "{}.mean({}, keepdim={})",
    "{}.amax({}, keepdim={})",
    "{}.amin({}, keepdim={})",
    "{}.var({}, correction=0, keepdim={})",
    "torch.logsumexp({}, {}, keepdim={})",
    "torch.linalg.vector_norm({}, 2, {}, keepdim={})",
    "{}.abs().sum({}, keepdim={}) * 0.1",
)
