"""A search's final report: whose turns the episode holds, the counts, and why a model's answers gave nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from dvk.agents import TaskContext
from dvk.backbone import Completion, Conversation, Sampling
from dvk.backbone.recorded import RecordedBackbone
from dvk.config import Config
from dvk.pipelines.optimize import summary
from dvk.pipelines.optimize.episode import episode
from dvk.pipelines.optimize.session import SearchSession
from dvk.records import Candidate, Claim, Episode, Interval, Task, Trace, Turn, Verdict
from dvk.runs import RunFolder
from dvk.search.repeats import repeat
from tests.agents.conftest import Said, fenced, make_skill, ok, wrong

SUBJECT = TaskContext(
    Task(id="t", name="t", source="class Model: ...", entry="Model", kind="module"), None, "cpp"
)
CODE = "class ModelNew: number = {}\n"


def question(text: str, *tools: str) -> Conversation:
    schemas = tuple({"type": "function", "function": {"name": tool}} for tool in tools)
    return Conversation(messages=({"role": "user", "content": text},), tools=schemas)


def judged(
    source: str, verdict: Verdict, proposer: str = "said", at: float = 1.0, **fields: object
) -> Turn:
    found = Candidate.model_validate(
        {"source": source, "backend": "cpp", "proposer": proposer, **fields}
    )
    return Turn(candidate=found, verdict=verdict.model_copy(update={"seconds": 2.0}), elapsed_s=at)


def claim(turn: Turn) -> Turn:
    assert turn.verdict
    return turn.model_copy(
        update={
            "verdict": turn.verdict.model_copy(update={"tier": "claim", "seconds": 5.0}),
            "elapsed_s": 9.0,
        }
    )


@pytest.fixture
def model(tmp_path: Path) -> Iterator[RecordedBackbone]:
    """It was asked for a selection, then twice for code, then for advice."""
    answers = {
        "which?": "a",
        "one": fenced(CODE.format(1)),
        "two": fenced(CODE.format(2)),
        "why?": "Memory.",
    }
    said = Said(lambda conversation: answers[conversation.messages[-1]["content"]])
    with RunFolder.open(
        tmp_path / "run", command="optimize", name="m", argv=[], config=Config(), resume=False
    ) as run:
        backbone = RecordedBackbone(said, run)
        backbone.clock = iter([3.0, 4.0, 5.0]).__next__
        backbone.generate([question("which?", "select_skills")], Sampling())
        backbone.generate([question("one"), question("two")], Sampling())
        backbone.generate([question("why?")], Sampling())
        yield backbone


def test_answers_that_were_not_recorded_are_recorded_now(model: RecordedBackbone) -> None:
    first = judged(CODE.format(1), ok(1.5), at=6.0, title="idea", skills=("a",))
    composed = judged("composed", ok(1.2), proposer="composer")
    made = episode(SUBJECT, [composed, first, claim(first)], [make_skill("a")], [], model)
    outside, select, one, two, why = made.traces
    assert [t.candidate.source for t in outside.turns if t.candidate] == [
        "composed",
        CODE.format(1),
    ]
    assert [t.verdict.tier for t in outside.turns if t.verdict] == ["search", "claim"], (
        "what was judged in a conversation is there"
    )
    assert (select.role, one.role, two.role, why.role) == (
        "selection",
        "policy",
        "policy",
        "policy",
    )
    assert select.turns[0].elapsed_s == 3.0
    assert (
        one.skills == ("a",)
        and one.turns[0].verdict == first.verdict
        and one.turns[0].candidate == first.candidate
    )
    assert one.turns[0].completion == fenced(CODE.format(1)) and one.turns[0].elapsed_s == 6.0
    assert two.turns[0].candidate and two.turns[0].verdict is None, "written, and never judged"
    assert why.turns[0].candidate is None and why.turns[0].malformed is None, (
        "no sign that it was meant to be code"
    )


def test_kept_conversations_are_not_kept_twice(model: RecordedBackbone) -> None:
    call = model.calls[1]
    pending = Turn(
        messages=call.conversations[0].messages,
        completion=call.completions[0].text,
        finish="stop",
        candidate=Candidate(source=CODE.format(1), backend="cpp", proposer="said"),
        elapsed_s=77.0,
    )
    silent = Turn(
        messages=call.conversations[1].messages,
        completion=call.completions[1].text,
        malformed="no",
        elapsed_s=88.0,
    )
    kept = Trace(role="policy", skills=("a",), turns=(pending, silent))
    made = episode(SUBJECT, [judged(CODE.format(1), ok(1.5), at=6.0)], [], [kept], model)
    outside, talk, *rest = made.traces
    assert outside.turns == () and [trace.role for trace in rest] == ["selection", "policy"]
    # The verdict came after the conversation was left; times are the search's, also after a replay.
    assert talk.turns[0].verdict and [turn.elapsed_s for turn in talk.turns] == [6.0, 4.0]


def test_without_a_model_there_is_one_trace() -> None:
    made = episode(SUBJECT, [judged("a", ok(1.5))], [make_skill("a")], [], None)
    assert [trace.skills for trace in made.traces] == [("a",)] and len(made.traces[0].turns) == 1
    assert summary.cost([judged("a", ok(1.5))], made, None) == {
        "judge_s": 2.0,
        "confirm_s": 0.0,
        "model_s": None,
        "prompt_tokens": None,
        "completion_tokens": None,
        "usd": None,
        "answers": None,
        "malformed": None,
    }


def test_proposers_count_each_candidate_once() -> None:
    turns = [
        judged("a", ok(1.5), proposer="composer"),
        judged("b", wrong()),
        judged("c", ok(2.0)),
        judged("c", ok(9.0)),
        claim(judged("c", ok(1.8))),
    ]
    assert summary.proposers(turns) == [
        {"name": "composer", "candidates": 1, "correct": 1, "best": 1.5, "judge_s": 2.0},
        {"name": "said", "candidates": 2, "correct": 1, "best": 2.0, "judge_s": 4.0},
    ]
    assert summary.cost(turns, Episode(task=SUBJECT.task), None)["confirm_s"] == 5.0


def test_measurements_of_one_program_are_one_candidate_that_is_as_fast_as_their_mean() -> None:
    def again(turn: Turn, number: int, speedup: float) -> Turn:
        assert turn.candidate
        return judged(repeat(turn.candidate, number).source, timed(speedup))

    def timed(speedup: float) -> Verdict:
        made = ok(speedup)
        assert made.timing
        exact = Interval(value=speedup, lo=speedup, hi=speedup)
        return made.model_copy(
            update={"tier": "search", "timing": made.timing.model_copy(update={"speedup": exact})}
        )

    lucky, steady, last = (
        judged(f"program {name}", timed(speedup))
        for name, speedup in (("a", 1.8), ("b", 1.5), ("c", 1.2))
    )
    turns = [lucky, steady, again(lucky, 2, 1.25), last, again(lucky, 3, 1.2)]
    promising = SearchSession.promising.fget(SimpleNamespace(turns=turns))  # type: ignore[attr-defined]  # a property
    assert promising == [steady, lucky, last], "each once, in its own words"
    assert summary.outcome(turns, None, False, "why", None)["num_candidates"] == 3
    (row,) = summary.proposers([turns[0], turns[2], turns[4]])
    assert row == {
        "name": "said",
        "candidates": 1,
        "correct": 1,
        "best": pytest.approx((1.8 * 1.25 * 1.2) ** (1 / 3)),
        "judge_s": 6.0,
    }


def test_why_nothing_was_read() -> None:
    def talk(*turns: Turn) -> Episode:
        return Episode(task=SUBJECT.task, traces=(Trace(role="policy", turns=turns),))

    asked = ({"role": "user", "content": "?"},)
    bad = Turn(messages=asked, completion="hm", malformed="no fenced block")
    other = Turn(messages=asked, completion="", malformed="an empty answer")
    assert (
        summary.why_unparsed(talk(bad, other, bad))
        == "none of the model's 3 answers could be read; most often: no fenced block"
    )
    assert summary.why_unparsed(talk()) is None
    assert (
        summary.why_unparsed(
            talk(bad, bad.model_copy(update={"candidate": Candidate(source="x", backend="cpp")}))
        )
        is None
    )
    assert summary.outcome([], None, False, None, "why")["reason"] == "why"


def test_a_failed_server_is_no_candidate(tmp_path: Path) -> None:
    said = Said(lambda conversation: Completion(text="", finish="error", error="too long"))
    with RunFolder.open(
        tmp_path / "run", command="optimize", name="m", argv=[], config=Config(), resume=False
    ) as run:
        backbone = RecordedBackbone(said, run)
        backbone.generate([question("one")], Sampling())
        (_, talk) = episode(SUBJECT, [], [], [], backbone).traces
    assert (
        talk.turns[0].malformed == "the backbone failed: too long"
        and talk.turns[0].finish == "error"
    )


def undecided(
    lo: float, value: float, hi: float, tier: str = "search", why: str = "", source: str = ""
) -> Turn:
    made = ok(value)
    assert made.timing is not None
    exact = Interval(value=value, lo=lo, hi=hi)
    held = Claim(
        speedup=exact,
        processes=(value,),
        control=Interval(value=1, lo=0.8, hi=1.2),
        margin=0.3,
        holds=False,
        why=why,
    )
    timing = made.timing.model_copy(
        update={"speedup": exact, "claim": held if tier == "claim" else None}
    )
    return judged(
        source or f"{lo} {value}",
        made.model_copy(update={"timing": timing, "tier": tier}),
        proposer="said",
    )


def test_a_claim_that_does_not_hold_is_the_reason_that_is_given() -> None:
    turns = [
        undecided(0.6, 0.9, 1.9, source="a"),
        undecided(1.17, 1.36, 1.58, "claim", "the lower end 1.17 does not exceed 1.231", "a"),
    ]
    said = summary.outcome(turns, turns[1], False, None, None)
    assert (
        said["status"] == "too_noisy"
        and "between 1.17× and 1.58×" in said["reason"]
        and "does not exceed" not in said["reason"]
    )
    assert (
        "judge.claim_pairs" in said["hint"]
        and said["headline"] is None
        and said["control"] == {"value": 1.0, "lo": 0.8, "hi": 1.2}
    )
    assert (
        summary.outcome(turns[:1], None, False, None, None)["reason"]
        == "the fastest candidate measured unclear [0.60, 1.90]"
    )


@pytest.mark.parametrize(
    "searched, claimed, status",
    [
        ((1.2, 1.3, 1.4), (0.9, 0.93, 0.96), "no_speedup"),  # it is slower
        ((1.2, 1.3, 1.4), (0.98, 1.0, 1.03), "no_speedup"),  # there is nothing to gain
        ((1.2, 1.3, 1.4), (0.5, 1.3, 3.0), "too_noisy"),
    ],
)
def test_what_a_claim_that_does_not_hold_makes_of_the_search(
    searched: tuple[float, float, float], claimed: tuple[float, float, float], status: str
) -> None:
    turns = [undecided(*searched, source="a"), undecided(*claimed, "claim", source="a")]
    assert summary.outcome(turns, turns[1], False, None, None)["status"] == status


def test_a_search_that_judged_nothing_says_why() -> None:
    said = summary.outcome(
        [], None, False, None, None, unjudged="the budget ended before the first verdict"
    )
    assert (said["status"], said["reason"]) == (
        "no_verdict",
        "the budget ended before the first verdict",
    )
    assert (
        summary.outcome([], None, False, "the composer cannot capture this module", None)["status"]
        == "no_speedup"
    )


def test_a_best_candidate_that_is_refused_when_judged_again_is_named_so() -> None:
    refused = judged("a", wrong().model_copy(update={"tier": "claim"}))
    said = summary.outcome([undecided(1.2, 1.3, 1.4, source="a"), refused], None, False, None, None)
    assert said["status"] == "no_speedup" and "refused when it was judged again" in said["reason"]


def refuted(turns: list[Turn]) -> Turn | None:
    return SearchSession.refuted.fget(SimpleNamespace(turns=turns))  # type: ignore[attr-defined,no-any-return]  # a property


def test_what_is_said_of_a_refuted_search_is_of_its_best_candidate() -> None:
    searched = [
        undecided(1.0, 1.1, 1.2, source="b"),
        undecided(1.25, 1.3, 1.35, source="a"),
        undecided(1.0, 1.04, 1.1, source="c"),
    ]
    claims = [
        undecided(0.8, 1.29, 1.8, "claim", source="a"),
        undecided(0.9, 1.08, 1.3, "claim", source="b"),
        undecided(0.95, 0.97, 0.99, "claim", source="c"),
    ]
    turns = [*searched, *claims]
    said = summary.outcome(turns, refuted(turns), False, None, None)
    assert (
        said["speedup"] == 1.29
        and said["reason"].startswith("the search's best, 1.30×")
        and "timed again" in said["reason"]
    )
    without = [*searched, *claims[1:]]  # its best failed otherwise
    said = summary.outcome(without, refuted(without), False, None, None)
    assert (
        said["speedup"] == 1.08 and "1.100×" in said["reason"] and "timed again" in said["reason"]
    )
    joined = [
        *searched,
        undecided(0.9, 1.2, 1.5, "claim", source="a and others"),
        undecided(0.9, 1.0, 1.1, "claim", source="b and others"),
    ]
    said = summary.outcome(joined, refuted(joined), False, None, None)
    assert (
        said["speedup"] == 1.2
        and said["reason"].startswith("the search's best, 1.30×")
        and "timed again" in said["reason"]
    )


@pytest.mark.parametrize(
    "turns, confirmed",
    [
        (
            [(0.6, 0.9, 1.9), (0.7, 0.95, 1.3), (0.6, 0.8, 1.4)],
            [0.95],
        ),  # a noisy machine has decided nothing
        ([(0.6, 0.9, 1.9), (0.9, 1.02, 1.1), (1.1, 1.3, 1.4)], [1.3, 1.02]),
        ([(0.97, 0.99, 1.01), (0.5, 0.6, 0.7)], []),
    ],
)
def test_what_is_worth_confirming(
    turns: list[tuple[float, float, float]], confirmed: list[float]
) -> None:
    judged_so = SimpleNamespace(turns=[undecided(*figures) for figures in turns])
    promising = SearchSession.promising.fget(judged_so)  # type: ignore[attr-defined]  # a property
    assert [turn.verdict.timing.speedup.value for turn in promising] == confirmed
