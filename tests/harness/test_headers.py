"""Precompiled standard headers: g++ takes them where they fit, and makes the same of a text with and without them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dvk.harness.toolchain import headers

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

SOURCE = """
#include <cmath>
extern "C" void kernel(const float* x, float* y, long n) {
    #pragma omp parallel for
    for (long i = 0; i < n; i++) y[i] = std::exp(x[i]);
}
"""
FLAGS = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]


def compiled(folder: Path, environment: dict[str, str], flags: list[str]) -> tuple[bytes, bool]:
    """The library, and whether a precompiled form went into it."""
    (folder / "k.cpp").write_text(SOURCE)
    done = subprocess.run(
        ["g++", *flags, "-H", "k.cpp", "-o", "k.so"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return (folder / "k.so").read_bytes(), any(
        line.startswith("!") for line in done.stderr.splitlines()
    )


@pytest.mark.slow
def test_the_library_is_the_same_and_other_flags_do_without(dvk_home: Path, tmp_path: Path) -> None:
    given = headers.env(f"{SOURCE} {FLAGS}")
    assert compiled(tmp_path, {}, FLAGS) == (compiled(tmp_path, given, FLAGS)[0], False)
    assert compiled(tmp_path, given, FLAGS)[1]
    assert not compiled(tmp_path, given, [*FLAGS, "-std=c++20"])[1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import torch",
        '#include "mine.h"\n#include <cmath>',
        "#include <unistd.h>\n#include <cmath>",
    ],
)
def test_only_a_first_header_that_takes_long_to_read_is_wanted(text: str) -> None:
    assert headers.env(text) == {}
