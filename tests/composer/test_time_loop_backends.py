"""Loops over time steps stay as they are where no kernel computes them whole: in CUDA, and in one drop-in for a range of sizes."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dvk.composer import CapturedGraph, Part, Plan, compose, fuse
from dvk.composer.capture.batch import capture_many
from dvk.composer.codegen.base import takes_time_loops
from dvk.composer.ir.time_scan import TIME_SCAN
from dvk.config import Config
from dvk.pipelines.optimize import ranges, sets
from dvk.pipelines.optimize.collected import _graph
from dvk.pipelines.optimize.request import OptimizeRequest
from dvk.pipelines.workspace.opening import _subject
from dvk.records import Task
from tests.composer.batch_models import task as of_source

SOURCE = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, z):
        h, outs = torch.zeros_like(x[:, 0]), []
        for t in range(20):
            gate = torch.sigmoid(z[:, t])
            h = gate * h + (1 - gate) * torch.tanh(x[:, t] + h)
            outs.append(h)
        return torch.stack(outs, 1)


def get_inputs():
    return [torch.randn(8, 20, 16), torch.randn(8, 20, 16)]


def get_init_inputs():
    return []
"""
PLAN = Plan(("fuse_pointwise",))


@pytest.fixture(scope="module")
def task() -> Task:
    return of_source(SOURCE, "gates")


def is_rolled(captured: CapturedGraph | None) -> bool:
    assert captured is not None
    return any(node.op == TIME_SCAN for node in captured.graph.nodes)


@pytest.mark.slow
def test_every_step_has_a_kernel_in_cuda(task: Task) -> None:
    assert not takes_time_loops("cuda") and takes_time_loops("triton") and takes_time_loops("cpp")
    captured = _subject(task, Config(), "cuda").captured
    assert captured is not None and not is_rolled(captured)
    on_gpu = task.model_copy(update={"device": "cuda"})
    assert "__global__" in compose(on_gpu, captured, PLAN, "cuda").source


@pytest.mark.slow
def test_trials_of_an_agent(task: Task) -> None:
    assert is_rolled(_graph(task, Config(), "cpp"))
    assert not is_rolled(_graph(task, Config(), "cuda"))


@pytest.mark.slow
def test_each_of_many(task: Task) -> None:
    rolls = [takes_time_loops(name) for name in ("cuda", "triton", "cuda")]
    made = dict(capture_many([task] * 3, rolls=rolls))
    assert [is_rolled(made[n]) for n in range(3)] == rolls  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_range_of_sizes(tmp_path: Path, task: Task) -> None:
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    dynamic = ("x=float32[batch:2..16, 20, 16]", "z=float32[batch, 20, 16]")
    asked = OptimizeRequest(spec=str(path), dynamic=dynamic, device="cpu", out=tmp_path / "run")
    found = ranges.load(asked, Config(), "cpu", "cpp")
    point = found.tasks[0]
    captured = found.sized.captured
    assert not is_rolled(captured)
    assert found.parts(0, Part(point, captured, fuse(point, captured, PLAN.recipes), PLAN))


@pytest.mark.parametrize("span", [None, object()])
def test_the_searches_at_points_of_a_range(monkeypatch: pytest.MonkeyPatch, span: Any) -> None:
    """Plans hold for the graph that they were measured with."""
    seen: list[bool] = []
    session: Any = SimpleNamespace(
        rolls=True, court=nullcontext(), interrupted=False, expected=None, task=None
    )
    session.search = lambda strategy, live: seen.append(session.rolls)
    monkeypatch.setattr(sets, "_live", lambda *_: nullcontext())
    monkeypatch.setattr(sets, "label", str)
    monkeypatch.setattr(sets, "_confirmed", lambda *_: None)
    sets.run([session], None, True, span)  # type: ignore[arg-type]
    assert seen == [span is None]
