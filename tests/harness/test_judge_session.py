"""One judge session over several tasks and candidates: which processes are reused, and the recovery from ended ones."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dvk import gpu_memory
from dvk.harness import JudgeQueue, JudgeSpec
from dvk.harness.remote.node import Seat, SeatConfig
from dvk.harness.session import slowdown
from dvk.harness.session.attempt import RefereeDied
from dvk.harness.session.concurrency import PER_GPU
from dvk.harness.session.judge_session import JudgeSession
from dvk.harness.session.judge_spec import Judge
from dvk.harness.session.verdicts import findings_of_death
from dvk.harness.transport.memory_budget import release_cached
from dvk.records import Status, Task, Verdict
from dvk.sandbox import Death
from tests.harness.conftest import QUICK, candidate, task


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else this machine does slows references down, too; that is not the point here."""
    monkeypatch.setattr(slowdown, "SLOWED", 1e6)


@pytest.mark.slow
def test_referee_and_reference_serve_the_next_task() -> None:
    with JudgeSession(task("affine"), QUICK) as session:
        first = session.judge(candidate("good/torch_affine"))
        pids = session._referee.session.pid, session._arms["reference"].pid
        session.switch_task(task("linear"))
        second = session.judge(candidate("good/torch_linear"))
        assert pids == (session._referee.session.pid, session._arms["reference"].pid)
        session.switch_task(task("affine"))
        third = session.judge(candidate("good/torch_linear"))
    assert first is not None and second is not None and third is not None
    assert (first.status, second.status) == (Status.OK, Status.OK), (first.error, second.error)
    assert first.timing and second.timing and first.isolation and second.isolation
    assert third.status is not Status.OK, "the reference is the current task's"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("times", "status"), [(slowdown.LOOKS, Status.OK), (slowdown.LOOKS + 1, Status.CHEAT)]
)
def test_who_slows_the_reference_does_it_in_every_process(
    monkeypatch: pytest.MonkeyPatch, times: int, status: Status
) -> None:
    slowed = iter(["the reference is slow"] * times)
    monkeypatch.setattr(JudgeSession, "_slowed", lambda *_: next(slowed, None))
    with JudgeSession(task("affine"), QUICK) as session:
        verdict = session.judge(candidate("good/torch_affine"))
    assert verdict is not None and verdict.status is status and next(slowed, None) is None


@pytest.mark.slow
def test_a_reference_that_ended_meanwhile_is_started_again() -> None:
    with JudgeSession(task("affine"), QUICK) as session:
        session.judge(candidate("good/torch_affine"))
        ended = session._arms["reference"]
        ended.close()
        session.switch_task(task("linear"))
        verdict = session.judge(candidate("good/torch_linear"))
        assert verdict is not None and verdict.status is Status.OK, verdict
        assert session._arms["reference"].pid != ended.pid


def idle(queue: JudgeQueue[int]) -> list[Judge]:
    """Sessions that wait for jobs; a verdict is delivered shortly before its session is kept."""
    deadline = time.monotonic() + 5
    while not queue._sessions._idle and time.monotonic() < deadline:
        time.sleep(0.01)
    return [one.judge for one in queue._sessions._idle]


@pytest.mark.slow
def test_processes_stay_for_the_next_map_within_a_pool() -> None:
    jobs = [
        (task("affine"), candidate("good/torch_affine")),
        (task("linear"), candidate("good/torch_linear")),
    ]
    with JudgeQueue[int](1, QUICK) as pool:
        first = dict(pool.map(jobs, JudgeSpec(tier="smoke")))
        (court,) = idle(pool)
        assert isinstance(court, JudgeSession)
        pid = court._referee.session.pid
        second = dict(pool.map(jobs, JudgeSpec(tier="smoke")))
        verdicts = [*first.values(), *second.values()]
        assert [(v.status, v.error) for v in verdicts] == [(Status.OK, None)] * 4
        assert idle(pool) == [court]
        assert court._referee.session.pid == pid
    assert not pool._sessions._idle and not os.path.exists(f"/proc/{pid}")
    other = JudgeQueue[int](1, QUICK)
    assert all(v.status is Status.OK for _, v in other.map(jobs, JudgeSpec(tier="smoke")))
    assert not other._sessions._idle, "without `with`, nothing stays"


