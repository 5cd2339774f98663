"""Torch extensions built faster: the toolbox compiles what torch's own headers compile, and whole builds are kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from dvk import resources
from dvk.harness.toolchain import extension

needs_ninja = pytest.mark.skipif(
    shutil.which("ninja") is None or shutil.which("g++") is None, reason="needs ninja and g++"
)

BUILD = """
import os, sys, time
import torch
from torch.utils.cpp_extension import load_inline
source = '''
#include <torch/extension.h>
torch::Tensor affine(torch::Tensor x) {{
  TORCH_CHECK(x.is_contiguous(), "contiguous");
  auto y = torch::empty_like(x);
  for (long i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i] + 1;
  return {result};
}}
'''
began = time.perf_counter()
module = load_inline("affine", cpp_sources=source, functions=["affine"], extra_cflags={flags})
seconds = time.perf_counter() - began
x = torch.randn(40)
assert torch.allclose(module.affine(x), 2 * x + 1, atol=1e-6)
print("built in", seconds)
"""


def build(
    folder: Path, env: dict[str, str], result: str = "y", flags: str = "[]"
) -> tuple[subprocess.CompletedProcess[str], float]:
    """Build and run a small extension in a separate process; the seconds are torch's."""
    code = textwrap.dedent(BUILD).format(result=result, flags=flags)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env, "TORCH_EXTENSIONS_DIR": str(folder), "MAX_JOBS": "2"},
        capture_output=True,
        text=True,
    )
    return done, float(done.stdout.split("built in")[1]) if "built in" in done.stdout else 0.0


@pytest.fixture(scope="module")
def toolbox(dvk_home: Path) -> Path:
    assert extension.env() == {}
    home = extension.prepare(precompiled=False)
    assert home == extension.toolbox() and home.is_relative_to(resources.home())
    return home


@needs_ninja
@pytest.mark.slow
def test_the_toolbox_compiles_slim_and_keeps_whole_builds(toolbox: Path, tmp_path: Path) -> None:
    env = extension.env()
    assert env["CXX"] == str(toolbox / "bin" / "g++")
    first = tmp_path / "first"
    first.mkdir()
    done, seconds = build(first, env)
    assert done.returncode == 0, done.stderr[-3000:]
    depends = subprocess.run(
        ["ninja", "-t", "deps"], cwd=first / "affine", capture_output=True, text=True
    ).stdout
    assert (
        str(toolbox / "include" / "torch" / "extension.h") in depends and "torch/nn/" not in depends
    )

    assert extension.keep("some-candidate", first) and not extension.restore(
        "another", tmp_path / "none"
    )
    second = tmp_path / "second"
    second.mkdir()
    assert extension.restore("some-candidate", second)
    done, again = build(second, env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert again < seconds / 4, (seconds, again)
    # Another text is built, whatever was kept.
    plan = [str(toolbox / "path" / "ninja"), "-n"]
    assert (
        "no work"
        in subprocess.run(plan, cwd=second / "affine", capture_output=True, text=True).stdout
    )
    with open(second / "affine" / "main.cpp", "a") as file:
        file.write("// changed")
    assert (
        "main.o"
        in subprocess.run(plan, cwd=second / "affine", capture_output=True, text=True).stdout
    )


@pytest.mark.hand
@needs_ninja
@pytest.mark.slow
def test_what_needs_all_headers_gets_them(toolbox: Path, tmp_path: Path) -> None:
    done, _ = build(
        tmp_path / "whole", extension.env(), result="torch::nn::functional::elu(y) * 0 + y"
    )
    assert done.returncode == 0, done.stderr[-3000:]


@needs_ninja
@pytest.mark.slow
def test_errors_are_reported_and_other_calls_go_through(toolbox: Path, tmp_path: Path) -> None:
    def compiled(text: str, *flags: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "x.cpp").write_text(text)
        return subprocess.run(
            [toolbox / "bin" / "g++", *flags, "x.cpp"], cwd=tmp_path, capture_output=True, text=True
        )

    assert compiled("int f() { return 1; }", "-c").returncode == 0 and (tmp_path / "x.o").is_file()
    for text in ("int f( { }", "int f() { return missing; }", "#include <no_such_header.h>"):
        done = compiled(text, "-c")
        assert done.returncode != 0 and "x.cpp:1" in done.stderr and " error: " in done.stderr
    assert "gcc version" in compiled("", "-v", "-E").stderr


def test_flags_that_every_extension_has() -> None:
    words = "-MMD -MF main.o.d -DTORCH_EXTENSION_NAME=x -DKEPT -isystem /inc -fPIC -std=c++20 -c /tmp/main.cpp -o main.o".split()
    assert extension._lasting(words) == ["-DKEPT", "-isystem", "/inc", "-fPIC", "-std=c++20"]


def test_only_plain_files_of_finished_builds_are_kept(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("not theirs")
    built = tmp_path / "built"
    inner = built / "affine"
    inner.mkdir(parents=True)
    (inner / "build.ninja").write_text(f"build {inner}/main.o\n")
    (inner / "link").symlink_to(secret)
    (inner / "lock").write_text("")
    assert not extension.keep("k1", built), "nothing was built"
    (inner / "affine.so").write_bytes(b"\x7fELF")
    os.utime(inner / "affine.so", ns=(5_000_000_000, 5_000_000_000))
    os.mkfifo(inner / "pipe")
    assert extension.keep("k1", built)
    into = tmp_path / "into"
    began = time.monotonic()
    assert extension.restore("k1", into) and time.monotonic() - began < 5
    assert {p.name for p in into.rglob("*") if p.is_file()} == {
        "build.ninja",
        "affine.so",
        "dvk_kept",
    }
    assert (into / "affine" / "affine.so").stat().st_mtime_ns == 5_000_000_000
    assert len((into / "affine" / "dvk_kept").read_text()) == 64


def test_only_texts_that_build_extensions_want_the_toolbox() -> None:
    assert extension.wanted(
        "from torch.utils.cpp_extension import load_inline"
    ) and not extension.wanted("import ctypes")
