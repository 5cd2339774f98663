"""The judge on a GPU: kernels are timed, a context that a candidate broke is not used again, TF32 is its own class."""

from __future__ import annotations

import shutil

import pytest

from dvk import machine, tasks
from dvk.composer.dropin import lines
from dvk.harness import JudgeQueue, judge
from dvk.records import Candidate, Status
from tests.harness.conftest import FILES, candidate

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not machine.gpu_names(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture
def quick(quick):
    """A CUDA context alone takes a gigabyte of the host's memory, nvcc as much."""
    limits = quick.limits.model_copy(update={"memory_bytes": 16 << 30, "num_processes": 512})
    return quick.model_copy(update={"limits": limits})


def gpu_task(name: str):
    return tasks.load(str(FILES / f"{name}.py"), device="cuda")


def test_triton_is_compiled_checked_and_timed(quick):
    good, bad = judge(
        gpu_task("affine"),
        [candidate("good/triton_affine"), candidate("bad/triton_last_left_out")],
        config=quick,
    )
    assert good.status is Status.OK, good.error
    assert good.timing is not None and 0.001 < good.timing.candidate_ms < 10
    assert bad.status is Status.MISMATCH
    assert machine.gpu_names()[0] in good.machine


HOST_NUMBER = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.where(x < 0, torch.tensor(0.0), x) * 2 + 1


def get_inputs():
    return [torch.randn(64, 301)]
"""


def test_a_reference_that_reads_a_number_from_the_host_is_timed_from_end_to_end(quick, tmp_path):
    """No CUDA graph can hold it."""
    (tmp_path / "host_number.py").write_text(HOST_NUMBER)
    task = tasks.load(str(tmp_path / "host_number.py"), device="cuda")
    own = candidate("good/triton_affine")
    same = own.model_copy(update={"source": HOST_NUMBER.replace("Model(", "ModelNew(")})
    verdicts = judge(task, [own, same, own], config=quick)
    assert [v.status for v in verdicts] == [Status.OK] * 3, [v.error for v in verdicts]
    assert all(v.timing is not None and v.timing.regime == "end_to_end" for v in verdicts)


RECURRENT = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(32, 64, num_layers=2)

    def forward(self, x):
        return self.lstm(x)[0]


def get_inputs():
    return [torch.randn(20, 8, 32)]
"""


def test_recurrent_weights_are_in_one_piece_when_a_candidate_is_timed(quick, tmp_path):
    """The unchanged module was 0.88 to 0.97 times as fast as itself: checks had left its weights apart, and cuDNN copied them each time."""
    (tmp_path / "recurrent.py").write_text(RECURRENT)
    task = tasks.load(str(tmp_path / "recurrent.py"), device="cuda")
    source = f"{RECURRENT}\n\nModelNew = Model\n"
    (verdict,) = judge(task, [Candidate(source=source, backend="triton")], config=quick)
    assert verdict.status is Status.OK and verdict.timing is not None, verdict.error
    assert verdict.timing.regime == "end_to_end" and verdict.timing.speedup.hi > 0.99


def test_baselines_are_timed_by_the_device_beside_a_plan(quick):
    """A kernel of microseconds is not compared with torch.compile through two processes' handshakes."""
    task, given = gpu_task("affine"), [candidate("good/triton_affine")]
    (found,) = judge(
        task, given, config=quick, tier="search", contract="auto", baselines=("compile", "graph")
    )
    timing = found.timing
    assert timing is not None and timing.regime == "device", found.error
    assert set(timing.baselines) == {"compile", "graph"} and not found.baselines_left_out
    assert 0.5 < timing.reference_ms / timing.baselines_ms["graph"] < 2, "eager's own kernels"


@pytest.mark.parametrize("contract", ["short", "auto"])
def test_short_calls_are_claimed_by_the_device(quick, contract):
    """A gain of microseconds is shown, which the switch between two processes hides; the host code is checked as well."""
    (found,) = judge(
        gpu_task("affine"),
        [candidate("good/triton_affine")],
        config=quick,
        tier="claim",
        contract=contract,
    )
    timing = found.timing
    assert timing is not None and timing.claim is not None and timing.regime == "device", found
    assert 0.9 < timing.claim.control.value < 1.1 and found.contract == "module"
    assert timing.reference_ms < 0.1, "no switch"


def test_a_line_of_pytorch_is_timed_by_the_device_where_calls_are_short(quick):
    task = gpu_task("affine")
    line = lines.candidate(task, lines.OF_BASELINE["compile"], "cpp")
    own = candidate("good/triton_affine")
    found = judge(task, [line, own], config=quick, contract="short")
    assert [v.status for v in found] == [Status.OK] * 2, [v.error for v in found]
    assert [v.timing.regime for v in found if v.timing] == ["device"] * 2


def test_a_broken_context_ends_one_candidate_only(quick):
    names = ["good/triton_affine", "evil/triton_out_of_bounds", "good/triton_affine"]
    verdicts = judge(gpu_task("affine"), [candidate(n) for n in names], config=quick)
    assert [v.status.value for v in verdicts] == ["ok", "launch_error", "ok"], [
        v.error for v in verdicts
    ]


@pytest.mark.parametrize("contract", ["module", "plan"])
def test_an_out_of_bounds_write_near_an_input_is_a_verdict(quick, contract):
    good = candidate("good/triton_affine")
    behind = good.source.replace(
        "mask=mask)\n\n", "mask=mask)\n    tl.store(x + n + tl.arange(0, 4), 1.0)\n\n"
    )
    assert behind != good.source
    verdicts = judge(
        gpu_task("affine"),
        [good.model_copy(update={"source": s}) for s in (behind, good.source)],
        config=quick,
        contract=contract,
    )
    assert [v.status.value for v in verdicts] == ["launch_error", "ok"], [v.error for v in verdicts]
    assert "outside its tensors" in (verdicts[0].error or "")


def test_an_out_of_bounds_write_near_an_output_is_a_verdict_in_replayed_launches(quick):
    good = candidate("good/triton_affine")
    unmasked = good.source.replace("* 2 + 1, mask=mask)", "* 2 + 1)")
    assert unmasked != good.source
    verdicts = judge(
        gpu_task("affine"),
        [good.model_copy(update={"source": s}) for s in (unmasked, good.source)],
        config=quick,
        contract="plan",
    )
    assert [v.status.value for v in verdicts] == ["launch_error", "ok"], [v.error for v in verdicts]
    assert "outside its tensors" in (verdicts[0].error or "")


DECOY = """
        y = torch.relu(x) * 2 + 1
        affine[(1,)](x, y, 1, BLOCK=4096)
        return y
"""


@pytest.mark.parametrize("contract", ["module", "plan"])
def test_operators_are_refused_under_require_kernels(quick, contract):
    good = candidate("good/triton_affine")
    decoy = good.source[: good.source.index("        y = torch.empty_like")] + DECOY[1:]
    verdicts = judge(
        gpu_task("affine"),
        [good.model_copy(update={"source": s}) for s in (decoy, good.source)],
        config=quick,
        contract=contract,
        require_kernels=True,
    )
    assert [v.status.value for v in verdicts] == ["rejected", "ok"], [v.error for v in verdicts]
    assert "without PyTorch's operators" in (verdicts[0].error or "")


@pytest.mark.parametrize("contract", ["module", "plan"])
def test_views_are_compared_as_they_are(quick, contract):
    task = tasks.load(str(FILES / "expanded.py"), device="cuda")
    (verdict,) = judge(task, [candidate("good/triton_expanded")], config=quick, contract=contract)
    assert verdict.status is Status.OK and verdict.contract == contract, verdict.error


def test_compiler_errors_are_named(quick):
    (verdict,) = judge(gpu_task("affine"), [candidate("bad/triton_does_not_compile")], config=quick)
    assert verdict.status is Status.COMPILE_ERROR and "no_such_function" in (verdict.error or "")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_load_inline_candidates(quick):
    quick = quick.model_copy(
        update={"judge": quick.judge.model_copy(update={"candidate_s": 200.0})}
    )
    (verdict,) = judge(gpu_task("affine"), [candidate("good/cuda_affine")], config=quick)
    assert verdict.status is Status.OK, verdict.error
    assert verdict.timing is not None


def test_convolutions_are_held_to_tf32(quick):
    (verdict,) = judge(gpu_task("convolution"), [candidate("good/torch_convolution")], config=quick)
    assert verdict.status is Status.OK, verdict.error
    assert verdict.precision == "tf32"
    # Ten bits of mantissa: more than fp32 is ever admitted, and about the class's ceiling or twice the reference's own error.
    assert verdict.tolerance is not None and 4e-3 <= verdict.tolerance <= 3e-2


def test_many_share_one_gpu(quick):
    task = gpu_task("affine")
    found = dict(
        JudgeQueue[int](4, quick).map([(task, candidate("good/triton_affine")) for _ in range(6)])
    )
    assert all(v.status is Status.OK and v.timing for v in found.values()), [
        v.error for v in found.values()
    ]
