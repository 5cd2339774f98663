"""Huge pages for large results on a CPU."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest
import torch

from dvk.composer import applicable
from tests.composer.programs import capture, drop_in

SOURCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2
"""
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def faults(model: torch.nn.Module, x: torch.Tensor) -> int:
    """Pages that one call waits for."""
    with torch.no_grad():
        model(x)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        model(x)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(
    sys.platform != "linux" or not SETTING.exists() or "[madvise]" not in SETTING.read_text(),
    reason="huge pages are given unasked here, or not at all",
)
@pytest.mark.slow
def test_a_large_result_takes_few_faults() -> None:
    x = torch.randn(12 << 20)
    made = {}
    for recipes in (("fuse_pointwise",), ("fuse_pointwise", "huge_pages")):
        module, model, candidate = drop_in(SOURCE, x, recipes=recipes)
        made[recipes] = module.ModelNew().eval()
        with torch.no_grad():
            assert torch.equal(made[recipes](x), model(x))
        assert ("dvk_huge(o0, 50331648UL);" in candidate.source) is ("huge_pages" in recipes)
    plain, huge = (faults(model, x) for model in made.values())
    assert plain > 12_000 and huge < plain / 4


def test_only_for_large_results_on_a_cpu() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x.double()) * 2

    large, small = (capture(forward, torch.empty(n << 20)).graph for n in (4, 3))
    assert "huge_pages" in applicable(large, "cpu", "cpp") and "huge_pages" not in applicable(
        small, "cpu", "cpp"
    )
    assert "huge_pages" not in applicable(large, "cuda", "triton")
    assert (
        "dvk_huge(o"
        not in drop_in(SOURCE, torch.randn(8), recipes=("fuse_pointwise", "huge_pages"))[2].source
    )
