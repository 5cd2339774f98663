"""Verdicts on real candidates: right, wrong in every way that can be compared, and out to break the judge."""

from __future__ import annotations

import shutil
import time
from functools import cache

import pytest

from dvk import tasks
from dvk.harness import JudgeQueue, JudgeSpec, judge
from dvk.harness.profiling.record import coverage, profile_of
from dvk.harness.session.judge_session import JudgeSession
from dvk.records import Candidate, Status, Verdict
from tests.harness.conftest import QUICK, candidate, task

HAS_COMPILER = shutil.which("g++") is not None
needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="needs g++")

GOOD = [
    ("affine", "good/torch_affine"),
    pytest.param("affine", "good/cpp_affine", marks=needs_compiler),
    ("running_statistics", "good/torch_statistics"),
    ("dropout", "good/torch_dropout"),
    ("tree", "good/torch_tree"),
    ("tree", "good/tree_contiguous"),
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
    (
        "affine",
        "bad/keeps_output",
        "mismatch",
        "output of an earlier call was overwritten by a later one: return new memory",
    ),
    (
        "affine",
        "bad/keeps_buffer",
        "mismatch",
        "output of an earlier call was overwritten by a later one: return new memory",
    ),
    ("affine", "bad/one_nan", "mismatch", "at [63, 300]: nan"),
    ("affine", "bad/one_element", "mismatch", "worst at [21, 100]"),
    ("affine", "bad/returns_nothing", "mismatch", "NoneType"),
    ("affine", "bad/raises", "launch_error", "RuntimeError: not on this machine"),
    ("affine", "bad/raises_half", "launch_error", "RuntimeError: half ? of a pair"),
    ("affine", "bad/no_model_new", "rejected", "ModelNew"),
    ("affine", "bad/not_python", "rejected", "not Python"),
    ("affine", "bad/import_fails", "compile_error", "no_such_package"),
    ("affine", "bad/wrong_constructor", "launch_error", "width"),
    pytest.param(
        "affine", "bad/cpp_tail_left_out", "mismatch", "off by more than", marks=needs_compiler
    ),
    pytest.param(
        "affine",
        "bad/cpp_does_not_compile",
        "compile_error",
        "CalledProcessError",
        marks=needs_compiler,
    ),
    ("running_statistics", "bad/statistics_forgotten", "mismatch", "buffer `norm.running_mean`"),
    ("dropout", "bad/dropout_left_out", "mismatch", "off by more than"),
    ("tree", "bad/tree_other_order", "mismatch", "best.0"),
    ("tree", "bad/tree_list", "mismatch", "instead of"),
    ("affine", "bad/affine_strides", "mismatch", "strides (1, 64) instead of (301, 1)"),
    ("tree", "bad/tree_index_off", "mismatch", "1 of 24 elements differ, first at [23]"),
    ("linear", "bad/linear_in_bfloat16", "mismatch", "off by more than"),
    ("linear", "bad/linear_changes_weight", "mismatch", "weight `layer.weight`"),
    ("infinite", "bad/infinite_as_large", "mismatch", "NaN or infinity differs"),
    ("infinite", "bad/infinite_as_nan", "mismatch", "NaN or infinity differs"),
    ("bfloat", "bad/bfloat_coarse", "mismatch", "off by more than"),
    ("rounds", "bad/rounds_down", "mismatch", "off by more than"),
]


MISBEHAVING = [
    ("segfault", "launch_error", "crashed (SIGSEGV)"),
    ("memory", "launch_error", "out of memory"),
    ("os_exit", "launch_error", "ended its process (exit 0)"),
    ("sys_exit", "launch_error", "SystemExit: 3"),
    ("base_exception", "launch_error", "Rude: nobody catches me"),
    ("kills_itself", "launch_error", "crashed (SIGKILL)"),
    ("kills_its_guard", "launch_error", "crashed (SIGKILL)"),  # the first process of its namespace
    ("writes_to_the_judge", "cheat", "interfered"),
    ("threads", "launch_error", "thread"),
    ("endless", "timeout", "longer than 1 s"),
    ("endless_import", "timeout", "longer than 1 s"),
]
NUISANCES = ["flood", "deletes_folder"]
IMPATIENT = QUICK.model_copy(update={"judge": QUICK.judge.model_copy(update={"candidate_s": 1.0})})


