"""Schedules follow the device: its multiprocessors, shared memory, registers and arithmetic; the default's are held by test_schedules."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from dvk.composer.algorithms import algorithms
from dvk.composer.codegen.base import codegen
from dvk.composer.codegen.triton.matmul_schedule import ranked
from dvk.composer.codegen.triton.matmul_tiles import TALL, TILES
from dvk.composer.ir.schedules.cpp import CppDirect
from dvk.composer.ir.schedules.triton import TritonProduct, TritonSplit, TritonStride
from dvk.config import Config, changed
from dvk.records.measured import read_table, write_table
from dvk.resources import resource
from dvk.search import SearchProblem
from dvk.search.composer import Planner
from dvk.target import DEFAULT, Cpu, Gpu, Target, gpu_of, loaded, of_judge, of_machine
from tests.composer.programs import TASK, capture
from tests.composer.schedule_cases import CASES, kernels

A100 = Gpu(
    name="A100",
    capability=(8, 0),
    sms=108,
    shared_bytes_per_sm=164 << 10,
    shared_bytes_per_block=163 << 10,
    l2_bytes=40 << 20,
    gb_per_s=1400.0,
)
RTX4090 = Gpu(
    name="RTX 4090",
    capability=(8, 9),
    sms=128,
    shared_bytes_per_sm=100 << 10,
    shared_bytes_per_block=99 << 10,
    l2_bytes=72 << 20,
    gb_per_s=900.0,
)
L4 = replace(RTX4090, name="L4", sms=58, l2_bytes=48 << 20, gb_per_s=270.0)
CARDS = {card.name: Target(card) for card in (A100, RTX4090, L4)}


def shown(name: str, backend: str, target: Target) -> list[str]:
    writer = codegen(backend)
    return [str(writer.schedules(k, target)) for k in kernels(name, backend)]


@pytest.mark.parametrize("card", CARDS)
def test_what_is_listed_follows_the_card(card: str) -> None:
    """Some cases of each kind change; everything stays legal, distinct and few."""
    target, changed = CARDS[card], set()
    for name in CASES:
        for backend in ("triton", "cuda"):
            writer = codegen(backend)
            for kernel in kernels(name, backend):
                if not writer.has_families and kernel.family not in ("pointwise", "row", "column"):
                    continue
                options = writer.schedules(kernel, target)
                assert 1 <= len(options) == len(set(options)) <= 12
                assert all(option.wrong() == [] for option in options)
                if options != writer.schedules(kernel):
                    changed.add((backend, kernel.family))
    assert changed >= {("triton", "product"), ("triton", "row"), ("cuda", "row")}


@pytest.mark.parametrize(("card", "programs"), [("A100", 108), ("RTX 4090", 128), ("L4", 58)])
def test_persistent_programs_are_as_many_as_multiprocessors(card: str, programs: int) -> None:
    (matmul,) = kernels("matmul", "triton")
    options = codegen("triton").schedules(matmul, CARDS[card])
    assert {o.programs for o in options if isinstance(o, TritonProduct)} == {0, programs}
    (large,) = kernels("large", "triton")
    strides = algorithms(large, "triton", CARDS[card])["grid stride"]
    assert {s.programs // programs for s in strides if isinstance(s, TritonStride)} == {1, 2, 4, 8}


def test_tiles_fit_in_the_shared_memory_of_a_block() -> None:
    (matmul,) = kernels("matmul", "triton")

    def largest(target: Target) -> int:
        options = codegen("triton").schedules(matmul, target)
        tiles = [o for o in options if isinstance(o, TritonProduct)]
        return max((o.rows + o.columns) * o.depth * o.stages * 2 for o in tiles)

    assert largest(DEFAULT) > RTX4090.shared_bytes_per_block
    for target in CARDS.values():
        assert largest(target) <= target.gpu.shared_bytes_per_block


def test_a_tile_is_listed_once_and_has_fewer_loads_in_flight_where_memory_is_short() -> None:
    for kind, tiles in TILES.items():
        shapes = [tile[:4] for tile in (*tiles, *TALL[kind])]
        assert len(set(shapes)) == len(shapes), kind
    (matmul,) = kernels("matmul", "triton")

    def stages(target: Target) -> set[int]:
        found = [o for o in ranked(matmul, target) if isinstance(o, TritonProduct)]
        shape = (128, 128, 64, 4)
        return {o.stages for o in found if (o.rows, o.columns, o.depth, o.warps) == shape}

    assert stages(DEFAULT) == {4} and stages(CARDS["RTX 4090"]) == {3}


def test_a_row_is_cut_for_as_many_programs_as_the_card_runs() -> None:
    (total,) = [k for k in kernels("sum", "triton") if k.reduced]

    def splits(target: Target) -> int:
        found = codegen("triton").schedules(total, target)
        return max(o.splits for o in found if isinstance(o, TritonSplit))

    assert splits(CARDS["L4"]) < splits(CARDS["A100"]) <= splits(DEFAULT)


def test_a_processor_without_512_bits_gets_one_width_and_many_cores_get_many_bands() -> None:
    narrow = Target(cpu=replace(DEFAULT.cpu, vector_bits=256))
    for name in CASES:
        for kernel in kernels(name, "cpp"):
            found = [o.printed()["width"] for o in codegen("cpp").schedules(kernel, narrow)]
            assert found and set(found) == {256}
    (kernel,) = kernels("depthwise", "cpp")

    def band(cores: int) -> int:
        target = Target(cpu=replace(DEFAULT.cpu, cores=cores))
        found = codegen("cpp").schedules(kernel, target)
        return max(o.band for o in found if isinstance(o, CppDirect))

    assert band(64) < band(4) == band(2)


def test_a_search_lists_schedules_for_its_target() -> None:
    function, args = CASES["matmul"]
    task = TASK.model_copy(update={"device": "cuda"})
    problem = SearchProblem(task, capture(function, *args), "triton", (), Config())
    (matmul,) = kernels("matmul", "triton")
    for target in (DEFAULT, *CARDS.values()):
        options = Planner(replace(problem, target=target)).options(matmul)
        assert options == codegen("triton").schedules(matmul, target)


def test_a_target_is_read_from_the_driver_and_from_a_run_folder() -> None:
    attributes = {
        "sms": 132,
        "registers_per_sm": 65536,
        "shared_bytes_per_sm": 233472,
        "shared_bytes_per_block": 232448,
        "l2_bytes": 52428800,
        "warp": 32,
        "clock_khz": 3201000,
        "bus_bits": 6144,
        "major": 9,
        "minor": 0,
    }
    assert gpu_of("NVIDIA H200", attributes) == replace(DEFAULT.gpu, gb_per_s=4430.0)
    assert gpu_of("x", {**attributes, "clock_khz": 0}).gb_per_s == DEFAULT.gpu.gb_per_s
    for target in (DEFAULT, *CARDS.values()):
        assert loaded([json.loads(json.dumps(asdict(target)))]) == target
    assert loaded([]) == DEFAULT
    here = of_machine("cpu")
    assert here.gpu == DEFAULT.gpu and here.cpu.cores >= 1 and here.cpu.vector_bits in (256, 512)


def test_without_cache_facts_the_default_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    from dvk import target

    monkeypatch.setattr(target, "_cache_bytes", lambda level: None)
    assert (target._cpu().l1_bytes, target._cpu().l2_bytes) == (Cpu.l1_bytes, Cpu.l2_bytes)


PROPERTIES = """
import json, torch
p = torch.cuda.get_device_properties(0)
print(json.dumps([p.multi_processor_count, p.regs_per_multiprocessor, p.shared_memory_per_multiprocessor,
    p.shared_memory_per_block_optin, p.L2_cache_size, p.warp_size, [p.major, p.minor]]))
