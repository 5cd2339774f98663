"""GCC writes loops with mathematical functions as vectors."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from dvk.composer.codegen import cpp
from tests.composer.programs import Program

GLIBC = platform.libc_ver()
has_vector_functions = (
    platform.machine() == "x86_64"
    and GLIBC[0] == "glibc"
    and tuple(map(int, GLIBC[1].split("."))) >= (2, 35)
)


@pytest.mark.skipif(not has_vector_functions, reason="needs glibc 2.35 on x86-64")
@pytest.mark.parametrize(
    ("function", "called"),
    [
        (F.softplus, (b"v_expf", b"v_log1pf")),
        (F.mish, (b"v_expf",)),
        (F.logsigmoid, (b"v_expf", b"v_log1pf")),
    ],
)
def test_a_selection_keeps_calls_in_vectors(
    tmp_path: Path, function: object, called: tuple[bytes, ...]
) -> None:
    """A call whose result a selection may drop must not be moved into a branch: softplus took 50 ns an element instead of 1."""
    program = Program(function, torch.randn(64, 256))  # type: ignore[arg-type]
    source = tmp_path / "kernels.cpp"
    source.write_text(cpp.prelude(program.kernels) + program.cpp)
    library = tmp_path / "kernels.so"
    subprocess.run(["g++", *cpp.FLAGS, str(source), "-o", str(library)], check=True)
    symbols = library.read_bytes()
    assert [name for name in called if name not in symbols] == []
