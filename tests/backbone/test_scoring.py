"""Scores against the plain formula, with gradients; masks from lengths."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dvk.backbone import ScoringRow, scoring
from dvk.backbone.hf import HfBackbone

ROWS = [
    ScoringRow((7, 8, 9), (10, 11)),
    ScoringRow((0, 0, 12), (0, 0, 0, 13, 1)),
    ScoringRow((20,), (1,)),
    ScoringRow(tuple(range(6, 46)), (5, 0, 1)),
]
"""With pad and end tokens as contents: lengths define the valid tokens."""


def plain(backbone: HfBackbone, row: ScoringRow, temperature: float) -> torch.Tensor:
    """One row, no padding, straight from the definition."""
    text = torch.tensor([[*row.prompt, *row.completion]])
    logprobs = (backbone.model(text).logits[0, :-1] / temperature).log_softmax(-1)
    start = len(row.prompt) - 1
    return logprobs[torch.arange(start, text.shape[1] - 1), text[0, start + 1 :]]


@pytest.mark.parametrize("kind", ["qwen3", "gpt2"])
@pytest.mark.parametrize("budget", [1, 30, 10_000])
def test_scores_and_gradients_equal_the_definition(
    kind: str, budget: int, make_hf: Callable[..., HfBackbone], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        scoring, "HEAD_LOGITS", 900
    )  # three tokens at once, so that the head's pieces meet
    changes = (
        {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 128}
        if kind == "gpt2"
        else {"head_dim": 16}
    )
    backbone = make_hf(kind, **changes)
    weights = torch.randn(len(ROWS), 5)
    scores = scoring.logprobs(backbone.model, ROWS, 0.8, budget)
    assert scores.mask.sum(1).tolist() == [len(row.completion) for row in ROWS]
    assert (scores.values[~scores.mask] == 0).all()
    (scores.values * weights).sum().backward()
    ours = [p.grad.clone() for p in backbone.parameters() if p.grad is not None]
    backbone.model.zero_grad()
    total = torch.zeros(())
    for i, row in enumerate(ROWS):
        expected = plain(backbone, row, 0.8)
        torch.testing.assert_close(
            scores.values[i, : len(row.completion)], expected, atol=1e-5, rtol=1e-5
        )
        total = total + (expected * weights[i, : len(row.completion)]).sum()
    total.backward()
    theirs = [p.grad for p in backbone.parameters() if p.grad is not None]
    assert len(ours) == len(theirs) > 10
    for mine, other in zip(ours, theirs):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)


def test_micro_batches_keep_the_budget() -> None:
    lengths = [5, 100, 7, 50, 6, 49, 3]
    groups = scoring.micro_batches(lengths, 100)
    assert sorted(i for group in groups for i in group) == list(range(7))
    for group in groups:
        assert len(group) == 1 or max(lengths[i] for i in group) * len(group) <= 100
    assert [1] in groups and [3, 5] in groups and len(groups) == 3


def test_empty_rows_are_refused(shared_nano: HfBackbone) -> None:
    for row in (ScoringRow((), (1,)), ScoringRow((1,), ())):
        with pytest.raises(ValueError, match="at least one"):
            shared_nano.logprobs([row])
    assert shared_nano.logprobs([]).values.shape[0] == 0
