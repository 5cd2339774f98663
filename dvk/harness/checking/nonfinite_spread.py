"""Non-finite spread: elements that a NaN or an infinity reaches differ between right programs, in sums of products.

An algorithm with fewer multiplications adds rows of its operands before it multiplies, and spreads a NaN to unrelated elements; one that
skips zeros of a triangular matrix does not spread it through them; two folded layers give an infinity where the two give inf − inf. So the
reference is run again with its matmuls and convolutions replaced if an operand is not finite, and only elements that stay the same are
required of a candidate. All other operators (maxima, norms, activations, losses, masks) leave no choice.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Way = Literal["everywhere", "nowhere", "nonzero"]

_FACTORS = {
    "mm": (0, 1), "bmm": (0, 1), "mv": (0, 1), "dot": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "addbmm": (1, 2), "addmv": (1, 2),
    "convolution": (0, 1), "_convolution": (0, 1), "linear": (0, 1),
}
"""Positions of the two operands that are multiplied."""
_OTHERS = ("_scaled_dot_product", "scaled_dot_product", "mkldnn_rnn", "_thnn_fused", "lstm", "gru", "linalg_")
ROOM = 1024
"""Largest factor that a right algorithm may apply to an operand before it multiplies, times the largest element."""
_CHOOSING = frozenset({"masked_fill", "where", "tril", "triu", "masked_scatter", "index_put", "_index_put_impl"})


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
        factors = _FACTORS.get(name)
        if factors is None and not name.startswith(_OTHERS):
            self.chooses |= self._multiplied and name in _CHOOSING
            return func(*args, **kwargs)
        self._multiplied = True
        if all(_has_room(t) for t in args if _floating(t)):
            result = func(*args, **kwargs)
            return result if _all_finite(result) else self._other(func, args, kwargs, factors, result)
        return self._other(func, args, kwargs, factors, func(*args, **kwargs))

    def _other(self, func: Any, args: Any, kwargs: Any, factors: tuple[int, int] | None, result: Any) -> Any:
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


def _floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _has_room(operand: torch.Tensor) -> bool:
    """Whether all elements are finite, and small enough for a Winograd transform (its coefficients reach 100) not to overflow."""
    return not operand.numel() or bool(operand.abs().max() <= torch.finfo(operand.dtype).max / ROOM)


def _all_finite(result: Any) -> bool:
    return all(bool(t.isfinite().all()) for t in (result if isinstance(result, (tuple, list)) else [result]) if _floating(t))


def _clean(value: Any) -> Any:
    return value.nan_to_num(0.0, 0.0, 0.0) if _floating(value) else value


def _mapped(result: Any, function: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return type(result)([function(t) if _floating(t) else t for t in result])
    return function(result) if _floating(result) else result
