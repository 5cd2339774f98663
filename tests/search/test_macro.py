"""A planner that names moves, on answers and verdicts that we make up, and once on the judge's."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from dvk.backbone import Completion, Conversation
from dvk.composer import CannotCompose, Plan
from dvk.errors import UsageError
from dvk.harness import JudgeSession
from dvk.records import Candidate, Status, Trace, Verdict
from dvk.search import generations, macro
from dvk.search.composer import Planner
from dvk.search.moves import PlanPosition, ProposedPlans
from tests.agents.conftest import QUICK, Said, affine, captured, ok, wrong
from tests.search.planning_a_search import problem, questions, says
from tests.search.recipe_names import legal, named
from tests.search.writing import asked, fixed, play


@pytest.fixture(autouse=True)
def soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "STALL_ROUNDS", 2)


def told(conversation: Conversation) -> list[str]:
    """A question's text about moves made."""
    return re.findall(r"^- (.*)$", asked(conversation).partition("## Moves made so far")[2], re.M)


# ---------------------------------------------------------------- the search


def test_a_move_that_pays_is_kept_and_the_next_starts_there() -> None:
    def judge(candidate: Candidate) -> Verdict:
        return ok(1.0 + ("own_matmul" in candidate.recipes))

    model = says(named(("with own_matmul", "graph")), named(("without fuse_rowwise", "graph")))
    batches = list(play("macro", problem(model), judge))
    assert [["own_matmul" in c.recipes for c in batch] for batch in batches] == [
        [False],
        [True],
        [True],
    ]
    assert all(c.proposer == "composer" for batch in batches for c in batch)
    (first,) = told(questions(model)[1])
    assert (
        first == "`with own_matmul` on `graph`: 2.00× [1.96, 2.04], 2.00× of the best before; kept"
    )
    assert told(questions(model)[2])[1].endswith("; undone")
    assert "own_matmul" in asked(questions(model)[2]).partition("### graph")[2].partition("\n- ")[0]


def test_device_times_are_not_compared_with_end_to_end_times() -> None:
    def judge(candidate: Candidate) -> Verdict:
        found = ok(1.0 + ("own_matmul" in candidate.recipes))
        assert found.timing is not None
        return (
            found
            if "own_matmul" in candidate.recipes
            else found.model_copy(
                update={"timing": found.timing.model_copy(update={"regime": "device"})}
            )
        )

    model = says(named(("with own_matmul", "graph")))
    list(play("macro", problem(model), judge))
    assert told(questions(model)[1])[0].endswith(
        "2.00× [1.96, 2.04], timed in another way than the best and not comparable; undone"
    )


def test_an_algorithm_is_measured_in_a_few_schedules_and_the_fastest_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speeds = iter([1.0, 1.1, 1.3])
    model = says(named(("row split", "k0")))
    fixed(monkeypatch, macro, SCHEDULES=2)
    opening, split = play("macro", problem(model), lambda _: ok(next(speeds)))
    assert len({c.id for c in (*opening, *split)}) == 3 and all(
        c.schedule["k0"]["parallel"] == "inner" for c in split
    )
    (line,) = told(questions(model)[1])
    assert line.startswith("`row split` on `k0`: 1.30× ") and line.endswith("the best of 2); kept")
    assert (
        PlanPosition(Planner(problem(None)), Plan.of(split[1]), ProposedPlans()).plan.schedules
        == Plan.of(split[1]).schedules
    )


def test_moves_of_one_answer_are_tried_in_turn_and_refused_where_the_plan_has_changed() -> None:
    faster = iter(range(1, 100))
    both = (("without fuse_rowwise", "graph"), ("row split", "k0"))
    kept: list[Trace] = []
    model = says(named(*both))
    batches = list(play("macro", problem(model, kept), lambda _: ok(float(next(faster)))))
    assert [len(batch) for batch in batches] == [1, 1], "there is no row kernel any more"
    assert told(questions(model)[1])[1].startswith(
        "refused: `row split` on `k0`: not legal there; legal are "
    )
    assert kept[0].turns[0].malformed is None, "it was legal when it was named"


def test_illegal_moves_are_reported_and_counted_and_the_others_made() -> None:
    kept: list[Trace] = []
    model = says(named(("row split", "k7"), ("row serial", "k0"), ("fly", "graph")))
    batches = list(play("macro", problem(model, kept), lambda _: ok(1.0)))
    assert [len(batch) for batch in batches] == [1, 1]
    first, second, third = told(questions(model)[1])
    assert (
        first.startswith("refused: `row split` on `k7`: there is no such region")
        and "`fly` on `graph`: not legal" in second
    )
    assert third.startswith("`row serial` on `k0`: 1.000×")
    malformed = kept[0].turns[0].malformed
    assert malformed is not None and "k7" in malformed and "fly" in malformed


