"""Resources of a candidate's process besides its code: prebuilt extensions, and the compiler's error if it refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from dvk import resources
from dvk.harness import judge
from dvk.harness.processes.failures import compiler_says, failure
from dvk.harness.session import environment
from dvk.harness.toolchain import extension
from dvk.harness.toolchain.nvrtc import CompileError
from dvk.records import Candidate, Status
from tests.harness.conftest import QUICK, task

needs_ninja = pytest.mark.skipif(
    shutil.which("ninja") is None or shutil.which("g++") is None, reason="needs ninja and g++"
)

INLINE = """
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = '''
torch::Tensor affine(torch::Tensor x) {{
  auto y = torch::empty_like(x);
  for (long i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = {term};
  return y;
}}
'''
module = load_inline("provided", cpp_sources=SOURCE, functions=["affine"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.affine(x)
"""
TERM = "2 * std::max(x.data_ptr<float>()[i], 0.0f) + 1"
PATIENT = QUICK.model_copy(
    update={
        "judge": QUICK.judge.model_copy(update={"candidate_s": 15.0}),
        "limits": QUICK.limits.model_copy(update={"memory_bytes": 8 << 30}),
    }
)


def candidate(term: str) -> Candidate:
    return Candidate(source=INLINE.format(term=term), backend="cpp")


@needs_ninja
@pytest.mark.slow
def test_extensions_are_compiled_once_and_outside_of_the_candidate_s_time(
    dvk_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the tool that leaves cached builds alone: making its headers takes a minute.
    extension._write_wrappers(tmp_path, str(shutil.which("g++")), tmp_path / "include")
    monkeypatch.setattr(
        environment,
        "_toolbox",
        lambda: {"PATH": f"{tmp_path / 'path'}{os.pathsep}{os.environ['PATH']}"},
    )
    (first,) = judge(task("affine"), [candidate(TERM)], tier="smoke", config=PATIENT)
    assert first.status is Status.OK and first.stages_s["build"] > first.stages_s["compile"], first
    (again,) = judge(task("affine"), [candidate(TERM)], tier="smoke", config=PATIENT)
    assert again.stages_s["build"] < 2 and again.status is first.status is Status.OK, (first, again)


def test_only_extensions_are_compiled_beforehand() -> None:
    plain = environment.runner_environment(
        Candidate(source="import torch\n", backend="cpp"), "cpu", QUICK.limits, QUICK
    )
    assert (plain.build, plain.failed, plain.line, plain.env) == (None, None, None, {})
    triton = environment.runner_environment(
        Candidate(source="import triton\n", backend="triton"), "cpu", QUICK.limits, QUICK
    )
    assert triton.line is None and triton.env == {"TRITON_INTERPRET": "1"}, (
        "the interpreter launches nothing"
    )


def test_a_kept_build_lies_in_the_next_process_s_folder(dvk_home: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made" / "py" / "provided"
        made.mkdir(parents=True)
        (made / "provided.so").write_bytes(b"library")
        assert (
            extension.keep("key", made.parent.parent)
            and extension.kept("key")
            and not extension.kept("other")
        )
        given = environment.RunnerEnvironment(build="key")
        given.furnish(folder)
        assert (
            Path(folder) / "torch_extensions" / "py" / "provided" / "provided.so"
        ).read_bytes() == b"library"
    assert resources.home() == dvk_home


def raised(error: BaseException, within: BaseException | None = None) -> BaseException:
    error.__cause__ = within
    return error


NVCC = """Error building extension 'd': [1/2] nvcc -c cuda.cu
cuda.cu(7): error: identifier "z" is undefined

1 error detected
ninja: stopped"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RuntimeError('Kernel compilation failed:\nkernel.cu(3): error: expected a ";"\n'),
            'kernel.cu(3): error: expected a ";"',
        ),
        (RuntimeError("NVRTC failed: k.cu(1): error: bad\n"), "k.cu(1): error: bad"),
        (RuntimeError(NVCC), 'cuda.cu(7): error: identifier "z" is undefined'),
        (
            raised(ValueError("forward failed"), RuntimeError(NVCC)),
            'cuda.cu(7): error: identifier "z" is undefined',
        ),
        (
            CompileError("k.cu(2): error: what", "k.cu(2): error: what\nmore"),
            "k.cu(2): error: what",
        ),
        (
            subprocess.CalledProcessError(
                1, ["g++"], stderr=b"a.cpp:4:2: error: 'q' was not declared\n"
            ),
            "'q' was not declared",
        ),
    ],
)
def test_the_first_compiler_error_is_reported(error: BaseException, said: str) -> None:
    assert said in (compiler_says(error) or "")
    assert failure(error)["status"] == "compile_error" and failure(error)["stage"] == "compile"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access"),
        ValueError("compile it"),
        KeyboardInterrupt(),
    ],
)
def test_what_runs_and_fails_is_no_compile_error(error: BaseException) -> None:
    assert compiler_says(error) is None and failure(error)["status"] == "launch_error"
