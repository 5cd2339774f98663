"""Every candidate that the composer makes for a shipped task can be recorded, with and without its CUDA graph."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from dvk import cuda_toolkit
from dvk.composer import applicable
from dvk.composer.capture.export import trace_module
from dvk.composer.compose import Plan, compose
from dvk.composer.runtime import facts
from dvk.harness.launch_plans.calls import describe_state
from dvk.harness.launch_plans.fake_gpu import absent_gpu
from dvk.harness.launch_plans.plan import KernelLaunch
from dvk.harness.launch_plans.record import record
from dvk.harness.launch_plans.tape import Refusals, Tape
from dvk.records import Task
from dvk.tasks.build import build
from dvk.tasks.sourcefile import execute
from tests.harness.launch_plans.recording import H100, call_of, on_gpu
from tests.tasks.shrink import shipped, shrink

pytest.importorskip("triton")

FILES = {path.stem: path for path in shipped()}
QUICK = ["pair_linear_gelu", "chain_conv_bn_add_relu", "rotary_embedding", "quantize_dequantize"]


def facts_on_gpu(
    source: str,
    init: list,
    training: bool,
    wanted: dict[str, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, dict[str, str]]:
    """What the module's facts are on the fake GPU."""
    monkeypatch.setattr(facts, "dvk_tensors", (torch.Tensor, FakeTensor))
    with (
        absent_gpu(H100, Tape(Refusals())),
        FakeTensorMode(allow_non_fake_inputs=True),
        torch.device("cuda"),
    ):
        found: dict[str, dict[str, str]] = {}
        model = execute(source).Model(*init).train(training)
        for path, name, text in facts.dvk_facts(model, wanted):
            found.setdefault(path, {})[name] = text
        return found


def launches(
    path: Path,
    graph: bool,
    monkeypatch: pytest.MonkeyPatch,
    backend: Literal["triton", "cuda"] = "triton",
) -> list[KernelLaunch]:
    """Kernels that one call of the task's drop-in launches."""
    source = shrink(path.read_text())
    task = Task(id="t", name=path.stem, source=source, entry="Model", kind="module")
    built = build(task)
    args, _ = built.inputs(0)
    captured = trace_module(built.model, args, built.input_names(args))
    init = built.init()[0]
    captured = captured.model_copy(
        update={
            "facts": facts_on_gpu(source, init, built.model.training, captured.facts, monkeypatch)
        }
    )
    task = task.model_copy(update={"device": "cuda"})
    tried = ("channels_last", "inplace_epilogue", *(() if graph else ("cuda_graph",)))
    recipes = tuple(r for r in applicable(captured.graph, "cuda", backend) if r not in tried)
    assert ("cuda_graph" in recipes) is graph
    candidate = compose(task, captured, Plan(recipes), backend)
    state = {name: on_gpu(layout) for name, layout in describe_state(built.model).items()}
    (plan,) = record(candidate.source, task, [call_of(*args)], state, H100).plans
    return [node for node in plan.call if isinstance(node, KernelLaunch)]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in FILES]
)
@pytest.mark.slow
def test_shipped_task(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert launches(FILES[name], False, monkeypatch)


@pytest.mark.slow
def test_a_candidate_with_a_cuda_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = launches(FILES["pair_linear_gelu"], False, monkeypatch)
    assert [n.cubin for n in launches(FILES["pair_linear_gelu"], True, monkeypatch)] == [
        n.cubin for n in plain
    ]


@pytest.mark.skipif(cuda_toolkit.nvrtc() is None, reason="needs NVRTC")
@pytest.mark.parametrize("name", ["pair_linear_gelu", "single_softmax_vocabulary"])
def test_in_cuda(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert launches(FILES[name], False, monkeypatch, "cuda")
