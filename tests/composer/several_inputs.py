"""Drop-ins for several sets of inputs."""

from __future__ import annotations

from typing import Any

from torch import nn

from dvk.composer import Part, Plan, fuse, join
from dvk.composer.capture.export import trace_module
from dvk.records import BackendName, Candidate, Task
from tests.composer.dropins import module_text
from tests.composer.programs import run_source, usual

FOLDED = module_text(
    "return torch.relu(self.norm(self.conv(x))) * self.gain",
    init="self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)\nself.gain = nn.Parameter(torch.rand(4, 1, 1))",
)


def parts(
    source: str, model: nn.Module, calls: list[tuple[Any, ...]], names: tuple[str, ...]
) -> list[Part]:
    task = Task(id="test", name="test", source=source, entry="Model", kind="module")
    found = []
    for args in calls:
        captured = trace_module(model, list(args), list(names[: len(args)]))
        plan = Plan(usual(captured.graph))
        found.append(Part(task, captured, fuse(task, captured, plan.recipes), plan))
    return found


def joined(
    source: str,
    calls: list[tuple[Any, ...]],
    names: tuple[str, ...] = ("x", "skip"),
    backend: BackendName = "cpp",
) -> tuple[nn.Module, Candidate]:
    model = run_source(source).Model().eval()
    return model, join(parts(source, model, calls, names), backend)
