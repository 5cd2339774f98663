"""float16 in C++ kernels: read and written as PyTorch converts it, every bit."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch

from dvk.composer.codegen import cpp
from dvk.composer.codegen.cpp.scalar import HALF, HALVES
from tests.composer.programs import drop_in, leaves

BOTH = """
extern "C" void up(const unsigned short* x, float* y, long n) { for (long i = 0; i < n; ++i) y[i] = h2f(x[i]); }
extern "C" void down(const float* x, unsigned short* y, long n) { for (long i = 0; i < n; ++i) y[i] = f2h(x[i]); }
extern "C" void rounded(const float* x, float* y, long n) { for (long i = 0; i < n; ++i) y[i] = dvk_rounded_half(x[i]); }
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
    assert equal(converted(library.rounded, x, torch.float32), x.half().float(), torch.int32)


MODULES = """
import torch
import torch.nn.functional as F


def side_by_side(x, y):
    return F.relu(x * 2 + y) * y


def along_rows(x, y):
    return F.layer_norm(x + y, (x.shape[-1],))


def softmax(x, y):
    return torch.softmax(x * 0.5, -1) + y


def down_columns(x, y):
    return (x * y).sum(0), x.amax(0) - y


def shifted(x, y):
    return x[:, 1:] * y[:, :-1], torch.cat([x, y], 1) + 1, x.t() * 2


def cast(x, y):
    return x.float() * y.float(), (x.float().exp() + y).half()
"""


@pytest.mark.parametrize("length", [5, 64, 203])
@pytest.mark.slow
def test_loops_over_blocks_of_halves_give_what_eager_gives(length: int) -> None:
    """Lengths below a block, of whole blocks, and with ends of a vector and of elements."""
    torch.manual_seed(length)
    x, y = torch.randn(9, length).half(), torch.randn(9, length).half()
    x[3, 2:5] = torch.tensor([torch.inf, -0.0, 5.96e-8])
    x[4, 1], y[5] = torch.nan, y[5] * 1e-6
    names = ["side_by_side", "along_rows"]
    names += ["softmax", "down_columns", "shifted", "cast"] if length == 203 else []
    for name in names:
        module, model, candidate = drop_in(MODULES, x, y, entry=name)
        new = module.ModelNew()
        found, expected = new(x, y), model(x, y)
        assert new._dvk_counts["kernels"] == 1
        if name != "shifted":
            assert ("dvk_read_halves(h0" in candidate.source) is (length >= 64), candidate.source
        for a, b in zip(leaves(found), leaves(expected), strict=True):
            torch.testing.assert_close(a, b, rtol=4e-3, atol=4e-3, equal_nan=True)


def test_loops_without_f16c_give_the_same(tmp_path: Path) -> None:
    text = HALF + HALVES + BLOCKS
    (tmp_path / "blocks.cpp").write_text(text)
    flags = [flag for flag in cpp.FLAGS if flag != "-march=native"]
    subprocess.run(["g++", *flags, "blocks.cpp", "-o", "blocks.so"], cwd=tmp_path, check=True)
    plain = ctypes.CDLL(str(tmp_path / "blocks.so"))
    subprocess.run(["g++", *cpp.FLAGS, "blocks.cpp", "-o", "fast.so"], cwd=tmp_path, check=True)
    fast = ctypes.CDLL(str(tmp_path / "fast.so"))
    x = torch.arange((1 << 16) - 3, dtype=torch.int32).to(torch.int16).view(torch.float16)
    wide = x.float() * 1.0003
    for one in (plain, fast):
        assert equal(converted(one.up, x, torch.float32), x.float(), torch.int32)
        assert equal(converted(one.down, wide, torch.float16), wide.half(), torch.int16)


BLOCKS = """
extern "C" void up(const unsigned short* x, float* y, long n) { dvk_read_halves(y, x, n); }
extern "C" void down(const float* x, unsigned short* y, long n) { dvk_write_halves(y, x, n); }
"""
