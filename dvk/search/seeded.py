"""Candidates that the user gives: judged before the strategy begins, then the parents of what a model writes.

They need not be right: each gets its verdict, and a wrong one is a parent to repair.
"""

from __future__ import annotations

from dataclasses import replace

from dvk.search import Proposals, SearchProblem, Strategy

PROPOSER = "seed"
"""Proposer of the user's candidates."""


def first(strategy: Strategy) -> Strategy:
    """The strategy after the problem's seeds, which it then has with their verdicts."""

    def search(problem: SearchProblem) -> Proposals:
        verdicts = yield [turn.candidate for turn in problem.seeds if turn.candidate is not None]
        if None in verdicts:
            return
        judged = [
            turn.model_copy(update={"verdict": verdict})
            for turn, verdict in zip(problem.seeds, verdicts, strict=True)
        ]
        yield from strategy(replace(problem, seeds=tuple(judged)))

    return search
