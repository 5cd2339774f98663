"""Difference of an answer from the usual text."""

from __future__ import annotations

import pytest

from tests.benchmarks.usual import kind

USUAL = """k0[cdiv(s0*s1, 1024), 4]:
    x = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    e0 = 0.5 * tl.load(x0 + x, x < s0*s1)
    tl.store(v0 + x, e0, x < s0*s1)
return v0"""
LIBRARY = "v0 = torch.mul(x0, 0.5)\nreturn v0"


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (USUAL, "usual"),
        (USUAL.replace("1024", "256").replace(", 4]", ", 1]"), "other numbers"),
        (USUAL.replace("0.5", "0.25"), "other"),
        (USUAL.replace("0.5", "1.5"), "other"),
        (USUAL.replace("e0", "e1"), "other"),
        (LIBRARY, "other structure"),
    ],
)
def test_an_answer_is_reported_by_its_difference(answer: str, found: str) -> None:
    assert kind(answer, USUAL, frozenset({LIBRARY})) == found
