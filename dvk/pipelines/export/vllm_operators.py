"""Operators of vLLM that take an implementation from outside: what they are called with, what must hold of a call.

`ir`: an operator of vLLM's IR, which takes implementations by provider. `layer`: a layer class that may be replaced by name.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, Literal

from dvk.errors import UsageError


@dataclass(frozen=True)
class VllmOperator:
    """One row of the table."""

    kind: Literal["ir", "layer"]
    where: str
    """Module that has it."""
    name: str
    """Its name there."""
    parameters: str
    """Parameters of the call, as Python writes them."""
    tensors: tuple[str, ...]
    """Those that the kernels take, in order, as expressions; the layer's own come last."""
    constants: tuple[str, ...]
    """What the kernels were made with, and the user says: parameters of the call, or attributes of the layer."""
    absent: tuple[str, ...] = ()
    """Parameters, or attributes of the layer, that must be None."""
    annotated: str = ""
    """For `ir`: parameters and result with types, which must be the operator's own."""
    attribute: str = ""
    """For `layer`: the attribute that holds the last tensor, if it is the layer's own."""
    returns: str = "{result}"
    """For `layer`: what its call returns."""


ACTIVATION = "vllm.model_executor.layers.activation"
ROTARY = "vllm.model_executor.layers.rotary_embedding.base"
NORM = "vllm.model_executor.layers.layernorm"
FP8 = "vllm.model_executor.layers.quantization.input_quant_fp8"
_TAIL = "weight: torch.Tensor | None, epsilon: float, variance_size: int | None = None"


def _layer(
    where: str, name: str, constants: tuple[str, ...] = (), parameters: str = "x", **more: Any
) -> VllmOperator:
    tensors = more.pop("tensors", tuple(parameters.replace(" ", "").split(",")))
    return VllmOperator("layer", where, name, parameters, tensors, constants, **more)


OPERATORS = {
    "rms_norm": VllmOperator(
        "ir",
        "vllm.ir.ops",
        "rms_norm",
        "x, weight, epsilon, variance_size=None",
        ("x", "weight"),
        ("epsilon",),
        ("variance_size",),
        f"x: torch.Tensor, {_TAIL}) -> torch.Tensor",
    ),
    "fused_add_rms_norm": VllmOperator(
        "ir",
        "vllm.ir.ops",
        "fused_add_rms_norm",
        "x, x_residual, weight, epsilon, variance_size=None",
        ("x", "x_residual", "weight"),
        ("epsilon",),
        ("variance_size",),
        f"x: torch.Tensor, x_residual: torch.Tensor, {_TAIL}) -> tuple[torch.Tensor, torch.Tensor]",
    ),
    "gelu_and_mul_sparse": VllmOperator(
        "ir",
        "vllm.ir.ops",
        "gelu_and_mul_sparse",
        "x, std_multiplier, approximate='none'",
        ("x",),
        ("std_multiplier", "approximate"),
        (),
        'x: torch.Tensor, std_multiplier: float, approximate: str = "none") -> torch.Tensor',
    ),
    "silu_and_mul": _layer(ACTIVATION, "SiluAndMul"),
    "mul_and_silu": _layer(ACTIVATION, "MulAndSilu"),
    "gelu_and_mul": _layer(ACTIVATION, "GeluAndMul", ("approximate",)),
    "gelu_new": _layer(ACTIVATION, "NewGELU"),
    "gelu_fast": _layer(ACTIVATION, "FastGELU"),
    "quick_gelu": _layer(ACTIVATION, "QuickGELU"),
    "relu2": _layer(ACTIVATION, "ReLUSquaredActivation"),
    "fatrelu_and_mul": _layer(ACTIVATION, "FatreluAndMul", ("threshold",)),
    "gemma_rms_norm": _layer(
        NORM,
        "GemmaRMSNorm",
        ("variance_epsilon",),
        "x, residual=None",
        tensors=("x", "self.weight"),
        attribute="weight",
        absent=("residual",),
    ),
    "rotary_embedding": _layer(
        ROTARY,
        "RotaryEmbedding",
        ("head_size", "rotary_dim", "is_neox_style"),
        "positions, query, key=None",
        tensors=("positions", "query", "key", "self._match_cos_sin_cache_dtype(query)"),
        attribute="cos_sin_cache",
    ),
    "quant_fp8": _layer(
        FP8,
        "QuantFP8",
        ("static", "group_shape"),
        "x, scale=None, scale_ub=None, use_triton=False",
        tensors=("x", "scale"),
        absent=("scale_ub", "self.num_token_padding"),
        returns="({result}, scale)",
    ),
}
"""By the name that `--op` takes."""


def parse(text: str) -> tuple[VllmOperator, dict[str, Any]]:
    """Read `--op`: `rms_norm(epsilon=1e-6)`, or a name alone if it has no constants.

    Raises:
        UsageError: no such operator, or its constants are not all given as literals.
    """
    try:
        call = ast.parse(text, mode="eval").body
        name = call.func if isinstance(call, ast.Call) else call
        assert isinstance(name, ast.Name) and not (isinstance(call, ast.Call) and call.args)
        given = {
            str(word.arg): ast.literal_eval(word.value)
            for word in (call.keywords if isinstance(call, ast.Call) else ())
        }
    except (SyntaxError, ValueError, AssertionError):
        raise UsageError(
            f"cannot read --op `{text}`", 'write e.g. --op "rms_norm(epsilon=1e-6)"'
        ) from None
    if name.id not in OPERATORS:
        raise UsageError(
            f"vLLM takes no implementation of `{name.id}` from outside",
            f"choose one of {', '.join(OPERATORS)}",
        )
    operator = OPERATORS[name.id]
    if set(given) != set(operator.constants):
        example = ", ".join(f"{one}=…" for one in operator.constants)
        raise UsageError(
            f"--op `{name.id}` needs the values that your module computes with: {', '.join(operator.constants) or 'none'}",
            f'write --op "{name.id}({example})"' if example else f"write --op {name.id}",
        )
    return operator, given
