"""A whole model has figures at every budget: a quick look before any search, and a proof of what there is when the budget ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from dvk.api.network import optimize_model
from tests.api.stacks import Stack


@pytest.mark.slow
def test_without_time_for_a_search_the_quick_compositions_are_proved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Stack().eval(), torch.randn(2048, 64)
    how = {"judge.claim_s": 0.1, "optimize.budget_s": 2.0}
    found = optimize_model(model, x, out=tmp_path / "run", settings=how).summary
    look = json.loads((tmp_path / "run" / "quick_look.json").read_text())
    assert found["quick_look"] == look and look["timed"]["speedup"] > 0
    assert not look["checked"]["wrong"] and look["checked"]["own"] > 0
    if not any(row["run"] for row in found["blocks"]):  # else it was quick enough for a search
        assert found["speedup"] and found["status"] in ("faster", "no_speedup", "too_noisy")
        patched = [row for row in found["blocks"] if row["patched"]]
        assert patched and not any(row["judged"] for row in patched)
