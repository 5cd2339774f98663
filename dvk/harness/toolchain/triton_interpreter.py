"""Triton's interpreter under a NumPy that it was not written for.

Up to 3.6 it makes an index of a scalar by `int(array)` on an array with one element, which NumPy refuses since 2.4: every kernel with
`for i in range(n)` raises TypeError (triton issue 9171, mended in later versions the same way).
"""

from __future__ import annotations

import os
from typing import Any


def admit_scalars() -> None:
    """Make scalars of interpreted kernels usable as indices; does nothing if kernels are compiled or triton is missing."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        return
    try:
        from triton.runtime import interpreter
    except ImportError:
        return
    before: Any = getattr(interpreter, "_patch_lang_tensor", None)
    if before is None:
        return

    def patched(tensor: Any, *scope: Any) -> None:
        before(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.squeeze())

    setattr(interpreter, "_patch_lang_tensor", patched)  # noqa: B010 - private, unknown to type checkers
