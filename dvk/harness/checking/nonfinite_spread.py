"""Non-finite spread: elements that a NaN or an infinity reaches differ between right programs, in sums of products.

An algorithm with fewer multiplications adds rows of its operands before it multiplies, and spreads a NaN to unrelated elements; one that
skips zeros of a triangular matrix does not spread it through them; two folded layers give an infinity where the two give inf − inf. So the
reference is run again with its matmuls and convolutions replaced if an operand is not finite, and only elements that stay the same are
required of a candidate. All other operators (maxima, norms, activations, losses, masks) leave no choice
while all values are of ordinary size.

Near overflow the order of operations decides: Welford's variance of a row of one huge value is 0, the variance of
two passes is NaN since the sum overflows first; `x * a / b` may be `x / b * a`. So the reference is run once more with everything
near overflow taken as infinite (`EarlyOverflow`), and nothing is required where that makes a difference.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dvk import aten
from dvk.harness.checking.narrow_floats import narrow

Way = Literal["everywhere", "nowhere", "nonzero"]

_OTHERS = (
    "_scaled_dot_product",
    "scaled_dot_product",
    "mkldnn_rnn",
    "_thnn_fused",
    "lstm",
    "gru",
    "linalg_",
)
ROOM = 1024
"""Largest factor that a right algorithm may apply to an operand before it multiplies, times the largest element."""
LARGEST_HALF, HALF_ROOM = 65504.0, 16
"""Ordinary values of a half are hundreds; in its sums, which are made in float32, there is room."""
_CHOOSING = frozenset(
    {"masked_fill", "where", "tril", "triu", "masked_scatter", "index_put", "_index_put_impl"}
)


_SQUARING = ("var", "std", "norm", "cdist", "pdist", "mse_loss")
"""In names of operators that square their operands within."""


class Spread(TorchDispatchMode):
    """Replace products of non-finite operands in the body as another program may compute them.

    Args:
        way: NaN in the whole result; no NaN anywhere; or NaN where a non-finite element meets a nonzero one.
    """

    def __init__(self, way: Way):
        super().__init__()
        self._way = way
        self.chooses = False
        """Whether the body discarded elements after a product: a spread to the others would come from outside the result."""
        self._multiplied = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's default would import torch._dynamo at the first operator, which takes 2 s

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2].rstrip("_")
        factors = aten.FACTORS.get(name)
        if factors is None and (not name.startswith(_OTHERS) or name == "linalg_vector_norm"):
            self.chooses |= self._multiplied and name in _CHOOSING
            return func(*args, **kwargs)
        self._multiplied = True
        if all(_has_room(t) for t in args if _floating(t)):
            result = func(*args, **kwargs)
            return (
                result if _all_finite(result) else self._other(func, args, kwargs, factors, result)
            )
        return self._other(func, args, kwargs, factors, func(*args, **kwargs))

    def _other(
        self, func: Any, args: Any, kwargs: Any, factors: tuple[int, int] | None, result: Any
    ) -> Any:
        if self._way == "everywhere" or (self._way == "nonzero" and factors is None):
            return _mapped(result, lambda t: torch.full_like(t, float("nan")))
        clean = func(*[_clean(a) for a in args], **kwargs)
        clean = _mapped(clean, _clean)
        if self._way == "nowhere" or factors is None:
            return clean
        met = torch.zeros_like(clean, dtype=torch.bool)
        for one, other in (factors, factors[::-1]):
            marks = [_floating(a) and a.isfinite().logical_not().to(a.dtype) for a in args]
            marks = [mark if _floating(a) else a for mark, a in zip(marks, args, strict=True)]
            marks[other] = (args[other] != 0).to(args[other].dtype)
            marks[one] = args[one].isfinite().logical_not().to(args[one].dtype)
            met |= func(*marks, **kwargs) != 0
        return clean.masked_fill(met, float("nan"))


class EarlyOverflow(TorchDispatchMode):
    """Run the body with every value near overflow taken as the infinity of its sign; inputs are `early` before."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as above

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        if any(part in name for part in _SQUARING):
            args = [early(a, squared=True) if _floating(a) else a for a in args]
        result = func(*args, **(kwargs or {}))
        outputs = result if isinstance(result, (tuple, list)) else [result]
        for output, told in zip(outputs, func._schema.returns):
            shares = told.alias_info is not None and not told.alias_info.is_write
            if _floating(output) and not shares and (other := early(output)) is not output:
                output.copy_(other)
        return result


def early(tensor: torch.Tensor, squared: bool = False) -> torch.Tensor:
    """A floating tensor with its values near overflow as infinities, or those whose squares are; itself where it has none.

    A half is summed and squared in float32, so that only what nearly is too large for a half counts there.
    """
    if narrow(tensor):
        return tensor
    most = torch.finfo(tensor.dtype).max
    if (squared and most <= LARGEST_HALF) or not tensor.numel():
        return tensor
    limit = (most / ROOM) ** 0.5 if squared else most / (ROOM if most > LARGEST_HALF else HALF_ROOM)
    large = tensor.abs() > limit
    return (
        tensor.masked_fill(large & (tensor > 0), math.inf).masked_fill(
            large & (tensor < 0), -math.inf
        )
        if bool(large.any())
        else tensor
    )


def _floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and not narrow(value)


def _has_room(operand: torch.Tensor) -> bool:
    """Whether all elements are finite, and small enough for a Winograd transform (its coefficients reach 100) not to overflow."""
    return not operand.numel() or bool(operand.abs().max() <= torch.finfo(operand.dtype).max / ROOM)


def _all_finite(result: Any) -> bool:
    return all(
        bool(t.isfinite().all())
        for t in (result if isinstance(result, (tuple, list)) else [result])
        if _floating(t)
    )


def _clean(value: Any) -> Any:
    return value.nan_to_num(0.0, 0.0, 0.0) if _floating(value) else value


def _mapped(result: Any, function: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return type(result)([function(t) if _floating(t) else t for t in result])
    return function(result) if _floating(result) else result
