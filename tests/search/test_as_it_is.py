"""A search of few candidates ends with the model as it is, unless one was shown to be faster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dvk.composer.plan_space import AS_IT_IS
from dvk.pipelines.eval.rows import winners
from dvk.records import Candidate, Interval, Turn, Verdict
from dvk.search import SearchProblem, auto, composer, random_plans
from dvk.search.play import play
from tests.agents.conftest import Said, configured, fenced
from tests.search.composer_plays import problem, verdict


class Clock:
    """A judge with made-up figures, as `play` needs it."""

    workers = 1

    def __init__(self, speeds: list[float]):
        self.speeds, self.waiting = speeds, []
        self.batches: list[list[str]] = []

    def expect(self, more: bool) -> None:
        pass

    def submit(self, name: tuple[int, str], task: object, candidate: Candidate) -> None:
        self.waiting.append((name, candidate))

    def results(self, *, wait: bool) -> list[tuple[tuple[int, str], Verdict]]:
        now, self.waiting = self.waiting, []
        self.batches.append([candidate.title for _, candidate in now])
        return [(name, self._judged(candidate)) for name, candidate in now]

    def _judged(self, candidate: Candidate) -> Verdict:
        return verdict(1.0 if candidate.title == AS_IT_IS else self.speeds.pop(0))


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory) -> SearchProblem:
    return problem("conv_bn_relu", tmp_path_factory.mktemp("conv"))


def turns_of(given: SearchProblem, limit: int, speeds: list[float]) -> list[Turn]:
    (episode,) = play([replace(given, limit=limit)], composer.search, Clock(speeds), limit)
    return list(episode.traces[0].turns)


@pytest.mark.parametrize("limit", [2, 3, 4])
def test_the_last_of_few_is_the_model_as_it_is_where_nothing_was_faster(
    conv: SearchProblem, limit: int
) -> None:
    turns = turns_of(conv, limit, [0.45, 0.96, 0.8, 0.7])
    titles = [turn.candidate.title for turn in turns if turn.candidate]
    assert len(titles) == limit and titles.index(AS_IT_IS) == limit - 1
    (best,) = winners(turns)
    assert best.candidate is not None and best.candidate.title == AS_IT_IS


@pytest.mark.parametrize("speeds", [[2.0, 0.5, 0.5, 0.5], [0.5, 0.5, 1.2, 0.4]])
def test_all_of_them_are_tries_where_one_was_faster(
    conv: SearchProblem, speeds: list[float]
) -> None:
    titles = [turn.candidate.title for turn in turns_of(conv, 4, list(speeds)) if turn.candidate]
    assert len(set(titles)) == 4 and AS_IT_IS not in titles


def test_a_single_candidate_is_the_composers(conv: SearchProblem) -> None:
    (turn,) = turns_of(conv, 1, [0.5])
    assert turn.candidate is not None and turn.candidate.title != AS_IT_IS


def test_a_search_that_ends_by_itself_has_it_too(conv: SearchProblem) -> None:
    turns = turns_of(conv, 400, [0.5] * 400)
    titles = [turn.candidate.title for turn in turns if turn.candidate]
    assert titles.count(AS_IT_IS) == 1


def test_what_is_not_shown_to_be_faster_does_not_win(tmp_path: Path) -> None:
    noisy = verdict(1.09)
    wide = noisy.timing.model_copy(update={"speedup": Interval(value=1.09, lo=0.98, hi=1.17)})  # type: ignore[union-attr]
    made = Candidate(source="a", backend="cpp", proposer="composer", title="fused")
    same = made.model_copy(update={"source": "b", "title": AS_IT_IS})
    turns = [
        Turn(candidate=made, verdict=noisy.model_copy(update={"timing": wide})),
        Turn(candidate=same, verdict=verdict(0.997)),
    ]
    assert winners(turns) == [turns[1]]
    turns[0] = Turn(candidate=made, verdict=verdict(1.09))
    assert winners(turns) == [turns[0]]


class Timed(Clock):
    """Each verdict took a second, so that the sides take turns."""

    def _judged(self, candidate: Candidate) -> Verdict:
        return super()._judged(candidate).model_copy(update={"seconds": 1.0})


class Slower(Said):
    """Writes a new program each time, none of them faster."""

    elsewhere = False

    def __init__(self) -> None:
        numbers = iter(range(1, 10**6))
        super().__init__(lambda _: fenced(f"class ModelNew: m = {next(numbers)}\n"))


@pytest.mark.parametrize("limit", [2, 3, 5])
def test_composer_and_model_together_keep_the_last_for_it(conv: SearchProblem, limit: int) -> None:
    """Each side alone is below the limit, so that neither can."""
    config = configured(schemes=0, rollouts=2, turns=2)
    model: Any = Slower()
    given = replace(conv, limit=limit, backbone=model, config=config)
    clock = Timed([0.45, 0.96, 0.8, 0.7, 0.9])
    (episode,) = play([given], auto.search, clock, limit)
    made = [turn.candidate for turn in episode.traces[0].turns if turn.candidate]
    assert len(made) == limit and [c.title for c in made].index(AS_IT_IS) == limit - 1
    assert limit < 3 or {c.proposer for c in made} > {"composer"}
    (best,) = winners(episode.traces[0].turns)
    assert best.candidate is not None and best.candidate.title == AS_IT_IS


def test_random_plans_keep_the_last_for_it(conv: SearchProblem) -> None:
    (episode,) = play([replace(conv, limit=3)], random_plans.search, Clock([0.45, 0.96, 0.8]), 3)
    assert [t.candidate.title for t in episode.traces[0].turns if t.candidate][2] == AS_IT_IS
