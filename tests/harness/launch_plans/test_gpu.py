"""Plans on a GPU: recorded in a process that has none, replayed here, compared with what the modules compute."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from dvk import machine
from dvk.composer import applicable
from dvk.composer.capture.export import trace_module
from dvk.composer.compose import Plan, compose
from dvk.harness.launch_plans.calls import GpuProperties, describe_call, describe_state
from dvk.harness.launch_plans.plan import LaunchPlanError, LaunchRecording, PlanMismatch, decode
from dvk.harness.launch_plans.replay import Replay
from dvk.tasks.build import build
from tests.harness.launch_plans.recording import HEADER, KERNEL, LAUNCH, MODULE, REFERENCE, task
from tests.tasks.shrink import shipped, shrink

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not machine.gpu_names(), reason="needs an NVIDIA GPU"),
]

FILES = {path.stem: path for path in shipped()}
COMPOSED = [
    "pair_linear_gelu",
    "chain_conv_bn_add_relu",
    "chain_add_rms_norm_bf16",
    "rotary_embedding",
    "single_softmax_vocabulary",
]
CONFIGS = '[triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((32, 1), (256, 4), (1024, 8))]'
NUMBERS = (
    HEADER
    + """
@triton.jit
def put(y, a, b, c, d: tl.float64, e: tl.float16, f: tl.bfloat16, g: tl.int8, h: tl.uint64, flag):
    tl.store(y + 0, a.to(tl.float64))
    tl.store(y + 1, b.to(tl.float64))
    tl.store(y + 2, c.to(tl.float64))
    tl.store(y + 3, d)
    tl.store(y + 4, e.to(tl.float64))
    tl.store(y + 5, f.to(tl.float64))
    tl.store(y + 6, g.to(tl.float64))
    tl.store(y + 7, h.to(tl.float64))
    tl.store(y + 8, flag.to(tl.float64))

"""
    + MODULE
    + """
        y = torch.empty(9, device=x.device, dtype=torch.float64)
        put[(1,)](y, 7, 2**40, 1.5, 0.1, 0.3, 0.3, -5, 2**63 + 2**40, True)
        return y
