"""The CUDA renderer: right results for every family and schedule in the emulator, and code that NVRTC takes."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk import cuda_toolkit
from dvk.composer import Plan, applicable, compose, fuse
from dvk.composer.capture.export import trace_module
from dvk.composer.codegen import cuda
from dvk.composer.codegen.cuda import writer
from dvk.harness.toolchain import nvrtc
from dvk.records import Task
from tests.composer import cuda_emulator
from tests.composer.cuda_programs import (
    FEW,
    Program,
    as_tuple,
    load,
    wrong_in_case,
    wrong_in_scalar,
    wrong_in_special,
)
from tests.composer.programs import differences, run_source
from tests.composer.triton_cases import (
    CASES,
    LONG,
    SCALARS,
    SINGLE,
    SPECIALS,
    WIDE,
    Function,
    rand,
    special_rows,
)
from tests.tasks.shrink import shipped, shrink

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Job:
    """A program and the check of its result."""

    program: Program
    check: Callable[[Program], list[str]]


def jobs(cases: Any, device: str = "cpu", most: int = 99) -> dict[str, Job]:
    """Programs of the cases named, under their first schedules."""
    made: dict[str, Job] = {}
    for number, name in enumerate(cases):
        case = CASES[name]
        torch.manual_seed(0)
        program = Program(
            Function(case.function),
            [a.to(device) for a in case.args()],
            f"c{number}_",
            device,
            most,
        )
        made[name] = Job(program, lambda p, case=case: wrong_in_case(p, case.function, case.bound))  # type: ignore[misc]
    return made


def others(device: str = "cpu") -> dict[str, Job]:
    """Scalar functions in both precisions, and rows with NaN and infinities."""
    made: dict[str, Job] = {}
    for number, (name, (function, values)) in enumerate(SCALARS.items()):
        for dtype in (torch.float32, torch.float64)[: 1 if name in SINGLE else 2]:
            program = Program(
                Function(function),
                [values().to(device, dtype)],
                f"s{number}{str(dtype)[-2:]}_",
                device,
                1,
            )
            made[f"{name}-{dtype}"] = Job(program, lambda p, f=function: wrong_in_scalar(p, f))  # type: ignore[misc]
    for number, (name, special) in enumerate(SPECIALS.items()):
        # The long rows are those that are looped over as well.
        for columns in (40, 1100) if name in LONG else (40,):
            program = Program(
                Function(special),
                [special_rows(columns).to(device)],
                f"n{number}c{columns}_",
                device,
            )
            made[f"{name}-{columns}"] = Job(program, lambda p, f=special: wrong_in_special(p, f))  # type: ignore[misc]
    return made


def wrong(made: dict[str, Job], device: str = "cpu", aligned: bool = True) -> dict[str, list[str]]:
    """Name → errors, empty without any."""
    load([v for job in made.values() for v in job.program.variants], device, aligned)
    found = {name: job.check(job.program) for name, job in made.items()}
    return {name: problems for name, problems in found.items() if problems}


@pytest.mark.slow
def test_first_schedules_agree_with_torch() -> None:
    made = jobs(FEW, most=2)
    assert not wrong(made)
    families = {k.family for job in made.values() for k in job.program.kernels}
    assert families == {"pointwise", "row", "column"}


@pytest.mark.slow
def test_every_schedule_agrees_with_torch() -> None:
    made = jobs(CASES)
    assert not wrong(made)
    kinds = {
        s.printed()["kind"]
        for job in made.values()
        for v in job.program.variants
        for s in v.schedules.values()
    }
    assert kinds == {"flat", "persistent", "looped", "split"}
    assert sum(len(job.program.variants) for job in made.values()) > 250
    left = {
        name: p.op
        for name, job in made.items()
        for p in job.program.prims.prims
        if p.kind == "extern"
    }
    assert not left, "operators left to PyTorch"


@pytest.mark.slow
def test_scalar_functions_are_accurate_and_nan_comes_out_where_torch_has_it() -> None:
    assert not wrong(others())


@pytest.mark.slow
def test_offsets_of_64_bits_and_unaligned_addresses_give_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not wrong(jobs(CASES, most=2), aligned=False)
    monkeypatch.setattr(
        writer, "needs_int64", lambda kernel: True
    )  # as for tensors too large for a test
    made = jobs(WIDE, most=4)
    assert all(
        "long long" in text
        for job in made.values()
        for v in job.program.variants
        for text in v.texts
    )
    assert not wrong(made)


@pytest.mark.slow
def test_the_emulator_sees_an_element_that_no_thread_writes_and_threads_that_part() -> None:
    made = jobs(["softmax"], most=1)
    (variant,) = made["softmax"].program.variants
    assert "if (r < 300)" in variant.texts[0]
    variant.texts = [text.replace("if (r < 300)", "if (r < 296)") for text in variant.texts]
    assert wrong(made)
    text = 'extern "C" __global__ void parted(float* o0) { if (threadIdx.x < 3) __syncthreads(); o0[threadIdx.x] = 1.0f; }'
    code = f"""
