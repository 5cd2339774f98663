"""Contexts have one hardware queue, but where a claim is made of code that may work in several streams."""

from __future__ import annotations

import pytest

from dvk.harness.session import cuda_connections
from dvk.records import Candidate, Task, Tier

ADD = "class Model(nn.Module):\n    def forward(self, x):\n        return x + 1"


@pytest.mark.parametrize(
    ("tier", "reference", "text", "arms", "its_own"),
    [
        ("search", ADD, ADD, {}, cuda_connections.ONE),
        ("search", ADD, "side = torch.cuda.Stream()", {}, cuda_connections.ONE),
        ("claim", ADD, ADD, cuda_connections.ONE, cuda_connections.ONE),
        ("claim", ADD, "graph = torch.cuda.CUDAGraph()", {}, {}),
        ("claim", "self.cell = nn.GRU(8, 8)", ADD, {}, {}),
    ],
)
def test_all_of_a_claim_have_the_same(
    tier: Tier, reference: str, text: str, arms: dict[str, str], its_own: dict[str, str]
) -> None:
    task = Task(id="a", name="a", source=reference, entry="Model", kind="module", device="cuda")
    candidate = Candidate(source=text, backend="triton")
    assert (
        cuda_connections.of_arms(task, candidate, tier),
        cuda_connections.of_candidate(task, candidate, tier),
    ) == (arms, its_own)


def test_a_cpu_has_none() -> None:
    task = Task(id="a", name="a", source=ADD, entry="Model", kind="module")
    assert not cuda_connections.of_arms(task, Candidate(source=ADD, backend="cpp"), "claim")
    assert not cuda_connections.of_candidate(task, Candidate(source=ADD, backend="cpp"), "search")
