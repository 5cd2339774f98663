"""Drop-ins and compilers: two processes at once, none there, options, strict mode, no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from dvk.composer import Plan, applicable, compose
from dvk.composer.capture.export import trace_module
from dvk.records import Task
from tests.composer.dropins import Counting
from tests.composer.programs import Function, differences, run_source


def test_a_drop_in_for_gpus_computes_the_original_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = "import torch\n\n\ndef f(x, y):\n    return (x + y).softmax(1)\n"
    args = torch.randn(4, 8), torch.randn(4, 8)
    captured = trace_module(Function(run_source(source).f), list(args), ["x", "y"])
    task = Task(id="test", name="test", source=source, entry="f", kind="function", device="cuda")
    made = run_source(
        compose(task, captured, Plan(applicable(captured.graph, "cuda", "cuda")), "cuda").source
    )

    def absent() -> int:
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(torch.cuda, "current_device", absent)
    assert torch.equal(made.ModelNew()(*args), made.f(*args))


CHILD = """
import sys, torch, best
model = best.ModelNew().eval()
x = torch.arange(32.).view(4, 8) / 32
with torch.no_grad():
    got, want = model(x), best.Model.forward(model, x)
assert "dvk" not in sys.modules
print(model._dvk_ready, torch.allclose(got, want, atol=1e-5))
"""


@pytest.mark.slow
def test_two_processes_may_compile_the_same_source_at_once(block: Counting, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (tmp_path / "best.py").write_text(block.candidate.source, encoding="utf-8")
    env = {**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, "DVK_CACHE": str(cache)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD],
            cwd=tmp_path,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for process in running:
        out, error = process.communicate(timeout=120)
        assert out.split() == ["True", "True"], error
    assert len(list((cache / "cpp").iterdir())) == 1


@torch.no_grad()
@pytest.mark.parametrize(
    "name,value,said",
    [
        ("PATH", "", r"no C\+\+ compiler found"),
        ("CXX", "/no/such/compiler", "running the original"),
        ("CXX", "false", r"the C\+\+ compiler failed"),
        ("CXX", "g++ --no-such-option", "compiler failed"),
    ],
)
def test_without_a_compiler_it_warns_once_and_computes_the_original(
    block: Counting,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    said: str,
) -> None:
    monkeypatch.setenv("DVK_CACHE", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv(name, value)
    fresh = run_source(block.candidate.source).ModelNew().eval()
    fresh.load_state_dict(block.reference.state_dict())
    x = torch.randn(4, 8)
    with pytest.warns(UserWarning, match=said):
        got = fresh(x)
    assert differences(got, block.reference(x)) == [] and fresh._dvk_ready is False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fresh(x)


@torch.no_grad()
def test_a_compiler_with_options_works(
    block: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVK_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", "g++ -O1")
    fresh = run_source(block.candidate.source).ModelNew().eval()
    fresh(torch.randn(4, 8))
    assert fresh._dvk_ready is True


@torch.no_grad()
def test_strict_mode_raises_when_the_compiler_fails(
    block: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("DVK_CACHE", str(tmp_path)), ("CXX", "false"), ("DVK_STRICT", "1")):
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match="compiler failed"):
        run_source(block.candidate.source).ModelNew().eval()(torch.randn(4, 8))
