"""Degenerate problems are found, with the inputs that separate answers."""

from __future__ import annotations

import pytest

from dvk.harness.checking.health import degenerate
from tests.harness.problems import cases_of, made, model

HEALTHY = {
    "linear": model("return self.n(x)", "[torch.rand(32, 64)]", "self.n = nn.Linear(64, 32)"),
    "loss": model(
        "return F.mse_loss(x, y)", "[torch.rand(64, 30), torch.rand(64, 30)]", arguments="x, y"
    ),
    "wide softmax": model("return torch.softmax(x, -1)", "[torch.rand(16, 8192)]"),
    "mean": model("return x.mean((1, 2))", "[torch.rand(8, 128, 128)]"),
    "shrunk": model(
        "return self.n(x)",
        "[torch.rand(32, 64)]",
        "self.n = nn.Linear(64, 32); nn.init.normal_(self.n.weight, std=1e-3)",
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_problem_has_no_findings(name: str) -> None:
    """Several of these accept zeros or a constant at the tolerances in use elsewhere (1e-2, 1e-4)."""
    assert cases_of(HEALTHY[name]).findings == ()


def test_a_problem_that_is_always_zero_accepts_nearly_everything() -> None:
    source = model(
        "y = self.n(x).amax(1, keepdim=True)\n        return F.gelu(y - y.mean(1, keepdim=True))",
        "[torch.rand(32, 64)]",
        "self.n = nn.Linear(64, 64)",
    )
    found = cases_of(source).findings
    assert {f.split(":")[0] for f in found} == {
        "accepts zeros",
        "accepts one constant",
        "accepts the answer to other inputs",
        "accepts the answer under other weights",
    }
    assert degenerate(found)


def test_what_native_inputs_accept_another_family_tells_apart() -> None:
    """An ELU of positive numbers does nothing."""
    cases = cases_of(model("return F.elu(x)", "[torch.rand(64, 512)]"))
    (finding,) = cases.findings
    assert (
        finding.startswith("accepts its input as the answer: on native inputs; told apart by")
        and "zero_mean" in finding
    )
    assert not degenerate(cases.findings)


def test_weights_that_do_not_matter_are_found() -> None:
    source = model(
        "return x + 0 * self.w", "[torch.randn(64, 32)]", "self.w = nn.Parameter(torch.randn(32))"
    )
    assert any(
        f.startswith("accepts the answer under other weights") for f in cases_of(source).findings
    )


def test_inputs_that_do_not_matter_are_found() -> None:
    source = model(
        "return self.w + 0 * x", "[torch.randn(64, 32)]", "self.w = nn.Parameter(torch.randn(32))"
    )
    found = cases_of(source).findings
    assert [f for f in found if f.startswith("accepts the answer to other inputs")] and degenerate(
        found
    )


def test_findings_are_made_once_and_add_no_input_sets_to_the_plan() -> None:
    cases = cases_of(HEALTHY["linear"])
    before = [case.key for case in made(cases)]
    assert cases.findings is cases.findings
    assert [case.key for case in made(cases)] == before
