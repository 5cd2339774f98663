"""A realistic search to show: an MLP head on a CPU, thirty candidates, the usual failures, one confirmed winner."""

from __future__ import annotations

import random
from typing import Any

from dvk.records import (
    Candidate,
    Episode,
    Graph,
    Interval,
    Node,
    Skill,
    Status,
    Task,
    TensorSpec,
    Timing,
    Trace,
    Turn,
    Verdict,
)

ORIGINAL = '''"""The head of a classifier: linear, bias, GELU, scale and a softmax over the classes."""

import torch
from torch import nn


class Model(nn.Module):
    """x @ W + b, activated, scaled, normalised."""

    def __init__(self, width: int = 1024, num_classes: int = 4096):
        super().__init__()
        self.linear = nn.Linear(width, num_classes)
        self.scale = 0.125  # 1 / sqrt(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.gelu(self.linear(x), approximate="tanh")
        return torch.softmax(y * self.scale, dim=-1)


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []
'''

BEST = (
    '''"""A faster drop-in for Model, made by dvk."""

import ctypes

import torch
from torch import nn

SOURCE = r"""
#include <cmath>
#include <cstdint>

// one row a step: GELU, scale, online softmax
extern "C" void rowwise0(const float* __restrict x, float* __restrict y, int64_t rows) {
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    float top = -INFINITY, sum = 0.0f;
    for (int64_t c = 0; c < 4096; ++c) {
      const float v = 0.125f * gelu(x[r * 4096 + c]);
      y[r * 4096 + c] = v;
    }
  }
}
"""


class ModelNew(nn.Module):
    """Same constructor and state_dict as Model."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not fits(x):
            return self.original(x)
        return run(x, self.linear.weight)


# ---- the original, for everything the kernel was not made for
'''
    + ORIGINAL
)

TASK = Task(
    id="3f2a91c07be4d655",
    name="mlp_head",
    path="mlp_head.py",
    source=ORIGINAL,
    entry="Model",
    kind="module",
    inputs=(TensorSpec(name="x", dtype="float32", shape=(512, 1024), strides=(1024, 1)),),
    num_shape_variants=3,
)


def _value(
    name: str, op: str, args: tuple[Any, ...], shape: tuple[int, ...], target: str | None = None
) -> Node:
    strides = tuple(shape[i + 1] if i + 1 < len(shape) else 1 for i in range(len(shape)))
    return Node(
        name=name, op=op, args=args, shape=shape, dtype="float32", strides=strides, target=target
    )


def ref(name: str) -> dict[str, str]:
    return {"ref": name}


GRAPH = Graph(
    nodes=(
        _value("x0", "input", (), (512, 1024), "x"),
        _value("p0", "param", (), (4096, 1024), "linear.weight"),
        _value("p1", "param", (), (4096,), "linear.bias"),
        Node(
            name="v0",
            op="aten.t.default",
            args=(ref("p0"),),
            shape=(1024, 4096),
            dtype="float32",
            strides=(1, 1024),
        ),
        _value("v1", "aten.addmm.default", (ref("p1"), ref("x0"), ref("v0")), (512, 4096)),
        _value("v2", "aten.gelu.default", (ref("v1"),), (512, 4096)),
        _value("v3", "aten.mul.Tensor", (ref("v2"), 0.125), (512, 4096)),
        _value("v4", "aten._softmax.default", (ref("v3"), -1, False), (512, 4096)),
    ),
    outputs=ref("v4"),
)

SKILLS = {
    skill.name: skill
    for skill in (
        Skill(
            name="online_softmax",
            recipe="online_softmax",
            body="# Online softmax",
            description="Softmax in two passes instead of three; pays when a row leaves the cache.",
        ),
        Skill(
            name="fuse_linear_epilogue",
            recipe="fuse_epilogue",
            body="# Epilogue",
            description="Activation and scale in the pass that follows a matmul.",
        ),
    )
}


def timing(value: float, spread: float = 0.03, pairs: int = 30) -> Timing:
    interval = Interval(value=value, lo=value * (1 - spread), hi=value * (1 + spread))
    return Timing(
        candidate_ms=4.2 / value, reference_ms=4.2, speedup=interval, num_pairs=pairs, seconds=0.4
    )


def candidate(number: int, **fields: Any) -> Candidate:
    given = {
        "source": f"# candidate {number}\nclass ModelNew: ...\n",
        "backend": "cpp",
        "proposer": "composer",
        "title": f"candidate {number}",
    }
    return Candidate(**(given | fields))


