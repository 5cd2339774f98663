"""Kernels with loops run in the interpreter of a Triton that is older than the installed NumPy."""

from __future__ import annotations

import operator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dvk.harness.toolchain import triton_interpreter

interpreter = pytest.importorskip("triton.runtime.interpreter")


def test_a_scalar_of_an_interpreted_kernel_is_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    class Scalar:
        handle = SimpleNamespace(data=np.array([3]))

    def as_in_triton_36(tensor: Any) -> None:
        tensor.__index__ = lambda self: self.handle.data.__int__()

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", as_in_triton_36)
    triton_interpreter.admit_scalars()
    assert interpreter._patch_lang_tensor is as_in_triton_36, "kernels are compiled"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    triton_interpreter.admit_scalars()
    interpreter._patch_lang_tensor(Scalar)
    assert operator.index(Scalar()) == 3 and list(range(Scalar())) == [0, 1, 2]  # type: ignore[call-overload]
