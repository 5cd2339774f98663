"""How strategies ask a model."""

from __future__ import annotations

import pytest

from dvk.backbone import Completion, Conversation
from dvk.records import Status, Trace
from dvk.search.generations import judge_all, new
from dvk.search.writer import ProgramWriter
from tests.agents.conftest import Said, fenced, wrong
from tests.search.writing import play, problem, program, writing


def test_a_question_asked_again_is_sampled_again_and_its_neighbour_is_not() -> None:
    model = writing(lambda text: program(1.0))
    writer = ProgramWriter(problem(model), "evolve")
    first, second = (Conversation(messages=({"role": "user", "content": text},)) for text in "ab")
    writer.answers("policy", [first, first])  # the backbone separates them: it is one call
    writer.answers("policy", [second, first])
    seeds = [
        ([c.messages[0]["content"] for c in conversations], sampling.seed)
        for conversations, sampling in model.calls
    ]
    assert [texts for texts, _ in seeds] == [["a", "a"], ["b"], ["a"]]
    assert seeds[0][1] == seeds[1][1] != seeds[2][1]


def test_answers_are_matched_to_their_questions() -> None:
    writer = ProgramWriter(
        problem(Said(lambda conversation: str(conversation.messages[0]["content"]))), "evolve"
    )
    asked = [Conversation(messages=({"role": "user", "content": text},)) for text in "abc"]
    writer.answers("policy", [asked[1]])
    assert [answer.text for answer in writer.answers("policy", asked)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Completion(text="", finish="error", error="down"), "the backbone failed: down"),
        ("words", "no fenced block of code"),
        (fenced(program(1.0)), None),
    ],
)
def test_every_answer_is_kept_and_only_new_programs_go_on(
    answer: str | Completion, why: str | None
) -> None:
    kept: list[Trace] = []
    writer = ProgramWriter(problem(Said(lambda _: answer), kept=kept), "evolve")
    written = writer.write(writer.openings(2))
    assert len(written) == 2 and len(new(written)) == (why is None)
    waiting = judge_all(writer, new(written))
    if why is None:
        next(waiting)
        waiting.close()  # time is over while it is judged
    assert [trace.turns[0].malformed for trace in kept] == [why, why]
    assert all(trace.turns[0].messages and trace.role == "policy" for trace in kept)


def test_a_broken_reference_ends_the_search() -> None:
    numbers = iter(range(100))
    for name in ("evolve", "contrastive", "judge", "polca"):
        model = writing(lambda text: program(1.0, number=next(numbers)))
        assert len(list(play(name, problem(model), lambda _: wrong(Status.BROKEN_TASK)))) == 1