import torch
from dvk.composer.codegen.cuda.writer import CudaFunction
from tests.composer import cuda_emulator
function = CudaFunction("parted", {text!r} + " // __shared__", ("o0",), 1, 8)
cuda_emulator.launcher(cuda_emulator.library([function.text], [function]), "parted")(torch.zeros(8))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 3 and "wait at different places" in done.stderr


# ------------------------------------------------------------------ drop-ins


def drop_in(
    path: Path, device: str, native: bool = False, on: str = "cpu"
) -> tuple[Any, Any, list[Any]]:
    """The candidate of a task file, its module and inputs, if they are captured; at native sizes without values."""
    source = path.read_text() if native else shrink(path.read_text())
    namespace = types.ModuleType("reference")
    exec(compile(source, str(path), "exec"), namespace.__dict__)
    torch.manual_seed(0)
    with torch.device("meta" if native else "cpu"):
        args, model = namespace.get_inputs(), namespace.Model(*namespace.get_init_inputs())
    if not native:
        args, model = [a.to(on) for a in args], model.to(on)
    captured = trace_module(
        model, args, list(inspect.signature(model.forward).parameters)[: len(args)]
    )
    task = Task(
        id="test", name=path.stem, source=source, entry="Model", kind="module", device=device
    )  # type: ignore[arg-type]
    return (
        compose(task, captured, Plan(tuple(applicable(captured.graph, device, "cuda"))), "cuda"),
        model,
        args,
    )


class Recorder(types.ModuleType):
    """A `dvk_record` that runs requested kernels in the emulator."""

    def __init__(self) -> None:
        super().__init__("dvk_record")
        self.asked: list[tuple[str, str, tuple[str, ...]]] = []
        self.launches: list[tuple[Any, Any, int]] = []

    def cuda_kernel(self, source: str, name: str, options: tuple[str, ...]) -> Callable[..., None]:
        self.asked.append((source, name, options))

        def launch(
            grid: tuple[int, int, int],
            block: tuple[int, int, int],
            shared_bytes: int,
            args: tuple[torch.Tensor, ...],
        ) -> None:
            self.launches.append((grid, block, shared_bytes))
            body = source.partition(cuda.PRELUDE)[2]
            function = writer.CudaFunction(name, body, (), grid[0], block[0])
            cuda_emulator.launcher(cuda_emulator.library([body], [function]), name)(*args)

        return launch


