"""Feedback on a verdict: the first error with its place, the worst element, the interval; within the budget, whatever was printed."""

from __future__ import annotations

import shutil

import pytest

from dvk.agents import feedback
from dvk.agents.task_context import CHARS_PER_TOKEN
from dvk.harness import JudgeQueue
from dvk.harness.profiling.record import KernelTime, Profile
from dvk.records import Candidate, Status, Verdict
from tests.agents.conftest import QUICK, affine, ok, source, wrong

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

BUDGET = feedback.FEEDBACK_TOKENS
BAD = [
    "cpp_does_not_compile",
    "one_element",
    "raises",
    "cpp_tail_left_out",
    "wrong_shape",
    "not_python",
    "import_fails",
]
NAMES = [f"bad/{name}" for name in BAD]


@pytest.fixture(scope="module")
def judged() -> dict[str, Verdict]:
    """Real verdicts on real failures."""
    jobs = [(affine(), Candidate(source=source(name), backend="cpp")) for name in NAMES]
    return {NAMES[position]: verdict for position, verdict in JudgeQueue[int](2, QUICK).map(jobs)}


@pytest.mark.parametrize(
    ("name", "long", "short"),
    [
        (
            "bad/cpp_does_not_compile",
            ["does not compile", "k.cpp:2:", "error: ", "nonsense"],
            "compile k.cpp:2:",
        ),
        (
            "bad/one_element",
            ["Wrong result", "1 of 19,264", "worst at [21, 100]: "],
            "wrong 1/19264 [21, 100] ",
        ),
        (
            "bad/raises",
            ["RuntimeError: not on this machine", "line 7 of the file, in forward"],
            "crash RuntimeError: not on this machine",
        ),
        (
            "bad/cpp_tail_left_out",
            ["batch+3 67x301", "Right before that on: native 64x301"],
            "wrong 7/20167 [66, ",
        ),
        (
            "bad/wrong_shape",
            ["shape (1, 301) instead of (64, 301)"],
            "wrong `output` has shape (1, 301)",
        ),
        ("bad/not_python", ["not Python", "line 1"], "refused the candidate is not Python"),
        (
            "bad/import_fails",
            ["No module named 'no_such_package'"],
            "compile importing the candidate failed",
        ),
    ],
)
@pytest.mark.slow
def test_a_real_failure_in_words(
    judged: dict[str, Verdict], name: str, long: list[str], short: str
) -> None:
    told = feedback.describe(judged[name], BUDGET)
    for part in long:
        assert part in told
    assert "/tmp/" not in told and "dvk_source" not in told and "site-packages" not in told
    assert feedback.short(judged[name]).startswith(short)
    assert "\n" not in feedback.short(judged[name])


def test_the_first_error_comes_first(judged: dict[str, Verdict]) -> None:
    told = feedback.describe(judged["bad/cpp_does_not_compile"], BUDGET)
    assert told.count("error: ") == 1 and told.index("k.cpp:2:") < 80


def test_a_right_one_has_its_interval() -> None:
    told = feedback.describe(ok(1.31), BUDGET)
    assert "1.31× [1.28, 1.34], faster than PyTorch: 763 µs against 1 ms a call" in told
    assert "no different in speed from" in feedback.describe(ok(1.01), BUDGET)
    assert "slower than" in feedback.describe(ok(0.5), BUDGET)
    assert "Not timed: no clock here." in feedback.describe(ok(None), BUDGET)
    assert (feedback.short(ok(1.31)), feedback.short(ok(None))) == ("ok 1.31", "ok")


def test_the_best_earlier_attempt_is_recalled() -> None:
    best = ok(2.0).timing
    assert "An earlier attempt was faster: 2.00×" in feedback.describe(ok(1.5), BUDGET, best)
    assert "earlier" not in feedback.describe(ok(2.5), BUDGET, best)
    assert "The best earlier attempt was right and ran at 2.00×" in feedback.describe(
        wrong(), BUDGET, best
    )


def test_where_the_time_goes() -> None:
    kernels = (
        KernelTime(name="row_kernel", origin="own", count=1, device_ms=0.3, share=0.75),
        KernelTime(name="gemm", origin="library", count=1, device_ms=0.1, share=0.25),
    )
    profile = Profile(
        device="cuda",
        num_calls=3,
        wall_ms=0.5,
        device_ms=0.4,
        host_ms=0.1,
        coverage=0.75,
        kernels=kernels,
    )
    told = feedback.describe(
        ok(1.5).model_copy(update={"profile": profile.model_dump(mode="json")}), BUDGET
    )
    assert "Where the time goes:" in told and "row_kernel" in told and "75%" in told
    spilled = ok(1.5).model_copy(
        update={
            "compiled": {"a": {"spill_bytes": 64}, "b": {"spill_bytes": 0}},
            "profile": {"odd": 1},
        }
    )
    told = feedback.describe(spilled, BUDGET)
    assert "spill to memory in a (64 bytes)" in told and "Where" not in told


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.OK])
@pytest.mark.parametrize("size", [0, 10, 10**6])
def test_no_flood_passes(status: Status, size: int) -> None:
    verdict = wrong(status, "e" * size + " [x](y) \udcff " or "e", log="error: " + "l\n" * size)
    told = feedback.describe(verdict, BUDGET)
    assert told and len(told) <= BUDGET * CHARS_PER_TOKEN + 60
    assert 0 < len(feedback.short(verdict)) <= feedback.MAX_SHORT + 20