def ok(value: float, *, spread: float = 0.03, tier: str = "search", pairs: int = 30) -> Verdict:
    return Verdict(
        status=Status.OK,
        tier=tier,
        stage="done",
        precision="fp32",
        tolerance=1e-4,
        worst_error=2.1e-7,
        num_checks=9,
        shapes=("512×1024", "1×1024", "509×1024"),
        timing=timing(value, spread, pairs),
        machine="EPYC 9354, 2 cores, torch 2.13.0",
    )


def bad(status: Status, error: str) -> Verdict:
    stage = {
        Status.COMPILE_ERROR: "compile",
        Status.MISMATCH: "check",
        Status.TIMEOUT: "check",
    }.get(status, "static")
    return Verdict(status=status, tier="search", stage=stage, error=error)


def episode(turns: list[Turn], task: Task = TASK) -> Episode:
    return Episode(
        task=task, traces=(Trace(role="policy", skills=tuple(SKILLS), turns=tuple(turns)),)
    )


def turns(count: int = 30) -> list[Turn]:
    """A search that rises to 2.35× and is confirmed at 2.31×."""
    random.seed(3)
    made, at = [], 0.0
    ideas = [
        ("pointwise fused", ("fuse_pointwise",)),
        ("epilogue fused into the linear", ("fuse_epilogue",)),
        ("epilogue and softmax in one row kernel", ("fuse_epilogue", "fuse_rowwise")),
        ("online softmax, row kernel", ("fuse_epilogue", "fuse_rowwise", "online_softmax")),
    ]
    for number in range(1, count + 1):
        at += random.uniform(0.6, 2.4)
        title, recipes = ideas[min(3, (number - 1) * 5 // count)]
        width, unroll = random.choice((4, 8, 16)), random.choice((1, 2, 4))
        made_by = candidate(
            number,
            title=f"{title}, vector width {width}",
            recipes=recipes,
            schedule={"rowwise0": {"vector": width, "unroll": unroll, "parallel": "rows"}},
        )
        speedup = (0.86 + 1.45 * (number / count) ** 0.7) * random.uniform(0.78, 1.06)
        verdict = ok(round(speedup, 3), spread=random.uniform(0.01, 0.06))
        if number == 7:
            verdict = bad(
                Status.COMPILE_ERROR,
                "g++: error: ‘gelu_tanh’ was not declared in this scope\n  12 | …",
            )
        if number in (11, 19):
            verdict = bad(
                Status.MISMATCH,
                "output 0: error 3.1e-2 of scale at [17, 4001], tolerance 1e-4\nseed 1",
            )
        if number == 23:
            verdict = bad(Status.TIMEOUT, "no answer within 60 s while checking")
        made.append(Turn(candidate=made_by, verdict=verdict, elapsed_s=at))
    best = candidate(
        0,
        source=BEST,
        title="online softmax, row kernel, vector width 16",
        skills=tuple(SKILLS),
        recipes=("fuse_epilogue", "fuse_rowwise", "online_softmax"),
        schedule={
            "rowwise0": {"vector": 16, "unroll": 2, "parallel": "rows"},
            "linear": {"keep": "aten"},
        },
    )
    made.append(Turn(candidate=best, verdict=ok(2.35), elapsed_s=at + 1.1))
    made.append(
        Turn(
            candidate=best,
            verdict=ok(2.31, spread=0.013, tier="claim", pairs=200),
            elapsed_s=at + 6.4,
        )
    )
    return made


SUMMARY: dict[str, Any] = {
    "status": "faster",
    "speedup": 2.31,
    "speedup_lo": 2.28,
    "speedup_hi": 2.34,
    "baselines": {
        "eager": {"ms": 4.2, "speedup": 2.31, "lo": 2.28, "hi": 2.34},
        "compile": {"ms": 3.05, "speedup": 1.67, "lo": 1.64, "hi": 1.71},
    },
    "best": "runs/optimize-mlp_head/best.py",
    "run": "runs/optimize-mlp_head",
    "seconds": 58.2,
    "num_candidates": 31,
    "reason": None,
    "profile": [
        {"name": "aten::addmm", "share": 0.46, "ms": 1.93},
        {"name": "aten::_softmax", "share": 0.31, "ms": 1.3},
        {"name": "aten::gelu", "share": 0.17, "ms": 0.71},
        {"name": "aten::mul", "share": 0.06, "ms": 0.25},
    ],
    "groups": ["linear: addmm (PyTorch)", "rowwise0: gelu + mul + _softmax"],
}
