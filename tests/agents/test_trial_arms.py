"""Arms of trials: which are asked what, what they share, and what a failing backbone leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dvk.agents import run_episode
from dvk.agents.trial_arms import TrialArm, sample_arms
from dvk.agents.trials import summary_rewards, try_skills
from dvk.backbone import Completion, Conversation
from dvk.config import Config
from dvk.records import Status
from dvk.skills import Library
from tests.agents.conftest import QUICK, Said, fenced, ok
from tests.agents.recorded_trials import (
    PLAIN,
    THREE,
    Held,
    Recorder,
    asked,
    configured,
    proposal,
    recording,
    skill,
    teachable,
)


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorder]:
    with recording(tmp_path / "verdicts.db") as record:
        yield record


def test_which_arm_is_asked_what(library: Library, recorded: Recorder) -> None:
    library.add_all([skill("given_one"), skill("given_two"), skill("given_three")])
    backbone = teachable("the_new")
    one = proposal("the_new", given=("given_one", "given_two", "given_three"))
    (trial,) = try_skills(
        [one], THREE, backbone, library, configured(), recorded(lambda *_: ok(1.0)), step=7
    )
    assert (
        trial.gain is not None
        and set(trial.gain.tasks) == {"own", "brother", "cousin"}
        and trial.gain.num_pairs == 9
    )
    texts = asked(backbone)
    assert len(texts) == 3 * 2 * 3 and len(set(texts)) == 6
    assert not any(
        "of stranger" in text or "given_three" in text for text in texts
    )  # three may be given, the new one among them
    for text in set(texts):
        assert "given_one" in text and "given_two" in text and texts.count(text) == 3
        if "the_new" in text:
            assert text.index("given_two") < text.index("the_new")
    for task in ("own", "brother", "cousin"):
        assert sorted("the_new" in text for text in set(texts) if f"of {task}" in text) == [
            False,
            True,
        ]


def test_pairs_share_their_draws(recorded: Recorder) -> None:
    """Sample i of either arm: the same seed and the same stream of random numbers, whatever the prompt is."""

    def draws(config: Config, step: int) -> dict[str, list[tuple[int | None, float, int | None]]]:
        backbone, lot = teachable("new"), [proposal("new_alpha"), proposal("new_beta", "cousin")]
        try_skills(lot, THREE, backbone, None, config, recorded(lambda *_: ok(1.0)), step)
        found: dict[str, list[tuple[int | None, float, int | None]]] = {}
        for conversations, sampling in backbone.calls:
            assert len(conversations) <= config.rollout.batch
            for conversation in conversations:
                found.setdefault(conversation.messages[-1]["content"], []).append(
                    (sampling.seed, sampling.temperature, conversation.stream)
                )
        return found

    small = configured().model_copy(
        update={"rollout": QUICK.rollout.model_copy(update={"batch": 7, "temperature": 0.5})}
    )
    found = draws(small, 1)
    (same,) = {tuple(of) for of in found.values()}
    assert [stream for _, _, stream in same] == [0, 1, 2] and {
        temperature for _, temperature, _ in same
    } == {0.5}
    large = configured().model_copy(
        update={"rollout": QUICK.rollout.model_copy(update={"temperature": 0.5})}
    )
    assert draws(large, 1) == found  # whatever a call holds
    (other,) = {tuple(of) for of in draws(small, 2).values()}
    assert other[0][0] != same[0][0]


def test_shared_controls_are_asked_once(recorded: Recorder) -> None:
    backbone = teachable("new")
    both = [proposal("new_alpha", sample=0), proposal("new_beta", sample=1)]
    first, second = try_skills(
        both, THREE, backbone, None, configured(siblings=1), recorded(lambda *_: ok(1.0))
    )
    assert len(set(asked(backbone))) == 2 + 2 * 2 and len(asked(backbone)) == 6 * 3
    assert (
        first.gain is not None
        and second.gain is not None
        and first.gain.num_pairs == second.gain.num_pairs == 6
    )


def test_a_model_without_graphs_to_read_tries_nothing() -> None:
    backbone = Said(lambda _: "", dialect="compact")
    (trial,) = try_skills([proposal("new")], THREE, backbone, None, configured())
    assert not backbone.calls and not trial.admitted and "cannot be played" in trial.why
    assert summary_rewards([trial]) == {"own": {0: None}}, "unknown"


def test_a_backbone_that_fails_or_babbles(recorded: Recorder) -> None:
    def answer(conversation: Conversation) -> str | Completion:
        if "new" in conversation.messages[-1]["content"]:
            return Completion(text="", finish="error", error="down")
        return "no code at all"

    arms = {
        taught: TrialArm(THREE["own"], (skill("new"),) if taught else ())
        for taught in (True, False)
    }
    turns = sample_arms(arms, Said(answer), configured(), recorded(lambda *_: ok(1.0)))
    assert [turn.finish for turn in turns[True]] == ["error"] * 3 and all(
        turn.malformed for turn in turns[False]
    )
    assert not any(turn.verdict for of in turns.values() for turn in of)
    (trial,) = try_skills(
        [proposal("new")], THREE, Said(answer), None, configured(), recorded(lambda *_: ok(1.0))
    )
    assert (
        trial.gain is not None
        and trial.gain.num_unmeasured == 9
        and "9 were not measured" in trial.why
    )
    assert not trial.admitted and trial.worth == 0


def test_a_trial_that_is_left_does_not_disturb_what_follows(recorded: Recorder) -> None:
    judging = recorded(lambda *_: ok(1.0))
    assert isinstance(judging.remembered, Held)
    judging.remembered.go.clear()

    def answer(_: Conversation) -> str:
        if judging.num_pending:
            raise KeyboardInterrupt
        return fenced(f"{PLAIN} + '0'\n")

    config = configured(samples=1).model_copy(
        update={"rollout": QUICK.rollout.model_copy(update={"batch": 1, "turns": 1})}
    )
    with pytest.raises(KeyboardInterrupt):
        try_skills([proposal("new")], THREE, Said(answer), None, config, judging)
    assert judging.num_pending == 1
    judging.remembered.go.set()
    played = run_episode(THREE["own"], teachable("new"), None, config, judging=judging)
    assert [turn.verdict and turn.verdict.status for turn in played.traces[0].turns] == [Status.OK]
    (trial,) = try_skills([proposal("new")], THREE, teachable("new"), None, config, judging)
    assert trial.gain is not None and trial.gain.num_pairs == 3 and judging.num_pending == 0
