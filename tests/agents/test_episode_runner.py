"""One task's episode, move by move, on made-up verdicts: which role is asked, under which key, and the record."""

from __future__ import annotations

import json

import pytest

from dvk.agents import dialects, summary
from dvk.agents.episode_runner import ConversationKey, ConversationState, EpisodeRunner
from dvk.agents.task_context import TaskContext
from dvk.backbone import Completion
from dvk.pipelines.train.validate import greedy
from dvk.records import Candidate, Episode, Status, Task, Trace
from tests.agents.conftest import configured, fenced, make_skill, ok, wrong

TASK = Task(id="t", name="t", source="class Model: ...", entry="Model", kind="module")
OFFERED = [make_skill("a"), make_skill("b")]
CODE = Completion(text=fenced("class ModelNew: ...\n"), finish="stop")


def begin(offered: list = OFFERED, **rollout: object) -> EpisodeRunner:
    settings = {"schemes": 2, "rollouts": 2, "turns": 3, "summaries": 2, **rollout}
    return EpisodeRunner(
        7,
        TaskContext(TASK, None, "cpp"),
        offered,
        dialects.get("chat"),
        configured(**settings),
        proposer="said",
        step=5,
    )


def called(tool: str, **arguments: object) -> Completion:
    return Completion(text=json.dumps({"name": tool, "arguments": arguments}), finish="stop")


def picked(*names: str) -> Completion:
    return called("select_skills", selected_skills=[{"name": name, "reason": ""} for name in names])


def answer(
    runner: EpisodeRunner, conversation: ConversationState, said: Completion
) -> Candidate | None:
    runner.next_question(conversation)
    return runner.on_answer(conversation, said)


def ready(runner: EpisodeRunner, role: str, scheme: int | None = None) -> list[ConversationState]:
    return [
        conversation
        for conversation in runner.ready
        if conversation.key.role == role and conversation.key.scheme == scheme
    ]


def run(runner: EpisodeRunner, conversation: ConversationState, *speeds: float) -> None:
    """Play a policy conversation to such speeds; 0 is a wrong answer."""
    for speed in speeds:
        assert answer(runner, conversation, CODE) is not None
        runner.on_verdict(conversation, ok(speed) if speed else wrong())


def select(runner: EpisodeRunner) -> None:
    """Both schemes choose: a, and b then a."""
    answer(runner, ready(runner, "selection", 0)[0], picked("a"))
    answer(runner, ready(runner, "selection", 1)[0], picked("b", "a"))


def by_key(episode: Episode) -> dict[tuple, Trace]:
    return {(t.role, t.scheme, t.rollout): t for t in episode.traces}


def test_schemes_and_the_null_scheme() -> None:
    runner = begin()
    assert [conversation.key for conversation in runner.ready] == [
        ConversationKey(7, "selection", 0, 0),
        ConversationKey(7, "selection", 1, 0),
        ConversationKey(7, "policy", None, 0),
        ConversationKey(7, "policy", None, 1),
    ]
    select(runner)
    assert [
        (t.key.scheme, t.key.rollout, [s.name for s in t.skills])
        for t in runner.ready
        if t.key.role == "policy"
    ] == [
        (None, 0, []),
        (None, 1, []),
        (0, 0, ["a"]),
        (0, 1, ["a"]),
        (1, 0, ["b", "a"]),
        (1, 1, ["b", "a"]),
    ]
    for conversation in list(runner.ready):
        run(runner, conversation, 1.0, 0, 1.1)
    assert runner.finished
    episode = runner.episode()
    assert (episode.task, episode.step) == (TASK, 5)
    traces = by_key(episode)
    assert (
        traces["selection", 1, 0].turns[0].chosen == ("b", "a")
        and traces["selection", 1, 0].turns[0].malformed is None
    )
    assert traces["policy", 1, 1].skills == ("b", "a") and traces["policy", None, 0].skills == ()
    assert [t.verdict.status.value for t in traces["policy", 0, 1].turns if t.verdict] == [
        "ok",
        "mismatch",
        "ok",
    ]
    assert traces["policy", 0, 0].turns[0].candidate.skills == ("a",)  # type: ignore[union-attr]
    peers = {trace.role: trace.peer_group for trace in episode.traces}
    assert len(set(peers.values())) == 2 and all(
        trace.peer_group == peers[trace.role] for trace in episode.traces
    )


def test_a_malformed_choice_is_no_second_null_scheme() -> None:
    runner = begin()
    answer(runner, ready(runner, "selection", 0)[0], Completion(text="a, I think", finish="stop"))
    answer(runner, ready(runner, "selection", 1)[0], picked("zzz"))
    assert {conversation.key.scheme for conversation in runner.ready} == {None}
    traces = by_key(runner.episode())
    assert traces["selection", 0, 0].turns[0].malformed == "no tool call"
    assert "zzz" in (traces["selection", 1, 0].turns[0].malformed or "")


