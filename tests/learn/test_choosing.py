"""Choosing among known answers: probabilities from one shared question, and both losses on a model that starts at random."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from dvk.backbone import choosing as listed
from dvk.backbone import nano
from dvk.backbone.hf import HfBackbone
from dvk.config import Config
from dvk.learn import choosing
from dvk.learn.choosing import ChoiceBatch, ChoiceRow

TEXTS = ["norm rows 12 = looped block 64", "plan", "plan +own_matmul", "k0 = flat block 256"]


@pytest.fixture(scope="module")
def backbone() -> HfBackbone:
    return nano.fresh(TEXTS, Config(), size="tiny", positions=256, dialect="plan", device="cpu")


@pytest.fixture
def rows(backbone: HfBackbone) -> list[ChoiceRow]:
    tokenizer = backbone.tokenizer
    answers = [backbone.encode_answer(text) for text in TEXTS[1:]]
    return [
        ChoiceRow(tokenizer.encode("norm rows 12"), answers, [0.0, 0.5, -0.2], "a"),
        ChoiceRow(tokenizer.encode("flat block"), answers[:2], [0.3, choosing.WRONG], "b"),
    ]


def test_answers_are_scored_as_if_each_were_alone(
    backbone: HfBackbone, rows: list[ChoiceRow]
) -> None:
    with torch.no_grad():
        logs = choosing.likelihoods(backbone.model, choosing.lay_out(rows, "cpu"))
    for r, row in enumerate(rows):
        alone = []
        for answer in row.answers:
            ids = torch.tensor([[*row.question, *answer]])
            with torch.no_grad():
                every = backbone.model(input_ids=ids).logits[0]
            own = every.log_softmax(-1)[len(row.question) - 1 : -1]
            alone.append(sum(float(own[n, token]) for n, token in enumerate(answer)))
        wanted = torch.tensor(alone).log_softmax(0).tolist()
        assert logs[r, : len(alone)].tolist() == pytest.approx(wanted, abs=1e-4)
        assert float(logs[r, : len(row.answers)].exp().sum()) == pytest.approx(1.0, abs=1e-5)
    assert logs[1, 2] == -math.inf, "it has two answers"


def test_probabilities_do_not_depend_on_how_attention_is_computed(
    backbone: HfBackbone, rows: list[ChoiceRow]
) -> None:
    """Transformers' eager attention adds the mask: True would be 1, and every token would see the other answers."""
    model, batch = backbone.model, choosing.lay_out(rows, "cpu")
    usual = model.config._attn_implementation
    wanted = choosing.likelihoods(model, batch)
    model.set_attn_implementation("eager")
    try:
        found = choosing.likelihoods(model, batch)
    finally:
        model.set_attn_implementation(usual)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_autocast_rounds_no_probability_of_an_answer(
    backbone: HfBackbone, rows: list[ChoiceRow]
) -> None:
    """The gradient of the expected speed is a difference of such sums: 0.4 % of rounding is as much as plans differ by."""
    with torch.autocast("cpu", torch.bfloat16):
        logs = choosing.likelihoods(backbone.model, choosing.lay_out(rows, "cpu"))
    assert logs.dtype == torch.float32
    assert logs.exp().sum(-1).tolist() == pytest.approx([1.0, 1.0], abs=1e-5)


def test_targets_follow_speed() -> None:
    share = choosing.targets(torch.tensor([[0.0, 0.05, -math.inf]]), 0.05)
    assert share.tolist()[0] == pytest.approx([1 / (1 + math.e), math.e / (1 + math.e), 0.0])


