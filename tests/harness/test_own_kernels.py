"""Own computation under --require-kernels: calls of a plan, and candidates that compute only when they are checked."""

from __future__ import annotations

from typing import Any

import pytest

from dvk.harness import judge
from dvk.harness.provenance.own_kernels import KernelProvenance
from dvk.harness.supervision.runner_client import CandidateFailed
from dvk.records import Candidate, Status
from tests.harness.conftest import QUICK, candidate, task

UNWATCHED = """
import sys
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        import torch
        frames = sys._getframe()
        while frames and "order" not in frames.f_locals:
            frames = frames.f_back
        if frames and frames.f_locals["order"].get("bare"):
            return own(x)
        return torch.relu(x) * 2 + 1
"""


def planned(*operators: str) -> None:
    unused: Any = None
    KernelProvenance(unused, unused, "", unused, False).prove_plan(operators)


def test_a_plan_of_kernels_copies_and_views_is_its_own() -> None:
    planned()
    planned(
        "aten.empty_like.default", "aten.view.default", "aten.clone.default", "aten.copy_.default"
    )


@pytest.mark.parametrize("name", ["aten.mm.default", "aten.mul.Tensor", "aten.relu_.default"])
def test_a_plan_that_calls_what_computes_is_not(name: str) -> None:
    with pytest.raises(CandidateFailed, match=name) as refused:
        planned("aten.empty.memory_format", name)
    assert refused.value.status is Status.REJECTED


@pytest.mark.slow
def test_who_computes_by_himself_only_when_looked_at_is_refused() -> None:
    kernel = candidate("good/cpp_affine").source
    watched = kernel.replace("class ModelNew", "class Own")
    source = watched + UNWATCHED.replace("own(x)", "Own()(x)")
    honest, unwatched = judge(
        task("affine"),
        [Candidate(source=s, backend="cpp") for s in (kernel, source)],
        config=QUICK,
        require_kernels=True,
    )
    assert honest.status is Status.OK, honest.error
    assert unwatched.status is Status.REJECTED and unwatched.stage == "time", unwatched.error
