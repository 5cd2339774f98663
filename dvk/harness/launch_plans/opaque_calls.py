"""Calls that a recording does not decompose into PyTorch's operators.

Attention: PyTorch chooses kernels for it by the GPU; without one it would be recorded as its matmuls and softmax. Deep copies: see
`copied`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from dvk.harness.launch_plans.tape import Tape

ATTENTION = torch.nn.functional.scaled_dot_product_attention
FUSED = (torch.float16, torch.bfloat16, torch.float32)


class WholeOperators(TorchFunctionMode):
    """A layer over a tape that records such operators by name."""

    def __init__(self, tape: Tape):
        super().__init__()
        self.tape = tape

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.__deepcopy__:
            return copied(*args)
        if func is not ATTENTION or kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0):
            return func(*args, **kwargs)
        names = dict(
            zip(
                ("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False
            )
        )
        given = {**names, **kwargs}
        query, value = given["query"], given["value"]
        with self.tape.paused():
            result = attended(query, value)
        rest = {name: v for name, v in given.items() if name not in ("query", "key", "value")}
        return self.tape.note(
            torch.ops.aten.scaled_dot_product_attention.default,
            (query, given["key"], value),
            rest,
            result,
        )


def copied(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """Return a tensor's deep copy, as modules with copied parts need at construction: PyTorch's function copies bytes, which do not exist
    here."""
    if id(tensor) not in memo:
        copy = tensor.detach().clone()
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        memo[id(tensor)] = (
            torch.nn.Parameter(copy, tensor.requires_grad)
            if is_parameter
            else copy.requires_grad_(tensor.requires_grad)
        )
    return memo[id(tensor)]


def attended(query: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return the layout of attention's result. Fused kernels keep a token's heads together; a wrong guess shows in the replay."""
    shape = (*query.shape[:-1], value.shape[-1])
    if (
        query.dim() == 4
        and query.dtype in FUSED
        and not (query.shape[-1] % 8 or value.shape[-1] % 8)
    ):
        batch, heads, length, width = shape
        return torch.empty(
            (batch, length, heads, width), dtype=query.dtype, device=query.device
        ).transpose(1, 2)
    return torch.empty(shape, dtype=query.dtype, device=query.device)
