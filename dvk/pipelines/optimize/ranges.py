"""`--dynamic`: one program for a range of sizes. A search at each measured point, one drop-in whose kernels take sizes as arguments.

    load the module at the measured points → capture it at several sizes: one graph whose numbers are formulas → a search at each point
    → the points' plans applied to that graph → judged at each point, and at sampled sizes around it

Each stretch of the range runs what was measured nearest to it; the original runs in stretches where nothing faster was proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dvk import tasks
from dvk.composer import CannotCompose, CapturedGraph, Part, capture_many, codegen
from dvk.composer.capture.sizes import SizedGraph, formulas, operators
from dvk.composer.sized import SizedParts, boxes
from dvk.config import Config
from dvk.errors import TaskError, UsageError
from dvk.pipelines.optimize.request import OptimizeRequest
from dvk.records import BackendName, Device, Task, Turn
from dvk.tasks import dynamic
from dvk.tasks.dynamic import DynamicInputs, label
from dvk.tasks.loading import has_get_inputs


@dataclass(frozen=True)
class SizeRange:
    """The sizes that one drop-in is to serve; an `Expand` of `sets`."""

    inputs: DynamicInputs
    points: tuple[dict[str, int], ...]
    """Sizes at which schedules are measured."""
    tasks: tuple[Task, ...]
    """One for each point."""
    sized: SizedGraph
    backend: BackendName
    checked: dict[int, list[dict[str, int]]] = field(default_factory=dict)
    """Sizes at which the program for a point's stretch is checked, by the point's number."""

    def parts(self, number: int, part: Part) -> list[Part]:
        """The parts that serve the sizes nearest to a point, from the one that was found there.

        Raises:
            CannotCompose: its kernels hold for some sizes only.
        """
        maker = SizedParts(self.tasks[number], self.sized, self.backend)
        return maker.parts(self.points, number, part.plan)

    def judged(self, number: int, parts: Sequence[Part]) -> Task:
        """A point's task with sampled sizes of its parts as the judge's other shapes: ends, their neighbours, odd and prime ones."""
        boxes_ = ({name: (lo, hi) for name, lo, hi in part.within} for part in parts)
        sizes = [one for box in boxes_ for one in dynamic.sampled(self.inputs.dims, box)]
        every = [dict(one) for one in dict.fromkeys(tuple(one.items()) for one in sizes)]
        self.checked[number] = every
        return dynamic.with_variants(self.tasks[number], [self.inputs.variant(s) for s in every])

    def summary(self, winners: Sequence[Turn | None]) -> dict[str, Any]:
        """For the report: the range, the stretches that a program serves, and the sizes at which it was measured and checked.

        Args:
            winners: for each point, the turn that confirmed the drop-in or refuted it.
        """
        won = [n for n, w in enumerate(winners) if w and w.verdict and w.verdict.faster]
        every = boxes(self.inputs.dims, self.points)
        return {
            "dims": {dim.name: [dim.lo, dim.hi] for dim in self.inputs.dims},
            "measured": list(self.points),
            "served": [[[name, *ends] for name, ends in every[n].items()] for n in won],
            "whole": len(won) == len(every),
            "checked": [sizes for n in won for sizes in self.checked.get(n, [])],
        }


def load(
    request: OptimizeRequest, config: Config, device: Device, backend: BackendName
) -> SizeRange:
    """The range of a command's `--dynamic`, with the module's graph for all its sizes.

    Raises:
        UsageError: the back end's kernels have no sizes as arguments.
        TaskError: the grammar, a range or a name is wrong, the module rejects a size, or its graph depends on the size.
    """
    if not codegen(backend).takes_sizes:
        raise UsageError(
            f"kernels of {backend} take no sizes as arguments",
            "leave out --dynamic, or choose --backend triton, cuda or cpp",
        )
    inputs = dynamic.parse(request.dynamic)
    assert inputs is not None
    inputs.check(request.inputs)
    drawn = not request.inputs and has_get_inputs(request.spec)
    points = inputs.points()
    loaded = [_load(request, config, device, inputs, point, drawn) for point in points]
    graph = _graph(loaded[0], inputs, points, request, drawn)
    return SizeRange(inputs, tuple(points), tuple(loaded), graph, backend)


def _load(
    request: OptimizeRequest,
    config: Config,
    device: Device,
    inputs: DynamicInputs,
    sizes: dict[str, int],
    drawn: bool,
) -> Task:
    try:
        return tasks.load(
            request.spec,
            inputs=inputs.specs(sizes, request.inputs, drawn=drawn),
            init=request.init,
            eval_mode=request.eval_mode,
            dtype=request.dtype,
            autocast=request.autocast,
            device=device,
            limits=config.limits,
        )
    except TaskError as error:
        raise type(error)(f"--dynamic, {label(sizes)}: {error.message}", error.hint) from None


def _graph(
    task: Task,
    inputs: DynamicInputs,
    points: Sequence[dict[str, int]],
    request: OptimizeRequest,
    drawn: bool,
) -> SizedGraph:
    """One graph of captures at several sizes, the ends of the range among them."""
    fitted = inputs.fitted()
    ends = [{d.name: d.lo for d in inputs.dims}, {d.name: d.hi for d in inputs.dims}]
    names = [d.name for d in inputs.dims]
    every = list(dict.fromkeys(tuple(s[n] for n in names) for s in (*fitted, *ends, *points)))
    specs = [
        inputs.specs(dict(zip(names, sizes, strict=True)), request.inputs, drawn=drawn)
        for sizes in every
    ]
    captures: dict[tuple[int, ...], CapturedGraph] = {}
    asked = (task.model_copy(update={"input_specs": one, "inputs": ()}) for one in specs)
    # The kernel of a loop over time steps has fixed sizes.
    for number, captured in capture_many(asked, rolls=False):
        if isinstance(captured, CannotCompose):
            at = label(dict(zip(names, every[number], strict=True)))
            raise TaskError(
                f"--dynamic, {at}: the module cannot be captured: {captured}",
                "narrow the range to sizes that forward accepts, or give sizes their --extra-input",
            )
        captures[every[number]] = captured
    try:
        operators(inputs.dims, captures)
        return formulas(inputs.dims, {s: captures[s] for s in every[: len(fitted)]})
    except CannotCompose as error:
        raise TaskError(
            f"--dynamic: {error}",
            "narrow the range to sizes with one graph, or give sizes their --extra-input",
        ) from None
