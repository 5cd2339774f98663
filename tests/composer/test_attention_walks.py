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
