"""C++ candidates under sanitizers, in the sandbox: errors are reported by file and line, right candidates run clean."""

from __future__ import annotations

import inspect
import types
from pathlib import Path

import pytest
import torch

from dvk.composer import Plan, applicable, compose
from dvk.composer.capture.export import trace_module
from dvk.config import Limits
from dvk.records import Task
from dvk.sandbox import Death, Message, SandboxSession
from tests.harness.conftest import FILES
from tests.harness.cpp_sanitize import report, sanitizer_env
from tests.tasks.shrink import TASKS, shrink

AFFINE = (FILES / "good" / "cpp_affine.py").read_text()
LIMITS = Limits(wall_s=120, memory_bytes=4 << 30, num_processes=100)

# First, last and only element beyond the buffer; a shift by the width of the type.
WRONG = {
    "read past the end": (("i < n", "i < n + 1"), "heap-buffer-overflow"),
    "write before the start": (("y[i] = ", "y[i - 1] = "), "heap-buffer-overflow, write of size 4"),
    "shift": (("* 2 + 1;", "* 2 + (float)(1 << (32 + (int)(n & 1)));"), "shift exponent"),
    "signed overflow": (
        ("* 2 + 1;", "* 2 + (float)((int)n + 2147483647);"),
        "signed integer overflow",
    ),
}


def judged(source: str, env: dict[str, str]) -> tuple[Message | Death, str]:
    with SandboxSession("tests.harness.sanitizer_child:run", LIMITS, env=env) as session:
        session.send({"source": source})
        answer = session.receive(100)
        return answer, session.log() if isinstance(answer, Message) else answer.log


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return sanitizer_env(tmp_path_factory.mktemp("sanitizers"))


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_problems_are_reported_by_line(env: dict[str, str], name: str) -> None:
    (old, new), said = WRONG[name]
    source = AFFINE.replace(old, new)
    assert source != AFFINE
    answer, log = judged(source, env)
    assert isinstance(answer, Death)
    found = report(log)
    assert found is not None and "k.cpp:4" in found and said in found, log[-3000:]


@pytest.mark.slow
def test_what_is_right_runs_clean(env: dict[str, str]) -> None:
    answer, log = judged(AFFINE, env)
    assert isinstance(answer, Message) and report(log) is None
    torch.manual_seed(0)
    assert answer.value["sum"] == pytest.approx(
        float((torch.relu(torch.randn(64, 33)) * 2 + 1).double().sum()), rel=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["geglu", "chain_masked_softmax_fp16"])
def test_a_composed_candidate_runs_clean(env: dict[str, str], name: str, tmp_path: Path) -> None:
    source = shrink(next(TASKS.rglob(f"{name}.py")).read_text())
    reference = types.ModuleType("reference")
    exec(compile(source, name, "exec"), reference.__dict__)
    args, model = reference.get_inputs(), reference.Model(*reference.get_init_inputs())
    captured = trace_module(
        model, args, list(inspect.signature(model.forward).parameters)[: len(args)]
    )
    task = Task(id="t", name=name, source=source, entry="Model", kind="module")
    candidate = compose(
        task, captured, Plan(tuple(applicable(captured.graph, "cpu", "cpp"))), "cpp"
    )
    answer, log = judged(candidate.source, {**env, "DVK_CACHE": str(tmp_path), "DVK_STRICT": "1"})
    assert isinstance(answer, Message), log[-3000:]
    assert report(log) is None and list((tmp_path / "cpp").glob("*.so"))


def test_reports_are_read_from_logs() -> None:
    assert report("") is None and report("all is well\nruntime error is a phrase") is None
    log = "noise\n/tmp/k.cpp:4:83: runtime error: shift exponent 32 is too large for 32-bit type 'int'\n    #0 0x7f in f /tmp/k.cpp:4\n"
    assert report(log) == "/tmp/k.cpp:4:83: shift exponent 32 is too large for 32-bit type 'int'"
    address = "==7==ERROR: AddressSanitizer: stack-buffer-overflow on address 0x1\nREAD of size 8 at 0x1 thread T0\n"
    address += "    #0 0x7f in f(int) /k.cpp:9:3\n"
    assert report(address) == "/k.cpp:9:3: in f(int): stack-buffer-overflow, read of size 8"
    assert report(log + address) == report(log) and report(address + log) == report(address)
