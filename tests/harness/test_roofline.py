"""No kernel undercuts the floor, and no honest one is accused of it: only bytes that must move count."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from dvk import machine
from dvk.config import Limits
from dvk.harness.timing.roofline import SLACK, Ceilings, better, floor_ms, impossible, load
from dvk.harness.timing.roofline_bytes import needed_bytes
from dvk.pipelines import probes
from dvk.sandbox import Message, call

GPU = Ceilings(
    device="cuda", copy_gbps=3000, read_gbps=3200, gflops={"fp32": 50_000, "bf16": 700_000}
)
CACHE = 50 << 20
PATIENT = Limits(wall_s=120.0)


def test_floor_is_what_binds() -> None:
    assert floor_ms(3.2e9, GPU) == pytest.approx(1.0)
    assert floor_ms(3.2e9, GPU, flops=1e11) == pytest.approx(2.0)
    assert floor_ms(3.2e9, GPU, flops=1e11, precision="bf16") == pytest.approx(1.0)
    assert floor_ms(3.2e9, GPU, flops=1e30, precision="fp8") == pytest.approx(1.0)
    assert floor_ms(3e9, Ceilings(device="cuda", copy_gbps=3000)) == pytest.approx(1.0)


def test_an_impossible_time_is_reported_with_its_reason() -> None:
    why = impossible(0.5, 3.0, 3.2e9, CACHE, GPU)
    assert why is not None and "0.5 ms" in why and "3200 GB/s" in why


def test_the_benefit_of_the_doubt() -> None:
    assert (
        impossible(0.95, 3.0, 3.2e9, CACHE, GPU) is None
    )  # clocks and ceilings are no better than that
    assert impossible(1e-6, 3.0, 90e6, CACHE, GPU) is None  # may lie in the caches
    assert impossible(0.5, 0.6, 3.2e9, CACHE, GPU) is None  # the reference does it, too
    cpu = GPU.model_copy(update={"device": "cpu"})
    assert (
        impossible(0.3, 3.0, 3.2e9, CACHE, cpu) is None
        and impossible(0.2, 3.0, 3.2e9, CACHE, cpu) is not None
    )
    assert SLACK["cpu"] < SLACK["cuda"] < 1


def test_what_was_measured_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVK_HOME", str(tmp_path))
    assert load("cpu") is None
    machine.remember(
        "cpu", {"copy_gbps": 12.5, "at": "2026-01-01", "unknown": 1}
    )  # an older dvk wrote only this
    found = load("cpu")
    assert (
        found is not None
        and found.copy_gbps == 12.5
        and found.read_gbps is None
        and found.memory_gbps == 12.5
    )
    machine.remember("cpu", {"copy_gbps": -1})
    assert load("cpu") is None


def test_a_busy_day_lowers_no_ceiling() -> None:
    old = {"fp32": 90.0, "bf16": 9.0}
    quiet = {
        "copy_gbps": 20.0,
        "read_gbps": 25.0,
        "write_gbps": 9.0,
        "gflops": old,
        "launch_us": 1.0,
        "at": "day 1",
    }
    busy = {
        "copy_gbps": 6.0,
        "read_gbps": 26.0,
        "gflops": {"fp32": 40.0, "tf32": 40.0},
        "launch_us": 7.0,
        "at": "day 2",
    }
    rates = {"fp32": 90.0, "bf16": 9.0, "tf32": 40.0}
    best = {
        "copy_gbps": 20.0,
        "read_gbps": 26.0,
        "write_gbps": 9.0,
        "gflops": rates,
        "launch_us": 1.0,
        "at": "day 2",
    }
    assert (
        better(quiet, busy) == best
        and better({}, busy) == busy
        and better({"copy_gbps": 1.0}, busy) == busy
    )


@pytest.mark.alone
@pytest.mark.slow
def test_no_kernel_here_beats_the_measured_ceilings() -> None:
    """A sum over 128 MB, the leanest honest kernel there is, stays above the floor that must not be undercut."""
    answer = call(f"{probes.__name__}:cpu", {"num_bytes": 128 << 20, "matmul": 512}, PATIENT)
    assert isinstance(answer, Message)
    ceilings = Ceilings.model_validate(
        {name: value for name, value in answer.value.items() if name != "works"} | {"device": "cpu"}
    )
    assert (
        ceilings.gflops["fp32"] > 1
        and ceilings.launch_us is not None
        and 0.05 < ceilings.launch_us < 1000
    )
    data = torch.ones(32 << 20)
    best = float("inf")
    for _ in range(7):
        start = time.perf_counter()
        data.max()
        best = min(best, (time.perf_counter() - start) * 1e3)
    assert impossible(best, 1e9, data.nbytes, 0, ceilings) is None


# ---------------------------------------------------------------- what must move

N = 1 << 20
BYTES = 4 * N


def test_all_of_what_matters_counts() -> None:
    x, w = (
        torch.rand(1024, 1024) + 0.1,
        torch.rand(1024, 1024) + 0.1,
    )  # nowhere 0, where the absolute value has no slope
    kept = x.clone()
    for made, inputs, count in (
        (lambda: x @ w, [x, w], 3),
        (lambda: x + w.abs().mean(), [x, w], 3),
        (lambda: torch.softmax(x, 1), [x], 2),
    ):
        found = needed_bytes(made, inputs)
        assert found <= count * BYTES and found == pytest.approx(
            count * BYTES, rel=1e-5
        )  # a derivative may be 0 by chance
    assert torch.equal(x, kept) and not x.requires_grad


def test_what_does_not_matter_does_not_count() -> None:
    x, w = torch.randn(1024, 1024), torch.randn(1024, 1024)
    assert needed_bytes(lambda: x[:10] * 2, [x, w]) == pytest.approx(2 * 10 * 4096, rel=1e-3)
    assert needed_bytes(lambda: (x @ w)[:, :2], [x, w]) == pytest.approx(BYTES + 4 * 4096, rel=1e-5)
    assert (
        needed_bytes(lambda: torch.softmax(x, 1).sum(1), [x]) == 4096
    )  # always 1, though no derivative is exactly 0
    assert needed_bytes(lambda: torch.layer_norm(x, (1024,)).sum(), [x]) == 4
    assert (
        needed_bytes(lambda: x.t(), [x]) == 0 and needed_bytes(lambda: torch.zeros(3, 4), [x]) == 48
    )
    negative = -x.abs()
    assert needed_bytes(lambda: torch.relu(negative), [negative]) == BYTES
    assert needed_bytes(lambda: x.argmax(1), [x]) == 8 * 1024
    row = torch.randn(1, 1).expand(1024, 1024)
    assert needed_bytes(lambda: row * 2, [row]) == BYTES
    assert needed_bytes(lambda: (torch.ones(1, 1).expand(1024, 1024),), []) == 4


def test_a_reference_without_derivatives_still_writes() -> None:
    x = torch.randn(1024, 1024)
    seen = x.clone()

    def odd() -> torch.Tensor:
        return torch.from_numpy(x.detach().numpy() * 2)

    assert needed_bytes(odd, [x]) == BYTES and torch.equal(x, seen)
