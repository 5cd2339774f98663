"""Conditions and changes of skills: the grammar, and its errors."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from dvk.records import Skill
from dvk.records.skill_block import (
    BlockError,
    GraphFacts,
    parse_block,
    parse_change,
    parse_condition,
)

FACTS = GraphFacts(
    words={
        "backend": ("triton",),
        "device": ("cuda",),
        "machine": ("nvidia", "h100"),
        "has": ("add", "softmax"),
    },
    numbers={"kernels": 2, "calls": 0},
    kernels={
        "k0": {"does": "softmax", "row_length": 32768, "rows": 64},
        "k1": {"does": "pointwise", "row_length": 1, "rows": 1 << 22},
    },
)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("always", True),
        ("device = cuda, machine = h100", True),
        ("machine = h200 | h100", True),
        ("machine = H100", True),  # as people write it
        ("has != conv2d", True),
        ("has != softmax", False),
        ("kernels >= 2, calls < 1", True),
        ("does = softmax | norm, row_length > 2^14", True),
        ("does = pointwise, row_length > 2^14", False),  # no kernel has both
        ("rows >= 4194304", True),
        ("regime = device", False),  # not known
        ("regime != device", False),  # nor is its contrary
        ("bytes < 100", False),
        ("family = row", False),
    ],
)
def test_a_condition_holds_or_not(text: str, holds: bool) -> None:
    assert parse_condition(text).holds(FACTS) is holds


@pytest.mark.parametrize(
    "text",
    [
        "always",
        "device = cuda, does = softmax | logsumexp, row_length > 16384",
        "has = _softmax, dtype != float16",
    ],
)
def test_conditions_are_written_as_they_are_read(text: str) -> None:
    assert str(parse_condition(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "+own_matmul -inplace_epilogue",
        "kernels = looped online yes",
        "kernels = looped rblock 2048 warps 8",
        "kernels = parallel rows chunk 64",
    ],
)
def test_changes_are_written_as_they_are_read(text: str) -> None:
    assert str(parse_change(text)) == text


@pytest.mark.parametrize(
    ("when", "do", "said"),
    [
        ("rows", "+own_matmul", "no term"),
        ("", "+own_matmul", "no term"),
        ("speed = 3", "+own_matmul", "no fact `speed`; there are backend"),
        ("rows = many", "+own_matmul", "no number"),
        ("does > norm", "+own_matmul", "compare it with = or !="),
        ("does = a |", "+own_matmul", "no value of does"),
        ("does = sofmax", "+own_matmul", "`sofmax` is no value of does; there are pointwise"),
        ("device = cpu | gpu", "+own_matmul", "no value of device; there are cuda, cpu"),
        ("family = rows", "+own_matmul", "there are pointwise, row, row_sums, column"),
        ("regime != host", "+own_matmul", "there are device, end_to_end"),
        ("always, rows > 2", "+own_matmul", "no term"),
        ("always", "own_matmul", "no change; write +RECIPE"),
        ("always", "", "write +RECIPE or -RECIPE"),
        ("always", "+a -a", "once"),
        ("always", "kernels =", "needs a schedule"),
        ("always", "kernels = warps 4 warps 8", "given twice"),
        ("always", "+own_matmul kernels = looped", "no change"),
    ],
)
def test_a_bad_block_says_what_to_write(when: str, do: str, said: str) -> None:
    with pytest.raises(BlockError) as error:
        parse_block(when, do)
    assert said in str(error.value)


def test_covered_kernels_are_those_that_the_condition_names() -> None:
    assert parse_condition("does = softmax").kernels(FACTS) == ("k0",)
    assert parse_condition("device = cuda").kernels(FACTS) == ("k0", "k1")


def test_a_schedule_is_as_a_change_says() -> None:
    change = parse_change("kernels = looped online yes")
    assert change.is_schedule({"kind": "looped", "rblock": 1024, "online": True}, "kind")
    assert not change.is_schedule({"kind": "looped", "rblock": 1024}, "kind")
    assert parse_change("kernels = looped online no").is_schedule({"kind": "looped"}, "kind")


def test_a_skill_has_both_parts_or_none() -> None:
    skill = Skill(name="a", description="d", body="b", when=" rows  >2^4 ", do="+own_matmul")
    assert (skill.when, skill.block is not None) == ("rows > 16", True)
    for half in ({"when": "always"}, {"do": "+own_matmul"}):
        with pytest.raises(ValidationError, match="belong together"):
            Skill(name="a", description="d", body="b", **half)
