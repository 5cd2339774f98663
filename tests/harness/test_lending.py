"""One enclosed process lends memory to an isolated one, as `dvk serve` and `dvk doctor` try it; memory of the CPU stands for a GPU's."""

from __future__ import annotations

from dvk.config import Limits
from dvk.harness.session import lending


def test_a_borrower_reads_what_the_owner_wrote() -> None:
    assert lending.fails(Limits(), "cpu") is None


def test_the_error_of_a_process_is_the_answer() -> None:
    assert "Error" in (lending.fails(Limits(), "nowhere") or "")
