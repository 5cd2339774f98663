"""Multi-turn refinement: the three agents' conversations, round after round, each attempt answered by what the judge found.

A round is what training plays for a task: selections of skills and the null scheme, some conversations each, of some
turns (settings in `rollout`). Rounds differ by their seed. The search ends when a round brings nothing that was
not proposed before, as the second one does when sampling is greedy, or when time does.
"""

from __future__ import annotations

from collections import Counter

from dvk.agents import Subject, dialects
from dvk.agents.play import Play, order
from dvk.agents.rollout import converse
from dvk.errors import UsageError
from dvk.search import Problem, Proposals


def search(problem: Problem) -> Proposals:
    """See the module."""
    yield from rounds(problem, problem.config.rollout.turns)


def rounds(problem: Problem, num_turns: int) -> Proposals:
    """Rounds of conversations of `num_turns` turns.

    Raises:
        UsageError: there is no language model.
    """
    backbone = problem.backbone
    if backbone is None:
        raise UsageError("this strategy asks a language model", "add --backbone, e.g. --backbone nano, or choose --strategy composer")
    dialect = dialects.get(backbone.dialect)
    # What there is to learn is asked where episodes are kept for learning, not in a search against the clock.
    rollout = problem.config.rollout.model_copy(update={"turns": num_turns, "summaries": 0})
    config = problem.config.model_copy(update={"rollout": rollout})
    subject = Subject(problem.task, problem.captured, problem.backend)
    offered = problem.skills[: config.agents.num_candidates]
    seen: set[str] = set()
    number, fresh = 0, True
    while fresh:
        fresh = False
        play = Play(number, subject, offered, dialect, config, proposer=backbone.name, step=number)
        asked_before: Counter[str] = Counter()
        while not play.done:
            ready = sorted(play.ready, key=lambda talk: order(talk.key))[: rollout.batch]
            pairs = [(play, talk) for talk in ready]
            made = [(talk, candidate) for _, talk, candidate in converse(pairs, backbone, dialect, config, number, asked_before)]
            if not made:
                continue
            fresh = fresh or any(candidate.id not in seen for _, candidate in made)
            seen.update(candidate.id for _, candidate in made)
            verdicts = yield [candidate for _, candidate in made]
            for (talk, _), verdict in zip(made, verdicts, strict=True):
                if verdict is None:  # time is over
                    return
                play.judged(talk, verdict)
        number += 1
