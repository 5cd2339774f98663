"""A candidate's results must not change in later calls, timed or not, unless the reference's do."""

from __future__ import annotations

import pytest
import torch

from dvk import tasks
from dvk.harness import judge
from dvk.records import Candidate, Status, Tier, Verdict
from tests.harness.conftest import QUICK
from tests.harness.problems import cases_of, refusals

HEAD = """import gc
import torch
import torch.nn as nn
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64))
        self.register_buffer("state", torch.zeros(32, 64), persistent=False)
        self.kept = {{}}
        self.calls = 0
    def forward(self, x):
"""
TAIL = """
def get_inputs():
    return [torch.randn(32, 64)]
def get_init_inputs():
    return []
"""
KEEPS = "        return torch.mul(x, self.weight, out=self.kept.setdefault(x.shape, torch.empty_like(x)))\n"
HONEST = {
    "input": ("        return x * self.weight, x, x[:, :7]\n",) * 2,
    "input_for_a_copy": (
        "        return x * self.weight, x.clone()\n",
        "        return x * self.weight, x\n",
    ),
    "weight": ("        return x * self.weight, self.weight\n",) * 2,
    "weight_for_a_copy": (
        "        return x, self.weight.clone()\n",
        "        return x, self.weight.detach()\n",
    ),
    "kept_by_the_reference": (KEEPS, KEEPS),
    "buffer_of_the_reference": (
        "        self.state = x * self.weight\n        return self.state\n",
    )
    * 2,
}
EVIL = {
    "kept": KEEPS,
    "kept_when_timed": "        if gc.isenabled(): return x * self.weight\n" + KEEPS,
    "by_turns_when_timed": (
        "        if gc.isenabled(): return x * self.weight\n        self.calls += 1\n"
        "        y = self.kept.setdefault(self.calls % 2, torch.empty_like(x))\n        return torch.mul(x, self.weight, out=y)\n"
    ),
}


def verdict(tmp_path, reference: str, mine: str, tier: Tier) -> Verdict:
    path = tmp_path / "reference.py"
    path.write_text(HEAD.format(name="Model") + reference + TAIL)
    given = Candidate(source=HEAD.format(name="ModelNew") + mine, backend="cpp")
    (found,) = judge(tasks.load(str(path)), [given], tier=tier, config=QUICK)
    return found


@pytest.mark.parametrize("tier", ["smoke", "search"])
@pytest.mark.parametrize("name", HONEST)
@pytest.mark.slow
def test_aliasing_by_the_reference_or_of_inputs_and_weights_is_allowed(tmp_path, name, tier):
    found = verdict(tmp_path, *HONEST[name], tier)
    assert found.status is Status.OK, found.error


@pytest.mark.parametrize(
    ("name", "tier"), [("kept", "smoke"), *((name, "search") for name in EVIL)]
)
@pytest.mark.slow
def test_an_answer_that_a_later_call_writes_over_is_refused(tmp_path, name, tier):
    found = verdict(tmp_path, "        return x * self.weight\n", EVIL[name], tier)
    assert found.status is Status.MISMATCH and "return new memory" in (found.error or ""), (
        found.error
    )
    assert (found.stage == "time" and (found.error or "").startswith("in a timed call")) == (
        "timed" in name
    )


def test_which_of_several_outputs_it_is(tmp_path):
    found = verdict(
        tmp_path,
        "        return x + 1, x * self.weight\n",
        KEEPS.replace("return ", "return x + 1, "),
        "smoke",
    )
    assert found.status is Status.MISMATCH and (found.error or "").startswith(
        "output 1 of an earlier call"
    ), found.error


@pytest.mark.parametrize("body", [KEEPS, KEEPS.replace("return ", "return x, self.weight, ")])
def test_later_calls_of_a_reference_that_keeps_its_output_leave_what_is_expected(body):
    cases = cases_of(HEAD.format(name="Model") + body + TAIL)
    drawn = [cases.fresh(number) for number in range(4)]
    assert len({case.expected[-1].same.data_ptr() for case in drawn}) == 4
    assert all(
        torch.allclose(case.expected[-1].same, case.inputs[0] * cases.state(0)["weight"])
        for case in drawn
    )
    assert refusals(cases, lambda m, x: m(x)) == {}
