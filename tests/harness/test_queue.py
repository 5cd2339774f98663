"""The judge queue: streams, lists and jobs that are prepared by a worker."""

from __future__ import annotations

import queue as queues
import threading
import time
from types import SimpleNamespace

import pytest

from dvk.config import Config
from dvk.harness import JudgeSpec, open_sessions, queue
from dvk.harness.queue import JudgeQueue
from dvk.harness.session.judge_session import JudgeSession
from dvk.harness.waiting_jobs import JudgeJob, Judgement
from dvk.records import Candidate, Status, Task, Verdict
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


class Judged:
    """A judge that notes what it is asked."""

    opened: list[Judged] = []

    def __init__(self, task: Task, _: Config, kind: JudgeSpec, *, gpu: str | None = None):
        self.task, self.kind, self.broken, self.closed = task, kind, None, False
        self.asked: list[str] = []
        Judged.opened.append(self)

    def switch_task(self, task: Task) -> None:
        self.task = task

    def judge(self, candidate: Candidate, *_: object) -> Verdict:
        self.asked.append(f"{self.task.id}{candidate.source}")
        return Verdict(status=Status.MISMATCH, tier="search", stage="check", error="off by one")

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Judged]:
    monkeypatch.setattr(open_sessions, "open_session", Judged)
    monkeypatch.setattr(Judged, "opened", [])
    return Judged.opened


def judgement(of: str, text: str, spec: JudgeSpec = JudgeSpec()) -> Judgement:  # noqa: B008 - it is frozen
    about = task("affine").model_copy(update={"id": of})
    return Judgement(about, Candidate(source=text, backend="cpp"), spec)


def test_a_worker_keeps_its_task_and_urgent_jobs_go_first(opened: list[Judged]) -> None:
    begun, go = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        assert go.wait(10)

    with JudgeQueue[int](1, QUICK) as docket:
        docket.add(JudgeJob(lambda _: None, prepare=first))
        assert begun.wait(10)
        left = threading.Semaphore(0)
        for of, text, priority in (
            ("a", "1", 1),
            ("b", "1", 1),
            ("a", "2", 1),
            ("b", "2", 1),
            ("c", "1", 0),
        ):
            docket.add(JudgeJob(lambda _: left.release(), judgement(of, text), priority=priority))
        go.set()
        for _ in range(5):
            assert left.acquire(timeout=10)
    (one,) = opened
    assert one.asked == ["c1", "a1", "a2", "b1", "b2"] and one.closed


def test_a_list_may_go_before_what_was_submitted(opened: list[Judged]) -> None:
    """As second times of winners do: batches of other tasks would leave them all to the end."""
    begun, go = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        assert go.wait(10)

    with JudgeQueue[str](1, QUICK) as docket:
        docket.add(JudgeJob(lambda _: None, prepare=first))
        assert begun.wait(10)
        for text in "123":
            one = judgement("a", text)
            docket.submit(text, one.task, one.candidate)
        one = judgement("b", "1")
        listed = docket.map([(one.task, one.candidate)], priority=-1)
        waiting = threading.Thread(target=lambda: list(listed))
        waiting.start()
        while docket.num_waiting < 4:
            time.sleep(0.01)
        go.set()
        waiting.join(10)
        while docket.num_pending:
            docket.results(wait=True)
    assert opened[0].asked == ["b1", "a1", "a2", "a3"]


def test_while_other_tasks_are_to_come_a_task_has_one_session(
    monkeypatch: pytest.MonkeyPatch, opened: list[Judged]
) -> None:
    """Every session prepares its task, which takes longer than to judge a candidate."""
    begun, go = threading.Semaphore(0), threading.Event()
    judge = Judged.judge

    def waits(self: Judged, candidate: Candidate, *rest: object) -> Verdict:
        begun.release()
        assert go.wait(10)
        return judge(self, candidate, *rest)

    monkeypatch.setattr(Judged, "judge", waits)
    with JudgeQueue[int](3, QUICK) as docket:
        docket.expect(True)
        left = threading.Semaphore(0)
        for of, text in (("a", "1"), ("a", "2"), ("a", "3"), ("b", "1")):
            docket.add(JudgeJob(lambda _: left.release(), judgement(of, text)))
        assert begun.acquire(timeout=10) and begun.acquire(timeout=10)
        assert not begun.acquire(timeout=0.2)
        assert sorted(one.task.id for one in opened) == ["a", "b"]
        docket.expect(False)
        assert begun.acquire(timeout=10)
        # Before any ends: the fourth job takes whichever session is idle first.
        assert sorted(one.task.id for one in opened) == ["a", "a", "b"]
        go.set()
        for _ in range(4):
            assert left.acquire(timeout=10)


def test_jobs_of_other_settings_have_other_sessions(opened: list[Judged]) -> None:
    strict = JudgeSpec(require_kernels=True)
    answers: queues.SimpleQueue[object] = queues.SimpleQueue()
    with JudgeQueue[int](2, QUICK) as docket:
        for number, spec in enumerate([JudgeSpec(), strict, JudgeSpec(tier="smoke"), strict]):
            docket.add(JudgeJob(answers.put, judgement("a", str(number), spec)))
            assert isinstance(answers.get(timeout=10), Verdict)
        assert [one.asked for one in opened] == [["a0", "a2"], ["a1", "a3"]]
    assert all(one.closed for one in opened)


def test_a_job_that_cannot_be_prepared_tells_its_submitter_alone(opened: list[Judged]) -> None:
    answers: queues.SimpleQueue[object] = queues.SimpleQueue()

    def broken() -> Judgement:
        raise KeyError("no reference")

    with JudgeQueue[int](1, QUICK) as docket:
        docket.add(JudgeJob(answers.put, prepare=broken))
        assert isinstance(answers.get(timeout=10), KeyError)
        docket.add(JudgeJob(answers.put, prepare=lambda: judgement("a", "1")))
        assert isinstance(answers.get(timeout=10), Verdict)


def test_judging_singly_holds_for_workers_that_are_there(
    monkeypatch: pytest.MonkeyPatch, opened: list[Judged]
) -> None:
    """Two workers are at work when it is asked for; of four more candidates none is judged beside another."""
    begun, go = threading.Semaphore(0), threading.Event()
    at_work, most = 0, list[int]()
    lock, judge = threading.Lock(), Judged.judge

    def counted(self: Judged, candidate: Candidate, *rest: object) -> Verdict:
        nonlocal at_work
        with lock:
            at_work += 1
            most.append(at_work)
        begun.release()
        assert go.wait(10)
        time.sleep(0.02)
        with lock:
            at_work -= 1
        return judge(self, candidate, *rest)

    monkeypatch.setattr(Judged, "judge", counted)
    answers: queues.SimpleQueue[object] = queues.SimpleQueue()
    with JudgeQueue[int](2, QUICK) as docket:
        for of in "ab":
            docket.add(JudgeJob(answers.put, judgement(of, "1")))
        assert begun.acquire(timeout=10) and begun.acquire(timeout=10) and max(most) == 2
        docket.judge_singly()
        for of in "cdef":
            docket.add(JudgeJob(answers.put, judgement(of, "1")))
        go.set()
        for _ in range(6):
            assert isinstance(answers.get(timeout=10), Verdict)
    # The first of the four may begin while the other of the two ends.
    assert most[-3:] == [1, 1, 1]