@pytest.mark.parametrize(("sharers", "times"), [(2, 1), (2, 2), (2, 3), (1, 1)])
def test_who_finds_the_memory_of_a_shared_gpu_taken_is_judged_again(
    sharers: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and when those at work may have ended; what others hold without need is asked back each time."""
    taken = Verdict(
        status=Status.LAUNCH_ERROR,
        tier="search",
        stage="check",
        error="AcceleratorError: CUDA error: out of memory",
    )
    answers = [taken] * times + [
        Verdict(status=Status.MISMATCH, tier="search", stage="check", error="off by one")
    ]
    monkeypatch.setattr(JudgeSession, "_judge", lambda *_: answers.pop(0))
    monkeypatch.setattr("dvk.harness.session.verdicts.CROWDED_S", (0.0, 0.01))
    asked = []
    with JudgeSession(task("affine").model_copy(update={"device": "cuda"}), QUICK) as session:
        session.sharers, session.make_room = sharers, lambda: asked.append(True)
        verdict = session.judge(candidate("good/torch_affine"))
    again = 0 if sharers == 1 else min(times, 2)
    assert len(asked) == again and len(answers) == times - again and verdict is not None
    assert (verdict.status is Status.MISMATCH) is (again == times)


def test_a_judge_death_under_full_memory_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Verdict(
        status=Status.LAUNCH_ERROR, tier="search", stage="check", error="CUDA out of memory"
    )
    answers: list[Any] = [
        taken,
        RefereeDied("of a signal"),
        taken.model_copy(update={"error": "an illegal address"}),
    ]

    def judge(*_: Any) -> Verdict:
        if isinstance(found := answers.pop(0), RefereeDied):
            raise found
        return found

    monkeypatch.setattr(JudgeSession, "_judge", judge)
    with JudgeSession(task("affine").model_copy(update={"device": "cuda"}), QUICK) as session:
        session.sharers = 2
        verdict = session.judge(candidate("good/torch_affine"))
    assert verdict is not None and verdict.error == "an illegal address"


@pytest.mark.parametrize(
    "broken", [None, "the reference ended its process: exit 1 before any candidate ran"]
)
def test_a_judge_whose_last_words_are_of_full_memory_is_asked_again(
    broken: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(court: JudgeSession, *_: Any) -> Verdict:
        if deaths:
            court.broken = broken
            raise deaths.pop()
        return Verdict(status=Status.MISMATCH, tier="search", stage="check", error="off by one")

    log = "Traceback\ntorch.OutOfMemoryError: CUDA out of memory.\nException ignored in atexit\n"
    deaths = [RefereeDied("exit 1", Death("exit 1", log)) for _ in range(2)]
    monkeypatch.setattr(JudgeSession, "_judge", judge)
    monkeypatch.setattr("dvk.harness.session.verdicts.CROWDED_S", (0.0, 0.01))
    with JudgeSession(task("affine").model_copy(update={"device": "cuda"}), QUICK) as session:
        session.sharers = 2
        verdict = session.judge(candidate("good/torch_affine"))
    assert verdict is not None and verdict.status is Status.MISMATCH


def test_a_judge_that_dies_twice_leaves_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(*_: Any) -> Verdict:
        raise RefereeDied(
            "exit 1",
            Death("exit 1", "CUDA out of memory\nTraceback\nAssertionError: no such order\n"),
        )

    monkeypatch.setattr(JudgeSession, "_judge", judge)
    with JudgeSession(task("affine"), QUICK) as session:
        verdict = session.judge(candidate("good/torch_affine"))
    assert (
        verdict is not None
        and verdict.error is not None
        and verdict.error.endswith("exit 1 (AssertionError: no such order)")
    )


@pytest.mark.gpu
def test_memory_that_is_not_used_is_given_back() -> None:
    release_cached()
    before = torch.cuda.memory_reserved()
    used, unused = (torch.empty(2 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    del unused
    release_cached()
    assert (
        2 << 30 <= torch.cuda.memory_reserved() < before + (3 << 30) and used.numel()
    )  # what others left may go, too


def test_a_process_that_used_too_much_of_the_machines_own_memory_was_not_crowded_out() -> None:
    said = findings_of_death(Death("memory", ""), "check", QUICK)["error"]
    assert "out of memory" in said and not gpu_memory.was_short(said)


def test_judge_sessions_of_a_pool_that_keeps_them_share_with_all_of_its_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """dvk serve maps one candidate at a time, in as many threads."""
    made: list[Any] = []

    def open_court(task: Task, *_: Any, **__: Any) -> Any:
        passing = Verdict(status=Status.OK, tier="smoke", stage="done")
        made.append(
            SimpleNamespace(task=task, broken=None, judge=lambda *_: passing, close=lambda: None)
        )
        return made[-1]

    monkeypatch.setattr("dvk.harness.open_sessions.open_session", open_court)
    with JudgeQueue[int](4, QUICK) as pool:
        list(pool.map([(task("affine"), candidate("good/torch_affine"))]))
    list(JudgeQueue[int](4, QUICK).map([(task("affine"), candidate("good/torch_affine"))]))
    assert [court.sharers for court in made] == [4, 1]


def test_a_seat_that_sees_one_gpu_of_many_shares_with_those_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(JudgeSession, "judge", lambda court, *_: (court.sharers, court.gpus))
    on_gpu = task("affine").model_copy(update={"device": "cuda"})
    given = SeatConfig(QUICK), on_gpu, candidate("good/torch_affine"), "smoke", ()
    assert [Seat().judge(*given, seats, None) for seats in (3, 8 * PER_GPU)] == [
        (3, 1),
        (8 * PER_GPU, 8),
    ]  # type: ignore[comparison-overlap]


def test_a_reference_that_found_it_taken_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(court: JudgeSession, _: Any) -> None:
        tried.append(court.broken)
        court.broken = "the reference failed: CUDA error: out of memory"
        raise RefereeDied("before it was ready")

    tried: list[str | None] = []
    monkeypatch.setattr(JudgeSession, "_start", start)
    monkeypatch.setattr("dvk.harness.session.verdicts.CROWDED_S", (0.0, 0.01))
    with JudgeSession(task("affine").model_copy(update={"device": "cuda"}), QUICK) as session:
        session.sharers = 2
        verdict = session.judge(candidate("good/torch_affine"))
    assert tried == [None] * 3 and verdict is not None and verdict.status is Status.BROKEN_TASK
