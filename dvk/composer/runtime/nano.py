"""Functions that every nano text can use in a drop-in. They are copied by their source, so each stands alone."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from dvk.composer.runtime.guards import dvk_kept


def dvk_nhwc(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` in channels-last memory."""
    return tensor.contiguous(memory_format=torch.channels_last)


def dvk_held(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Cache results of `make` while its weights live, until one is written or `dvk_drop` is called."""
    import weakref

    kept: dict[tuple, tuple] = {}
    dvk_kept.append(kept)

    def held(*sources: torch.Tensor) -> torch.Tensor:
        memory = [t.untyped_storage() for t in sources]
        places = tuple((id(one), t.data_ptr()) for one, t in zip(memory, sources, strict=True))
        versions = [0 if t.is_inference() else t._version for t in sources]
        found = kept.get(places)
        if found is None or found[0] != versions:
            result = make(*sources)
            made = [
                t.untyped_storage()
                for t in torch.utils._pytree.tree_leaves(result)
                if isinstance(t, torch.Tensor)
            ]
            # Captured graphs hold the sources and read the result by its address; and other sources may reuse these addresses.
            found = (
                versions,
                result,
                [weakref.ref(one, lambda _: kept.pop(places, None)) for one in memory],
            )
            if not any(
                one is other for one in made for other in memory
            ):  # a view would keep the sources alive forever
                kept[places] = found
        return found[1]

    return held


def dvk_graphed(function: Any) -> Any:
    """Marks a `run` that is replayed as one CUDA graph by the module."""
    return function


def dvk_cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def dvk_pow2(count: int) -> int:
    """The next power of two."""
    return 1 << max(count - 1, 0).bit_length()


def dvk_size(value: Any) -> Any:
    """A number that a kernel may read as a global: Triton needs a constexpr, the interpreter a plain number."""
    import triton
    import triton.language as tl

    return value if triton.knobs.runtime.interpret else tl.constexpr(value)


def dvk_sized(function: Any, sizes: dict) -> Any:
    """`function` with these names as plain numbers."""
    import types

    return types.FunctionType(
        function.__code__,
        {**function.__globals__, **sizes},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


def dvk_jit(function: Any) -> Any:
    """A Triton kernel that is launched as `kernel[programs, warps](tensors)`."""
    import triton

    class Kernel(dict):
        compiled = triton.jit(function)

        def __missing__(self, key: tuple[int, int]) -> Any:
            programs, warps = key
            self[key] = dvk_launcher(self.compiled, programs, warps)  # type: ignore[name-defined]  # noqa: F821 - the drop-in holds it
            return self[key]

    return Kernel()


def dvk_function(function: Any, count: int) -> Callable[..., None]:
    """A C++ function of `count` addresses, called with tensors."""
    function.argtypes, function.restype = [ctypes.c_void_p] * count, None

    def call(*tensors: torch.Tensor) -> None:
        if len(tensors) != count:
            raise TypeError(f"the kernel takes {count} tensors, not {len(tensors)}")
        function(*[t.data_ptr() for t in tensors])

    return call
