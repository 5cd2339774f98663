"""Arithmetic in float64 for a module that names its types: `x.float()`, `dtype=torch.float32`, a scaled product of 8-bit floats.

Converting inputs and weights to float64 is not enough for such a module: its own conversions lead back. Under `InFloat64` a conversion to a
float of 16 or 32 bits gives float64, and operands of these types become float64. Conversions to integers and to floats of eight bits stay:
they are the reference's own quantisation, which belongs to the function that it computes. So the result is what the operands say.

PyTorch's fused functions of transformer encoders (`torch.backends.mha`) are another quantisation, of the function itself: on a GPU they
approximate GELU by tanh, in float64 too, and they leave padding at 0. The truth is computed by definition, without them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from dvk.tasks.trees import map_tensors

_SHORT = (torch.float32, torch.float16, torch.bfloat16)


FUSED = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)
"""Layers for which PyTorch has fused functions."""


def may_be_fused(module: nn.Module) -> bool:
    """Whether PyTorch may compute some of it by the fused functions of transformer encoders."""
    return torch.backends.mha.get_fastpath_enabled() and any(
        isinstance(part, FUSED) for part in module.modules()
    )


class InFloat64(TorchDispatchMode):
    """Run the body in float64; new floating tensors are float64, too. It may be entered again.

    Args:
        fused: let PyTorch use its fused functions of transformer encoders where it would in the module's own type.
    """

    def __init__(self, fused: bool = False) -> None:
        super().__init__()
        self._fused = fused

    def __enter__(self) -> InFloat64:
        self._before = torch.get_default_dtype()
        self._fused_before = torch.backends.mha.get_fastpath_enabled()
        torch.set_default_dtype(torch.float64)
        torch.backends.mha.set_fastpath_enabled(self._fused_before and self._fused)
        entered: InFloat64 = super().__enter__()
        return entered

    def __exit__(self, *error: Any) -> None:
        torch.set_default_dtype(self._before)
        torch.backends.mha.set_fastpath_enabled(self._fused_before)
        super().__exit__(*error)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's default would import torch._dynamo at the first operator, which takes 2 s

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func._schema.name.partition("::")[2]
        viewed = name == "view" and func._overloadname == "dtype"
        if not viewed:
            # A wider copy of what is viewed or written would lose the writes.
            if not any(r.alias_info is not None for r in func._schema.returns) and not (
                func._schema.is_mutable
            ):
                args, kwargs = map_tensors(widened, (args, kwargs))
            for key in ("dtype", "out_dtype"):
                if kwargs.get(key) in _SHORT:
                    kwargs[key] = torch.float64
        if (other := _PRODUCTS.get(name)) is not None:
            return other(*args, **kwargs)
        return func(*args, **kwargs)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of 16 or 32 bits in float64, or its complex counterpart; codes and integers unchanged."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.dtype in _SHORT else tensor


def in_float64(module: nn.Module) -> nn.Module:
    """Return a copy of a module with its weights and buffers `widened`."""
    return copy.deepcopy(module)._apply(widened)


def _scaled_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> torch.Tensor:
    y = (a.double() * _over(scale_a, a)) @ (b.double() * _over(scale_b, b))
    y = y if bias is None else y + bias
    return y if scale_result is None else y * scale_result


def _over(scale: torch.Tensor, operand: torch.Tensor) -> torch.Tensor:
    """Return a scale repeated over its blocks; a scale of one element, of rows, of columns or of blocks."""
    scale = scale.double()
    if scale.numel() == 1:
        return scale.reshape(())
    for d, size in enumerate(operand.shape):
        scale = scale.repeat_interleave(size // scale.shape[d], d)
    return scale


_PRODUCTS: dict[str, Callable[..., Any]] = {"_scaled_mm": _scaled_mm}
"""Products of codes that have no kernel for float64."""
