"""An update on rows that a model sampled itself."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

import pytest
import torch

from dvk.backbone.loading import new_adapters
from dvk.config import Config, changed
from dvk.distributed import ProcessGroup
from dvk.learn import reinforce
from dvk.learn.learner import Learner
from dvk.learn.reinforce import logprobs, match, micro_batches, update
from dvk.learn.rows import TrainingRow
from tests.learn.tiny import tiny

CONFIG = Config.model_validate(
    {
        "learning": {
            "rate": 3e-3,
            "precision": "fp32",
            "pack_tokens": 64,
            "micro_packs": 1,
            "warmup": 0.0,
            "schedule": "constant",
        }
    }
)


def learner() -> Learner:
    return Learner(tiny(seed=3), CONFIG.learning, 10)


@torch.no_grad()
def sampled(of: Learner, count: int, temperature: float = 1.0) -> list[TrainingRow]:
    """Answers drawn token by token, with the probabilities they were drawn with."""
    draw = torch.Generator().manual_seed(0)
    rows = []
    for number in range(count):
        prompt = [5 + number % 50, 7, 3 + number // 50]
        ids, logs = list(prompt), []
        for _ in range(4 + number % 5):
            scores = (
                of.model(torch.tensor([ids])).logits[0, -1].float() / temperature
            ).log_softmax(-1)
            token = int(torch.multinomial(scores.exp(), 1, generator=draw))
            logs.append(float(scores[token]))
            ids.append(token)
        rows.append(
            TrainingRow.answer(
                prompt, ids[3:], advantage=1.0 if number % 2 else -1.0, logprobs=logs
            )
        )
    return rows


def test_learner_and_sampler_agree_to_what_rejection_assumes() -> None:
    of = learner()
    for temperature in (1.0, 0.7):
        rows = sampled(of, 12, temperature)
        found = match(of, rows, CONFIG, temperature)
        assert found.kept == 1.0 and found.worst < 1e-5, (
            "in float32 the fixed band of 0.001 is wide"
        )
        assert all(len(r.logprobs) == sum(r.targets) for r in found.rows)


def test_answers_of_another_model_are_rejected_or_weighed() -> None:
    of = learner()
    rows = sampled(of, 6)
    strange = [replace(row, logprobs=[p - 0.1 for p in row.logprobs]) for row in rows]
    both = match(of, [*rows, *strange], CONFIG)
    assert both.kept == 0.5
    assert math.isclose(both.token_gap, 0.05, rel_tol=1e-3), "0 for half of the tokens"
    assert math.isclose(both.largest_ratio, math.exp(0.1), rel_tol=1e-3)
    weigh = CONFIG.model_copy(
        update={
            "credit": CONFIG.credit.model_copy(
                update={"mismatch_rejection": False, "correction_cap": 1.05}
            )
        }
    )
    found = match(of, strange[:1], weigh).rows[0]
    assert math.isclose(found.advantage, -1.05), "e^0.1, capped"


def test_a_step_raises_what_was_good_and_lowers_what_was_bad() -> None:
    of = learner()
    rows = sampled(of, 10)
    before = logprobs(of, rows, CONFIG)
    figures = update(of, rows, CONFIG)
    after = logprobs(of, rows, CONFIG)
    change = [fmean(b) - fmean(a) for a, b in zip(before, after, strict=True)]
    good, bad = change[1::2], change[::2]
    assert fmean(good) > 0 > fmean(bad)
    assert (
        figures["rows"] == 10
        and figures["kept"] == 1.0
        and figures["clipped"] == 0.0
        and figures["grad_norm"] > 0
    )
    assert of.step_number == 1


def test_more_passes_over_the_same_answers_go_further_until_the_clip_holds_them() -> None:
    gains = []
    for passes in (1, 4):
        of = learner()
        rows = sampled(of, 10)
        config = CONFIG.model_copy(
            update={"objective": CONFIG.objective.model_copy(update={"passes": passes})}
        )
        before = logprobs(of, rows, CONFIG)
        update(of, rows, config)
        after = logprobs(of, rows, CONFIG)
        gains.append(
            fmean(
                row.advantage * (fmean(b) - fmean(a))
                for row, a, b in zip(rows, before, after, strict=True)
            )
        )
        assert of.step_number == passes
    assert gains[1] > 2 * gains[0] > 0


def test_a_pass_of_mini_batches_is_as_many_updates_and_uses_every_row_once() -> None:
    rows = sampled(learner(), 10)
    parts = reinforce.mini_batches(rows, 4, seed=1)
    assert sorted(row.key or tuple(row.ids) for part in parts for row in part) == sorted(
        row.key or tuple(row.ids) for row in rows
    )
    assert {len(part) for part in parts} == {2, 3} and len(
        reinforce.mini_batches(rows[:2], 4, 1)
    ) == 2
    gains = []
    for count in (1, 4):
        of = learner()
        before = logprobs(of, rows, CONFIG)
        update(of, rows, changed(CONFIG, {"objective.mini_batches": count}))
        after = logprobs(of, rows, CONFIG)
        gains.append(
            fmean(
                row.advantage * (fmean(b) - fmean(a))
                for row, a, b in zip(rows, before, after, strict=True)
            )
        )
        assert of.step_number == count
    assert gains[1] > 1.2 * gains[0] > 0


@pytest.mark.slow
def test_rows_of_earlier_steps_pull_back_only_what_was_lost() -> None:
    """A good answer whose probability fell since it was drawn is raised again; one that rose beyond the clip is left."""
    of = learner()
    fresh, kept = sampled(of, 4), sampled(of, 40)[21:22]
    now = logprobs(of, kept, CONFIG)[0]

    def change(shift: float) -> float:
        one = learner()
        earlier = [replace(kept[0], advantage=1.0, logprobs=[p + shift for p in now])]
        figures = update(
            one, [replace(row, advantage=1e-6) for row in fresh], CONFIG, earlier=earlier
        )
        assert figures["earlier_rows"] == 1
        return fmean(logprobs(one, kept, CONFIG)[0]) - fmean(now)

    lost, risen = change(0.1), change(-1.0)
    assert lost > 0.05 and abs(risen) < lost / 2


@pytest.mark.slow
def test_a_divergence_from_the_start_holds_the_learner_near_it() -> None:
    apart = []
    for kl, passes in ((3.0, 1), (0.0, 8), (3.0, 8)):
        start = tiny(seed=3)
        of = Learner(tiny(seed=3), CONFIG.learning, 10, start=start)
        rows = sampled(of, 10)
        objective = CONFIG.objective.model_copy(update={"kl": kl, "passes": passes})
        before = logprobs(of, rows, CONFIG)
        last = update(of, rows, CONFIG.model_copy(update={"objective": objective}))["kl"]
        assert last > 1e-4 if passes > 1 else last < 1e-9, "a step's figure is of before it"
        after = logprobs(of, rows, CONFIG)
        apart.append(
            fmean(
                abs(b - a)
                for x, y in zip(before, after, strict=True)
                for a, b in zip(x, y, strict=True)
            )
        )
        assert all(
            torch.equal(a, b)
            for a, b in zip(start.parameters(), tiny(seed=3).parameters(), strict=True)
        ), "it stays as it is"
    assert 0 < apart[2] < 0.6 * apart[1]


def test_nothing_left_changes_nothing() -> None:
    of = learner()
    rows = [replace(row, logprobs=[p - 1 for p in row.logprobs]) for row in sampled(of, 3)]
    weights = [p.clone() for p in of.model.parameters()]
    figures = update(of, rows, CONFIG)
    assert figures["rows"] == 0 and figures["kept"] == 0 and of.step_number == 0
    assert all(torch.equal(a, b) for a, b in zip(weights, of.model.parameters(), strict=True))


def test_rows_longer_than_a_pack_are_not_lost() -> None:
    rows = [TrainingRow.answer([1] * 50, [2] * 40), TrainingRow.answer([1], [2])]
    found = micro_batches(rows, CONFIG)
    assert sorted(i for groups, _ in found for group in groups for i in group) == [0, 1]


def test_a_micro_batch_is_bounded_by_tokens() -> None:
    """A row of eight packs once made each of the other packs as long."""
    lengths = [512, 70, 65, 65, *[20] * 40]
    rows = [TrainingRow.answer([1] * (n - 5), [2] * 5) for n in lengths]
    config = changed(CONFIG, {"learning.micro_packs": 4})
    for size in (1, 2, 3):
        found = [
            micro_batches(rows, config, processes=ProcessGroup(rank=rank, size=size))
            for rank in range(size)
        ]
        assert len({len(one) for one in found}) == 1, "processes wait for each other"
        laid = [index for one in found for groups, _ in one for g in groups for index in g]
        assert sorted(laid) == list(range(len(rows)))
        assert all(
            p.ids.numel() <= 4 * 64 or p.ids.shape == (1, 512) for one in found for _, p in one
        )


def test_a_micro_batch_is_as_long_as_its_fullest_pack() -> None:
    """Packs of 32,768 tokens for long rows once made an update on short ones compute as many."""
    rows = [TrainingRow.answer([1] * 90, [2] * 10) for _ in range(3)]
    for micro_packs, length in ((1, 320), (4, 320)):
        config = changed(
            CONFIG, {"learning.pack_tokens": 4096, "learning.micro_packs": micro_packs}
        )
        ((_, packs),) = micro_batches(rows, config)
        assert packs.ids.shape == (1, length) and packs.num_targets == 30
    config = changed(CONFIG, {"learning.pack_tokens": 110})
    assert [packs.ids.shape for _, packs in micro_batches(rows, config)] == [(1, 110)] * 3


def test_lora_compares_with_its_base_without_a_second_model() -> None:
    model = new_adapters(tiny(seed=3), 4)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.add_(0.1)
    alone = Learner(model, CONFIG.learning, 10, start=model)
    packs = [packs for _, packs in micro_batches(sampled(alone, 6), CONFIG)]
    for of in packs:
        base = alone._under_start(of, 1.0)
        expected = Learner(tiny(seed=3), CONFIG.learning, 10).scorer(of, 1.0)[0]
        assert base is not None and torch.allclose(base, expected, atol=1e-6)
        assert not torch.allclose(alone.scorer(of, 1.0)[0], expected, atol=1e-3), "adapters are on"


def sharp(dtype: torch.dtype) -> Learner:
    """A confident model, like a trained one: its logits are large, and bfloat16 rounds them by 0.01."""
    model = tiny(seed=3)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(6.0 if p.ndim >= 2 else 1.0)
    learner = Learner(model, CONFIG.learning, 10)
    model.to(
        dtype
    )  # the learner is in fp32; if the backbone computes in fp16 or bf16, so are its matmuls
    return learner


@pytest.mark.slow
def test_rounding_to_16_bits_is_no_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler reads token by token, the learner whole packs: in bfloat16 their sums differ, and most short answers with them."""
    rounded = sharp(torch.bfloat16)
    rows = rounded_rows = sampled(rounded, 40)
    assert rounded.rounds and match(rounded, rows, CONFIG).kept >= 0.95
    strange = [replace(row, logprobs=[p - 0.1 for p in row.logprobs]) for row in rows]
    assert match(rounded, strange, CONFIG).kept == 0, "a mismatch is still one"
    exact = sharp(torch.float32)
    rows = sampled(exact, 40)
    assert not exact.rounds and match(exact, rows, CONFIG).kept == 1.0
    monkeypatch.setattr(reinforce, "SPREAD", 0.0)
    assert match(rounded, rounded_rows, CONFIG).kept < 0.8
