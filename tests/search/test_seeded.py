"""The user's candidates: judged before a strategy begins, then what a model improves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dvk.agents import dialects
from dvk.backbone import Conversation
from dvk.records import Candidate, Status, Turn
from dvk.registry import resolve
from dvk.search import STRATEGIES, seeded
from dvk.search.archive import of_seeds
from tests.agents.conftest import Said, fenced, ok, wrong
from tests.search.writing import believed, problem, program

FAST, SLOW = program(1.5, kind=3), program(1.2, kind=4)
WRONG = program(fault="worst at [3]: 1 instead of 2", kind=5)


def seed(source: str) -> Turn:
    return Turn(candidate=Candidate(source=source, backend="cpp", proposer=seeded.PROPOSER))


def first_question(strategy: str, *sources: str) -> tuple[list[str], str]:
    """The first batch, and the first question that asks for a program or for advice on one."""
    asked: list[str] = []
    numbers = iter(range(100))

    def answer(conversation: Conversation) -> str:
        asked.append("\n".join(str(m["content"]) for m in conversation.messages))
        return fenced(program(1.1, number=next(numbers)))

    given = replace(problem(Said(answer)), seeds=tuple(map(seed, sources)))
    proposals = seeded.first(resolve(strategy, STRATEGIES, "strategy"))(given)
    batch = next(proposals)
    proposals.send([believed(candidate) for candidate in batch])
    proposals.close()
    return [candidate.source for candidate in batch], asked[0]


@pytest.mark.parametrize("strategy", ["refine", "best_of_n", "evolve", "polca", "judge"])
def test_a_model_begins_with_the_seed_and_its_verdict(strategy: str) -> None:
    batch, question = first_question(strategy, FAST)
    assert batch == [FAST] and FAST.strip() in question and "1.50× [" in question


def test_a_wrong_seed_is_repaired() -> None:
    for strategy in ("refine", "contrastive", "evolve"):
        _, question = first_question(strategy, WRONG)
        assert WRONG.strip() in question and "index [3], expected 2, got 1" in question


def test_seeds_go_by_speed_and_cheats_are_not_shown() -> None:
    chat = dialects.get("chat")
    cheat = wrong(Status.CHEAT, "it keeps results")
    verdicts = [ok(1.2), wrong(), cheat, ok(1.5)]
    judged = [
        seed(source).model_copy(update={"verdict": verdict})
        for source, verdict in zip((SLOW, WRONG, "class ModelNew: ...", FAST), verdicts)
    ]
    assert [p.candidate.source for p in of_seeds(judged, chat)] == [FAST, SLOW, WRONG]
    assert of_seeds(judged, dialects.get("compact")) == [], "nano reads no whole files"


def test_the_budget_may_end_with_the_seeds() -> None:
    given = replace(problem(Said(lambda _: "")), seeds=(seed(FAST), seed(SLOW)))
    proposals = seeded.first(resolve("refine", STRATEGIES, "strategy"))(given)
    assert len(next(proposals)) == 2
    with pytest.raises(StopIteration):
        proposals.send([ok(1.5), None])
