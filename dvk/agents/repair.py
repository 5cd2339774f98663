"""Repair of unparsable answers by backtracking: resample from the failing token, the most likely alternative first.

A small model is confident in its errors, so a second sample repeats them. Instead the text up to the place of the parse error is
examined token by token; other likely tokens there start other answers, the likeliest first, until one parses. It is a best-first
search over prefixes that the parser has not refuted, ordered by the model's own probabilities; the parser reads text and runs
nothing. Related: constrained decoding (for types: Mündler et al., arXiv 2504.09246). Here a whole answer is written before it is
parsed, so the sampler keeps its speed.


    Beginnings   prefixes left to try for one answer
    repaired     repairs answers together, each as it finishes
    settled      the same, for answers that are not sorted yet
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

from dvk.agents import policy
from dvk.agents.dialects import Dialect
from dvk.agents.task_context import TaskContext
from dvk.backbone import Backbone, Completion, Conversation, Sampling
from dvk.config import RolloutConfig
from dvk.records import Tokens

TRIES, TRIES_IN_SEARCH = 32, 4
"""Tries for one answer if nothing else is asked for; fewer in a search against the clock, where another answer is as good. Of 11 answers
to held-out tasks that the shipped nano got wrong on a GPU, 5 parsed after 4 tries (all wrong), none more after 16, and 10 after 32, of
which 4 are right."""

ABREAST = 8
"""See `parallel_attempts`: in order of likelihood, except for continuations of pending answers of the same call."""


def repair_attempts(settings: RolloutConfig, usual: int = TRIES) -> int:
    """Backtracking attempts per answer; `usual` if the settings give none."""
    return usual if settings.repair_attempts is None else settings.repair_attempts


class UnparsedAnswer(NamedTuple):
    """A policy's unparsable answer, with its question."""

    subject: TaskContext
    question: Conversation
    answer: Completion
    """A `policy.Reply`, if it parsed."""


class Prefixes:
    """Prefixes left to try for one answer."""

    def __init__(self) -> None:
        self._left: list[tuple[float, int, tuple[int, ...]]] = []
        self._known: set[tuple[int, ...]] = set()
        self._number = count()

    def add_alternatives(
        self, answer: Completion, begun: Sequence[int] = (), cost: float = 0.0
    ) -> None:
        """Add alternatives of an answer, up to the place of its parse error.

        Args:
            answer: parsed, and with `alternatives`; without a place of the error nothing is added.
            begun: the tokens of its given prefix: alternatives in their place were added with the parent.
            cost: the prefix's cost.
        """
        shown = answer.shown if isinstance(answer, policy.Reply) else None
        if shown is None or answer.tokens is None:
            return
        for other in answer.alternatives:
            beginning = (*answer.tokens.completion[: other.position], other.token)
            if len(begun) <= other.position and other.at < shown and beginning not in self._known:
                self._known.add(beginning)
                heapq.heappush(self._left, (cost - other.logprob, next(self._number), beginning))

    def pop_likeliest(self, count: int = 1) -> list[tuple[tuple[int, ...], float]]:
        """The likeliest prefixes that are left, up to `count`, and their costs in nats, the likeliest first."""
        popped = [heapq.heappop(self._left) for _ in range(min(count, len(self._left)))]
        return [(beginning, cost) for cost, _, beginning in popped]


def repair(
    backbone: Backbone,
    dialect: Dialect,
    unread: Sequence[UnparsedAnswer],
    most: int,
    sampling: Sampling,
) -> Iterator[tuple[int, Completion, int]]:
    """For each answer its position among them, one that parses (or itself if none was found), and how many were dropped.

    Continuations are asked for in one call a try, on a GPU in one for several tries of each (`parallel_attempts`), after one call for
    the alternatives.

    Args:
        most: tries of one answer.
        sampling: the answers' sampling settings.
    """
    sampling = sampling.model_copy(update={"alternatives": True})
    searches = {place: Prefixes() for place in range(len(unread))}
    known = {
        place: tokens.completion
        for place, one in enumerate(unread)
        if most and (tokens := _tokens(one)) is not None
    }
    # It writes the last token once more, and returns alternatives for all.
    again = [
        unread[place].question.model_copy(update={"begun": written[:-1]})
        for place, written in known.items()
    ]
    for place, told in zip(known, backbone.generate(again, sampling) if again else (), strict=True):
        one = unread[place]
        searches[place].add_alternatives(
            one.answer.model_copy(update={"alternatives": told.alternatives})
        )
    tried, width = dict.fromkeys(searches, 0), parallel_attempts(backbone)
    while searches:
        asked = [
            (place, *found)
            for place, search in searches.items()
            for found in search.pop_likeliest(min(width, most - tried[place]))
        ]
        for place in searches.keys() - {place for place, _, _ in asked}:
            del searches[place]
            yield place, unread[place].answer, tried[place]
        questions = [
            unread[place].question.model_copy(update={"begun": begun}) for place, begun, _ in asked
        ]
        for (place, begun, cost), answer in zip(
            asked, backbone.generate(questions, sampling) if asked else (), strict=True
        ):
            if place not in searches:  # a likelier one may parse
                continue
            tried[place] += 1
            answer = policy.parse_reply(dialect, unread[place].subject, answer)
            if policy.has_no_candidate(answer) or answer.finish == "error":
                searches[place].add_alternatives(answer, begun, cost)
            else:
                del searches[place]
                yield place, answer, tried[place]


def parallel_attempts(backbone: Backbone) -> int:
    """Tries of one answer that are written together: on a GPU a call takes about as long for many as for one."""
    # A served model's `model` is its name.
    device = getattr(getattr(backbone, "model", None), "device", None)
    return ABREAST if device is not None and device.type == "cuda" else 1


def _tokens(one: UnparsedAnswer) -> Tokens | None:
    """Whether an answer can be resumed: its model's weights are local, and the parser says where it went wrong."""
    return (
        one.answer.tokens
        if isinstance(one.answer, policy.Reply) and one.answer.shown is not None
        else None
    )


def repaired_answers(
    backbone: Backbone,
    dialect: Dialect,
    asked: Sequence[tuple[TaskContext, Conversation]],
    answers: Sequence[Completion],
    most: int,
    sampling: Sampling,
) -> list[tuple[Completion, int]]:
    """The parsed answers, unparsable ones as `repair` leaves them; and how many were dropped for each."""
    result = [
        (policy.parse_reply(dialect, subject, answer), 0)
        for (subject, _), answer in zip(asked, answers, strict=True)
    ]
    lost = [place for place, (answer, _) in enumerate(result) if policy.has_no_candidate(answer)]
    unread = [UnparsedAnswer(*asked[place], result[place][0]) for place in lost]
    for place, answer, dropped in repair(backbone, dialect, unread, most, sampling):
        result[lost[place]] = (answer, dropped)
    return result
