"""Runs of `dvk optimize` that found a winner, written without a search: the composer's drop-in, a verdict as the judge gives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dvk.composer import Part, Plan, applicable_to, fuse, join
from dvk.composer.capture.export import trace_module
from dvk.composer.capture.joint import with_backward
from dvk.composer.recipes import OWN_FAMILIES
from dvk.records import (
    BackendName,
    Candidate,
    Claim,
    Interval,
    Status,
    Task,
    TensorSpec,
    Timing,
    Turn,
    Verdict,
)
from dvk.tasks.trees import map_tensors
from tests.composer.programs import run_source, usual

NORM = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def get_inputs():
    return [torch.randn(6, 32)]


def get_init_inputs():
    return [32]
"""

NESTED = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Parameter(torch.rand(width))

    def forward(self, x, y):
        z = F.gelu(self.norm(x)) * self.scale
        return z + y, z


def get_inputs():
    return [torch.randn(4, 5, 24), torch.randn(4, 5, 24)]


def get_init_inputs():
    return [24]
"""

FUNCTION = """
import torch


def gated(x, scale=0.5):
    a, b = x.chunk(2, -1)
    return torch.nn.functional.silu(a) * b * scale


def get_inputs():
    return [torch.randn(7, 32), 0.5]
"""


def proven_run(
    folder: Path,
    source: str = NORM,
    *,
    entry: str = "Model",
    calls: tuple[tuple[Any, ...], ...] = (),
    backend: BackendName = "cpp",
    line: str = "",
    **task: Any,
) -> Path:
    """A finished run folder whose best.py is `source`, fused.

    Args:
        folder: of the run, made here.
        source: a model file with get_inputs() and, for a module, get_init_inputs().
        entry: the class or function.
        calls: tensors of further sets of inputs, in order.
        backend: of the kernels.
        line: the line of PyTorch that the candidate is.
        task: fields of the task.
    """
    module = run_source(source)
    held = getattr(module, entry)
    is_class = isinstance(held, type)
    device = task.get("device", "cpu")
    model = (held(*module.get_init_inputs()) if is_class else _as_module(held)).to(device)
    names = _names(held.forward if is_class else held)
    every = map_tensors(lambda t: t.to(device), [tuple(module.get_inputs()), *calls])
    tasks, parts = [], []
    for args in every:
        with torch.no_grad():
            result = model(*args)
        outputs = [result] if isinstance(result, torch.Tensor) else list(result)
        one = Task(
            id="test",
            name="test",
            source=source,
            entry=entry,
            kind="module" if is_class else "function",
            inputs=tuple(
                _spec(name, t) for name, t in zip(names, args) if isinstance(t, torch.Tensor)
            ),
            outputs=tuple(_spec(f"output.{n}", t) for n, t in enumerate(outputs)),
            training=True if is_class else None,
            **task,
        )
        captured = trace_module(model, list(args), names[: len(args)])
        plan = Plan(usual(captured.graph, device, backend))
        if one.train:
            captured = with_backward(captured, model, device)
            names_of = applicable_to(captured, device, backend)
            plan = Plan(tuple(name for name in names_of if name not in OWN_FAMILIES))
        tasks.append(one)
        parts.append(Part(one, captured, fuse(one, captured, plan.recipes), plan))
    candidate = join(parts, backend).model_copy(update={"line": line})
    write(folder, tasks, candidate)
    return folder


def write(folder: Path, tasks: list[Task], candidate: Candidate, **changed: Any) -> None:
    """The files of a run that `dvk export` reads."""
    folder.mkdir(parents=True)
    manifest = {
        "command": "optimize",
        "name": "test",
        "status": "done",
        "started": "2026-01-01T00:00:00+00:00",
        "versions": {"dvk": "0.1.0", "torch": torch.__version__},
    }
    (folder / "run.json").write_text(json.dumps(manifest))
    (folder / "task.jsonl").write_text("".join(task.model_dump_json() + "\n" for task in tasks))
    turn = Turn(candidate=candidate, verdict=verdict().model_copy(update=changed))
    (folder / "turns.jsonl").write_text(turn.model_dump_json() + "\n")
    (folder / "best.py").write_text(candidate.source)


def verdict(holds: bool = True) -> Verdict:
    """A verdict of the claim tier."""
    speedup = Interval(value=2.0, lo=1.9, hi=2.1)
    even = Interval(value=1.0, lo=0.99, hi=1.01)
    claim = Claim(
        speedup=speedup, processes=(1.9, 2.0, 2.1), control=even, margin=0.03, holds=holds
    )
    return Verdict(
        status=Status.OK,
        tier="claim",
        stage="done",
        precision="fp32",
        tolerance=1e-3,
        worst_error=1e-7,
        num_checks=12,
        families=("native", "integers", "strays", "nan", "large", "small", "constant_rows"),
        timing=Timing(
            candidate_ms=0.5,
            reference_ms=1.0,
            speedup=speedup,
            num_pairs=100,
            seconds=1.0,
            claim=claim,
        ),
        machine="a test",
    )


def _spec(name: str, tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(
        name=name,
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
    )


def _names(call: Any) -> list[str]:
    code = call.__code__
    return [name for name in code.co_varnames[: code.co_argcount] if name != "self"]


def _as_module(function: Any) -> nn.Module:
    from dvk.tasks.entry import as_module

    return as_module(function)


def outcome(package: Path, **environment: str) -> str:
    """Run a package's own tests in place; what pytest prints."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"],
        cwd=package,
        env={
            **os.environ,
            "PYTHONPATH": str(package),
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout
