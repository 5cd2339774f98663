"""Which candidates are replayed and claimed by the device, and what ends a replay."""

from __future__ import annotations

import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from dvk.composer.dropin import lines
from dvk.harness import JudgeSpec
from dvk.harness.session import recording
from dvk.harness.session.judge_session import JudgeSession
from dvk.harness.session.replays import LINES
from dvk.harness.session.verdicts import ProcessFindings
from dvk.records import Tier
from tests.harness.conftest import QUICK, candidate, task


class Silent:
    """A referee client that never answers."""

    stage = "check"

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def time_stage(self, stage: str) -> Any:
        return nullcontext()

    def send(self, order: dict[str, Any], descriptors: Any = ()) -> None:
        pass

    def wait(self, *_: Any) -> None:
        return None

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("tier", "contract"), [("claim", "auto"), ("search", "short")])
@pytest.mark.parametrize(("alone_ms", "replayed"), [(0.3, True), (1.3, False)])
def test_only_short_calls_are_claimed_by_the_device(
    tier: Tier, contract: Any, alone_ms: float, replayed: bool
) -> None:
    """Two processes' switch on the GPU hides them from end to end; of longer calls the host's time counts."""
    made = JudgeSession(task("affine"), QUICK, JudgeSpec(contract=contract))
    made.tier, made._recorded, made._alone_ms = tier, {}, alone_ms
    good = candidate("good/triton_affine")
    assert made._plannable(good, None) is replayed
    line = good.model_copy(update={"line": "torch.compile"})
    made._line_arm = made._line_is(line)
    assert made._plannable(line, None) is (replayed and contract == "short")


@pytest.mark.parametrize(("brief", "status"), [(False, "mismatch"), (True, "ok")])
def test_host_code_is_checked_where_no_claim_follows(
    monkeypatch: pytest.MonkeyPatch, brief: bool, status: str
) -> None:
    """Other arguments and modes reach the host code alone; a search's winner is claimed, which checks them."""
    made = JudgeSession(task("affine"), QUICK, JudgeSpec(contract="short", brief=brief))
    made._referee = Silent()  # type: ignore[assignment]
    found = {"stage": "check", "status": "mismatch", "error": "another argument"}
    right = {"stage": "done", "status": "ok", "untimed_reason": "it was not replayed"}
    monkeypatch.setattr(made, "_start", lambda *_: None)
    monkeypatch.setattr(made, "_plannable", lambda *_: made.tier != "smoke")
    monkeypatch.setattr(made, "_replayed", lambda *_: ProcessFindings(right))
    monkeypatch.setattr(made, "_measure", lambda *_, **__: ProcessFindings(found))
    verdict = made._judge(time.monotonic(), candidate("good/triton_affine"), None)
    assert verdict is not None and verdict.status.value == status


def test_lines_of_pytorch_are_the_baselines_of_their_names() -> None:
    assert all(lines.OF_BASELINE[name].text == text for text, name in LINES.items())


def test_a_reference_that_no_graph_holds_is_claimed_from_end_to_end() -> None:
    assert recording.needs_host_code(recording.cannot_be_captured(()))


def test_a_replay_that_the_search_has_no_time_for_is_no_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The candidate would be blamed for the end of the budget."""
    monkeypatch.setattr(recording, "launch_plan", lambda *_: ({}, "", "pid+seccomp"))
    made = JudgeSession(task("affine"), QUICK, JudgeSpec(contract="auto"))
    made._referee = Silent()  # type: ignore[assignment]
    made._arms = {"player": SimpleNamespace(close=str)}  # type: ignore[dict-item]
    assert made._replayed(candidate("good/triton_affine"), time.monotonic() - 1) is None