@pytest.mark.parametrize(
    "name", ["chain_linear_norm_gelu_residual", "focal_loss", "chain_masked_softmax_fp16"]
)
@pytest.mark.slow
def test_a_recorder_is_asked_for_kernels_and_sees_every_launch(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    candidate, model, args = drop_in(next(p for p in shipped() if p.stem == name), "cpu")
    recorder = Recorder()
    monkeypatch.setitem(sys.modules, "dvk_record", recorder)
    made = run_source(candidate.source)
    init = made.get_init_inputs()
    new = made.ModelNew(*init)
    new.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert differences(as_tuple(new(*args)), as_tuple(model(*args)), scale=3) == []
    assert new._dvk_ready is True
    assert recorder.launches and len(recorder.launches) == len(recorder.asked)
    assert all(shared == 0 and block[0] <= 1024 for _, block, shared in recorder.launches)
    assert all(
        options == (*cuda.FLAGS, "-DDVK_ALIGNED=1") and f" {name}(" in source
        for source, name, options in recorder.asked
    )


def test_without_cuda_the_drop_in_computes_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    candidate, model, args = drop_in(next(p for p in shipped() if p.stem == "geglu"), "cpu")
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    made = run_source(candidate.source)
    new = made.ModelNew(*made.get_init_inputs())
    new.load_state_dict(model.state_dict())
    with torch.no_grad(), pytest.warns(UserWarning, match="running the original"):
        assert torch.equal(new(*args), model(*args))
    assert new._dvk_ready is False


needs_nvrtc = pytest.mark.skipif(
    cuda_toolkit.nvrtc() is None, reason="pip install nvidia-cuda-nvrtc"
)


@needs_nvrtc
@pytest.mark.slow
def test_every_shipped_task_compiles_for_two_generations_without_spills(tmp_path: Path) -> None:
    count = 0
    for path in shipped():
        candidate, _, _ = drop_in(path, "cuda", native=True)
        namespace: dict[str, Any] = {}
        text = candidate.source
        start, end = text.index("_DVK_PRELUDE = "), text.index("# Each: number of its source")
        exec(text[start:end], namespace)
        for number, source in enumerate(namespace["_DVK_SOURCES"]):
            wanted = {row[1] for row in namespace["_DVK_FUNCTIONS"] if row[0] == number}
            whole = namespace["_DVK_PRELUDE"] + source
            for module in nvrtc.compile_cuda(
                whole, ("sm_80", "sm_90"), options=cuda.FLAGS, folder=tmp_path
            ).values():
                assert set(module.kernels) == wanted
                assert all(k["spill_bytes"] == 0 for k in module.kernels.values()), (
                    path.stem,
                    module.arch,
                    module.kernels,
                )
                count += 1
    assert count >= 2 * 60


@needs_nvrtc
def test_the_half_conversions_and_reductions_compile_for_every_generation_known(
    tmp_path: Path,
) -> None:
    known = [a for a in nvrtc.library().architectures() if a >= 75]
    torch.manual_seed(0)
    texts = []
    for name in ("half", "brain", "softmax_of_max"):
        function, args = (
            (CASES[name].function, CASES[name].args())
            if name in CASES
            else (SPECIALS[name], [rand(9, 300)])
        )
        texts += [
            t
            for v in Program(Function(function), args, f"{name}_", most=1).variants
            for t in v.texts
        ]
    archs = [f"sm_{known[0]}", f"sm_{known[-1]}"]
    made = nvrtc.compile_cuda(
        cuda.PRELUDE + "\n".join(texts), archs, options=cuda.FLAGS, folder=tmp_path
    )
    assert all(m.kernels for m in made.values())


@pytest.mark.gpu
def test_every_schedule_agrees_with_torch_on_a_gpu() -> None:
    assert not wrong(jobs([name for name, case in CASES.items() if case.gpu], "cuda"), "cuda")
    assert not wrong(others("cuda"), "cuda")
    assert not wrong(jobs(FEW, "cuda", 1), "cuda", aligned=True)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name", ["chain_linear_norm_gelu_residual", "focal_loss", "chain_masked_softmax_fp16"]
)
def test_a_drop_in_runs_on_a_gpu_replayed_as_a_graph_or_on_unaligned_inputs(name: str) -> None:
    path = next(p for p in shipped() if p.stem == name)
    candidate, model, args = drop_in(path, "cuda", on="cuda")
    made = run_source(candidate.source)
    new = made.ModelNew(*made.get_init_inputs()).cuda()
    new.load_state_dict(model.state_dict())
    with torch.no_grad():
        for shift in (0, 1):
            # A copy that starts in the middle of 16 bytes uses the build without alignment assumptions.
            moved = []
            for a in args:
                room = torch.empty(a.numel() + shift, dtype=a.dtype, device="cuda")
                moved.append(room[shift:].view(a.shape).copy_(a))
            run = new if shift == 0 else new._dvk_run
            assert differences(as_tuple(run(*moved)), as_tuple(model(*moved)), scale=3) == []
    assert new._dvk_ready is True


def test_fusing_is_the_same_as_for_the_other_back_ends() -> None:
    captured = trace_module(Function(lambda x: torch.softmax(x * 2, -1)), [rand(8, 64)], ["x"])
    task = Task(id="t", name="t", source="", entry="Model", kind="module", device="cuda")
    names = tuple(applicable(captured.graph, "cuda", "cuda"))
    assert [k.summary for k in fuse(task, captured, names).ordered] == [
        "mul → max → sub → exp → sum → reciprocal"
    ]
