"""Verdicts on real candidates: right, wrong in every way that can be compared, and out to break the judge."""

from __future__ import annotations

import shutil
import time

import pytest

from dvk.config import Config
from dvk.harness import Pool, judge
from dvk.records import Candidate, Status, Verdict
from tests.harness.conftest import candidate, task

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

GOOD = [
    ("affine", "good/torch_affine"),
    pytest.param("affine", "good/cpp_affine", marks=needs_compiler),
    ("running_statistics", "good/torch_statistics"),
    ("dropout", "good/torch_dropout"),
    ("tree", "good/torch_tree"),
    ("linear", "good/torch_linear"),
    ("infinite", "good/torch_infinite"),
    ("bfloat", "good/torch_bfloat"),
    ("rounds", "good/torch_rounds_by_reciprocal"),  # another step at the few elements between two
]

BAD = [
    ("affine", "bad/wrong_dtype", "mismatch", "dtype torch.float16 instead of torch.float32"),
    ("affine", "bad/wrong_shape", "mismatch", "shape (1, 301) instead of (64, 301)"),
    ("affine", "bad/wrong_rank", "mismatch", "shape (1, 64, 301)"),
    ("affine", "bad/changes_input", "mismatch", "changes an input"),
    ("affine", "bad/one_nan", "mismatch", "at [63, 300]: nan"),
    ("affine", "bad/one_element", "mismatch", "worst at [21, 100]"),
    ("affine", "bad/returns_nothing", "mismatch", "NoneType"),
    ("affine", "bad/raises", "launch_error", "RuntimeError: not on this machine"),
    ("affine", "bad/no_model_new", "rejected", "ModelNew"),
    ("affine", "bad/not_python", "rejected", "not Python"),
    ("affine", "bad/import_fails", "compile_error", "no_such_package"),
    ("affine", "bad/wrong_constructor", "launch_error", "width"),
    pytest.param("affine", "bad/cpp_tail_left_out", "mismatch", "off by more than", marks=needs_compiler),
    pytest.param("affine", "bad/cpp_does_not_compile", "compile_error", "CalledProcessError", marks=needs_compiler),
    ("running_statistics", "bad/statistics_forgotten", "mismatch", "buffer `norm.running_mean`"),
    ("dropout", "bad/dropout_left_out", "mismatch", "off by more than"),
    ("tree", "bad/tree_other_order", "mismatch", "best.0"),
    ("tree", "bad/tree_list", "mismatch", "instead of"),
    ("tree", "bad/tree_strides", "mismatch", "strides (24, 1) instead of (1, 40)"),
    ("tree", "bad/tree_index_off", "mismatch", "1 of 24 elements differ, first at [23]"),
    ("linear", "bad/linear_in_bfloat16", "mismatch", "off by more than"),
    ("linear", "bad/linear_changes_weight", "mismatch", "weight `layer.weight`"),
    ("infinite", "bad/infinite_as_large", "mismatch", "NaN or infinity differs"),
    ("infinite", "bad/infinite_as_nan", "mismatch", "NaN or infinity differs"),
    ("bfloat", "bad/bfloat_coarse", "mismatch", "off by more than"),
    ("rounds", "bad/rounds_down", "mismatch", "off by more than"),
]


def smoke(reference: str, name: str, config: Config) -> Verdict:
    """Judge one candidate, in a process of its own, without timing it."""
    (verdict,) = judge(task(reference), [candidate(name)], tier="smoke", config=config)
    return verdict


@pytest.mark.parametrize(("reference", "name"), GOOD)
def test_good_candidates_are_ok_at_three_shapes(reference, name, quick):
    verdict = smoke(reference, name, quick)
    assert verdict.status is Status.OK, verdict.error
    assert len({shape.split()[0] for shape in verdict.shapes}) >= 3
    assert verdict.num_checks >= 3 and verdict.timing is None
    assert (
        verdict.worst_error is not None and verdict.tolerance is not None and verdict.worst_error <= verdict.tolerance
    )
    assert verdict.precision == {"bfloat": "half"}.get(reference, "fp32")


@pytest.mark.parametrize(("reference", "name", "status", "text"), BAD)
def test_bad_candidates_are_told_why(reference, name, status, text, quick):
    verdict = smoke(reference, name, quick)
    assert (verdict.status.value, text in (verdict.error or "")) == (status, True), verdict.error


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("segfault", "launch_error", "crashed (SIGSEGV)"),
        ("memory", "launch_error", "out of memory"),
        ("os_exit", "launch_error", "ended its process (exit 0)"),
        ("sys_exit", "launch_error", "SystemExit: 3"),
        ("base_exception", "launch_error", "Rude: nobody catches me"),
        ("kills_itself", "launch_error", "crashed (SIGKILL)"),
        ("kills_its_guard", "launch_error", "crashed (SIGKILL)"),  # the first process of its own namespace
        ("writes_to_the_judge", "cheat", "interfered"),
        ("threads", "launch_error", "thread"),
        ("endless", "timeout", "longer than 2 s"),
        ("endless_import", "timeout", "longer than 2 s"),
    ],
)
def test_misbehaviour_becomes_a_verdict(name, status, text, quick):
    if status == "timeout":
        quick = quick.model_copy(update={"judge": quick.judge.model_copy(update={"candidate_s": 2.0})})
    start = time.monotonic()
    verdict = smoke("affine", f"evil/{name}", quick)
    assert (verdict.status.value, text in (verdict.error or "")) == (status, True), verdict.error
    assert verdict.num_checks == 0 and time.monotonic() - start < 60


