"""`--dynamic`: one program for a range of sizes. A search at each measured point, one drop-in whose kernels take sizes as arguments.

    load the module at the measured points → capture it at several sizes: one graph whose numbers are formulas → a search at each point
    → the points' plans applied to that graph → judged at each point, and at sampled sizes around it

Each stretch of the range runs what was measured nearest to it; the original runs in stretches where nothing faster was proved.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dvk import tasks
from dvk.composer import CannotCompose, CapturedGraph, Part, capture_many
from dvk.composer.capture.sizes import SizedGraph, formulas, operators
from dvk.composer.sized import SizedParts, boxes
from dvk.config import Config
from dvk.errors import TaskError
from dvk.pipelines.optimize.request import OptimizeRequest
from dvk.records import BackendName, Device, Task
from dvk.tasks import dynamic, naming
from dvk.tasks.dynamic import DynamicInputs, label
from dvk.tasks.sourcetext import read_source

DRAWS = re.compile(r"^(?:def get_inputs\b|get_inputs\s*=|from\s.*\bget_inputs\b)", re.M)


@dataclass(frozen=True)
class SizeRange:
    """The sizes that one drop-in is to serve."""

    inputs: DynamicInputs
    points: tuple[dict[str, int], ...]
    """Sizes at which schedules are measured."""
    tasks: tuple[Task, ...]
    """One for each point. The judge's other shapes are sizes of the stretch around it."""
    sized: SizedGraph

    def parts(self, number: int, part: Part, backend: BackendName) -> list[Part]:
        """The parts that serve the sizes nearest to a point, from the one that was found there.

        Raises:
            CannotCompose: its kernels hold for some sizes only.
        """
        maker = SizedParts(self.tasks[number], self.sized, backend)
        return maker.parts(self.points, number, part.plan)

    def summary(self) -> dict[str, Any]:
        """For the report: the range, and the sizes at which a program was measured and checked."""
        return {
            "dims": {dim.name: [dim.lo, dim.hi] for dim in self.inputs.dims},
            "measured": list(self.points),
            "checked": [
                {name: size for name, size in _sizes(variant.name)}
                for task in self.tasks
                for variant in task.shape_variants
            ],
        }


def _sizes(name: str) -> list[tuple[str, int]]:
    pairs = (piece.split("=") for piece in name.split(", "))
    return [(dim, int(size)) for dim, size in pairs]


def load(request: OptimizeRequest, config: Config, device: Device) -> SizeRange:
    """The range of a command's `--dynamic`, with the module's graph for all its sizes.

    Raises:
        TaskError: the grammar, a range or a name is wrong, the module rejects a size, or its graph depends on the size.
    """
    inputs = dynamic.parse(request.dynamic)
    assert inputs is not None
    inputs.check(request.inputs)
    drawn = not request.inputs and has_get_inputs(request.spec)
    points = inputs.points()
    loaded = [_load(request, config, device, inputs, point, drawn) for point in points]
    told = []
    for task, box in zip(loaded, boxes(inputs.dims, points), strict=True):
        variants = [inputs.variant(sizes) for sizes in dynamic.sampled(inputs.dims, box)]
        told.append(dynamic.with_variants(task, variants))
    return SizeRange(
        inputs, tuple(points), tuple(told), _graph(loaded[0], inputs, points, request, drawn)
    )


def has_get_inputs(spec: str) -> bool:
    """Whether the file draws inputs."""
    return DRAWS.search(read_source(naming.split(spec)[0])) is not None


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
    for number, captured in capture_many(asked):
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
