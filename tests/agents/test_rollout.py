"""Whole episodes through a scripted model and the real judge."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from dvk.agents import TaskContext, run_episode, run_episodes
from dvk.agents.episode_runner import ConversationKey
from dvk.agents.rollout import Judging
from dvk.backbone import Completion, Conversation, Sampling, TokenUsage, open_backbone
from dvk.harness.queue import JudgeQueue
from dvk.records import Candidate, Status, Turn
from dvk.skills import Library
from tests.agents.conftest import QUICK, Said, affine, configured, fenced, make_skill, source

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
RIGHT, WRONG = fenced(source("good/torch_affine")), fenced(source("bad/one_element"))


def here() -> TaskContext:
    return TaskContext(affine(), None, "cpp")


def turn_number(conversation: Conversation) -> int:
    return sum(message["role"] == "assistant" for message in conversation.messages)


@needs_compiler
@pytest.mark.slow
def test_real_feedback_on_a_real_failure_leads_to_the_next_turn(tmp_path: Path) -> None:
    lines = [
        {
            "match": "worst at \\[6\\d, \\d+\\]: \\S+ instead of",
            "answer": fenced(source("good/cpp_affine")),
        },
        {"match": "The task:", "answer": fenced(source("bad/cpp_tail_left_out"))},
    ]
    script = tmp_path / "script.jsonl"
    script.write_text("\n".join(map(json.dumps, lines)))
    (trace,) = run_episode(here(), open_backbone(f"scripted:{script}", QUICK), None, QUICK).traces
    first, second = trace.turns
    assert first.verdict is not None and first.verdict.status is Status.MISMATCH
    assert (
        second.verdict is not None
        and second.verdict.status is Status.OK
        and second.verdict.timing is not None
    )
    assert second.messages[:2] == (
        *first.messages,
        {"role": "assistant", "content": first.completion},
    )
    assert second.candidate is not None and second.candidate.proposer == f"scripted:{script}"


@pytest.mark.slow
def test_many_tasks_with_all_three_roles(library: Library) -> None:
    """The loop with selection, null scheme, an error, unreadable answers and summaries; every key is there once."""
    library.add_all(
        [make_skill("relu_sweep", tags=("relu",)), make_skill("mul_add", tags=("mul",))]
    )

    def answer(conversation: Conversation) -> str | Completion:
        text = conversation.messages[-1]["content"]
        if conversation.tools:
            return json.dumps(
                {
                    "name": "select_skills",
                    "arguments": {"selected_skills": [{"name": "relu_sweep", "reason": ""}]},
                }
            )
        if "relu_sweep" in text:
            return Completion(text="", finish="error", error="down")
        return WRONG if turn_number(conversation) == 0 else RIGHT

    backbone = Said(answer)
    heard: list[tuple[ConversationKey, Turn]] = []
    config = configured(schemes=1, rollouts=2, turns=2, batch=4)
    episodes = list(
        run_episodes(
            [here(), here()],
            backbone,
            library,
            config,
            step=3,
            on_turn=lambda key, turn: heard.append((key, turn)),
        )
    )
    assert len(episodes) == 2
    for episode in episodes:
        keys = [(trace.role, trace.scheme, trace.rollout) for trace in episode.traces]
        assert keys == [
            ("selection", 0, 0),
            ("policy", None, 0),
            ("policy", None, 1),
            ("policy", 0, 0),
            ("policy", 0, 1),
        ]
        for trace in episode.traces[1:3]:
            assert [turn.verdict and turn.verdict.status for turn in trace.turns] == [
                Status.MISMATCH,
                Status.OK,
            ]
        for trace in episode.traces[3:]:
            assert [turn.finish for turn in trace.turns] == ["error"] and trace.skills == (
                "relu_sweep",
            )
    told: dict[ConversationKey, list[Turn]] = {}
    for key, turn in heard:
        told.setdefault(key, []).append(turn)
    assert {key.position for key in told} == {0, 1} and sum(map(len, told.values())) == 2 * (
        1 + 4 + 2
    )
    assert all(len(conversations) <= 4 for conversations, _ in backbone.calls)
    assert any(
        {len(c.tools) for c in conversations} == {1} and len(conversations) == 2
        for conversations, _ in backbone.calls
    )


def test_equal_questions_are_drawn_apart() -> None:
    """Backbones separate equal prompts within a call; across calls the seed must."""
    backbone = Said(lambda _: "nothing to read")
    list(run_episodes([here()], backbone, None, configured(rollouts=5, turns=1, batch=2)))
    asked = [
        (json.dumps(c.messages), sampling.seed, n)
        for conversations, sampling in backbone.calls
        for n, c in enumerate(conversations)
    ]
    assert len(asked) == 5 and len(set(asked)) == 5
    again = Said(lambda _: "nothing to read")
    list(run_episodes([here()], again, None, configured(rollouts=5, turns=1, batch=2)))
    assert [sampling.seed for _, sampling in again.calls] == [
        sampling.seed for _, sampling in backbone.calls
    ]
    other = Said(lambda _: "nothing to read")
    list(run_episodes([here()], other, None, configured(rollouts=5, turns=1, batch=2), step=1))
    assert not {sampling.seed for _, sampling in other.calls} & {
        sampling.seed for _, sampling in backbone.calls
    }


@pytest.mark.slow
def test_answers_are_written_while_others_are_judged() -> None:
    with Judging(1, QUICK) as judging:
        pending: list[int] = []

        def answer(_: Conversation) -> str:
            pending.append(judging.num_pending)
            return RIGHT

        episodes = list(
            run_episodes(
                [here()] * 3, Said(answer), None, configured(turns=2, batch=1), judging=judging
            )
        )
        assert len(episodes) == 3 and max(pending) > 0
        assert judging.num_pending == 0
        (verdict,) = {
            turn.verdict.model_dump_json()
            for e in episodes
            for trace in e.traces
            for turn in trace.turns
            if turn.verdict
        }
        assert '"ok"' in verdict  # the same candidate six times: judged once


class Rubbish:
    """A model that writes rubbish when it is greedy, and then now and then something right, by its seed."""

    name, dialect = "rubbish", "chat"

    def __init__(self, luck: int) -> None:
        self.usage, self.luck = TokenUsage(), luck
        self.calls: list[tuple[int, Sampling]] = []

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        self.calls.append((len(conversations), sampling))
        lucky = [
            sampling.temperature > 0 and (sampling.seed + place) % self.luck == 0
            for place in range(len(conversations))
        ]
        return [
            Completion(text=RIGHT if one else f"rubbish {sampling.seed} {place}", finish="stop")
            for place, one in enumerate(lucky)
        ]


@pytest.mark.slow
def test_what_cannot_be_read_is_drawn_again_in_the_same_turn() -> None:
    (turn,) = run_episode(here(), Rubbish(1), None, configured(turns=1)).traces[0].turns
    assert turn.malformed and turn.verdict is None and turn.redrawn == 0
    backbone = Rubbish(1)
    (turn,) = (
        run_episode(here(), backbone, None, configured(turns=1, resample_unparsed=3))
        .traces[0]
        .turns
    )
    assert (
        turn.verdict is not None
        and turn.verdict.status is Status.OK
        and turn.redrawn == 1
        and turn.completion == RIGHT
    )
    (_, first), (_, second) = backbone.calls
    assert (first.temperature, second.temperature) == (0.0, 1.0) and first.seed != second.seed
    hot = Rubbish(10**9)
    (turn,) = (
        run_episode(here(), hot, None, configured(turns=1, resample_unparsed=2, temperature=1.0))
        .traces[0]
        .turns
    )
    assert (
        turn.malformed
        and turn.redrawn == 2
        and turn.completion == f"rubbish {hot.calls[-1][1].seed} 0"
    )
    assert [sampling.temperature for _, sampling in hot.calls] == [1.0] * 3 and len(
        {sampling.seed for _, sampling in hot.calls}
    ) == 3


@pytest.mark.slow
def test_answers_of_a_call_are_drawn_again_in_one_call_and_alike_under_one_seed() -> None:
    def played(seed: int) -> tuple[list[int], list[tuple[str, int]]]:
        backbone = Rubbish(3)
        config = configured(turns=1, resample_unparsed=4, rollouts=6).model_copy(
            update={"seed": seed}
        )
        turns = [
            turn
            for trace in run_episode(here(), backbone, None, config).traces
            for turn in trace.turns
        ]
        return [number for number, _ in backbone.calls], [
            (turn.completion, turn.redrawn) for turn in turns
        ]

    asked, turns = played(0)
    assert asked[0] == 6 and asked == sorted(asked, reverse=True) and len(asked) > 2, (
        "fewer each time, until all are read or it was enough"
    )
    counts = [redrawn for _, redrawn in turns]
    assert asked[1:] == [
        sum(redrawn >= time for redrawn in counts) for time in range(1, len(asked))
    ]
    assert played(0) == (asked, turns) and played(1)[1] != turns


def test_a_failed_backbone_is_not_asked_again() -> None:
    backbone = Said(lambda _: Completion(text="", finish="error", error="down"))
    (turn,) = (
        run_episode(here(), backbone, None, configured(turns=2, resample_unparsed=3))
        .traces[0]
        .turns
    )
    assert turn.finish == "error" and turn.redrawn == 0 and len(backbone.calls) == 1


def test_an_interrupt_leaves_nothing_behind() -> None:
    before = threading.active_count()

    def answer(conversation: Conversation) -> str:
        if turn_number(conversation):
            raise KeyboardInterrupt
        return WRONG

    heard: list[Turn] = []
    with pytest.raises(KeyboardInterrupt):
        list(
            run_episodes(
                [here()], Said(answer), None, QUICK, on_turn=lambda _, turn: heard.append(turn)
            )
        )
    assert [turn.verdict and turn.verdict.status for turn in heard] == [Status.MISMATCH]
    assert threading.active_count() == before


@pytest.mark.slow
def test_a_run_that_is_left_does_not_disturb_the_next() -> None:
    with Judging(1, QUICK) as judging:
        left = run_episodes(
            [here(), here()],
            Said(lambda c: RIGHT if c else ""),
            None,
            configured(turns=1, batch=1),
            judging=judging,
        )
        assert next(left).traces
        left.close()
        episode = run_episode(
            here(), Said(lambda _: WRONG), None, configured(turns=1), judging=judging
        )
        assert [turn.verdict and turn.verdict.status for turn in episode.traces[0].turns] == [
            Status.MISMATCH
        ]


def test_the_compact_dialect_needs_a_graph() -> None:
    backbone = Said(lambda _: "", dialect="compact")
    (episode,) = run_episodes([here()], backbone, None, QUICK)
    assert episode.traces == () and episode.task == affine() and not backbone.calls


@pytest.mark.slow
def test_a_judge_queue_returns_every_submission() -> None:
    with JudgeQueue[str](2, QUICK) as queue:
        assert queue.results(wait=True) == []
        for name, text in [
            ("right", "good/torch_affine"),
            ("wrong", "bad/one_element"),
            ("raises", "bad/raises"),
        ]:
            queue.submit(name, affine(), Candidate(source=source(text), backend="cpp"))
        found: dict[str, Status] = {}
        while queue.num_pending:
            found |= {name: verdict.status for name, verdict in queue.results(wait=True)}
        assert found == {
            "right": Status.OK,
            "wrong": Status.MISMATCH,
            "raises": Status.LAUNCH_ERROR,
        }


def test_a_machine_that_cannot_judge_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr("dvk.harness.session.attempt.SandboxSession", broken)
    with pytest.raises(OSError, match="no more processes"):
        run_episode(here(), Said(lambda _: RIGHT), None, QUICK)
