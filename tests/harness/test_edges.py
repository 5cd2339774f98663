"""An edge too rare to be met by the first noise: excused where stronger noise finds it, and nowhere else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dvk.harness.checking.cases import Cases
from dvk.harness.checking.sensitivity import Sensitivity
from tests.harness.problems import cases_of, judged, model

TWO_ORDERS = """
        ours, theirs = (x * self.w).sum(-1), (x.flip(-1) * self.w.flip(-1)).sum(-1)
        larger = theirs + self.apart > ours
        return {}"""
INIT = "self.w = nn.Parameter(torch.randn(512)); self.register_buffer('apart', torch.tensor([0.0] + [1.0] * 63))"
RETURNS = {"indices": "larger.long()", "values": "torch.where(larger, x[:, 0], x[:, 1])"}


def of(returned: str) -> Cases:
    """In the first row only the order of a sum decides."""
    return cases_of(
        model(TWO_ORDERS.format(RETURNS[returned]).strip(), "[torch.randn(64, 512)]", INIT)
    )


def answer(m: nn.Module, x: torch.Tensor, returned: str, flipped: tuple[int, ...]) -> torch.Tensor:
    """The reference's, but for some rows."""
    right = m(x)
    other = 1 - right if returned == "indices" else torch.where(right == x[:, 0], x[:, 1], x[:, 0])
    return torch.where(
        torch.zeros(64, dtype=torch.bool).index_fill(
            0, torch.tensor(flipped, dtype=torch.long), True
        ),
        other,
        right,
    )


@pytest.mark.parametrize("returned", RETURNS)
def test_only_what_is_on_the_edge_is_excused(returned: str) -> None:
    cases = of(returned)
    for number in range(3):
        for flipped, ok in (
            ((), True),
            ((0,), True),
            ((5,), False),
            ((0, 5), False),
            ((0, 1, 2, 3, 4, 5), False),
        ):
            case = cases.fresh(number)
            case.sensitivity = [Sensitivity()]  # the first noise has met nothing
            assert judged(cases, case, lambda m, x: answer(m, x, returned, flipped)).ok is ok, (  # noqa: B023
                number,
                flipped,
            )


def test_what_is_far_from_both_sides_of_an_edge_is_refused() -> None:
    cases = of("values")
    for wrong in (100.0, -1e6):
        case = cases.fresh(0)
        case.sensitivity = [Sensitivity()]
        assert not judged(
            cases,
            case,
            lambda m, x: m(x).index_fill(0, torch.tensor([0]), wrong),  # noqa: B023
        ).ok, wrong


NUMBERS = {
    "a count, some terms of it on the edge": "(torch.where(x < 0.001, 0.5 + 2**-22, x) * 1.0 > 0.5).sum()",
    "what is left when large sums cancel": "((x + 30) * (x + 30)).mean() - (x + 30).mean().square()",
}


@pytest.mark.parametrize("what", NUMBERS)
def test_one_number_that_noise_moves_a_little_is_not_any_number(what: str) -> None:
    cases = cases_of(model(f"return {NUMBERS[what]}", "[torch.rand(4096)]"))
    case = cases.fresh(0)
    case.sensitivity = [Sensitivity()]
    assert not judged(cases, case, lambda m, x: 0 * m(x)).ok


def test_nothing_is_asked_where_many_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = of("indices")
    case = cases.fresh(0)
    case.sensitivity = [Sensitivity()]
    monkeypatch.setattr(
        type(cases.reference),
        "with_noise",
        lambda *_: pytest.fail("a run of the reference for nothing"),
    )
    assert not judged(cases, case, lambda m, x: 1 - m(x)).ok


MASKED = """return torch.softmax((x @ x.transpose(-2, -1)).masked_fill(mask, float("-inf")), -1)"""
ROWS = "[torch.randn(2, 16, 16), torch.rand(2, 16, 16) + torch.eye(16).roll(3, 0)[0][None, :, None] > 0.7]"


def test_rows_that_are_masked_whole_are_judged_like_others() -> None:
    cases = cases_of(model(MASKED, ROWS, arguments="x, mask"))
    case = cases.fresh(0)
    assert case.expected[0].same.isnan().any() and not case.expected[0].same.isnan().all()
    assert judged(cases, case, lambda m, x, mask: m(x, mask) + 0.0).ok
    for number, wrong in enumerate(
        (torch.nan_to_num, lambda y: torch.where(y.isnan(), y, y * 1.01)), 1
    ):
        assert not judged(cases, cases.fresh(number), lambda m, x, mask: wrong(m(x, mask))).ok  # noqa: B023
