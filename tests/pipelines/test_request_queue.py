"""The queue of `dvk serve`, with a judge that answers when it is told to; what the command refuses."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dvk.config import Config, ServeConfig
from dvk.errors import MachineError, UsageError
from dvk.harness import JudgeQueue
from dvk.interop.kernelgym import Evaluation, EvaluationResult
from dvk.pipelines.serve import ServeRequest, desk, serve
from dvk.pipelines.serve.addresses import local
from dvk.pipelines.serve.desk import QueueClosed, QueueFull, RequestQueue, TaskIdTaken
from dvk.pipelines.serve.judging import asked_of, candidate_source
from dvk.records import Verdict
from tests.pipelines.waiting import wait_for


def evaluation(task_id: str, **fields: Any) -> Evaluation:
    return Evaluation(task_id=task_id, reference_code="r", kernel_code="k", **fields)


class Bell:
    """Answers one request a ring, and keeps the order."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.rings = threading.Semaphore(0)

    def prepare(self, request: Evaluation) -> EvaluationResult:
        self.order.append(request.task_id)
        assert self.rings.acquire(timeout=10)
        if request.kernel_code == "broken":
            raise MachineError("no compiler", "install one")
        return EvaluationResult(task_id=request.task_id, status="completed")

    def result(self, request: Evaluation, verdict: Verdict) -> EvaluationResult:
        raise AssertionError("nothing is judged")


@contextmanager
def requests(settings: ServeConfig, bell: Bell) -> Iterator[RequestQueue]:
    with JudgeQueue[Any](1, Config()) as judges, RequestQueue(settings, judges, bell) as queue:
        yield queue


def ask(queue: RequestQueue, request: Evaluation) -> threading.Event:
    ended = threading.Event()
    queue.submit(request, ended.set)
    return ended


def test_the_urgent_come_first_and_equal_requests_are_one():
    bell = Bell()
    with requests(ServeConfig(queue=4), bell) as queue:
        first = ask(queue, evaluation("first"))
        wait_for(lambda: bell.order)
        others = [ask(queue, evaluation(name, priority=name)) for name in ("low", "normal", "high")]
        again = ask(queue, evaluation("first"))
        with pytest.raises(TaskIdTaken):
            ask(queue, evaluation("first", uuid="other"))
        assert queue.position(queue.find("low")) == 2 and queue.num_waiting == 3
        for _ in range(4):
            bell.rings.release()
        assert all(event.wait(10) for event in (first, again, *others)) and bell.order == [
            "first",
            "high",
            "normal",
            "low",
        ]
        assert ask(queue, evaluation("first")).is_set(), "known, so at once"
        later = ask(queue, evaluation("first", force_refresh=True))
        bell.rings.release()
        assert later.wait(10) and bell.order[-1] == "first"


def test_the_queue_is_bounded_and_so_is_what_is_kept(monkeypatch):
    monkeypatch.setattr(desk, "KEPT", 2)
    bell = Bell()
    with requests(ServeConfig(queue=1), bell) as queue:
        events = [ask(queue, evaluation("a"))]
        wait_for(lambda: bell.order)
        events.append(ask(queue, evaluation("b")))
        with pytest.raises(QueueFull):
            ask(queue, evaluation("c"))
        bell.rings.release()
        wait_for(lambda: len(bell.order) == 2)
        events.append(ask(queue, evaluation("c")))
        bell.rings.release(2)
        assert all(event.wait(10) for event in events)
        assert queue.find("a") is None and queue.find("b") is not None


def test_a_broken_machine_fails_the_task_and_says_so_until_it_works_again():
    bell = Bell()
    bell.rings.release(2)
    with requests(ServeConfig(), bell) as queue:
        assert ask(queue, evaluation("a").model_copy(update={"kernel_code": "broken"})).wait(10)
        entry = queue.find("a")
        assert (
            entry.result.status == "failed"
            and entry.result.error_code == "SYSTEM_ERROR"
            and queue.failed == "no compiler"
        )
        assert ask(queue, evaluation("b")).wait(10) and queue.failed is None
        queue.close()
        with pytest.raises(QueueClosed):
            ask(queue, evaluation("c"))


def test_what_is_asked_of_the_judge():
    asked = asked_of(evaluation("a", reference_backend="torch_compile", enable_profiling=True))
    assert (asked.tier, asked.baselines, asked.require_kernels, asked.profile) == (
        "search",
        ("compile",),
        False,
        True,
    )
    assert asked_of(evaluation("a", measure_performance=False)).tier == "smoke"
    assert (
        asked_of(evaluation("a")).profile and not asked_of(evaluation("a", backend="cuda")).profile
    )
    source = candidate_source(
        Evaluation(
            task_id="a", reference_code="", kernel_code="class FooNew: ...", entry_point="Foo"
        )
    )
    space: dict[str, Any] = {}
    exec(source, space)
    assert space["ModelNew"] is space["FooNew"]


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.delitem(sys.modules, "dvk.pipelines.serve.app", raising=False)
    with pytest.raises(MachineError, match="pip install 'dvk\\[serve\\]'"):
        serve(ServeRequest(port=0), Config())


def test_remote_access_needs_a_token(monkeypatch):
    monkeypatch.delenv("DVK_JUDGE_TOKEN", raising=False)
    assert (
        local("127.0.0.1")
        and local("::1")
        and local("localhost")
        and not local("0.0.0.0")
        and not local("judge.example")
    )
    with pytest.raises(UsageError, match="anybody"):
        serve(ServeRequest(host="0.0.0.0", port=0), Config())
    with pytest.raises(UsageError, match="cannot listen"):
        serve(ServeRequest(host="203.0.113.1", port=0, open_to_all=True), Config())