"""
)


class Case:
    """A candidate, the module it stands in for, and its inputs."""

    def __init__(self, source: str, model: nn.Module, args: list[Any], task_: Any):
        self.source, self.model, self.args, self.task = source, model, args, task_
        self.recording: LaunchRecording | None = None

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [a for a in self.args if isinstance(a, torch.Tensor)]

    def replay(self) -> Replay:
        assert self.recording is not None
        made = Replay(self.recording, self.recording.plans[0])
        made.load(self.model.state_dict())
        return made


def composed(name: str) -> Case:
    made = task(shrink(FILES[name].read_text()))
    built = build(made)
    args, _ = built.inputs(0)
    captured = trace_module(built.model, args, built.input_names(args))
    recipes = tuple(
        r
        for r in applicable(captured.graph, "cuda", "triton")
        if r not in ("channels_last", "cuda_graph")
    )
    return Case(compose(made, captured, Plan(recipes), "triton").source, built.model, args, made)


def written(source: str) -> Case:
    built = build(task(REFERENCE))
    return Case(source, built.model, [torch.randn(4096, 64, device="cuda")], task(REFERENCE))


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    """All candidates, recorded by one child that sees no GPU."""
    tuned = KERNEL.replace(
        "@triton.jit", f'@triton.autotune(configs={CONFIGS}, key=["n"])\n@triton.jit'
    )
    found = {name: composed(name) for name in COMPOSED}
    found["launch"] = written(KERNEL + MODULE + LAUNCH)
    found["autotuned"] = written(tuned + MODULE + LAUNCH.replace(", BLOCK=256", ""))
    found["numbers"] = written(NUMBERS)
    gpu = GpuProperties.of_device(0).model_dump(mode="json")
    requests = [
        {
            "source": case.source,
            "task": case.task.model_dump(mode="json"),
            "gpu": gpu,
            "calls": [describe_call("native", case.args, {}).model_dump(mode="json")],
            "state": {
                name: layout.model_dump(mode="json")
                for name, layout in describe_state(case.model).items()
            },
        }
        for case in found.values()
    ]
    child = subprocess.run(
        [sys.executable, "-m", "tests.harness.launch_plans.recorder"],
        input=json.dumps(requests),
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert child.returncode == 0, child.stderr[-4000:]
    answer = json.loads(child.stdout)
    assert answer["devices"] == [], "the recorder opened a GPU"
    for case, wire in zip(found.values(), answer["recordings"], strict=True):
        case.recording = decode(wire)
    return found


def close(got: Any, want: Any, bound: float) -> None:
    got, want = [[v] if isinstance(v, torch.Tensor) else list(v) for v in (got, want)]
    for mine, theirs in zip(got, want, strict=True):
        assert (mine.shape, mine.dtype, mine.stride()) == (
            theirs.shape,
            theirs.dtype,
            theirs.stride(),
        )
        error = (mine.double() - theirs.double()).norm() / theirs.double().norm()
        assert error <= bound


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_candidates_compute_what_the_module_does(cases, name):
    case = cases[name]
    made = case.replay()
    model = copy.deepcopy(case.model)
    bound = 2e-2 if case.tensors[0].dtype is torch.bfloat16 else 1e-3  # convolutions are TF32
    with torch.no_grad():
        close(made.result(made.run(case.tensors, poison=float("nan"))), model(*case.args), bound)
        graph = made.capture(case.tensors)
        for tensor in case.tensors:
            tensor.copy_(torch.randn_like(tensor) if tensor.is_floating_point() else tensor)
        weights = {
            k: v * 1.5 if v.is_floating_point() else v for k, v in model.state_dict().items()
        }
        model.load_state_dict(weights)
        made.load(weights)
        graph.replay()
        torch.cuda.synchronize()
        close(made.result(graph.outputs), model(*case.args), bound)
    assert made.kernels and made.compiled[made.kernels[0]]["registers"] > 0


def test_a_graph_reads_fresh_inputs(cases):
    case = cases["launch"]
    made = case.replay()
    graph = made.capture(case.tensors)
    for _ in range(3):
        case.tensors[0].normal_()
        for tensor in graph.scratch:
            tensor.fill_(255)
        graph.replay()
        assert torch.equal(graph.outputs[0], case.tensors[0] * case.model.weight)


def test_the_choice_of_autotuned_kernels_is_made_here(cases):
    case = cases["autotuned"]
    made = case.replay()
    assert made.tune(case.tensors) in [{"scale": n} for n in range(3)]
    for choice in (made.plan.call[-1], *made.plan.call[-1].options):
        made._chosen[id(made.plan.call[-1])] = choice
        assert torch.equal(
            made.run(case.tensors, poison=float("nan"))[0], case.tensors[0] * case.model.weight
        )


def test_numbers_of_every_type_arrive(cases):
    made = cases["numbers"].replay()
    half, brain = (torch.tensor(0.3, dtype=d).item() for d in (torch.float16, torch.bfloat16))
    want = [7, 2.0**40, 1.5, 0.1, half, brain, -5, 2.0**63 + 2.0**40, 1]
    assert made.run(cases["numbers"].tensors)[0].tolist() == want


def changed(case: Case, change: Any) -> LaunchRecording:
    assert case.recording is not None
    wire = case.recording.wire()
    change(next(node for node in wire["plans"][0]["call"] if node["kind"] == "launch"))
    return decode(wire)


@pytest.mark.parametrize(
    "change",
    [
        lambda launch: launch.update(args=launch["args"][:-1]),
        lambda launch: launch.update(args=[*launch["args"], {"type": "i32", "value": 1}] * 2),
        lambda launch: launch["args"].insert(0, launch["args"].pop()),
        lambda launch: launch.update(name="no_such_kernel"),
        lambda launch: launch.update(grid=[1, 1 << 20, 1]),
        lambda launch: launch.update(grid=[0, 1, 1]),
        lambda launch: launch.update(block=[2048, 1, 1]),
        lambda launch: launch.update(block=[1024, 2, 1]),
        lambda launch: launch.update(shared_bytes=1 << 20),
        lambda launch: launch["args"][3].update(value="many"),
    ],
)
def test_launches_that_do_not_fit_the_kernel_are_refused(cases, change):
    case = cases["launch"]
    recording = changed(case, change)
    with pytest.raises((LaunchPlanError, ValueError)):
        made = Replay(recording, recording.plans[0])
        made.load(case.model.state_dict())
        made.run(case.tensors)


def test_memory_of_another_alignment_is_noticed(cases):
    case = cases["launch"]
    shifted = torch.empty(4096 * 64 + 1, device="cuda")[1:].view(4096, 64)
    with pytest.raises(PlanMismatch, match="alignment"):
        case.replay().run([shifted])


def test_plans_for_another_gpu_are_refused(cases):
    case = cases["launch"]
    wire = case.recording.wire()
    wire["plans"][0]["arch"] += 10
    recording = decode(wire)
    with pytest.raises(LaunchPlanError, match="compiled for"):
        Replay(recording, recording.plans[0])
