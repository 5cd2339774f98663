"""Candidates that a player replays: whose doing it is when one ends, baselines beside them, and why others are timed from end to end."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import pytest

from dvk import gpu_memory
from dvk.harness import JudgeSpec
from dvk.harness.launch_plans.plan import PlanMismatch
from dvk.harness.session import recording
from dvk.harness.session.judge_session import JudgeSession
from dvk.harness.session.verdicts import ProcessFindings
from dvk.records import Interval, Status, Timing, Verdict
from dvk.sandbox import Death, Message
from tests.harness.conftest import QUICK, candidate, task


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


def test_a_player_that_finds_no_memory_is_not_the_candidates_doing(
    session: JudgeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        session,
        "_add_arms",
        lambda names, _: session._left_out.update(dict.fromkeys(names, "CUDA out of memory.")),
    )
    assert gpu_memory.was_short(played(session).findings["error"])
