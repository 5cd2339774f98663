"""The judge queue: streams, lists and jobs that are prepared by a worker."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from dvk.harness import open_sessions, queue
from dvk.harness.queue import JudgeQueue
from dvk.harness.session.judge_session import JudgeSession
from dvk.records import Status, Verdict
from tests.harness.conftest import QUICK, candidate, task


def test_closing_waits_once_however_many_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, over = threading.Semaphore(0), threading.Event()

    def judge(*_: object) -> None:
        begun.release()
        over.wait(10.0)

    court = SimpleNamespace(
        task=task("affine"), sharers=1, judge=judge, close=lambda: None, broken=None
    )
    monkeypatch.setattr(open_sessions, "open_session", lambda *_, **__: court)
    monkeypatch.setattr(queue, "JOIN_S", 0.2)
    docket = JudgeQueue[int](6, QUICK)
    good = candidate("good/cpp_affine")
    for number in range(6):
        docket.submit(
            number, court.task, good.model_copy(update={"source": f"{good.source}\n# {number}\n"})
        )
    for _ in range(6):
        assert begun.acquire(timeout=5.0)
    began = time.monotonic()
    docket.close()
    assert time.monotonic() - began < 0.7
    over.set()


def test_waiting_judge_sessions_release_memory_and_judge_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = []
    monkeypatch.setattr(
        JudgeSession,
        "judge",
        lambda *_: Verdict(
            status=Status.MISMATCH, tier="search", stage="check", error="off by one"
        ),
    )
    monkeypatch.setattr(JudgeSession, "close", lambda court: closed.append(court))
    about, good = task("affine"), candidate("good/cpp_affine")
    with JudgeQueue[str](2, QUICK) as docket:
        docket.submit("first", about, good)
        assert [name for name, _ in docket.results(wait=True)] == ["first"]
        (before,) = [one.judge for one in docket._sessions._idle]
        docket.make_room()
        assert closed == [before]
        docket.submit(
            "second", about, good.model_copy(update={"source": f"{good.source}\n# again\n"})
        )
        assert [name for name, _ in docket.results(wait=True)] == ["second"]
        (court,) = [one.judge for one in docket._sessions._idle]
        assert court is not None and court.make_room == docket.make_room
