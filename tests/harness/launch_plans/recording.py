"""Record small candidates for an H100 that is not there, and run plans of operators on the CPU."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn

from dvk.harness.launch_plans.calls import (
    CallSpec,
    GpuProperties,
    Layout,
    describe_call,
    describe_state,
)
from dvk.harness.launch_plans.plan import LaunchPlan, LaunchRecording, decode
from dvk.harness.launch_plans.record import record
from dvk.records import Task
from dvk.tasks.sourcefile import execute

H100 = GpuProperties(
    capability=(9, 0),
    max_shared_bytes=232448,
    properties={
        "name": "NVIDIA H100",
        "multi_processor_count": 132,
        "total_memory": 80 << 30,
        "major": 9,
        "minor": 0,
    },
)

REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64))

    def forward(self, x):
        return x * self.weight

def get_inputs():
    return [torch.randn(8, 64)]
"""

HEADER = """
import torch
import triton
import triton.language as tl
from torch import nn
"""

KERNEL = (
    HEADER
    + """
@triton.jit
def scale(x, w, y, n, width, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n) * tl.load(w + at % width, at < n) * factor
    tl.store(y + at, value, at < n)
"""
)

MODULE = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64))

    def forward(self, x):
"""

LAUNCH = """
        y = torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
        scale[grid](x, self.weight, y, x.numel(), 64, 1.0, BLOCK=256)
        return y
"""


def task(source: str = REFERENCE) -> Task:
    """A task on the GPU, made without examining it."""
    return Task(id="t", name="t", source=source, entry="Model", kind="module", device="cuda")


def on_gpu(layout: Layout) -> Layout:
    """The layout of the same tensor there."""
    return layout.model_copy(update={"device": "cuda"})


def reference(source: str = REFERENCE) -> nn.Module:
    """The task's module, on the CPU."""
    torch.manual_seed(0)
    made: nn.Module = execute(source).Model()
    return made


def call_of(*args: Any, variant: str = "native") -> CallSpec:
    """A call's specification as it would be on the GPU."""
    spec = describe_call(variant, list(args), {})
    return spec.model_copy(update={"tensors": tuple(on_gpu(layout) for layout in spec.tensors)})


def recorded(
    candidate: str, *args: Any, source: str = REFERENCE, calls: list[CallSpec] | None = None
) -> LaunchRecording:
    """Record, and take the way over the wire."""
    args = args or (torch.zeros(8, 64),)
    state = {name: on_gpu(layout) for name, layout in describe_state(reference(source)).items()}
    made = record(candidate, task(source), calls or [call_of(*args)], state, H100)
    return decode(json.loads(json.dumps(made.wire())))


def plan_of(candidate: str, *args: Any, source: str = REFERENCE) -> LaunchPlan:
    """The only plan of a recording."""
    (plan,) = recorded(candidate, *args, source=source).plans
    return plan


def steps(plan: LaunchPlan) -> list[str]:
    """A call's nodes: operators by name, kernels with a star."""
    return [node.op.split(".")[1] if node.kind == "aten" else f"*{node.name}" for node in plan.call]
