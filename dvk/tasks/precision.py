"""The precision of a reference: the class that sets the judge's tolerance.

    exact  no output is floating
    half   some operator rounds to 16 bits (autocast included)
    tf32   on CUDA, a float32 convolution or matrix product that torch's flags let run in TF32
    fp32   some operator rounds to float32
    fp64   everything floating is float64

Floats of eight bits are codes, like int8: rounding to them is a step of the function and does not make its arithmetic coarser.

Observed while the reference runs, so only operators that execute count. Operators inside the user's kernels are not seen, but their outputs
are.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dvk import aten
from dvk.tasks.trees import named_tensors

Precision = Literal["fp64", "fp32", "tf32", "half", "exact"]

# cuDNN's names of convolutions and recurrent layers; composites call the others
_CONVOLUTIONS = (*aten.of("convolution"), "_cudnn_rnn", "cudnn_convolution")
# These move or reinterpret values without rounding.
_MOVES = aten.of(*aten.REARRANGING) | {"empty", "empty_like"}


class PrecisionMode(TorchDispatchMode):
    """Records the dtypes that operators compute in, and whether TF32 may be among them."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()
        self.products = False  # float32 on CUDA
        self.convolutions = False  # float32 on CUDA

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's default would import torch._dynamo at the first operator, which takes 2 s

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        tensors = [t for _, t in named_tensors(result)]
        if name not in _MOVES:
            self.dtypes |= {
                t.dtype for t in tensors if t.dtype.is_floating_point or t.dtype.is_complex
            }
        if any(t.is_cuda and t.dtype in (torch.float32, torch.complex64) for t in tensors):
            self.products |= name in aten.of("matmul") or name.startswith("_scaled_dot_product")
            self.convolutions |= name.startswith(_CONVOLUTIONS)
        return result


def classify(watch: PrecisionMode, outputs: list[torch.Tensor]) -> Precision:
    """Return the class of a reference that ran under `watch` and returned `outputs`."""
    floating = {t.dtype for t in outputs if _computes(t.dtype)}
    if not floating:
        return "exact"
    dtypes = {dtype for dtype in watch.dtypes if _computes(dtype)} | floating
    if any(_bits(dtype) <= 16 for dtype in dtypes):
        return "half"
    matmul, convolution = _tf32_flags()
    if (watch.products and matmul) or (watch.convolutions and convolution):
        return "tf32"
    return "fp32" if any(_bits(dtype) <= 32 for dtype in dtypes) else "fp64"


def _computes(dtype: torch.dtype) -> bool:
    """Whether it is a floating type of more than eight bits."""
    return dtype.is_complex or (dtype.is_floating_point and dtype.itemsize > 1)


def _bits(dtype: torch.dtype) -> int:
    return dtype.itemsize * (4 if dtype.is_complex else 8)


def _tf32_flags() -> tuple[bool, bool]:
    """Return whether (matmuls, convolutions) may use TF32."""
    try:
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    except RuntimeError:
        # torch raises on the old flags once the file has set the newer ones.
        matmul: Any = torch.backends.cuda.matmul
        convolution: Any = getattr(torch.backends.cudnn, "conv", torch.backends.cudnn)
        return matmul.fp32_precision == "tf32", convolution.fp32_precision == "tf32"