@pytest.mark.parametrize(
    "said",
    [
        Completion(text="a, I think", finish="stop"),
        Completion(text="", finish="error", error="down"),
    ],
)
def test_without_a_null_scheme_a_malformed_choice_costs_no_task(said: Completion) -> None:
    runner = begin(schemes=1, null_scheme=False)
    answer(runner, ready(runner, "selection", 0)[0], said)
    assert [
        (conversation.key.scheme, conversation.key.rollout, conversation.skills)
        for conversation in runner.ready
    ] == [(0, 0, ()), (0, 1, ())]
    assert by_key(runner.episode())["selection", 0, 0].turns[0].malformed


def test_selection_controls_need_no_model() -> None:
    many = [make_skill(name) for name in "abcdefgh"]
    given = {name: begin(many, selector=name, schemes=3) for name in ("bm25", "random")}
    chosen = {
        name: [tuple(s.name for s in t.skills) for t in runner.ready if t.key.scheme is not None]
        for name, runner in given.items()
    }
    assert chosen["bm25"] == [("a", "b", "c")] * 6
    assert len(set(chosen["random"])) > 1 and chosen["random"][0] == chosen["random"][1], (
        "a scheme's rollouts share its choice"
    )
    assert all(len(set(names)) == 3 for names in chosen["random"])
    again = begin(many, selector="random", schemes=3)
    assert chosen["random"] == [
        tuple(s.name for s in t.skills) for t in again.ready if t.key.scheme is not None
    ]
    assert {t.key.role for t in given["bm25"].ready} == {"policy"} and len(given["bm25"].ready) == 8


def test_some_schemes_are_drawn_where_the_agent_selects_the_others() -> None:
    runner = begin([make_skill(name) for name in "abcdefgh"], schemes=3, explored=1)
    asked = {
        (conversation.key.role, conversation.key.scheme): conversation
        for conversation in runner.ready
    }
    assert set(asked) == {*(("selection", scheme) for scheme in range(3)), ("policy", None)}
    explored = asked["selection", 0]
    assert asked["selection", 1].given is None and explored.given is not None
    answer(runner, explored, Completion(text=runner.given_text(explored), finish="stop"))
    recorded = next(t for t in runner.episode().traces if (t.role, t.scheme) == ("selection", 0))
    assert recorded.turns[0].forced and len(recorded.turns[0].chosen) == 3
    drawn = {
        tuple(skill.name for skill in conversation.skills)
        for conversation in ready(runner, "policy", 0)
    }
    assert len(drawn) == 1 and len(set(*drawn)) == 3
    validated = begin(
        [make_skill(name) for name in "abcdefgh"],
        **greedy(configured(schemes=3, explored=1)).rollout.model_dump(),
    )
    (selection,) = validated.ready
    assert (
        selection.key.role == "selection"
        and "".join(validated.episode().traces[0].skills) == "abcdefgh"
    ), "what it could choose from"


def test_a_choice_of_nothing_is_played() -> None:
    runner = begin()
    answer(runner, ready(runner, "selection", 0)[0], picked())
    assert len(ready(runner, "policy", 0)) == 2 and ready(runner, "policy", 0)[0].skills == ()


@pytest.mark.parametrize(
    ("settings", "without"),
    [
        ({}, 6),
        ({"null_scheme": False}, 4),
        ({"schemes": 0}, 2),
        ({"schemes": 0, "null_scheme": False}, 2),
    ],
)
def test_with_nothing_to_choose_from_as_much_is_played_without_skills(
    settings: dict[str, object], without: int
) -> None:
    runner = begin(offered=[], **settings)
    assert [conversation.key for conversation in runner.ready] == [
        ConversationKey(7, "policy", None, n) for n in range(without)
    ]


def test_unparsable_answers_cost_a_turn_and_are_reported() -> None:
    runner = begin(offered=[], schemes=0, rollouts=1)
    (conversation,) = runner.ready
    for _ in range(2):
        assert answer(runner, conversation, Completion(text="I cannot", finish="stop")) is None
    run(runner, conversation, 1.0)
    assert runner.finished
    turns = runner.episode().traces[0].turns
    assert [turn.malformed for turn in turns] == ["no fenced block of code"] * 2 + [None]
    assert (
        "Nothing could be read from your answer: no fenced block of code"
        in turns[1].messages[-1]["content"]
    )
    assert turns[0].finish == "stop" and turns[0].completion == "I cannot"


def test_a_failed_answer_ends_its_conversation_alone() -> None:
    runner = begin(offered=[], schemes=0)
    first, second = runner.ready
    assert answer(runner, first, Completion(text="", finish="error", error="no route")) is None
    assert not runner.finished and runner.ready == [second]
    run(runner, second, 1.0, 1.0, 1.0)
    assert runner.finished
    turn = runner.episode().traces[0].turns[0]
    assert (turn.finish, turn.malformed) == ("error", "the backbone failed: no route")


