"""The model as it is, as the last candidate of a search in which nothing was shown to be faster.

Of a search of few candidates the last one is kept for it, so that nothing slower than the unchanged model is what such a search comes to.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from dvk.records import Candidate, Verdict
from dvk.search import Proposals


def last(own: Proposals, unchanged: Callable[[], Candidate], limit: int | None) -> Proposals:
    """The strategy's proposals, and the unchanged model after them where none of them was shown to be faster.

    Args:
        own: the strategy.
        unchanged: makes that candidate.
        limit: candidates that are judged at most, this one included; None: time is the limit. With one there is no room for it.
    """
    judged: dict[str, Verdict | None] = {}
    answer: list[Verdict | None] | None = None
    with closing(own):
        while True:
            try:
                batch = next(own) if answer is None else own.send(answer)
            except StopIteration:
                break
            kept = batch
            if limit is not None and not any(map(is_shown_faster, judged.values())):
                kept = _first(batch, judged, max(1, limit - 1) - len(judged))
            answer = []
            if kept:
                answer = yield kept
                judged |= {c.id: v for c, v in zip(kept, answer, strict=True)}
            if len(kept) < len(batch):
                if not any(map(is_shown_faster, judged.values())):
                    break
                rest = batch[len(kept) :]
                more = yield rest
                judged |= {c.id: v for c, v in zip(rest, more, strict=True)}
                answer = [*answer, *more]
    if any(map(is_shown_faster, judged.values())) or limit == 1:
        return
    candidate = unchanged()
    if judged.get(candidate.id) is None:
        yield [candidate]


def is_shown_faster(verdict: Verdict | None) -> bool:
    """Whether the whole interval of its speedup is above 1."""
    return verdict is not None and verdict.timing is not None and verdict.timing.speedup.lo > 1


def _first(batch: list[Candidate], judged: dict[str, Verdict | None], room: int) -> list[Candidate]:
    """The batch up to the first candidate for which there is no room; those that were judged before take none."""
    seen = set(judged)
    for number, candidate in enumerate(batch):
        if candidate.id not in seen:
            if room <= 0:
                return batch[:number]
            room -= 1
            seen.add(candidate.id)
    return batch
