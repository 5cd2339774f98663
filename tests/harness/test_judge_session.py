"""One judge session over several tasks and candidates: which processes are reused, and the recovery from ended ones."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dvk import gpu_memory
from dvk.harness import JudgeQueue, JudgeSpec
from dvk.harness.launch_plans.plan import PlanMismatch
from dvk.harness.remote.node import Seat, SeatConfig
from dvk.harness.session import recording, slowdown
from dvk.harness.session.attempt import RefereeDied
from dvk.harness.session.concurrency import PER_GPU
from dvk.harness.session.judge_session import JudgeSession
from dvk.harness.session.judge_spec import Judge
from dvk.harness.session.verdicts import ProcessFindings, findings_of_death
from dvk.harness.transport.memory_budget import release_cached
from dvk.records import Interval, Status, Task, Timing, Verdict
from dvk.sandbox import Death, Message
from tests.harness.conftest import QUICK, candidate, task


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else this machine does slows references down, too; that is not the point here."""
    monkeypatch.setattr(slowdown, "SLOWED", 1e6)


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


def test_a_reference_that_ended_meanwhile_is_started_again() -> None:
    with JudgeSession(task("affine"), QUICK) as session:
        session.judge(candidate("good/torch_affine"))
        ended = session._arms["reference"]
        ended.close()
        session.switch_task(task("linear"))
        verdict = session.judge(candidate("good/torch_linear"))
        assert verdict is not None and verdict.status is Status.OK, verdict
        assert session._arms["reference"].pid != ended.pid


class Player:
    """A session of which only the end is asked."""

    def __init__(self, reason: str):
        self.reason, self.closed = reason, False

    def receive(self, timeout_s: float) -> Death:
        self.closed = True
        return Death(self.reason, f"log of {self.reason}")

    def close(self) -> str:
        self.closed = True
        return ""


class Referee:
    """A referee client whose answers are known."""

    def __init__(self, *answers: dict[str, Any]):
        self.answers, self.stage, self.spent = list(answers), "check", {}

    def time_stage(self, stage: str) -> Any:
        return nullcontext()

    def send(self, order: dict[str, Any], descriptors: Any = ()) -> None:
        pass

    def wait(self, *_: Any) -> Message:
        return Message({"findings": self.answers.pop(0)})

    def close(self) -> None:
        pass


GONE = {"status": "launch_error", "gone": True}


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> JudgeSession:
    monkeypatch.setattr(recording, "launch_plan", lambda *_: ({}, "", "pid+seccomp"))
    made = JudgeSession(task("affine"), QUICK, JudgeSpec(contract="plan"))
    started: list[Player] = []

    def add_arms(names: list[str], deadline: float | None) -> None:
        (name,) = names
        started.append(Player(f"exit {len(started)}"))
        made._arms[name] = started[-1]  # type: ignore[assignment]

    monkeypatch.setattr(made, "_add_arms", add_arms)
    made.started = started  # type: ignore[attr-defined]
    return made


def played(session: JudgeSession, *answers: dict[str, Any]) -> ProcessFindings:
    session._referee = Referee(*answers)  # type: ignore[assignment]
    found = session._replayed(candidate("good/triton_affine"), None)
    assert found is not None and not session._referee.answers  # type: ignore[attr-defined]
    return found


def test_what_ends_a_fresh_player_was_the_candidate(session: JudgeSession) -> None:
    found = played(session, dict(GONE))
    assert (
        found.findings["status"] == "launch_error"
        and "(exit 0)" in found.findings["error"]
        and found.log == "log of exit 0"
    )
    assert "player" not in session._arms and len(session.started) == 1  # type: ignore[attr-defined]


def test_what_ends_a_player_that_served_before_may_have_been_another(session: JudgeSession) -> None:
    played(session, {"status": "ok"})
    found = played(session, dict(GONE), {"status": "ok"})
    assert found.findings["status"] == "ok" and len(session.started) == 2  # type: ignore[attr-defined]
    assert "(exit 2)" in played(session, dict(GONE), dict(GONE)).findings["error"]


def test_a_plan_that_is_not_what_the_gpu_does_says_nothing_of_the_candidate(
    session: JudgeSession,
) -> None:
    wrong = {
        "status": "launch_error",
        "error": f"{PlanMismatch.__name__}: aten.mul.Tensor returned other strides",
    }
    assert PlanMismatch.__name__ in played(session, dict(wrong)).findings["error"], (
        "asked for plans alone, that is what can be said"
    )
    session.spec = JudgeSpec(contract="auto")
    session._referee = Referee(dict(wrong))  # type: ignore[assignment]
    assert session._replayed(candidate("good/triton_affine"), None) is None, (
        "its own process may be right"
    )


@pytest.mark.parametrize(
    ("status", "kept"), [("ok", True), ("mismatch", True), ("launch_error", True), ("cheat", False)]
)
def test_a_player_is_kept_unless_it_is_out_of_step(
    session: JudgeSession, status: str, kept: bool
) -> None:
    played(session, {"status": status})
    assert ("player" in session._arms) is kept


def idle(queue: JudgeQueue[int]) -> list[Judge]:
    """Sessions that wait for jobs; a verdict is delivered shortly before its session is kept."""
    deadline = time.monotonic() + 5
    while not queue._sessions._idle and time.monotonic() < deadline:
        time.sleep(0.01)
    return [one.judge for one in queue._sessions._idle]


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


def test_a_player_that_finds_no_memory_is_not_the_candidates_doing(
    session: JudgeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        session,
        "_add_arms",
        lambda names, _: session._left_out.update(dict.fromkeys(names, "CUDA out of memory.")),
    )
    assert gpu_memory.was_short(played(session).findings["error"])


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


