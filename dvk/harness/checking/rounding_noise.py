"""Rounding noise: results of other correct programs, from the reference run again with noise in it.

`RoundingNoise` multiplies each operator's result by 1 + ε·u, with ε one unit in the last place of the result's type and u uniform in [-1,
1]. Operators that move, select or compare values are exact in any program and stay so. The spread of a few such runs shows where an answer
is ill-conditioned and where it jumps (rounding to a grid, thresholds, near ties), in the reference's precision and without a float64 twin.
`with_rounding_noise` does the same to inputs, for operators that compute much inside.

`with_low_bits_cleared` rounds to fewer bits of mantissa, as a candidate in a coarser format does to its inputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dvk import aten
from dvk.harness.checking.narrow_floats import narrow

_EXACT = frozenset(
    """
    _to_copy to clone copy copy_ view _unsafe_view _reshape_alias reshape permute transpose t expand select slice
    unsqueeze squeeze cat stack detach alias index_select gather embedding contiguous split split_with_sizes unbind
    as_strided diagonal narrow unfold flip roll repeat repeat_interleave tile constant_pad_nd reflection_pad1d
    reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d pixel_shuffle
    pixel_unshuffle channel_shuffle index index_put _index_put_impl scatter scatter_reduce_max masked_select
    masked_fill masked_scatter where tril triu view_as_real view_as_complex real imag _conj resolve_conj
    lift lift_fresh lift_fresh_copy set resize fill zero slice_scatter select_scatter diagonal_scatter
    empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros ones ones_like new_ones
    full full_like new_full arange linspace eye scalar_tensor rand rand_like randn randn_like randint randint_like
    randperm uniform normal bernoulli exponential random multinomial
    relu neg abs sign sgn max min amax amin aminmax maximum minimum fmax fmin clamp clamp_min clamp_max hardtanh
    threshold round floor ceil trunc topk sort argsort msort kthvalue median nanmedian mode cummax cummin
    max_pool1d max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d
    threshold_backward max_pool2d_with_indices_backward embedding_dense_backward nonzero one_hot
    """.split()
)

_OF_INTEGERS = frozenset("add sub rsub".split())
"""Operators whose result is exact in any program if it consists of integers."""
TF32_EPS = 2.0**-11
"""Largest relative error of one rounding to TF32."""
STRONG, STRONG_HALF = 16, 2
"""Units in the last place of float32 and float64, and of fp16 and bf16, which are summed in float32."""


class RoundingNoise(TorchDispatchMode):
    """Run the body with every computed floating value off by up to one unit in its last place.

    Args:
        seed: seed of the noise.
        inward: round only towards zero, by up to two units: a probability stays one, an index stays in range.
        strong: off by as many units as a sum in another order may be.
        product_eps: operands of products are off by up to this, too: TF32 rounds them, and another program rounds other ones.
        alike: all elements of a result are off by the same, as by a scale's rounding; else the largest of noisy elements, which a scale
            is computed from, is off upwards only.
    """

    def __init__(
        self,
        seed: int,
        inward: bool = False,
        strong: bool = False,
        product_eps: float = 0.0,
        alike: bool = False,
    ):
        super().__init__()
        self._alike = alike
        self._seed, self._inward, self._strong = seed, inward, strong
        self._product_eps = product_eps
        self._generators: dict[torch.device, torch.Generator] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's default would import torch._dynamo at the first operator, which takes 2 s

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        if self._product_eps and name in aten.FACTORS:
            operands = aten.FACTORS[name]
            args = [self._rounded(arg) if n in operands else arg for n, arg in enumerate(args)]
        result = func(*args, **(kwargs or {}))
        if name.rstrip("_") in _EXACT or name in _EXACT:
            return result
        if name.rstrip("_") in _OF_INTEGERS and _whole(result):
            return result
        outputs = result if isinstance(result, (tuple, list)) else [result]
        for output, told in zip(outputs, func._schema.returns):
            shares = told.alias_info is not None and not told.alias_info.is_write
            if isinstance(output, torch.Tensor) and not shares:
                self._disturb(output)
        return result

    def _disturb(self, tensor: torch.Tensor) -> None:
        if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0:
            return
        if narrow(tensor):
            return  # codes: what was rounded to them carries the noise
        of = tensor.flatten()[:1] if self._alike else tensor
        noise = _noise(of, self._generator(tensor.device), self._inward, self._strong)
        tensor.mul_(noise.reshape(()) if self._alike else noise)

    def _rounded(self, operand: torch.Tensor) -> torch.Tensor:
        if operand.dtype is not torch.float32:
            return operand
        u = torch.rand(
            operand.shape, device=operand.device, generator=self._generator(operand.device)
        )
        return u.mul_(2 * self._product_eps).add_(1 - self._product_eps).mul_(operand)

    def _generator(self, device: torch.device) -> torch.Generator:
        """Return one generator per device, apart from those that the reference draws from."""
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]


def _whole(result: torch.Tensor) -> bool:
    """Whether all are integers, small enough to be exact: a rounded value plus a zero point, which truncation would turn into another."""
    if not result.is_floating_point() or narrow(result) or not result.numel():
        return False
    size = result.abs().max()
    return bool(size <= 1 / torch.finfo(result.dtype).eps) and bool(
        (result == result.round()).all()
    )


def with_rounding_noise(
    tensor: torch.Tensor, seed: int, inward: bool = False, strong: bool = False
) -> torch.Tensor:
    """Return a floating tensor with every value off by up to one unit in its last place, or as in `RoundingNoise`; zeros stay."""
    if narrow(tensor):
        return tensor
    generator = torch.Generator(tensor.device).manual_seed(seed)
    return (tensor * _noise(tensor, generator, inward, strong)).to(tensor.dtype)


def with_low_bits_cleared(tensor: torch.Tensor, bits: int, inward: bool = False) -> torch.Tensor:
    """Return a floating tensor rounded to `bits` significant bits, exponents kept; other tensors unchanged."""
    if tensor.is_complex():
        return torch.view_as_complex(
            with_low_bits_cleared(torch.view_as_real(tensor.resolve_conj()), bits, inward)
        )
    if not tensor.is_floating_point() or tensor.numel() == 0 or narrow(tensor):
        return tensor
    wide = tensor if tensor.dtype.itemsize >= 4 else tensor.float()
    mantissa, exponent = torch.frexp(wide)
    scaled = mantissa * 2.0**bits
    rounded = torch.ldexp((scaled.trunc() if inward else scaled.round()) * 2.0**-bits, exponent)
    return torch.where(wide.isfinite(), rounded, wide).to(tensor.dtype)


def _noise(
    tensor: torch.Tensor, generator: torch.Generator, inward: bool, strong: bool
) -> torch.Tensor:
    kind = torch.float64 if tensor.dtype in (torch.float64, torch.complex128) else torch.float32
    u = torch.rand(tensor.shape, dtype=kind, device=tensor.device, generator=generator)
    eps = torch.finfo(tensor.dtype).eps
    if strong:
        eps *= STRONG if eps < 1e-4 else STRONG_HALF
    return u.mul_(2 * eps).add_(1 - (2 if inward else 1) * eps)