def test_a_broken_reference_ends_a_conversation() -> None:
    runner = begin(offered=[], schemes=0, rollouts=1)
    (conversation,) = runner.ready
    answer(runner, conversation, CODE)
    runner.on_verdict(conversation, wrong(Status.BROKEN_TASK))
    assert runner.finished and len(runner.episode().traces[0].turns) == 1


SKILL = {
    "name": "new_one",
    "description": "d",
    "scope": "general",
    "tags": ["x"],
    "content": "## Motivation\nm\n## Key Idea\nk\n## Example\ne",
}


def test_the_best_improvement_is_summarised_and_its_skills_bear_its_keys() -> None:
    runner = begin()
    select(runner)
    for conversation in list(runner.ready):
        scheme, rollout = conversation.key.scheme, conversation.key.rollout
        assert not ready(runner, "summary", 1), "a summary waits until all has been played"
        run(runner, conversation, 1.0, 0, {(1, 0): 3.0, (0, 1): 1.5}.get((scheme, rollout), 1.1))
    conversations = ready(runner, "summary", 1)
    assert [conversation.key for conversation in conversations] == [
        ConversationKey(7, "summary", 1, 0),
        ConversationKey(7, "summary", 1, 1),
    ]
    asked = runner.next_question(conversations[0]).messages[-1]["content"]
    assert "3.00×" in asked and "1.50×" not in asked and "Do b in one sweep" in asked
    runner.on_answer(
        conversations[0], called("update_skill_library", new_skills=[SKILL, {**SKILL, "name": ""}])
    )
    answer(runner, conversations[1], Completion(text="nothing", finish="stop"))
    assert runner.finished
    (skill,) = runner.episode().proposed_skills
    assert skill.name == "new_one"
    assert skill.provenance == {
        "source": "run",
        "task": "t",
        "step": 5,
        "scheme": 1,
        "rollout": 0,
        "summary": 0,
    }
    traces = by_key(runner.episode())
    assert (
        traces["summary", 1, 0].turns[0].malformed is None
        and traces["summary", 1, 1].turns[0].malformed == "no tool call"
    )


@pytest.mark.parametrize(
    ("summaries", "threshold"), [(0, ""), (1, "OVER_EAGER"), (1, "OVER_FIRST")]
)
def test_no_summary_when_none_is_due(
    summaries: int, threshold: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if threshold:
        monkeypatch.setattr(summary, threshold, 4.0)
    runner = begin(offered=[], schemes=0, rollouts=1, summaries=summaries)
    run(runner, runner.ready[0], 1.0, 0, 3.0)
    assert runner.finished


def test_test_time_scaling_goes_on_from_the_best_window() -> None:
    """Five turns and ten iterations with windows of four: 5 + 9 × (5 − 4) attempts, as in daVinci-kernel's evaluation."""
    runner = begin([], rollouts=1, schemes=0, summaries=0, turns=5, iterations=10, window=4)
    (conversation,) = runner.ready
    speeds = [0, 3.0, 0, 2.0, 1.0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    for number, speed in enumerate(speeds):
        asked = runner.next_question(conversation)
        shown = [message["content"] for message in asked.messages if message["role"] == "assistant"]
        assert len(shown) == min(number, 4)
        if number >= 5:
            assert [f"answer {n}" in text for n, text in zip((1, 2, 3, 4), shown, strict=True)] == [
                True
            ] * 4
        assert (
            runner.on_answer(
                conversation, Completion(text=f"answer {number}\n" + CODE.text, finish="stop")
            )
            is not None
        )
        runner.on_verdict(conversation, ok(speed) if speed else wrong())
    assert runner.finished and len(conversation.turns) == 14 == 5 + 9 * (5 - 4)


def test_the_window_is_the_earliest_of_the_best() -> None:
    runner = begin([], rollouts=1, schemes=0, summaries=0, turns=3, iterations=3, window=1)
    (conversation,) = runner.ready
    run(runner, conversation, 0, 2.0, 2.0)
    assert (
        conversation.window == (1,)
        and conversation.iteration == 2
        and [turn.verdict for turn in conversation.context] == [conversation.turns[1].verdict]
    )
    run(runner, conversation, 1.5, 3.0)
    assert conversation.window == (4,) and conversation.since == 5 and not runner.finished
    run(runner, conversation, 1.0, 1.0)
    assert runner.finished and len(conversation.turns) == 3 + 2 * (3 - 1)


def test_turns_are_news_once_complete() -> None:
    runner = begin(offered=[], schemes=0, rollouts=1)
    (conversation,) = runner.ready
    answer(runner, conversation, CODE)
    assert runner.news == []
    runner.on_verdict(conversation, ok(1.0))
    assert [(key, turn.verdict is not None) for key, turn in runner.news] == [
        (conversation.key, True)
    ]


def test_an_episode_survives_the_disk() -> None:
    runner = begin(offered=[], schemes=0, rollouts=1)
    run(runner, runner.ready[0], 1.0, 0, 1.1)
    episode = runner.episode()
    assert Episode.model_validate_json(episode.model_dump_json()) == episode