@pytest.mark.parametrize("name", ["flood", "deletes_folder"])
def test_nuisances_that_compute_correctly_are_ok(name, quick):
    verdict = smoke("affine", f"evil/{name}", quick)
    assert verdict.status is Status.OK, verdict.error
    assert len(verdict.log) <= quick.limits.output_bytes
    assert ("zzz" in verdict.log) == (name == "flood")


def test_each_candidate_gets_a_process_of_its_own(quick):
    names = [
        "good/torch_affine",
        "bad/one_element",
        "evil/segfault",
        "good/torch_affine",
        "evil/os_exit",
        "good/torch_affine",
    ]
    seen: list[int] = []
    verdicts = judge(
        task("affine"),
        [candidate(n) for n in names],
        config=quick,
        on_verdict=lambda position, verdict: seen.append(position),
    )
    assert [v.status.value for v in verdicts] == ["ok", "mismatch", "launch_error", "ok", "launch_error", "ok"]
    assert seen == list(range(6))
    timing = verdicts[0].timing
    assert timing is not None and timing.num_pairs >= 7 and timing.reference_ms > 0
    assert verdicts[1].stage == "check" and verdicts[1].timing is None
    assert "Segmentation fault" in verdicts[2].log and "Segmentation fault" not in verdicts[3].log


def test_claim_checks_more_and_times_longer(quick):
    (verdict,) = judge(task("affine"), [candidate("good/torch_affine")], tier="claim", config=quick)
    assert verdict.timing is not None and verdict.timing.num_pairs >= 7
    claim = verdict.timing.claim
    assert claim is not None and len(claim.processes) >= 5
    assert {shape.split()[0] for shape in verdict.shapes} == {"native", *(v.name for v in task("affine").shape_variants)}


def test_a_candidate_that_turns_wrong_while_it_is_timed(quick):
    (verdict,) = judge(task("affine"), [candidate("bad/honest_for_a_while")], config=quick)
    assert verdict.status is Status.MISMATCH and verdict.stage == "time"


def test_faster_and_slower_are_told_apart(quick):
    names = ["good/without_sleep", "good/longer_sleep"]
    fast, slow = judge(task("slow"), [candidate(name) for name in names], config=quick)
    assert fast.timing is not None and fast.faster and fast.timing.speedup.lo > 2
    assert slow.timing is not None and not slow.faster and 0.2 < slow.timing.speedup.value < 0.5
    assert 19 < slow.timing.reference_ms < 40 and slow.timing.candidate_ms > 59


def test_deadline_leaves_candidates_out(quick):
    verdicts = judge(
        task("affine"),
        [candidate("good/torch_affine"), candidate("evil/endless"), candidate("good/torch_affine")],
        config=quick,
        deadline=time.monotonic() + 6,
    )
    assert [v.status.value for v in verdicts] == ["ok"]


def test_broken_reference_is_not_the_candidates_fault(quick):
    broken = task("affine").model_copy(update={"source": "import os\nos._exit(1)\n"})
    (verdict,) = judge(broken, [candidate("good/torch_affine")], config=quick)
    assert verdict.status is Status.BROKEN_TASK


def test_pool_judges_in_parallel_and_tells_which(quick):
    names = ["good/torch_affine", "bad/one_element", "evil/segfault", "bad/no_model_new"]
    found = dict(Pool(2, quick).map([(task("affine"), candidate(n)) for n in names], tier="smoke"))
    assert [found[i].status.value for i in range(4)] == ["ok", "mismatch", "launch_error", "rejected"]


@pytest.mark.parametrize(
    ("name", "status"),
    [("good/triton_affine", "ok"), ("bad/triton_last_left_out", "mismatch"), ("bad/triton_does_not_compile", None)],
)
def test_triton_without_a_gpu_is_checked_and_untimed(name, status, quick):
    pytest.importorskip("triton")
    (verdict,) = judge(task("affine"), [candidate(name)], config=quick)
    if status is None:
        assert verdict.status in (Status.COMPILE_ERROR, Status.LAUNCH_ERROR), verdict.error
        assert "no_such_function" in (verdict.error or "")
        return
    assert verdict.status.value == status, verdict.error
    assert verdict.timing is None
    if status == "ok":
        assert "interpreter" in (verdict.untimed_reason or "") and verdict.num_checks >= 3


def test_a_returned_buffer_is_compared_before_it_is_put_back(quick):
    source = (
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('h', torch.zeros(64))\n    def forward(self, x):\n"
        "        self.h = torch.tanh(self.h * 0.9 + x * {factor})\n        return self.h\n"
        "def get_inputs():\n    return [torch.randn(64)]\n"
    )
    given = task("affine").model_copy(
        update={"source": source.format(factor=0.1), "shape_variants": (), "num_shape_variants": 1, "input_specs": ()}
    )
    same = Candidate(source=source.format(factor=0.1).replace("class Model", "class ModelNew"), backend="cpp")
    other = Candidate(source=source.format(factor=0.2).replace("class Model", "class ModelNew"), backend="cpp")
    verdicts = judge(given, [same, other], tier="smoke", config=quick)
    assert [v.status for v in verdicts] == [Status.OK, Status.MISMATCH]
