"""Replay of a plan: trusted code, in a separate process, with none of the candidate's host code alive.

Operators are called and kernels launched node by node on the current stream, or captured once into a CUDA graph. An operator's result is
compared with the recorded layout, since kernels were compiled for those shapes and strides.

The kernels are still the candidate's. They can read and write all memory that this process's context maps and can break the context, so
keep nothing here that a candidate must not see, and expect the process to die.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from dvk.harness.launch_plans.calls import Layout, decode_tree
from dvk.harness.launch_plans.cubin import CubinKernel, CubinModule, LaunchError
from dvk.harness.launch_plans.cuda_graph import GraphedCall, MemoryRegion
from dvk.harness.launch_plans.operands import constant, fill, live, operator
from dvk.harness.launch_plans.plan import (
    Aten,
    KernelLaunch,
    LaunchPlan,
    LaunchPlanError,
    LaunchRecording,
    PlanMismatch,
    Pointer,
    references,
)
from dvk.harness.transport.guard_bands import Guarded

MAX_BYTES = 64 << 30
"""Most bytes of the values of one call together."""
UNWRITTEN = (
    "aten.empty.",
    "aten.empty_like.",
    "aten.empty_strided.",
    "aten.new_empty.",
    "aten.new_empty_strided.",
)
"""Operators whose results contain the previous contents of memory."""
Values = dict[int, torch.Tensor]
Fresh = Callable[[torch.Tensor], torch.Tensor]
"""Maps memory that an operator returned uninitialised to its replacement."""
GUARDED_BYTES = 4 << 30
"""Most bytes of one call that get bands, see `guard_bands`."""


class OutOfBounds(Exception):
    """A kernel wrote outside a tensor."""


class Replay:
    """One plan on a GPU.

    Attributes:
        compiled: kernel name → registers, spill_bytes, shared_bytes.
        kernels: names of the candidate's kernels in launch order of one call.
        operators: names of the ATen operators of one call.
    """

    def __init__(
        self, recording: LaunchRecording, plan: LaunchPlan, device: str | torch.device = "cuda"
    ):
        """Load the kernels.

        Raises:
            LaunchPlanError: the plan may not run here.
        """
        self.plan, self.device = plan, torch.device(device)
        total = sum(layout.num_bytes for layout in plan.values.values())
        if total > MAX_BYTES:
            raise LaunchPlanError(f"its values take {total / 2**30:.0f} GiB")
        launches = list(plan.launches())
        self._modules: list[CubinModule] = []
        self._kernels = self._compiled(recording, launches)
        self._operators: dict[str, Any] = {}
        for node in (*plan.prepare, *plan.call):
            if isinstance(node, Aten):
                self._operators[node.op] = operator(node.op)
        self._chosen: dict[int, KernelLaunch] = {}
        self._kept: Values = {}
        self._loaded = False
        self._needed = (
            {value for node in plan.call for value in references(node)}
            | set(plan.buffers.values())
            | _returned(plan)
        )
        self._dead = _last_uses(plan)
        self.compiled = {
            node.name: self._kernels[id(node)].facts
            for node in (*plan.prepare, *plan.call)
            if isinstance(node, KernelLaunch)
        }
        self.kernels = [n.name for n in plan.call if isinstance(n, KernelLaunch)]
        self.operators = [n.op for n in plan.call if isinstance(n, Aten)]

    def _compiled(
        self, recording: LaunchRecording, launches: list[KernelLaunch]
    ) -> dict[int, CubinKernel]:
        """Return kernels by identity of their launches. A plan of operators alone runs on a CPU as well."""
        if not launches:
            return {}
        if self.device.type != "cuda":
            raise LaunchPlanError("its kernels need a GPU")
        torch.empty(1, device=self.device)  # opens the context that modules are loaded into
        major, minor = torch.cuda.get_device_capability(self.device)
        if self.plan.arch != 10 * major + minor:
            raise LaunchPlanError(
                f"compiled for sm_{self.plan.arch}, this GPU is sm_{10 * major + minor}"
            )
        modules = {
            key: CubinModule(recording.cubins[key])
            for key in dict.fromkeys(n.cubin for n in launches)
        }
        self._modules = list(modules.values())
        optional = {id(option) for node in launches for option in node.options}
        kernels: dict[int, CubinKernel] = {}
        for node in launches:
            try:
                kernels[id(node)] = CubinKernel(modules[node.cubin], node)
            except LaunchError:
                if id(node) not in optional:
                    raise
        return kernels

    def close(self) -> None:
        """Unload the kernels; graphs that captured them must be gone. The replay is unusable afterwards."""
        while self._modules:
            self._modules.pop().close()

    # ------------------------------------------------------------------ weights

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Copy weights in and run the plan's one-time preparation.

        The second time, every kept tensor keeps its address, so captured graphs see the new weights.

        Raises:
            LaunchPlanError: an entry is missing, or differs from the recording.
        """
        values: Values = {}
        for name, (value, layout) in self.plan.state.items():
            tensor = state.get(name)
            if (
                tensor is None
                or tensor.shape != layout.shape
                or tensor.dtype is not getattr(torch, layout.dtype)
            ):
                raise LaunchPlanError(
                    f"the weights have no {layout.dtype}{list(layout.shape)} `{name}`"
                )
            values[value] = tensor.detach().to(self.device, copy=True)
        for value, const in self.plan.consts.items():
            values[value] = constant(const)
        with torch.no_grad(), self._current():
            for node in self.plan.prepare:
                self._step(node, values, None)
        fresh = {value: values[value] for value in self._needed if value in values}
        if not self._loaded:
            self._kept, self._loaded = fresh, True
            return
        # Memory is replaced as a whole: views of it, overlapping ones included, follow.
        pairs = {
            old.untyped_storage().data_ptr(): (old, fresh[value])
            for value, old in self._kept.items()
        }
        for old, new in pairs.values():
            old.untyped_storage().copy_(new.untyped_storage())

    def state(self) -> dict[str, torch.Tensor]:
        """Return the module's parameters and buffers after calls: by name, live."""
        return {name: self._kept[value] for name, value in self.plan.buffers.items()}

    # ------------------------------------------------------------------ calls

    def run(
        self, inputs: Sequence[torch.Tensor], poison: float | None = None
    ) -> list[torch.Tensor]:
        """Run one call, node by node, on the current stream.

        Args:
            inputs: the call's tensors in order.
            poison: fill uninitialised memory with it (integers: their smallest value; booleans: true), and check for writes
            outside it.

        Returns:
            The tensors of the result in order.

        Raises:
            LaunchPlanError: an input differs from the recording; PlanMismatch: an operator's result does; OutOfBounds: see there.
        """
        values, guarded = self._values(inputs), Guarded(GUARDED_BYTES)

        def poisoned(tensor: torch.Tensor) -> torch.Tensor:
            tensor = guarded.twin(tensor)
            fill(tensor, poison or 0.0)
            return tensor

        with torch.no_grad(), self._current():
            self._call(values, None if poison is None else poisoned)
            if (beside := guarded.broken()) is not None:
                raise OutOfBounds(f"it writes outside its tensors (next to {beside})")
        return self._results(values)

    def capture(self, inputs: Sequence[torch.Tensor]) -> GraphedCall:
        """Return the call as a graph that reads `inputs` in place. Runs it once before, to warm up.

        Raises:
            LaunchPlanError: see `run`.
        """
        self.run(inputs)
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(self.device)
        regions: list[MemoryRegion] = []

        def noted(tensor: torch.Tensor) -> torch.Tensor:
            regions.append(MemoryRegion(tensor))
            return tensor

        values = self._values(inputs)
        torch.cuda.synchronize(self.device)
        # Not torch.cuda.graph(): it collects garbage and empties the allocator's cache each time.
        with torch.no_grad(), torch.cuda.stream(stream):
            graph.capture_begin()
            try:
                self._call(values, noted)
            finally:
                graph.capture_end()
        scratch = [torch.as_tensor(region, device=self.device) for region in regions]
        return GraphedCall(graph, list(inputs), self._results(values), scratch)

    def tune(self, inputs: Sequence[torch.Tensor], repeats: int = 5) -> dict[str, int]:
        """Choose among the configurations of autotuned kernels, by their time on these inputs; call before `capture`.

        Args:
            repeats: launches of which the median counts.

        Returns:
            Kernel name → number of the choice, with 0 for the recording's.
        """
        if not any(isinstance(node, KernelLaunch) and node.options for node in self.plan.call):
            return {}
        choices: dict[str, int] = {}
        values = self._values(inputs)
        with torch.no_grad(), self._current():
            for node in self.plan.call:
                if isinstance(node, KernelLaunch) and node.options:
                    times = [
                        self._time(option, values, repeats) for option in (node, *node.options)
                    ]
                    choices[node.name] = min(range(len(times)), key=times.__getitem__)
                    self._chosen[id(node)] = (node, *node.options)[choices[node.name]]
                self._step(node, values, None)
        return choices

    def _time(self, node: KernelLaunch, values: Values, repeats: int) -> float:
        """Return milliseconds of one launch; infinite if its kernel could not be loaded."""
        if id(node) not in self._kernels:
            return math.inf
        times = []
        for _ in range(1 + repeats):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            self._launch(node, values)
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        return sorted(times[1:])[repeats // 2]

    def result(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Return the module's result, given the tensors returned by `run`."""
        iterator = iter(tensors)
        return decode_tree(self.plan.outputs, lambda _: next(iterator))

    def _current(self) -> AbstractContextManager[Any]:
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    def _call(self, values: Values, fresh: Fresh | None) -> None:
        for number, node in enumerate(self.plan.call):
            self._step(node, values, fresh)
            for value in self._dead[number]:
                del values[value]

    def _values(self, inputs: Sequence[torch.Tensor]) -> Values:
        if not self._loaded:
            raise LaunchPlanError("load the weights first")
        if len(inputs) != len(self.plan.inputs):
            raise LaunchPlanError(f"{len(inputs)} inputs, the plan has {len(self.plan.inputs)}")
        values = dict(self._kept)
        for tensor, (value, layout) in zip(inputs, self.plan.inputs, strict=True):
            if not self._same(tensor, layout):
                raise LaunchPlanError(f"an input is {Layout.of(tensor)}, recorded was {layout}")
            values[value] = tensor
        return values

    def _results(self, values: Values) -> list[torch.Tensor]:
        result: list[torch.Tensor] = []
        decode_tree(self.plan.outputs, lambda value: result.append(values[value]))
        return result

    # ------------------------------------------------------------------ nodes

    def _step(self, node: Aten | KernelLaunch, values: Values, fresh: Fresh | None) -> None:
        if isinstance(node, KernelLaunch):
            self._launch(self._chosen.get(id(node), node), values)
            return
        arguments = [live(a, values, self.device) for a in node.args]
        named = {name: live(a, values, self.device) for name, a in node.kwargs.items()}
        result = self._operators[node.op](*arguments, **named)
        items = list(result) if isinstance(result, (tuple, list)) else [result]
        if len(items) != len(node.outs):
            raise PlanMismatch(
                f"{node.op} returned {len(items)} results, recorded were {len(node.outs)}"
            )
        for out, tensor in zip(node.outs, items, strict=True):
            if out is None:
                continue
            expected = self.plan.values[out]
            if not isinstance(tensor, torch.Tensor) or not self._same(tensor, expected):
                raise PlanMismatch(f"{node.op} returned {_show(tensor)}, recorded was {expected}")
            values[out] = tensor
            if fresh is not None and tensor.numel() and node.op.startswith(UNWRITTEN):
                values[out] = fresh(tensor)

    def _launch(self, node: KernelLaunch, values: Values) -> None:
        for argument in node.args:
            if (
                isinstance(argument, Pointer)
                and values[argument.ref].data_ptr() % 16 != argument.modulo16
            ):
                raise PlanMismatch(f"{node.name} was compiled for another alignment")
        self._kernels[id(node)].bind(lambda value: values[value].data_ptr())(
            torch.cuda.current_stream().cuda_stream
        )

    def _same(self, tensor: torch.Tensor, layout: Layout) -> bool:
        """Whether the tensor's layout is as recorded; strides of dimensions of one element do not count."""
        device = "cpu" if layout.device == "cpu" else self.device.type
        if (
            tensor.shape != layout.shape
            or str(tensor.dtype) != f"torch.{layout.dtype}"
            or tensor.device.type != device
        ):
            return False
        pairs = zip(tensor.shape, tensor.stride(), layout.strides, strict=True)
        return 0 in layout.shape or all(mine == theirs or size == 1 for size, mine, theirs in pairs)


def _last_uses(plan: LaunchPlan) -> list[list[int]]:
    """Return values of the call by the node after which they are dead."""
    kept = _returned(plan) | set(plan.buffers.values())
    made = {
        out for node in plan.call if isinstance(node, Aten) for out in node.outs if out is not None
    }
    last: dict[int, int] = {}
    for number, node in enumerate(plan.call):
        for value in (*references(node), *(o for o in getattr(node, "outs", ()) if o is not None)):
            if value in made and value not in kept:
                last[value] = number
    dead: list[list[int]] = [[] for _ in plan.call]
    for value, number in last.items():
        dead[number].append(value)
    return dead


def _returned(plan: LaunchPlan) -> set[int]:
    result: set[int] = set()
    decode_tree(plan.outputs, result.add)
    return result


def _show(tensor: Any) -> str:
    return str(Layout.of(tensor)) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
