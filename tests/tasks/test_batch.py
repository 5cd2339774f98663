"""Batches in children: answers come in order, and as soon as they are there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dvk.config import Limits
from dvk.sandbox import RequestChannel
from dvk.tasks.batch import each

TARGET = "tests.tasks.test_batch:child"


def child(channel: RequestChannel) -> None:
    """Answers with each request's number."""
    for request in (channel.receive() or {})["requests"]:
        channel.send({"number": request["number"]})


def test_an_answer_does_not_wait_for_requests_that_are_not_there_yet() -> None:
    """Of 72 tasks none was prepared before all had been examined, which took 80 s."""
    answered = threading.Event()

    def requests() -> Iterator[dict[str, Any]]:
        yield {"number": 0}
        assert answered.wait(60), "the first answer is not given out"
        yield from ({"number": number} for number in range(1, 8))

    found = []
    for index, answer in each(TARGET, requests(), Limits(), per_child=4, num_workers=2):
        answered.set()
        found.append((index, answer["number"]))  # type: ignore[index]
    assert found == [(n, n) for n in range(8)]


def test_an_error_of_the_source_and_a_reader_that_leaves_end_it() -> None:
    closed = threading.Event()

    def requests() -> Iterator[dict[str, Any]]:
        try:
            yield {"number": 0}
            yield {"number": 1}
            raise ValueError("no more")
        finally:
            closed.set()

    answers = each(TARGET, requests(), Limits(), per_child=1, num_workers=1)
    assert next(answers)[0] == 0
    with pytest.raises(ValueError, match="no more"):
        list(answers)
    assert closed.is_set()
    closed.clear()
    left = each(TARGET, requests(), Limits(), per_child=1, num_workers=1)
    next(left)
    left.close()  # type: ignore[attr-defined]
    assert closed.wait(10)