@cache
def verdicts(reference: str, impatient: bool) -> dict[str, Verdict]:
    """Verdicts of all candidates of a reference in these lists, judged without timing by one judge session, as for users."""
    listed = [entry.values if hasattr(entry, "values") else entry for entry in (*GOOD, *BAD)]
    names = [
        entry[1]
        for entry in listed
        if entry[0] == reference and (HAS_COMPILER or "cpp" not in entry[1])
    ]
    if reference == "affine":
        names += [f"evil/{name}" for name in (*(name for name, _, _ in MISBEHAVING), *NUISANCES)]
    names = [name for name in names if name.startswith("evil/endless") == impatient]
    found = judge(
        task(reference),
        [candidate(name) for name in names],
        tier="smoke",
        config=IMPATIENT if impatient else QUICK,
    )
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize(("reference", "name"), GOOD)
@pytest.mark.slow
def test_good_candidates_are_ok_at_three_shapes(reference, name):
    verdict = verdicts(reference, False)[name]
    assert verdict.status is Status.OK, verdict.error
    assert len({shape.split()[0] for shape in verdict.shapes}) >= 3
    assert verdict.num_checks >= 3 and verdict.timing is None
    assert (
        verdict.worst_error is not None
        and verdict.tolerance is not None
        and verdict.worst_error <= verdict.tolerance
    )
    assert verdict.precision == {"bfloat": "half"}.get(reference, "fp32")


def test_other_strides_are_reported_and_refused_on_request():
    verdict = verdicts("tree", False)["good/tree_contiguous"]
    assert verdict.notes == ("`best.1` is contiguous where the reference's strides are (1, 40)",)
    strict = QUICK.model_copy(
        update={"judge": QUICK.judge.model_copy(update={"exact_strides": True})}
    )
    (refused,) = judge(
        task("tree"), [candidate("good/tree_contiguous")], tier="smoke", config=strict
    )
    assert refused.status is Status.MISMATCH and "strides (24, 1) instead of (1, 40)" in (
        refused.error or ""
    )


@pytest.mark.parametrize(("reference", "name", "status", "text"), BAD)
def test_bad_candidates_get_a_reason(reference, name, status, text):
    verdict = verdicts(reference, False)[name]
    assert (verdict.status.value, text in (verdict.error or "")) == (status, True), verdict.error


@pytest.mark.parametrize(("name", "status", "text"), MISBEHAVING)
@pytest.mark.slow
def test_misbehaviour_becomes_a_verdict(name, status, text):
    verdict = verdicts("affine", status == "timeout")[f"evil/{name}"]
    assert (verdict.status.value, text in (verdict.error or "")) == (status, True), verdict.error
    assert verdict.num_checks == 0 and verdict.seconds < 60


@pytest.mark.parametrize("name", NUISANCES)
def test_nuisances_that_compute_correctly_are_ok(name, quick):
    verdict = verdicts("affine", False)[f"evil/{name}"]
    assert verdict.status is Status.OK, verdict.error
    assert len(verdict.log) <= quick.limits.output_bytes
    assert ("zzz" in verdict.log) == (name == "flood")


@pytest.mark.slow
def test_each_candidate_gets_a_fresh_process(quick):
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
    assert [v.status.value for v in verdicts] == [
        "ok",
        "mismatch",
        "launch_error",
        "ok",
        "launch_error",
        "ok",
    ]
    assert seen == list(range(6))
    timing = verdicts[0].timing
    assert timing is not None and timing.num_pairs >= 7 and timing.reference_ms > 0
    assert verdicts[1].stage == "check" and verdicts[1].timing is None
    assert "Segmentation fault" in verdicts[2].log and "Segmentation fault" not in verdicts[3].log


@pytest.mark.slow
def test_claim_checks_more_and_times_longer(quick):
    (verdict,) = judge(task("affine"), [candidate("good/torch_affine")], tier="claim", config=quick)
    assert verdict.timing is not None and verdict.timing.num_pairs >= 7
    claim = verdict.timing.claim
    assert claim is not None and len(claim.processes) >= 5
    assert {shape.split()[0] for shape in verdict.shapes} == {
        "native",
        *(v.name for v in task("affine").shape_variants),
    }


@pytest.mark.slow
def test_a_candidate_that_turns_wrong_while_it_is_timed(quick):
    (verdict,) = judge(task("affine"), [candidate("bad/honest_for_a_while")], config=quick)
    assert verdict.status is Status.MISMATCH and verdict.stage == "time"


