"""Honest programs of deep untrained networks are accepted where the reference itself moves as far; impostors are refused."""

from __future__ import annotations

import pytest
import torch

from dvk.harness.checking import compare
from dvk.harness.checking.envelope import Envelope, note
from dvk.harness.checking.other_algorithms import OtherLayout, OtherOrder
from dvk.harness.checking.tolerance import Errors
from tests.harness.deep_networks import (
    HONEST,
    IMPOSTORS,
    NETWORKS,
    first_refusal,
    judged,
    perceptron,
    plain,
    residual,
)
from tests.harness.problems import cases_of, made

DEEP = {"perceptron": perceptron(40, 32, 4), "plain": plain(60, 8, 2, 6)}


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.slow
def test_an_honest_program_of_a_deep_network_is_accepted_and_an_impostor_is_not(name: str) -> None:
    """Each honest arm is off by more than the class's ceiling, in outputs or in running statistics."""
    torch.manual_seed(0)
    cases = cases_of(DEEP[name], tier="smoke")
    case = made(cases)[0]
    for label in ("by halves", "folded norm", "float64"):
        assert (why := first_refusal(cases, [case, cases.fresh(1)], HONEST[label])) is None, (
            f"{label}: {why}"
        )
    for label, arm in IMPOSTORS.items():
        assert first_refusal(cases, [case], arm), f"{label} passes"


def test_the_verdict_says_that_a_network_amplifies_rounding() -> None:
    torch.manual_seed(0)
    cases = cases_of(DEEP["perceptron"], tier="smoke")
    notes = [
        n for case in made(cases) for n in judged(cases, case, HONEST["everything else"]).notes
    ]
    assert any("amplifies rounding" in text for text in notes), notes


def test_noise_that_hides_the_next_coarser_format_is_admitted_and_said() -> None:
    apart = Envelope(Errors(1e-4, 1e-3), lower=Errors(1e-1, 1.0))
    hidden = Envelope(Errors(5e-2, 1.0), lower=Errors(1e-1, 1.0))
    assert apart.separates and not hidden.separates
    assert apart.admitted(10_000).typical < apart.lower.typical / 2
    assert "not told apart" in note("output", hidden) and "told" not in note("output", apart)


@pytest.mark.parametrize("mode", [OtherOrder, OtherLayout])
def test_other_orders_and_layouts_compute_the_same(mode: type) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(6, 8, 3),
        torch.nn.BatchNorm2d(8),
        torch.nn.ConvTranspose2d(8, 6, 3),
        torch.nn.Conv2d(6, 6, 3, groups=6),
        torch.nn.Flatten(),
        torch.nn.Linear(6 * 6 * 6, 5),
    )
    x = torch.randn(4, 6, 8, 8)
    with torch.no_grad():
        plainly = model(x)
        with mode():
            otherwise = model(x)
    assert torch.allclose(plainly, otherwise, atol=1e-5) and plainly.stride() == otherwise.stride()
    half = torch.randn(16, 64).half()
    with OtherOrder():
        assert (half @ half.t()).dtype is torch.float16


def test_counts_beyond_a_level_skip_what_is_not_compared() -> None:
    same = torch.tensor([[1.0, 2.0, float("inf"), 4.0]])
    scale, rms, finite = compare.scales(same)
    want = compare.ExpectedLeaf("y", same, None, scale, rms, finite=finite)
    assert compare.count_beyond(same + 1, same, want, (0.01, 10.0)) == [3, 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["residual 54", "inception 16", "separable 48", "volume 24"])
def test_every_arm_of_a_deep_network(name: str) -> None:
    torch.manual_seed(0)
    cases = cases_of(NETWORKS[name], tier="smoke")
    ready = [*made(cases), cases.fresh(1)]
    for label, arm in HONEST.items():
        assert (why := first_refusal(cases, ready, arm)) is None, f"{label}: {why}"
    for label, arm in IMPOSTORS.items():
        assert first_refusal(cases, ready, arm), f"{label} passes"


@pytest.mark.gpu
@pytest.mark.parametrize("label", ["by halves", "folded norm", "without library", "channels last"])
def test_on_a_gpu_in_its_default_precision(label: str) -> None:
    torch.manual_seed(0)
    cases = cases_of(residual(6, 32, 8, 32), tier="smoke", device="cuda", precision="tf32")
    assert first_refusal(cases, [made(cases)[0], cases.fresh(1)], HONEST[label]) is None
    assert first_refusal(cases, made(cases), IMPOSTORS["bf16 products"])