def test_unparsable_answers_are_reported_and_end_the_search_after_a_while() -> None:
    kept: list[Trace] = []
    model = says("split the rows", "do it")
    assert len(list(play("macro", problem(model, kept), lambda _: ok(1.0)))) == 1
    assert [trace.turns[0].malformed for trace in kept] == [
        "nothing could be read from your answer: no tool call"
    ] * 2
    assert told(questions(model)[1]) == [
        "refused: nothing could be read from your answer: no tool call"
    ]
    failing = Said(lambda _: Completion(text="", finish="error", error="down"))
    assert (
        len(list(play("macro", problem(failing), lambda _: ok(1.0)))) == 1
        and len(failing.calls) == 2
    )


def test_wrong_programs_are_reported_and_never_kept() -> None:
    verdicts = iter([ok(1.0), wrong(error="worst at [0, 3]: 1.5 instead of 2")])
    model = says(named(("row serial", "k0")))
    list(play("macro", problem(model), lambda _: next(verdicts)))
    assert told(questions(model)[1]) == ["`row serial` on `k0`: wrong [0, 3] 1.5 not 2; undone"]


def test_search_resumes_from_earlier_plans_until_none_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Said(lambda conversation: named(legal(conversation)[0]))
    seen: list[str] = []

    def judge(candidate: Candidate) -> Verdict:
        seen.append(candidate.id)
        return ok(1.0 + ("fuse_rowwise" not in candidate.recipes))

    fixed(monkeypatch, macro, MOVES=1)
    batches = list(play("macro", problem(model), judge, batches=500))
    assert 10 < len(batches) < 500 and len(seen) == len(set(seen))
    back = [
        "An earlier attempt was faster: 2.00×" in asked(question) for question in questions(model)
    ]
    assert back[-1] and not back[0] and back == sorted(back)
    assert not any("refused" in line for question in questions(model) for line in told(question))


def test_few_regions_and_few_lines_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Said(lambda conversation: named(legal(conversation)[0]))
    fixed(monkeypatch, macro, HISTORY=2, REGIONS=1, MOVES=1)
    list(play("macro", problem(model), lambda _: ok(1.0), batches=6))
    assert (
        told(questions(model)[-1])[0].endswith("earlier ones are left out)")
        and len(told(questions(model)[-1])) == 3
    )


def test_same_answers_and_verdicts_same_proposals_and_questions() -> None:
    def once() -> tuple[list[list[str]], list[str]]:
        model = Said(lambda conversation: named(*legal(conversation)[1:4]))
        batches = [
            [c.id for c in batch]
            for batch in play(
                "macro", problem(model), lambda c: ok(1 + int(c.id[:2], 16) / 256), batches=8
            )
        ]
        return batches, [question.model_dump_json() for question in questions(model)]

    assert once() == once()


@pytest.mark.parametrize(
    "verdicts",
    [[None], [wrong(Status.BROKEN_TASK)], [ok(1.0), None], [ok(1.0), wrong(Status.BROKEN_TASK)]],
)
def test_it_ends_with_the_time_and_with_a_broken_reference(
    verdicts: Sequence[Verdict | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(verdicts)
    model = Said(lambda conversation: named(legal(conversation)[0]))
    fixed(monkeypatch, macro, SCHEDULES=1)
    assert len(list(play("macro", problem(model), lambda _: next(left)))) == len(verdicts)


def test_a_model_without_words_and_a_module_without_a_graph_are_refused() -> None:
    with pytest.raises(
        UsageError, match="`macro` has a planner name moves.*no words for it"
    ) as error:
        list(play("macro", problem(Said(lambda _: "", "compact")), lambda _: ok(1.0)))
    assert "refine, best_of_n, evolve or polca" in str(error.value.hint)
    with pytest.raises(CannotCompose):
        list(play("macro", replace(problem(says()), captured=None), lambda _: ok(1.0)))


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.slow
def test_moves_on_the_real_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program that moves lead to is right, and its measurement reaches the planner."""
    model = Said(lambda conversation: named(legal(conversation)[-1]))
    fixed(monkeypatch, macro, SCHEDULES=1)
    given = replace(problem(model), task=affine(), captured=captured())
    verdicts: list[Verdict | None] = []

    def judged(court: JudgeSession) -> Callable[[Candidate], Verdict | None]:
        def judge(candidate: Candidate) -> Verdict | None:
            verdicts.append(court.judge(candidate, "search"))
            return verdicts[-1]

        return judge

    with JudgeSession(affine(), QUICK) as session:
        list(play("macro", given, judged(session), batches=3))
    assert len(verdicts) == 3 and all(
        verdict is not None and verdict.status is Status.OK for verdict in verdicts
    )
    lines = told(questions(model)[-1])
    figures = re.compile(
        r"on `\w+`: [\d.]+× \[[\d.]+, [\d.]+\], [\d.]+× of the best before.*; (kept|undone)$"
    )
    assert lines and all(figures.search(line) for line in lines)
