"""What bounds a task's time, from its graph and this machine's ceilings; the opponent; the gap."""

from __future__ import annotations

import json

import pytest

from dvk import machine, target
from dvk.agents import bounds, feedback
from dvk.agents.bounds import Bounds
from dvk.config import Config
from dvk.harness.profiling.record import KernelTime, Profile
from dvk.harness.profiling.reference import reference_profile
from dvk.records import Candidate, Graph, Node, Turn
from tests.agents.conftest import QUICK, affine, captured, ok, wrong

HERE = Config()


def of(graph: Graph | None, config: Config = HERE) -> Bounds:
    return bounds.of(affine(), graph, config, target.of_machine("cpu"))


@pytest.fixture
def ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that moves 1 GB a second and multiplies 1 GFLOP a second."""
    facts = {"copy_gbps": 1.0, "gflops": {"fp32": 1.0}}
    monkeypatch.setattr(machine, "recall", lambda device="cpu": facts)


def test_bytes_and_peaks(ceilings: None) -> None:
    found = of(captured().graph)
    assert found.num_bytes == 2 * 64 * 301 * 4 and found.measured and found.flops == 0
    assert found.unfused_bytes == 3 * found.num_bytes, "relu, mul, add"
    assert found.least_ms == pytest.approx(found.num_bytes / 1e6)
    assert "bound by memory" in bounds.words(found)
    assert "relu float32[64,301] 154 kB" in bounds.profile_words(found)


def test_arithmetic_binds_a_matmul(ceilings: None) -> None:
    def value(name: str, op: str, *args: str) -> Node:
        refs = tuple({"ref": arg} for arg in args)
        return Node(
            name=name, op=op, args=refs, shape=(256, 256), dtype="float32", strides=(256, 1)
        )

    nodes = (value("x0", "input"), value("x1", "input"), value("v0", "aten.mm.default", "x0", "x1"))
    found = of(Graph(nodes=nodes, outputs={"ref": "v0"}))
    assert found.flops == 2 * 256**3 and found.least_ms == pytest.approx(2 * 256**3 / 1e6)
    assert "bound by arithmetic" in bounds.words(found) and "GFLOP" in bounds.words(found)


def test_without_a_graph_or_peaks_less_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "recall", lambda device="cpu": {})
    found = of(None)
    assert found.least_ms is None and found.num_bytes and not bounds.profile_words(found)
    assert "Roofline" not in bounds.words(found)
    remote = Config.model_validate({"remote": {"judge": "kernelgym:http://127.0.0.1:9"}})
    assert not of(captured().graph, remote).device, "the judge's device is not this one"


def test_the_opponent_is_the_fastest_line_of_pytorch() -> None:
    def judged(line: str, speedup: float) -> Turn:
        return Turn(candidate=Candidate(source=line, backend="cpp", line=line), verdict=ok(speedup))

    turns = [judged("", 9.0), judged("torch.compile", 2.0), judged("channels_last", 1.5)]
    best = of(None).judged(turns).opponent
    assert best is not None and (best.name, best.speedup, best.ms) == ("torch.compile", 2.0, 0.5)
    known = of(None).judged(turns)
    assert "only 0.75× as fast as `torch.compile`" in feedback.describe(ok(1.5), 500, bounds=known)
    assert "1.50× as fast as `torch.compile`" in feedback.describe(ok(3.0), 500, bounds=known)
    assert "To beat" not in bounds.words(of(None).judged(turns[:1]))


def test_the_gap_to_the_roofline(ceilings: None) -> None:
    found = of(captured().graph)
    assert found.least_ms is not None
    told = feedback.describe(ok(0.5 / found.least_ms), 500, bounds=found)
    assert "The roofline is 154 µs a call on this machine: 2.00× that is used." in told
    told = feedback.describe(ok(1 / found.least_ms), 500, bounds=found)
    assert "little is left to gain" in told


def test_the_worst_element_has_its_index_and_both_values() -> None:
    error = "`output`: 3 of 9 elements are off by more than 1e-05 of scale, worst at [2, 1]: nan instead of 0.5 (rms 1)"
    told = feedback.describe(wrong(error=error), 500)
    assert "Worst wrong element: index [2, 1], expected 0.5, got nan." in told
    told = feedback.describe(
        wrong(error="2 of 9 elements differ, first at [0]: 3 instead of 4"), 500
    )
    assert "First wrong element: index [0], expected 4, got 3." in told


@pytest.mark.slow
def test_the_reference_is_profiled() -> None:
    profile = reference_profile(affine(), QUICK.limits)
    assert profile is not None and profile.wall_ms > 0
    found = of(captured().graph).profiled(profile)
    assert {"aten::relu", "aten::mul", "aten::add"} & {c.name for c in found.operators}
    assert found == Bounds.model_validate(json.loads(found.model_dump_json()))


def test_small_operators_are_counted_together() -> None:
    shares = [0.6, 0.39, 0.005, 0.005]
    kernels = tuple(
        KernelTime(name=f"k{n}", origin="library", count=1, device_ms=share, share=share)
        for n, share in enumerate(shares)
    )
    made = Profile(device="cpu", num_calls=3, wall_ms=1, device_ms=1, host_ms=0, kernels=kernels)
    text = bounds.profile_words(of(None).profiled(made))
    assert "- k1: 390 µs, 39%" in text and "- the other 2: 10 µs" in text