def reinforced(model: Any, batch: ChoiceBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Near a policy to which all answers are alike."""
    even = torch.zeros_like(batch.gains).masked_fill(batch.gains == -math.inf, -math.inf)
    return choosing.reinforced(model, batch, even.log_softmax(-1), 0.02)


LOSSES = {
    "started": choosing.started,
    "weighted": lambda model, batch: choosing.weighted(model, batch, 0.05),
    "reinforced": reinforced,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_model_learns_which_answer_pays(rows: list[ChoiceRow], loss: str) -> None:
    model = nano.fresh(TEXTS, Config(), size="tiny", positions=256, device="cpu").model
    batch = choosing.lay_out(rows, "cpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rewards = []
    for _ in range(30):
        value, reward = LOSSES[loss](model, batch)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        rewards.append(float(reward))
    if loss == "started":  # the first answer has half, and all of them share the rest
        shares = choosing.likelihoods(model, batch).exp()[0].tolist()
        assert shares == pytest.approx([2 / 3, 1 / 6, 1 / 6], abs=0.1)
        found = listed.scores(model, batch.answers)
        written = listed.of_answers(found, batch.answers).exp().sum(-1)
        assert bool((written > 0.5).all()), "written freely, it is a listed answer, too"
    else:
        assert choosing.best(model, batch) == [1, 0]
        assert rewards[-1] > 0.35 > rewards[0], "of at most (0.5 + 0.3) / 2"


def test_the_best_policy_near_another_weighs_speed_against_distance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where π = before · kl / (kl - (gain - expected gain)) there is no gradient."""
    gains, kl = torch.tensor([[0.05, 0.0, -math.inf]]), 0.1
    shares = torch.tensor([[0.6, 0.4, 0.0]])
    expected = 0.6 * 0.05
    before = (shares * (kl - (torch.tensor([[0.05, 0.0, 0.0]]) - expected)) / kl).log()
    given = shares[:, :2].log().requires_grad_()
    padded = torch.cat([given.log_softmax(-1), torch.full((1, 1), -math.inf)], -1)
    monkeypatch.setattr(choosing, "likelihoods", lambda model, batch: padded)
    batch = ChoiceBatch(None, gains)  # type: ignore[arg-type]  # no model asks for it
    value, reward = choosing.reinforced(None, batch, before, kl)
    value.backward()
    assert given.grad is not None and float(given.grad.abs().max()) < 1e-6
    assert float(reward) == pytest.approx(expected)


def test_a_change_that_pays_says_nothing_of_another_that_begins_alike() -> None:
    """Both rows ask the same, and a model sees no list: drawn token by token, one of them would have the other's answer."""
    texts = ["plan", "plan +own_matmul", "plan +cuda_graph"]
    backbone = nano.fresh(
        [*"plan +own_matmul cuda_graph norm rows"],
        Config(),
        size="tiny",
        positions=256,
        device="cpu",
    )
    asked = backbone.tokenizer.encode("norm rows")
    plain, pays, loses = (backbone.encode_answer(text) for text in texts)
    assert pays[: len(plain)] == loses[: len(plain)], "they begin alike"
    rows = [
        ChoiceRow(asked, [plain, pays], [0.0, 0.5]),
        ChoiceRow(asked, [plain, loses], [0.0, -0.5]),
    ]
    batch = choosing.lay_out(rows, "cpu")
    optimizer = torch.optim.AdamW(backbone.model.parameters(), lr=3e-3)
    for _ in range(40):
        optimizer.zero_grad()
        choosing.weighted(backbone.model, batch, 0.1)[0].backward()
        optimizer.step()
    shares = choosing.likelihoods(backbone.model, batch).exp()
    assert shares[0, 1] > 0.9 and shares[1, 1] < 0.1


def test_rows_are_grouped_within_a_number_of_tokens(rows: list[ChoiceRow]) -> None:
    groups = choosing.batches(rows * 3, most_tokens=2 * max(row.num_tokens for row in rows))
    assert sum(map(len, groups)) == 6 and max(map(len, groups)) <= 4
    for group in groups:
        longest = max(row.num_tokens for row in group)
        assert len(group) == 1 or longest * len(group) <= 2 * max(r.num_tokens for r in rows)
    assert rows[0].kept([1]).gains == [0.5]
