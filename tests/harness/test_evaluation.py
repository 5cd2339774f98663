"""One candidate, from text to findings: which failure becomes which finding, and what is said of what was checked."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest

from dvk.config import JudgeConfig
from dvk.harness.checking.case import Comparison
from dvk.harness.checking.tolerance import Errors
from dvk.harness.processes.evaluation import CandidateEvaluation, WrongResult
from dvk.harness.processes.held_weights import Changed
from dvk.harness.supervision.runner_client import CandidateFailed, Interfered
from dvk.harness.timing.output_aliasing import OutputOverwritten
from dvk.harness.timing.paired_timer import InputChanged, OutOfBoundsWrite
from dvk.harness.transport.link import Gone
from dvk.records import Status
from tests.harness.problems import cases_of, model, task_of

SOURCE = model("return 2 * x", "[torch.randn(8)]")


class Failing:
    """A timer whose candidate fails as it is loaded."""

    def __init__(self, error: Exception):
        self.error = error

    def load_candidate(self, *_: Any) -> None:
        raise self.error


def evaluation(error: Exception | None = None) -> tuple[CandidateEvaluation, list[str]]:
    stages: list[str] = []
    bench: Any = Failing(error or AssertionError("it is not loaded"))
    made = CandidateEvaluation(
        task_of(SOURCE),
        cases_of(SOURCE),
        JudgeConfig(),
        bench,
        None,
        stages.append,  # type: ignore[arg-type]  # there is no process
        lambda _: nullcontext(),
        nullcontext,
        nullcontext,
    )
    return made, stages


def run(made: CandidateEvaluation) -> dict[str, Any]:
    return made.run(
        "",
        keys=(),
        plan=None,
        untimed=None,
        one_case=False,
        require_kernels=False,
        deprived=False,
        profile=False,
        home="",
        arms={},
        captured=(),
        rounds=8,
        limit_s=1.0,
        settle=lambda: None,
    )


@pytest.mark.parametrize(
    ("error", "status", "stage", "text"),
    [
        (
            CandidateFailed(Status.COMPILE_ERROR, "compile", "no such symbol"),
            "compile_error",
            "compile",
            "no such symbol",
        ),
        (
            CandidateFailed(Status.REJECTED, "static", "no ModelNew"),
            "rejected",
            "static",
            "no ModelNew",
        ),
        (
            CandidateFailed(Status.LAUNCH_ERROR, None, "it raised"),
            "launch_error",
            "compile",
            "it raised",
        ),
        (
            Interfered("two answers"),
            "cheat",
            "compile",
            "it interfered with the judging: two answers",
        ),
        (Gone(), "launch_error", "compile", "it ended its process"),
    ],
)
def test_a_failure_while_it_is_loaded_is_a_finding(
    error: Exception, status: str, stage: str, text: str
) -> None:
    made, stages = evaluation(error)
    found = run(made)
    assert (found["status"], found["stage"], found["error"]) == (status, stage, text)
    assert stages == ["queue", "compile"] and found.get("gone", False) is isinstance(error, Gone)
    assert (
        found["num_checks"] == 0
        and found["precision"] is found["tolerance"] is found["weights"] is None
    ), "nothing was compared"


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (WrongResult("off by 3", 3.0), "mismatch", "off by 3"),
        (InputChanged("it changes an input"), "mismatch", "in a timed call: it changes an input"),
        (OutputOverwritten("a buffer is kept"), "mismatch", "in a timed call: a buffer is kept"),
        (Changed("it writes to `weight`"), "mismatch", "in a timed call: it writes to `weight`"),
        (OutOfBoundsWrite("beside input 0"), "launch_error", "in a timed call: beside input 0"),
    ],
)
def test_a_failure_in_a_timed_call_says_so(error: Exception, status: str, text: str) -> None:
    made, _ = evaluation()
    made.stage = "time"
    found = made._failed(error)
    assert (found["status"], found["stage"], found["error"]) == (status, "time", text)


def test_the_worst_error_and_the_widest_tolerance_are_told() -> None:
    made, _ = evaluation()
    for worst, tolerance in [(1e-6, 2e-5), (3e-6, 4e-5), (2e-6, 3e-5)]:
        made.checks._accept(Comparison(None, Errors(worst, worst), tolerance, ("a note",)))
    made.checks.checked.append(made.cases.fresh(0))
    found = made._findings(Status.OK, "done")
    assert (found["worst_error"], found["tolerance"], found["num_checks"], found["notes"]) == (
        3e-6,
        4e-5,
        1,
        ["a note"],
    )
    assert found["precision"] == "fp32" and found["weights"] == "same_seed"


@pytest.mark.parametrize("error", [math.nan, math.inf])
def test_an_error_that_is_no_number_is_told_as_none(error: float) -> None:
    made, _ = evaluation()
    with pytest.raises(WrongResult, match="holds NaN") as raised:
        made.checks._accept(
            Comparison("holds NaN", Errors(error, error), 2e-5), "in a timed call: "
        )
    found = made._failed(raised.value)
    assert found["status"] == "mismatch" and found["error"] == "in a timed call: holds NaN"
    assert found["worst_error"] is None and found["tolerance"] == 2e-5