def test_what_replays_a_graph_itself_is_timed_from_end_to_end() -> None:
    """A plan leaves out the host's time, for which it is there."""
    with JudgeSession(
        task("affine").model_copy(update={"device": "cuda"}), QUICK, JudgeSpec(contract="auto")
    ) as session:
        plain = candidate("good/triton_affine")
        session._recorded = {}  # as of an open task
        assert session._plannable(plain, None)
        whole = {"source": f"{plain.source}\n# torch.cuda.CUDAGraph()"}
        assert not session._plannable(plain.model_copy(update=whole), None)


def test_baselines_are_replayed_beside_a_plan() -> None:
    """A kernel of 20 us is not compared with torch.compile through 300 us of two processes' handshakes."""
    made = JudgeSession(task("affine"), QUICK, JudgeSpec(contract="auto"))
    made._recorded, made.baselines = {}, ("compile",)
    assert made._plannable(candidate("good/triton_affine"), None)


class Capturing(Referee):
    """Has the player capture what it is asked to."""

    def __init__(self, failed: dict[str, str], *answers: dict[str, Any]):
        super().__init__(*answers)
        self.failed, self.orders = failed, list[dict[str, Any]]()

    def send(self, order: dict[str, Any], descriptors: Any = ()) -> None:
        self.orders.append(order)

    def wait(self, what: str, *_: Any) -> Message:
        return Message({"captured": self.failed}) if what == "captured" else super().wait(what)


def test_a_player_in_place_of_another_captures_the_baselines_again(session: JudgeSession) -> None:
    session.baselines = ("compile",)
    for contract in ("auto", "plan"):
        session.spec = JudgeSpec(contract=contract)  # type: ignore[arg-type]
        session._arms, session._fresh = {}, False
        session._add_arms(["player"], None)
        referee = Capturing({}, dict(GONE), {"status": "ok"})
        session._referee = referee  # type: ignore[assignment]
        found = session._replayed(candidate("good/triton_affine"), None)
        assert found is not None and found.findings["status"] == "ok"
        captures = [n for n, order in enumerate(referee.orders) if "capture" in order]
        plans = [n for n, order in enumerate(referee.orders) if "plan" in order]
        assert captures == [0, 2] and plans == [1, 3]
        assert referee.orders[3]["captured"] == ["compile"]


def test_a_baseline_that_no_graph_can_hold_is_left_out_beside_a_plan(session: JudgeSession) -> None:
    session.baselines = ("compile", "graph")
    referee = Capturing({"graph": "it synchronises"}, {"status": "ok"})
    session._referee = referee  # type: ignore[assignment]
    found = session._replayed(candidate("good/triton_affine"), None)
    assert found is not None and referee.orders[-1]["captured"] == ["compile"]
    assert session._left_out == {"graph": "it synchronises"}


def test_a_verdict_says_why_it_was_timed_from_end_to_end(
    session: JudgeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four tasks lost their plan to one convolution that a recorder could not look up, and no verdict said so."""
    session.spec, session._recorded = JudgeSpec(contract="auto"), {}
    plain = candidate("good/triton_affine")

    def why(*answers: dict[str, Any], refused: str | None = None, **failed: str) -> str | None:
        plan = None if refused else {}
        monkeypatch.setattr(recording, "launch_plan", lambda *_: (plan, refused, "pid+seccomp"))
        session._referee = Capturing(failed, *answers)  # type: ignore[assignment]
        session._captured_by, session._why_host_code = None, None
        assert session._plannable(plain, None) and session._replayed(plain, None) is None
        return session._why_host_code

    assert "no NVIDIA driver" in str(why(refused="it fails on fake tensors: no NVIDIA driver"))
    session.baselines = ("compile",)
    assert why(compile="it synchronises") == "compile cannot be replayed: it synchronises"
    mistaken = {
        "status": "launch_error",
        "error": "NotCapturable: the reference cannot be captured",
    }
    assert "the reference cannot be captured" in str(why(mistaken))
    assert not session._plannable(plain, None)
    assert "the reference" in str(session._why_host_code), "of later candidates, too"
    found: dict[str, Any] = {"status": "ok", "stage": "done", "precision": None, "num_checks": 1}
    timing = Timing(
        candidate_ms=1,
        reference_ms=1,
        speedup=Interval(value=1, lo=1, hi=1),
        num_pairs=8,
        seconds=1,
        regime="end_to_end",
    )
    (note,) = session._verdict(time.monotonic(), ProcessFindings(found), timing).notes
    assert note.startswith("timed from end to end: NotCapturable: the reference")
    device = timing.model_copy(update={"regime": "device"})
    assert not session._verdict(time.monotonic(), ProcessFindings(found), device).notes


def test_a_baseline_that_found_no_memory_has_the_candidate_judged_again(
    session: JudgeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "AcceleratorError: CUDA error: out of memory"
    short = Verdict(status=Status.OK, tier="smoke", stage="done", notes=(f"timed: {text}",))
    ready = short.model_copy(update={"notes": ()})
    left = short.model_copy(update={"notes": (), "baselines_left_out": {"compile": text}})
    answers = [short, left, ready]
    monkeypatch.setattr(session, "_judge", lambda *_: answers.pop(0))
    monkeypatch.setattr("dvk.harness.session.verdicts.CROWDED_S", (0.0, 0.0))
    session.sharers, session.task = 10, session.task.model_copy(update={"device": "cuda"})
    session._referee = Referee()  # type: ignore[assignment]
    assert session.judge(candidate("good/triton_affine")) == ready and not answers
