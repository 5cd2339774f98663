"""Recording of a candidate as launch plans. Runs in the candidate's isolated process, which needs no GPU and must open none.

The candidate's file is executed, its module constructed and loaded with weights without values, and called three times for every shape: the
first call may pack weights, the second and third must do the same.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from dvk.harness.launch_plans import settle
from dvk.harness.launch_plans.calls import CallSpec, GpuProperties, Layout, decode_tree, encode_tree
from dvk.harness.launch_plans.fake_gpu import absent_gpu
from dvk.harness.launch_plans.opaque_calls import WholeOperators
from dvk.harness.launch_plans.plan import (
    LaunchPlan,
    LaunchPlanError,
    LaunchRecording,
    NotReducible,
    check,
    references,
)
from dvk.harness.launch_plans.tape import Refusals, Tape, TapeStep
from dvk.harness.toolchain.nvrtc import CompileError
from dvk.records import Task
from dvk.tasks.build import CandidateError, construct_candidate, run_file
from dvk.tasks.sourcefile import blame

FOREIGN = ("cpp_extension", "load_inline")
"""Words of candidates that compile C++ or CUDA in their process: recording one would first wait for its compiler."""

NOT_COMPILED = (
    "CompilationError",
    "CompileTimeAssertionFailure",
    "UnsupportedLanguageConstruct",
    "PTXASError",
)
"""Triton's exceptions for kernels that do not compile."""


def record(
    source: str,
    task: Task,
    calls: Sequence[CallSpec],
    state: Mapping[str, Layout],
    gpu: GpuProperties,
) -> LaunchRecording:
    """Record the plans of a candidate, one per call.

    Args:
        source: the candidate's file.
        state: layouts of the reference's state_dict, which the candidate's must match.

    Raises:
        NotReducible: it does something that a plan cannot express, or fails on fake tensors: judge it as a module.
        CandidateError: it is no candidate, or its kernels do not compile.
    """
    if any(word in source for word in FOREIGN):
        raise NotReducible("it compiles extensions")
    refusals = Refusals()
    tape = Tape(refusals)
    recorder = Recorder(tape, source, task, state)
    fakes = FakeTensorMode(
        allow_non_fake_inputs=True
    )  # imports much, which must not see the fake GPU below
    try:
        with ExitStack() as stack:
            stack.enter_context(absent_gpu(gpu, tape))
            stack.enter_context(fakes)
            stack.enter_context(torch.no_grad())
            stack.enter_context(tape)
            stack.enter_context(WholeOperators(tape))
            plans = recorder.plans(calls, gpu)
    except NotReducible:
        raise
    except CandidateError as error:
        # It may have raised because of a refusal, or for lack of a GPU.
        if refusals or error.status == "launch_error":
            raise NotReducible(refusals[0] if refusals else error.message) from None
        raise
    except (Exception, SystemExit) as error:  # the candidate may raise anything
        if refusals:
            raise NotReducible(refusals[0]) from None
        raise kernels_do_not_compile(error) or NotReducible(
            f"it fails on fake tensors: {blame(error)}"
        ) from error
    if refusals:
        raise NotReducible(refusals[0])
    for plan in plans:
        try:
            check(plan, tape.cubins)
        except LaunchPlanError as error:
            raise NotReducible(f"its record is not complete: {error}") from None
    return LaunchRecording(plans=tuple(plans), cubins=tape.cubins, seconds=recorder.seconds)