"""


@pytest.mark.gpu
def test_the_driver_says_what_torch_says() -> None:
    done = subprocess.run([sys.executable, "-c", PROPERTIES], capture_output=True, check=True)
    found: list[Any] = json.loads(done.stdout)
    gpu = of_machine("cuda").gpu
    assert found == [
        gpu.sms,
        gpu.registers_per_sm,
        gpu.shared_bytes_per_sm,
        gpu.shared_bytes_per_block,
        gpu.l2_bytes,
        gpu.warp,
        list(gpu.capability),
    ]
    assert 100 < gpu.gb_per_s < 10000


def test_a_table_is_asked_for_the_vectors_of_its_plans(tmp_path: Path) -> None:
    sample = resource("data", "measured", "sample.jsonl.gz")
    (row, *_) = read_table(sample)
    plan = row.plans[0]
    narrow = plan.model_copy(update={"schedule": {"k0": {"width": 256}}})
    write_table(tmp_path / "narrow.jsonl", [row.model_copy(update={"plans": (narrow,)})])
    for table, bits in ((sample, 512), (tmp_path / "narrow.jsonl", 256), (tmp_path / "no", 512)):
        config = changed(Config(), {"remote.judge": f"table:{table}"})
        assert of_judge(config, "cpu").cpu.vector_bits == bits