@pytest.mark.alone
@pytest.mark.slow
def test_faster_and_slower_are_distinguished(quick):
    names = ["good/without_sleep", "good/longer_sleep"]
    fast, slow = judge(task("slow"), [candidate(name) for name in names], config=quick)
    assert fast.timing is not None and fast.faster and fast.timing.speedup.lo > 2
    assert slow.timing is not None and not slow.faster and 0.2 < slow.timing.speedup.value < 0.5
    assert 19 < slow.timing.reference_ms < 40 and slow.timing.candidate_ms > 59


def test_deadline_leaves_candidates_out(quick):
    with JudgeSession(task("affine"), quick) as session:
        assert session.judge(candidate("good/torch_affine"), "smoke") is not None
        began = time.monotonic()
        assert session.judge(candidate("evil/endless"), "smoke", deadline=began + 1) is None
        assert time.monotonic() - began < quick.judge.candidate_s
    assert (
        judge(
            task("affine"),
            [candidate("good/torch_affine")],
            config=quick,
            deadline=time.monotonic(),
        )
        == []
    )


def test_broken_reference_is_not_the_candidates_fault(quick):
    broken = task("affine").model_copy(update={"source": "import os\nos._exit(1)\n"})
    (verdict,) = judge(broken, [candidate("good/torch_affine")], config=quick)
    assert verdict.status is Status.BROKEN_TASK


@pytest.mark.slow
def test_a_profile_is_part_of_the_verdict_where_asked_for(quick):
    with JudgeSession(task("affine"), quick, JudgeSpec(profile=True)) as session:
        right, wrong = (
            session.judge(candidate(name), tier="smoke")
            for name in ("good/torch_affine", "bad/one_element")
        )
    assert right is not None and wrong is not None
    found = profile_of(right)
    assert found is not None and found.device == "cpu" and found.wall_ms > 0 and found.num_bytes
    assert {"aten::mul_", "aten::add_"} <= {
        kernel.name for kernel in found.kernels
    } and found.coverage == 0
    assert wrong.profile is None and coverage(wrong) == 0
    assert coverage(right) in (None, 0.0), "the candidate's word does not count"


def test_pool_judges_in_parallel_and_tells_which(quick):
    names = ["good/torch_affine", "bad/one_element", "evil/segfault", "bad/no_model_new"]
    found = dict(
        JudgeQueue[int](2, quick).map(
            [(task("affine"), candidate(n)) for n in names], JudgeSpec(tier="smoke")
        )
    )
    assert [found[i].status.value for i in range(4)] == [
        "ok",
        "mismatch",
        "launch_error",
        "rejected",
    ]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("good/triton_affine", "ok"),
        ("bad/triton_last_left_out", "mismatch"),
        ("bad/triton_does_not_compile", None),
    ],
)
@pytest.mark.slow
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
        update={
            "source": source.format(factor=0.1),
            "shape_variants": (),
            "num_shape_variants": 1,
            "input_specs": (),
        }
    )
    same = Candidate(
        source=source.format(factor=0.1).replace("class Model", "class ModelNew"), backend="cpp"
    )
    other = Candidate(
        source=source.format(factor=0.2).replace("class Model", "class ModelNew"), backend="cpp"
    )
    verdicts = judge(given, [same, other], tier="smoke", config=quick)
    assert [v.status for v in verdicts] == [Status.OK, Status.MISMATCH]


EMPTY = """
import torch
class {name}(torch.nn.Module):
    def forward(self, x):
        return x * 2, x[:0] * 2
def get_inputs():
    return [torch.randn(32, 64)]
"""
COUNTS = """
import torch
class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(64))
        self.register_buffer("calls", torch.zeros(()), persistent=False)
    def forward(self, x):
        self.calls += 1
        return x * self.scale, self.calls.clone()
def get_inputs():
    return [torch.randn(32, 64)]
"""


@pytest.mark.parametrize(
    "text", [EMPTY, COUNTS], ids=["one output is empty", "a buffer outside of state_dict counts"]
)
@pytest.mark.slow
def test_a_module_is_right_as_its_own_candidate(text, tmp_path, quick):
    path = tmp_path / "model.py"
    path.write_text(text.format(name="Model") + "def get_init_inputs():\n    return []\n")
    (verdict,) = judge(
        tasks.load(str(path)),
        [Candidate(source=text.format(name="ModelNew"), backend="cpp")],
        tier="search",
        config=quick,
    )
    assert verdict.status is Status.OK, verdict.error
