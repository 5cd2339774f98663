"""Loops over time steps become one kernel: the forms in which models write them, chunks, what stays as it is, and the time of a capture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from dvk.composer.ir.chunked_form import chunked_form
from dvk.composer.ir.time_scan import TIME_SCAN, TimeScan
from dvk.composer.rewrites import chunked_steps
from tests.composer.time_loop_cases import CASES, LEFT, captured_of, error

STEPS = 37


def scans(name: str, steps: int = STEPS) -> list[TimeScan]:
    graph = captured_of(name, steps).graph
    return [TimeScan.of(n.kwargs) for n in graph.nodes if n.op == TIME_SCAN]


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.dtype == "float32"])
@pytest.mark.slow
def test_a_loop_is_one_kernel(name: str) -> None:
    assert len(scans(name)) == 1
    assert error(name, STEPS, "cpp") < CASES[name].error


@pytest.mark.parametrize("name", LEFT)
@pytest.mark.slow
def test_other_loops_stay(name: str) -> None:
    assert not scans(name, 20)


def test_a_long_loop_is_traced_for_two_steps() -> None:
    graph = captured_of("gated", 3000).graph
    assert len(graph.nodes) < 20
    (scan,) = (TimeScan.of(n.kwargs) for n in graph.nodes if n.op == TIME_SCAN)
    assert scan.steps == 3000


def test_a_short_loop_stays() -> None:
    assert not scans("gated", 8)


@pytest.mark.slow
def test_chunks_are_found_where_the_state_is_linear_attention() -> None:
    found = {name: chunked_form(scans(name)[0]) is not None for name in CASES}
    assert found == {name: case.chunks for name, case in CASES.items()}


def test_arguments_survive_json() -> None:
    (scan,) = scans("delta")
    assert TimeScan.of(json.loads(json.dumps(scan.given()))) == scan


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    """Errors of Triton kernels in its interpreter, which a separate process must choose before it imports Triton."""
    pytest.importorskip("triton")
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.composer.time_loop_cases"],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", CASES)
def test_triton_steps(interpreted: dict[str, Any], name: str) -> None:
    assert interpreted[name] < CASES[name].error


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.chunks])
def test_triton_chunks(interpreted: dict[str, Any], name: str) -> None:
    assert interpreted[f"{name} chunked"] < 10 * CASES[name].error


def test_chunks_have_narrow_keys_and_values() -> None:
    graph = captured_of("gated", 150).graph
    assert chunked_steps.rewrite(graph) is not None
    (node,) = (n for n in graph.nodes if n.op == TIME_SCAN)
    scan = TimeScan.of(node.kwargs)
    for axis in (scan.inner, scan.lanes):
        for width, fits in ((128, True), (129, False)):
            sizes = tuple(width if a == axis else s for a, s in enumerate(scan.sizes))
            wide = node.model_copy(update={"kwargs": replace(scan, sizes=sizes).given()})
            nodes = tuple(wide if n is node else n for n in graph.nodes)
            made = chunked_steps.rewrite(graph.model_copy(update={"nodes": nodes}))
            assert (made is not None) == fits
