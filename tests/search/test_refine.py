"""The strategies that ask a model, on answers and verdicts that we make up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dvk.backbone import Completion
from dvk.errors import UsageError
from dvk.records import Candidate, Verdict
from dvk.registry import resolve
from dvk.search import ASK_A_MODEL, STRATEGIES, SearchProblem
from tests.agents.conftest import Said, configured, fenced, make_skill, ok, wrong
from tests.search.refining import CAPTURED, TASK, counting


def problem(backbone: Said | None, **rollout: object) -> SearchProblem:
    config = configured(**{"schemes": 1, "rollouts": 2, "turns": 2, **rollout})
    return SearchProblem(TASK, CAPTURED, "cpp", (make_skill("a"),), config, backbone)  # type: ignore[arg-type]  # a test's own backbone


def play(
    name: str, given: SearchProblem, judge: Callable[[Candidate], Verdict | None], batches: int = 50
) -> list[list[Candidate]]:
    """Run a strategy to its end, at most some batches."""
    proposals = resolve(name, STRATEGIES, "strategy")(given)
    seen: list[list[Candidate]] = []
    try:
        batch = next(proposals)
        while len(seen) < batches:
            seen.append(batch)
            batch = proposals.send([judge(c) for c in batch])
    except StopIteration:
        pass
    return seen


@pytest.mark.parametrize("name", sorted(ASK_A_MODEL))
def test_without_a_model_the_user_gets_an_error(name: str) -> None:
    with pytest.raises(UsageError, match="asks a language model"):
        play(name, problem(None), lambda _: ok(1.0))


def test_refinement_answers_with_what_was_found() -> None:
    backbone = counting()
    batches = play(
        "refine", problem(backbone), lambda c: wrong(error=f"off in {c.title}"), batches=2
    )
    assert [len(batch) for batch in batches] == [
        2,
        4,
    ]  # the null scheme at once, the chosen skills together with its second turn
    assert [c.skills for c in batches[1]] == [(), (), ("a",), ("a",)]
    shown = [
        c.messages[-1]["content"] for conversations, _ in backbone.calls for c in conversations
    ]
    assert sum("off in no skills, rollout 0, turn 1" in text for text in shown) == 1


def test_best_of_n_gives_no_feedback() -> None:
    backbone = counting()
    batches = play("best_of_n", problem(backbone), lambda _: wrong(), batches=6)
    assert len(batches) == 6
    assert all(len(c.messages) <= 2 for conversations, _ in backbone.calls for c in conversations)
    assert len({c.id for batch in batches for c in batch}) == sum(map(len, batches))


@pytest.mark.parametrize("name", sorted(ASK_A_MODEL))
def test_it_ends_when_nothing_new_comes(name: str) -> None:
    for answer in (
        fenced("class ModelNew: ...\n"),
        "no code",
        Completion(text="", finish="error", error="down"),
    ):
        batches = play(name, problem(Said(lambda _: answer), schemes=0), lambda _: ok(1.0))  # noqa: B023 - called at once
        assert len({c.id for batch in batches for c in batch}) <= 1 and len(batches) < 6


@pytest.mark.parametrize("name", sorted(ASK_A_MODEL))
def test_it_ends_with_the_time(name: str) -> None:
    assert len(play(name, problem(counting()), lambda _: None)) == 1


def test_same_answers_same_proposals() -> None:
    first, second = (
        play("refine", problem(counting()), lambda _: ok(1.0), batches=5) for _ in range(2)
    )
    assert [[c.id for c in batch] for batch in first] == [[c.id for c in batch] for batch in second]


def test_scripted_answers(tmp_path: Path) -> None:
    """The shipped fake is enough to run a search."""
    from dvk.backbone import open_backbone

    script = tmp_path / "script.jsonl"
    script.write_text('{"match": "", "answer": "```python\\nclass ModelNew: ...\\n```"}\n')
    config = configured(schemes=0)
    given = SearchProblem(
        TASK, CAPTURED, "cpp", (), config, open_backbone(f"scripted:{script}", config)
    )
    assert [c.source for batch in play("refine", given, lambda _: ok(1.0)) for c in batch][:1] == [
        "class ModelNew: ...\n"
    ]
