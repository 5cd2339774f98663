"""The portfolio, on made-up answers and verdicts: the order of turns, and each side's inputs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dvk.backbone import Completion, Conversation, Sampling
from dvk.backbone.pause_gate import OutOfTime, PauseGate
from dvk.errors import MachineError
from dvk.records import Candidate, Trace, Verdict
from dvk.search import SearchProblem, auto
from tests.agents.conftest import Said, configured, fenced, make_skill
from tests.search.auto_plays import play, took
from tests.search.refining import CAPTURED, TASK


class Timed(Said):
    """Writes a new program each time and takes `seconds` for a call."""

    def __init__(self, seconds: float, wait: Callable[[], None] | None = None):
        numbers = iter(range(1, 10**6))
        super().__init__(lambda conversation: fenced(f"class ModelNew: m = {next(numbers)}\n"))
        self.seconds, self.before, self.elsewhere = seconds, wait, wait is not None

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        if self.before is not None:
            self.before()
        self.usage.add(1, 1, self.seconds)
        return super().generate(conversations, sampling)


def problem(backbone: Any, traces: list[Trace] | None = None) -> SearchProblem:
    config = configured(schemes=0, rollouts=2, turns=2)
    keep = traces.append if traces is not None else lambda trace: None
    return SearchProblem(TASK, CAPTURED, "cpp", (make_skill("a"),), config, backbone, keep)


def test_who_used_less_of_the_clock_goes_next(two: list) -> None:
    # The model's first call takes 2.5 s, so that the composer has three candidates before the first of the model's is judged.
    assert play(auto.search(problem(Timed(2.5))), lambda _: took(1.0), 8) == [
        "c1",
        "c2",
        "c3",
        "m",
        "c4",
        "m",
        "c5",
        "m",
    ]
    assert [len(verdicts) for verdicts in two] == [3, 2]


def test_a_quick_model_takes_turns_with_the_composer(two: list) -> None:
    assert play(auto.search(problem(Timed(0.0))), lambda _: took(1.0), 6) == [
        "c1",
        "m",
        "c2",
        "m",
        "c3",
        "m",
    ]


def test_who_is_done_leaves_the_rest_to_the_other(two: list) -> None:
    silent = Said(lambda _: "I cannot.")
    assert play(auto.search(problem(silent)), lambda _: took(1.0), 50) == [
        "c1",
        "c2",
        "c3",
        "c4",
        "c5",
    ]
    assert play(auto.search(problem(Timed(0.0))), lambda _: took(1.0), 14)[10:] == ["m"] * 4


def test_without_a_model_it_is_the_composer(two: list) -> None:
    assert [c.source for c in next(auto.search(problem(None)))] == ["c1", "c2", "c3"]


def test_the_composer_goes_on_while_a_model_writes_elsewhere(two: list) -> None:
    let = threading.Event()
    proposals = auto.search(problem(Timed(99.0, lambda: let.wait(60) or None)))
    seen = []

    def judge(candidate: Candidate) -> Verdict:
        seen.append(candidate.source)
        if candidate.source == "c5":
            let.set()
        return took(1.0)

    # The model answers after the composer's last candidate, and its time elsewhere is not charged.
    assert play(proposals, judge, 7) == ["c1", "c2", "c3", "c4", "c5", "m", "m"]


class Stepping(Timed):
    """Writes in this process, in so many steps of 10 ms that one call never ends by itself."""

    def __init__(self, steps: int):
        super().__init__(0.0)
        self.steps, self.done, self.over = steps, 0, threading.Event()
        self.brake = PauseGate(self.over.is_set)

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        for _ in range(self.steps):
            self.brake.check()
            time.sleep(0.01)
            self.done += 1
        self.usage.add(1, 1, 0.01 * self.steps)
        return super().generate(conversations, sampling)

    def close(self) -> None:
        self.over.set()


def test_a_model_in_this_process_is_paused_during_timing(
    two: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "TURN_S", 0.05)
    model = Stepping(10**6)
    wrote: list[int] = []

    def judge(candidate: Candidate) -> Verdict | None:
        wrote.append(model.done)
        time.sleep(0.05)
        assert model.done == wrote[-1], "nothing is written while a candidate is timed"
        return took(0.1) if len(wrote) < 5 else None

    assert play(auto.search(problem(model)), judge, 50) == ["c1", "c2", "c3", "c4", "c5"], (
        "one long call does not take all the time"
    )
    assert wrote == sorted(wrote) and wrote[0] == 0 < wrote[-1], "it goes on between"
    assert model.over.is_set() and not [
        t for t in threading.enumerate() if t.name == "proposing"
    ], "it ends with the search"


@pytest.mark.slow
def test_paused_work_is_finished_later(two: list, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "TURN_S", 0.02)
    order = play(auto.search(problem(Stepping(8))), lambda _: took(0.03), 50)
    assert [one for one in order if one != "m"] == ["c1", "c2", "c3", "c4", "c5"] and order[
        0
    ] == "c1"
    assert order.count("m") == 50 - 5


def test_the_end_of_time_reaches_both(two: list) -> None:
    traces: list[Trace] = []
    proposals = auto.search(problem(Timed(0.0), traces))
    verdicts = iter([took(1.0), took(1.0), took(1.0), None])
    assert play(proposals, lambda _: next(verdicts), 50) == ["c1", "m", "c2", "m"]
    assert [verdict is None for verdict in two[0]] == [False, False, True], (
        "the composer gets its batch's verdicts"
    )
    kept = [turn for trace in traces for turn in trace.turns]
    assert len(kept) == 2 and [turn.verdict is None for turn in kept] == [False, True], (
        "the conversations are kept"
    )


def test_out_of_time_and_failures_pass_through(two: list) -> None:
    for error in (OutOfTime(), MachineError("down", "start it")):

        def fail(error: BaseException = error) -> None:
            raise error

        backbone = Timed(0.0, fail)
        for elsewhere in (True, False):
            backbone.elsewhere = elsewhere
            with pytest.raises(type(error)):
                play(auto.search(problem(backbone)), lambda _: took(1.0), 50)


def test_same_verdicts_and_answers_same_proposals(two: list) -> None:
    first, second = (
        play(auto.search(problem(Timed(0.7))), lambda _: took(0.9), 30) for _ in range(2)
    )
    assert first == second


def test_a_program_that_is_written_again_is_charged_once(two: list) -> None:
    same = Timed(0.25)
    same.answer = lambda conversation: fenced("class ModelNew: m = 0\n")
    # Its one program is judged once, and known the other times: a call for two answers is then all that it uses of the clock.
    order = play(auto.search(problem(same)), lambda _: took(1.0), 50)
    assert order == ["c1", "m", "c2", "m", "m", "m", "m", "m", "c3", "m", "m", "c4", "c5"]
