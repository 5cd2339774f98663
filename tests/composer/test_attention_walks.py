"""The loops over keys of an attention of whole sequences: what they skip, where conditions are applied, and how it is launched."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dvk.composer.codegen import triton as renderer
from dvk.composer.codegen.triton.attention_scores import counts_in_32_bits
from dvk.composer.ir.attention_kernel import AttentionKernel
from dvk.composer.ir.schedules.triton import TritonAttention
from tests.composer.attention_cases import (
    behind_cache,
    causal,
    empty,
    endless,
    lowered,
    lowest,
    nearby,
    padded,
    sliding,
    slopes,
)
from tests.composer.triton_cases import BRAIN, Function, rand
from tests.composer.triton_programs import Program

LENGTHS = torch.tensor([300, 7])
MASK = torch.ones(300, 300, dtype=torch.bool)


def three(n: int = 300, heads: int = 2, d: int = 32) -> list[torch.Tensor]:
    return [rand(2, heads, n, d) for _ in "qkv"]


def kernel(forward: Callable[..., Any], *args: torch.Tensor) -> AttentionKernel:
    """The only kernel of a function: ranges and masks are part of it."""
    (made,) = Program(Function(forward), list(args)).kernels.values()
    assert isinstance(made, AttentionKernel)
    return made


def loops(made: AttentionKernel, number: int = 0) -> list[str]:
    """The texts of the loops over keys."""
    text = renderer.functions(made, renderer.schedules(made)[number])[0][0].text
    return re.split(r"\n    for x0 in tl\.range", text)[1:]


@pytest.mark.parametrize(
    ("forward", "args", "conditions"),
    [
        (sliding, lambda: three(), [True, False, True]),
        (causal, lambda: three(), [False, True]),
        (slopes, lambda: [*three(), rand(2)], [False, True]),
        (behind_cache, lambda: [rand(2, 2, 70, 32), *three()[1:]], [False, True]),
        (padded, lambda: [*three(), LENGTHS], [False, True]),
        (nearby, lambda: three(), [True, False, True]),
        (empty, lambda: [*(x[:, 0] for x in three()), MASK], [True]),
    ],
    ids=lambda value: value.__name__ if callable(value) and hasattr(value, "__name__") else "",
)
def test_conditions_are_applied_only_where_queries_of_a_block_differ(
    forward: Callable[..., Any], args: Callable[[], list[torch.Tensor]], conditions: list[bool]
) -> None:
    found = loops(kernel(forward, *args()))
    assert ['float("-inf")' in text.split("high =")[0] for text in found] == conditions


def test_blocks_that_no_query_sees_are_skipped() -> None:
    text = renderer.functions(made := kernel(sliding, *three()), renderer.schedules(made)[0])[0][
        0
    ].text
    assert "begin = begin //" in text and re.search(r"end = .*tl\.max\(y", text)
    bounds = re.findall(r"for x0 in tl\.range\((.*?), \d+, num_stages", text)
    assert bounds == ["begin, tl.minimum(inner, end)", "inner, outer", "outer, end"]


def test_exponents_take_the_scale_where_no_score_is_near_the_ends_of_float32() -> None:
    assert all("tl.exp2(s * " in text for text in loops(kernel(sliding, *three())))
    masked = loops(kernel(lowest, *(x[:, 0] for x in three()), MASK))
    assert all("tl.exp(s - safe)" in text for text in masked)


def test_a_bias_of_a_batch_may_be_the_lowest_number_and_a_factor_may_not() -> None:
    biased = loops(kernel(lowered, *three(), rand(2)))
    assert all("tl.exp(s - safe)" in text for text in biased)
    # A slope of each head is a factor of places.
    assert all("tl.exp2(s * " in text for text in loops(kernel(slopes, *three(), rand(2))))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_bounds_from_memory_are_computed_in_64_bits_and_cut_off(dtype: torch.dtype) -> None:
    """The largest integer, which stands for no end, has a place behind it."""
    made = kernel(endless, *three(), LENGTHS.to(dtype))
    text = renderer.functions(made, renderer.schedules(made)[0])[0][0].text
    (end,) = re.findall(r"\n +end = (.*)", text)
    assert re.search(r"tl\.minimum\(tl\.maximum\(v\d+\.to\(tl\.int64\), -\d+\), \d+\) \+ 1\b", end)
    # That of a window is a number: its place is none of 32 bits either.
    assert re.search(r"tl\.max\(\(y.*\)\.to\(tl\.int64\) \+ 2147483647\)", end)
    assert end.endswith(".to(tl.int32)")


def test_places_are_counted_in_32_bits() -> None:
    made = kernel(sliding, *three())
    assert counts_in_32_bits(made.scores)
    assert not any(".to(tl.int64)" in text for text in loops(made))
    # What memory holds keeps its type.
    assert counts_in_32_bits(kernel(padded, *three(), LENGTHS).scores)


def test_scores_of_long_sequences_need_no_64_bit_offsets() -> None:
    """Scores and weights, which are beyond 2^31, are not in memory."""
    with torch.device("meta"):
        long = [torch.empty(4, 32, 1 << 14, 64, dtype=BRAIN) for _ in "qkv"]
    assert not any("int64" in text for text in loops(kernel(causal, *long)))


def test_registers_are_limited_by_the_launcher_that_needs_it() -> None:
    made = kernel(causal, *(x.to(BRAIN) for x in three(d=128)))
    limited, *others = [s for s in renderer.schedules(made) if isinstance(s, TritonAttention)]
    text = renderer.render(made, limited)
    assert limited.registers == 128 and re.search(r"dvk_launcher\(k\d, \d+, 8, 128\)", text)
    assert "maxnreg=registers" in renderer.prelude([made], text)
    plain = next(s for s in others if not s.registers)
    assert "maxnreg" not in renderer.prelude([made], renderer.render(made, plain))
    module = renderer.module([made], [text])
    assert "maxnreg=registers" in module[1]
