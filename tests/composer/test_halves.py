"""float16 in C++ kernels: read and written as PyTorch converts it, every bit."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch

from dvk.composer.codegen import cpp
from dvk.composer.codegen.cpp.scalar import HALF

BOTH = """
extern "C" void up(const unsigned short* x, float* y, long n) { for (long i = 0; i < n; ++i) y[i] = h2f(x[i]); }
extern "C" void down(const float* x, unsigned short* y, long n) { for (long i = 0; i < n; ++i) y[i] = f2h(x[i]); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("halves")
    (folder / "halves.cpp").write_text(HALF + BOTH)
    subprocess.run(["g++", *cpp.FLAGS, "halves.cpp", "-o", "halves.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "halves.so"))


def converted(function: ctypes._CFuncPtr, x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    y = torch.empty(x.numel(), dtype=kind)
    function(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
    return y


def equal(found: torch.Tensor, expected: torch.Tensor, bits: torch.dtype) -> bool:
    same = (found.view(bits) == expected.view(bits)) | (found.isnan() & expected.isnan())
    return bool(same.all())


def test_every_fp16_as_float(library: ctypes.CDLL) -> None:
    x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    assert equal(converted(library.up, x, torch.float32), x.float(), torch.int32)


def test_floats_of_every_exponent_and_between_fp16_values(library: ctypes.CDLL) -> None:
    torch.manual_seed(0)
    anything = torch.randint(-(1 << 31), 1 << 31, (1 << 22,)).to(torch.int32).view(torch.float32)
    halves = torch.arange(0x7C00, dtype=torch.int32).to(torch.int16).view(torch.float16).double()
    middles = ((halves[1:] + halves[:-1]) / 2).float()
    close = [torch.nextafter(middles, torch.full_like(middles, to)) for to in (0.0, torch.inf)]
    ends = torch.tensor(
        [
            65504.0,
            65519.996,
            65520.0,
            65536.0,
            1e38,
            torch.inf,
            torch.nan,
            0.0,
            5.96e-8,
            2.98e-8,
            2.99e-8,
            1e-45,
        ]
    )
    x = torch.cat([anything, middles, *close, ends])
    x = torch.cat([x, -x])
    assert equal(converted(library.down, x, torch.float16), x.half(), torch.int16)
