"""The first error of real compilers' logs, with the line it points at."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dvk.harness.toolchain.compiler_log import MAX_CHARS, first_error

BAD = """\
#include <vector>
int main() {
  std::vector<int> v;
  v.push_bak(3);
  return undefined_thing;
}
"""


def log_of(folder: Path, text: str, *command: str, name: str = "bad.cpp") -> str:
    (folder / name).write_text(text)
    done = subprocess.run([*command, name], cwd=folder, capture_output=True, text=True)
    assert done.returncode != 0
    return done.stdout + done.stderr


def test_gcc(tmp_path: Path) -> None:
    text = first_error(log_of(tmp_path, BAD, "g++", "-c"))
    assert (
        "bad.cpp:4:5: error:" in text and "v.push_bak(3);" in text and "undefined_thing" not in text
    )


def test_a_line_the_log_does_not_show_is_quoted_from_the_source(tmp_path: Path) -> None:
    log = log_of(tmp_path, BAD, "g++", "-c", "-fno-diagnostics-show-caret")
    assert "push_bak(3)" not in first_error(log)
    assert "    4 |   v.push_bak(3);" in first_error(log, {"bad.cpp": BAD})


def test_a_linker(tmp_path: Path) -> None:
    assert "undefined reference to `f()'" in first_error(
        log_of(tmp_path, "int f(); int main() { return f(); }", "g++")
    )


def test_template_errors_are_cut(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        "#include <map>\nstruct S {}; std::map<S, int> m; int main() { m[S{}] = 1; }",
        "g++",
        "-c",
    )
    assert (
        len(log) > 3 * MAX_CHARS
        and 0 < len(first_error(log)) <= MAX_CHARS
        and " error: " in first_error(log)
    )


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.slow
def test_nvcc_and_ptxas(tmp_path: Path) -> None:
    text = first_error(
        log_of(
            tmp_path,
            "__global__ void k(float* x) {\n  x[0] = foo(1)\n}\n",
            "nvcc",
            "-c",
            "-arch=sm_90",
            name="k.cu",
        )
    )
    assert (
        text.startswith('k.cu(2): error: identifier "foo" is undefined')
        and "x[0] = foo(1)" in text
        and 'expected a ";"' not in text
    )
    shared = "__global__ void k(float* x) { __shared__ float s[20000]; s[threadIdx.x] = *x; __syncthreads(); *x = s[threadIdx.x ^ 1]; }"
    assert "uses too much shared data" in first_error(
        log_of(tmp_path, shared, "nvcc", "-c", "-arch=sm_90", name="k.cu")
    )


NINJA = """\
Error building extension 'affine': [1/2] c++ -MMD -MF main.o.d -DTORCH_EXTENSION_NAME=affine -fPIC -std=c++20 -c /tmp/x/main.cpp -o main.o
FAILED: main.o
c++ -MMD -MF main.o.d -DTORCH_EXTENSION_NAME=affine -fPIC -std=c++20 -c /tmp/x/main.cpp -o main.o
/tmp/x/main.cpp: In function ‘at::Tensor affine(at::Tensor)’:
/tmp/x/main.cpp:4:67: error: ‘class at::Tensor’ has no member named ‘numell’; did you mean ‘numel’?
    4 |   for (long i = 0; i < x.numell(); ++i) b[i] = a[i];
      |                          ^~~~~~
      |                          numel
ninja: build stopped: subcommand failed.
"""


def test_ninja_around_gcc() -> None:
    text = first_error(NINJA)
    assert (
        text.startswith("/tmp/x/main.cpp:4:67: error:")
        and "numell" in text
        and "FAILED" not in text
        and "ninja" not in text
    )


@pytest.mark.slow
def test_triton(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    code = """
        import triton, triton.language as tl
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        @triton.jit
        def helper(x):
            return x + tl.zeros([3], tl.float32)

        @triton.jit
        def outer(a, o, n: tl.constexpr):
            x = tl.load(a + tl.arange(0, n))
            tl.store(o + tl.arange(0, n), helper(x))

        @triton.jit
        def plain(a, o, n: tl.constexpr):
            tl.store(o + tl.arange(0, n), undefined_name)

        import sys
        kernel = {"outer": outer, "plain": plain}[sys.argv[1]]
        source = ASTSource(kernel, signature={"a": "*fp32", "o": "*fp32"}, constexprs={"n": 128})
        triton.compile(source, target=GPUTarget("cuda", 90, 32))
    """
    path = tmp_path / "kernel.py"
    path.write_text(textwrap.dedent(code))
    commands = [[sys.executable, "-W", "ignore", str(path), which] for which in ("plain", "outer")]
    logs = [subprocess.run(command, capture_output=True, text=True).stderr for command in commands]
    plain, outer = map(first_error, logs)
    assert (
        plain.startswith("NameError('undefined_name is not defined')\nline 2 of the kernel:")
        and "    tl.store(" in plain
    )
    assert "must be a power of 2" in outer and "helper(x)" in outer
    assert all(len(text) < len(log) / 3 for text, log in zip((plain, outer), logs))


def test_nothing_to_recognise() -> None:
    assert first_error("") == "" and first_error("hello\n\nworld\n") == "hello\nworld"
    assert first_error("\n".join(f"line {n}" for n in range(100))) == "\n".join(
        f"line {n}" for n in range(94, 100)
    )
