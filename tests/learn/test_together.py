"""Two processes make the step that one makes alone: on recorded episodes, and on rows of every shape."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk.config import Config
from dvk.distributed import ProcessGroup
from dvk.errors import DvkError
from dvk.learn.assign import assign, rows
from dvk.learn.learner import Learner
from dvk.learn.packs import deal_packs
from dvk.learn.reinforce import update
from dvk.learn.rows import TrainingRow
from dvk.records import Episode, Interval, Status, Task, Timing, Tokens, Trace, Turn, Verdict
from tests.learn.tiny import tiny
from tests.together import together

CONFIG = Config.model_validate(
    {
        "learning": {
            "rate": 1e-2,
            "precision": "fp32",
            "pack_tokens": 64,
            "micro_packs": 1,
            "warmup": 0.0,
            "schedule": "constant",
        },
        "credit": {"mismatch_rejection": False},
        "rollout": {"temperature": 1.0},
    }
)


def recorded() -> list[Episode]:
    """Two tasks of six conversations, each of two turns; their speeds differ."""
    draw = torch.Generator().manual_seed(0)
    episodes = []
    for name in ("a", "b"):
        task = Task(id=name, name=name, source="x", entry="Model", kind="module")
        traces = []
        for rollout in range(6):
            turns = []
            for number in range(2):
                length = 3 + (rollout + number) % 5
                ids = torch.randint(1, 60, (length,), generator=draw).tolist()
                tokens = Tokens(
                    prompt=(5, 6 + rollout), completion=tuple(ids), logprobs=(-4.0,) * length
                )
                speed = 0.8 + 0.3 * rollout + 0.1 * number
                timing = Timing(
                    candidate_ms=1 / speed,
                    reference_ms=1.0,
                    speedup=Interval(value=speed, lo=speed, hi=speed),
                    num_pairs=9,
                    seconds=0.1,
                )
                verdict = Verdict(
                    status=Status.OK, tier="search", stage="done", timing=timing, num_checks=1
                )
                turns.append(Turn(completion="x", tokens=tokens, verdict=verdict))
            traces.append(Trace(role="policy", scheme=None, rollout=rollout, turns=tuple(turns)))
        episodes.append(Episode(task=task, traces=tuple(traces)))
    return episodes


def learned(config: Config, given: list[TrainingRow], steps: int = 2) -> dict[str, Any]:
    """Figures of some updates, and the weights after them."""
    with ProcessGroup.join(60) as processes:
        learner = Learner(tiny(seed=4), config.learning, 10)
        figures = [
            update(learner, given, config, seed=step, processes=processes) for step in range(steps)
        ]
        return {
            "figures": figures,
            "weights": [p.detach().clone() for p in learner.model.parameters()],
        }


def interrupted(config: Config, given: list[TrainingRow], folder: str) -> dict[str, Any]:
    """As `learned`, but the second step is made by a learner that was restored after the first."""
    with ProcessGroup.join(60) as processes:
        first = Learner(tiny(seed=4), config.learning, 10)
        update(first, given, config, seed=0, processes=processes)
        first.save(Path(folder))
        processes.barrier()
        model = tiny(seed=5)
        model.load_state_dict(first.model.state_dict())
        second = Learner(model, config.learning, 10)
        second.restore(Path(folder))
        return {
            "figures": update(second, given, config, seed=1, processes=processes),
            "weights": [p.detach().clone() for p in model.parameters()],
        }


def sharded(config: Config, sharding: str) -> Config:
    return config.model_copy(
        update={"learning": config.learning.model_copy(update={"sharding": sharding})}
    )


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["none", "fsdp"])
def test_a_restored_step_of_two_is_the_same_one(tmp_path: Path, sharding: str) -> None:
    config = sharded(CONFIG, sharding)
    given = [row for episode in recorded() for row in rows(assign(episode, config).episode)]
    for name in ("whole", "cut", "state"):
        (tmp_path / name).mkdir()
    whole, _ = together(learned, config, given, folder=tmp_path / "whole")
    one, other = together(
        interrupted, config, given, str(tmp_path / "state"), folder=tmp_path / "cut"
    )
    assert one["figures"] == whole["figures"][1] == other["figures"]
    assert all(torch.equal(a, b) for a, b in zip(one["weights"], whole["weights"], strict=True))
    with pytest.raises(DvkError, match="was written with") if sharding == "fsdp" else nullcontext():
        Learner(tiny(seed=4), config.learning, 10).restore(tmp_path / "state")


def halves(given: list[TrainingRow]) -> dict[str, Any]:
    """Small steps of a model in bfloat16: the change of the shards, and its visible part in the whole model."""
    with ProcessGroup.join(60) as processes:
        config = sharded(CONFIG, "fsdp")
        learner = Learner(
            tiny(seed=4).to(torch.bfloat16),
            config.learning.model_copy(update={"precision": "bf16", "rate": 1e-5}),
            10,
        )
        before = [p.full_tensor() for p in learner.scorer.parameters()]
        losses = [
            update(learner, given, config, seed=step, processes=processes)["loss"]
            for step in range(3)
        ]
        after = [p.full_tensor() for p in learner.scorer.parameters()]
        same = all(
            torch.equal(whole, piece.bfloat16())
            for whole, piece in zip(learner.model.parameters(), after, strict=True)
        )
        moved = max(float((a - b).detach().abs().max()) for a, b in zip(after, before, strict=True))
        return {"losses": losses, "same": same, "moved": moved, "dtype": str(after[0].dtype)}


@pytest.mark.slow
def test_pieces_keep_what_16_bits_cannot_show(tmp_path: Path) -> None:
    given = [row for episode in recorded() for row in rows(assign(episode, CONFIG).episode)]
    one, other = together(halves, given, folder=tmp_path)
    assert one == other and one["same"] and one["dtype"] == "torch.float32"
    assert 1e-5 < one["moved"] < 1e-4, "three steps of the rate, none rounded away"


@pytest.mark.parametrize(
    ("aggregate", "sharding"),
    [
        ("token", "none"),
        *(
            pytest.param(*pair, marks=pytest.mark.slow)
            for pair in (("row", "none"), ("token", "fsdp"))
        ),
    ],
)
@pytest.mark.slow
def test_an_update_on_recorded_episodes(tmp_path: Path, aggregate: str, sharding: str) -> None:
    config = sharded(CONFIG, sharding).model_copy(
        update={"objective": CONFIG.objective.model_copy(update={"aggregate": aggregate})}
    )
    given = [row for episode in recorded() for row in rows(assign(episode, config).episode)]
    assert len(given) > 16
    alone = learned(config, given)
    one, other = together(learned, config, given, folder=tmp_path)
    for name in ("loss", "grad_norm", "entropy", "tokens", "rows", "clipped", "kept"):
        for here, there in zip(alone["figures"], one["figures"], strict=True):
            assert here[name] == pytest.approx(there[name], rel=1e-4, abs=1e-6), name
    assert one["figures"] == other["figures"]
    for a, b, c in zip(alone["weights"], one["weights"], other["weights"], strict=True):
        assert torch.equal(b, c), "processes must not drift apart"
        torch.testing.assert_close(a, b, atol=2e-5, rtol=0)


@pytest.mark.slow
def test_fewer_packs_than_processes(tmp_path: Path) -> None:
    given = [TrainingRow.answer([5, 6], [7, 8, 9], logprobs=(-4.0,) * 3)]
    alone = learned(CONFIG, given, 1)
    one, other = together(learned, CONFIG, given, 1, folder=tmp_path)
    assert (
        one["figures"][0]["loss"] == pytest.approx(alone["figures"][0]["loss"], abs=1e-6)
        and one["figures"] == other["figures"]
    )
    torch.testing.assert_close(alone["weights"], one["weights"], atol=2e-5, rtol=0)


@pytest.mark.slow
def test_rows_are_rejected_by_all_or_none(tmp_path: Path) -> None:
    config = CONFIG.model_copy(
        update={"credit": CONFIG.credit.model_copy(update={"mismatch_rejection": True})}
    )
    given = [
        TrainingRow.answer(
            [5, n], [7, 8, 9, 10][: 2 + n % 3], logprobs=(-4.1,) * (2 + n % 3), advantage=1.0
        )
        for n in range(9)
    ]
    given.append(replace(given[0], logprobs=()))
    one, other = together(learned, config, given, 1, folder=tmp_path)
    assert (
        one["figures"] == other["figures"]
        and one["figures"][0]["rows"] >= 1
        and one["figures"][0]["kept"] < 1
    )


def test_packs_are_dealt_evenly() -> None:
    for count in range(1, 12):
        shares = [deal_packs(list(range(count)), rank, 3, 2) for rank in range(3)]
        assert len({len(share) for share in shares}) == 1, (
            "every process makes as many micro-batches"
        )
        assert sorted(pack for share in shares for part in share for pack in part) == list(
            range(count)
        )
        assert all(len(part) <= 2 for share in shares for part in share)
