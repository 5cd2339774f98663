"""Disabling PyTorch's operators for a while, to test whether a candidate's own kernels do the computing.

Every operator that computes is overridden in the dispatcher's table, which Python, C++ extensions and torch.compile's fallbacks all use;
operators that only allocate, view or copy stay. A candidate whose kernels do the work does not notice. Not covered: libraries called past
the dispatcher (a BLAS through ctypes); `profile` measures the share of time in PyTorch's operators.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

ALLOWED = frozenset(
    """
    empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros zero_ ones ones_like new_ones full
    full_like new_full fill_ scalar_tensor arange
    as_strided as_strided_ view _unsafe_view view_as view_as_real view_as_complex reshape reshape_as _reshape_alias transpose
    transpose_ t t_ permute expand expand_as squeeze squeeze_ unsqueeze unsqueeze_ flatten unflatten select slice narrow split
    split_with_sizes chunk unbind diagonal movedim swapaxes swapdims alias detach detach_ unfold numpy_T mT adjoint H matrix_H real imag
    clone copy_ _copy_from contiguous to _to_copy _to_cpu resize_ resize_as_ set_ item _local_scalar_dense type_as
    size stride numel dim storage_offset is_contiguous is_same_size is_floating_point is_complex is_pinned requires_grad_
    record_stream _version data set_data output_nr retain_grad is_leaf lift lift_fresh lift_fresh_copy result_type can_cast
    resolve_conj resolve_neg _conj _neg_view is_conj is_neg _nested_tensor_size sym_size sym_stride sym_numel sym_storage_offset
    _has_compatible_shallow_copy_type is_nonzero is_inference pin_memory _pin_memory
    """.split()
)
"""Operators that compute nothing, by name without overload."""


class OperatorCalled(RuntimeError):
    """A computing operator of PyTorch was called while forbidden."""


@contextmanager
def forbidden(device: str) -> Iterator[list[str]]:
    """Run the body without PyTorch's computing operators on `device`; yields the names of those called nonetheless."""
    called: list[str] = []
    key = {"cpu": "CPU", "cuda": "CUDA"}[device]
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns at every override
            for name in torch._C._dispatch_get_all_op_names():
                namespace, _, rest = name.partition("::")
                if namespace != "aten" or rest.partition(".")[0] in ALLOWED or "backward" in rest:
                    continue
                try:
                    library.impl(rest, _refusal(name, called), key)
                except RuntimeError:
                    continue  # an operator without dispatch, e.g. a scalar's
        yield called
    finally:
        library._destroy()


def _refusal(name: str, called: list[str]) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        called.append(name)
        raise OperatorCalled(f"{name} was called")

    return refuse