class Recorder:
    """The recording of one candidate."""

    def __init__(self, tape: Tape, source: str, task: Task, state: Mapping[str, Layout]):
        self.tape, self.source, self.task, self.state = tape, source, task, state
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()
        self._loaded = 0
        self._first: list[TapeStep] = []
        """Steps of every variant's first call."""
        self._earlier: set[int] = set()
        """Inputs of those calls."""

    def plans(self, calls: Sequence[CallSpec], gpu: GpuProperties) -> list[LaunchPlan]:
        original = run_file(self.task)
        self._lap("task")
        args, kwargs, _ = self._arguments(calls[0])
        model = construct_candidate(
            self.source,
            self.task,
            original,
            (args, kwargs),
            on_device=True,
            training=not self.task.eval_mode,
        )
        self._lap("construct")
        held = self._load(model)
        self._loaded = len(self.tape.steps)
        self._lap("load")
        return [self._plan(model, spec, held, gpu) for spec in calls]

    def _plan(
        self, model: nn.Module, spec: CallSpec, held: dict[str, int], gpu: GpuProperties
    ) -> LaunchPlan:
        marks: list[int] = []
        inputs: list[list[int]] = []
        results: list[Any] = []
        for turn in ("first call", "second call", "third call"):
            marks.append(len(self.tape.steps))
            args, kwargs, values = self._arguments(spec)
            results.append(model(*args, **kwargs))
            inputs.append(values)
            self._lap(turn)
        second, third = self.tape.steps[marks[1] : marks[2]], self.tape.steps[marks[2] :]
        if not settle.same_program(self.tape, second, third, (inputs[1], inputs[2])):
            raise NotReducible("its calls differ from each other")
        outputs, returned = self._outputs(results[2])
        buffers = {
            name: self.tape.value(tensor)
            for name, tensor in model.state_dict(keep_vars=True).items()
        }
        if settle.written_again(
            self.tape, third, returned, {*held.values(), *buffers.values(), *inputs[2]}
        ):
            raise NotReducible(
                "it returns memory that it keeps and that its next call writes again"
            )
        third = settle.without_idle_views(third, {*buffers.values(), *returned})
        making = self.tape.steps[: self._loaded]
        first = [*self._first, *self.tape.steps[marks[0] : marks[1]]]
        own = {*held.values(), *buffers.values()}
        prepared = settle.prepare(
            self.tape,
            making,
            first,
            third,
            {*self._earlier, *inputs[0]},
            own,
            {*buffers.values(), *returned},
        )
        self._first, self._earlier = first, {*self._earlier, *inputs[0]}
        once, steady = settle.on_device(self.tape, prepared, third)
        made = {
            out for node in (*once, *steady) for out in getattr(node, "outs", ()) if out is not None
        }
        used = {v for node in (*once, *steady) for v in references(node)}
        plan = LaunchPlan(
            variant=spec.variant,
            arch=gpu.arch,
            inputs=tuple(zip(inputs[2], spec.tensors, strict=True)),
            state={name: (value, self.state[name]) for name, value in held.items()},
            consts={value: const for value, const in self.tape.consts.items() if value in used},
            values={value: self.tape.layouts[value] for value in made},
            prepare=tuple(once),
            call=tuple(steady),
            outputs=outputs,
            buffers=buffers,
        )
        self._lap("plan")
        return plan

    def _load(self, model: nn.Module) -> dict[str, int]:
        """Load weights without values; return their numbers by name."""
        mine = {
            name: (tuple(t.shape), str(t.dtype).removeprefix("torch."))
            for name, t in model.state_dict().items()
        }
        theirs = {name: (layout.shape, layout.dtype) for name, layout in self.state.items()}
        if mine != theirs:
            raise NotReducible("its state_dict is not the reference's")
        given = {name: self._fake(layout) for name, layout in self.state.items()}
        held = {name: self.tape.leaf(tensor) for name, tensor in given.items()}
        model.load_state_dict(given)
        return held

    def _fake(self, layout: Layout) -> torch.Tensor:
        with self.tape.paused():
            whole = torch.empty(
                layout.offset + layout.extent,
                dtype=getattr(torch, layout.dtype),
                device=layout.device,
            )
            return whole.as_strided(layout.shape, layout.strides, layout.offset)

    def _arguments(self, spec: CallSpec) -> tuple[list[Any], dict[str, Any], list[int]]:
        fakes = [self._fake(layout) for layout in spec.tensors]
        if any(layout.device != "cuda" for layout in spec.tensors):
            raise NotReducible("an input lies on the host")
        values = [self.tape.leaf(tensor) for tensor in fakes]
        return (
            decode_tree(spec.args, fakes.__getitem__),
            decode_tree(spec.kwargs, fakes.__getitem__),
            values,
        )

    def _outputs(self, result: Any) -> tuple[Any, list[int]]:
        returned: list[int] = []

        def number(tensor: torch.Tensor) -> int:
            if (
                not isinstance(tensor, FakeTensor)
                or tensor.layout is not torch.strided
                or tensor.device.type != "cuda"
            ):
                raise NotReducible("it returns something else than tensors on the GPU")
            returned.append(self.tape.value(tensor))
            return returned[-1]

        try:
            return encode_tree(result, number), returned
        except ValueError as error:
            raise NotReducible(f"it returns what a plan cannot express: {error}") from None

    def _lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = round(self.seconds.get(name, 0.0) + now - self._since, 4)
        self._since = now


def kernels_do_not_compile(error: BaseException) -> CandidateError | None:
    """Return a kernel compiler's error as a finding; None for anything else."""
    seen: BaseException | None = error
    while seen is not None:
        kind, text = type(seen), str(seen)[:4000]
        if isinstance(seen, CompileError):
            return CandidateError("compile", text, "compile_error")
        if kind.__module__.startswith("triton.") and kind.__name__ in NOT_COMPILED:
            return CandidateError("compile", f"{kind.__name__}: {text}", "compile_error")
        if kind.__module__.startswith("triton.") and kind.__name__ == "OutOfResources":
            return CandidateError("compile", text, "launch_error")
        seen = seen.__cause__
    return None


def preload() -> None:
    """Prepare what every recording needs, in the process that recorders are forked from.

    That is imports, process-wide caches, one small compilation. Runs no tensor operation outside of fake tensors, opens no GPU and leaves
    no thread behind: children forked afterwards may use either. It reduces a recording from 5.5 to 0.3 seconds of processor time.
    """
    # A fake mode calls torch.cuda.is_available(), which starts the driver, so that no child could start it again; NVML answers queries at
    # import.
    quiet = mock.patch.object(FakeTensorMode, "avoid_device_init", True)
    with (
        quiet,
        mock.patch.dict(os.environ, {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}),
        FakeTensorMode(),
    ):
        torch.nn.functional.gelu(torch.empty(2, 2) @ torch.empty(2, 2))
    if "triton" not in sys.modules:
        return
    import triton
    from triton.backends.compiler import GPUTarget

    from dvk.harness.launch_plans.warm_up import sample

    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(sample, signature=signature, constexprs={"BLOCK": 128})
    with (
        tempfile.TemporaryDirectory(prefix="dvk-warm-") as folder,
        mock.patch.dict(os.environ, {"TRITON_CACHE_DIR": folder}),
    ):
        triton.compile(source, target=GPUTarget("cuda", 90, 32))
