"""Drop-ins for ranges of sizes, captured in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from dvk.composer import Part, Plan, join
from dvk.composer.capture.export import trace_module
from dvk.composer.capture.sizes import SizedGraph, formulas
from dvk.composer.sized import SizedParts
from dvk.records import BackendName, Candidate, Device, Task
from dvk.tasks import dynamic
from tests.composer.dropins import module_text
from tests.composer.programs import differences, run_source, usual

NAMES = ("x", "y", "z")


class SizedModel:
    """A module, `--dynamic` specs for its inputs, and the drop-in for the range."""

    def __init__(
        self,
        forward: str,
        *specs: str,
        init: str = "pass",
        backend: BackendName = "cpp",
        choose: Callable[[Any], tuple[str, ...]] | None = None,
        points: Sequence[dict[str, int]] | None = None,
        device: Device = "cpu",
    ):
        names = [spec.partition("=")[0] for spec in specs]
        self.source = module_text(forward, params=", ".join(names), init=init)
        self.source = "import torch.nn.functional as F\n" + self.source
        self.inputs = dynamic.parse(specs)
        assert self.inputs is not None
        self.dims = self.inputs.dims
        self.task = Task(
            id="test", name="test", source=self.source, entry="Model", kind="module", device=device
        )
        self.device = device
        torch.manual_seed(0)
        self.model: nn.Module = run_source(self.source).Model().eval().to(device)
        self.names = names
        self.backend = backend
        self.sized: SizedGraph = formulas(
            self.dims,
            {
                tuple(sizes.values()): trace_module(self.model, self.draw(sizes), names)
                for sizes in self.inputs.fitted()
            },
        )
        points = points or self.inputs.points()
        maker = SizedParts(self.task, self.sized, backend)
        graph = self.sized.captured.graph
        plan = Plan(choose(graph) if choose else usual(graph, device, backend))
        self.parts: list[Part] = [
            part for number in range(len(points)) for part in maker.parts(points, number, plan)
        ]
        self.candidate: Candidate = join(self.parts, backend)
        self.new: nn.Module = run_source(self.candidate.source).ModelNew().eval().to(device)
        self.new.load_state_dict(self.model.state_dict())

    def draw(self, sizes: dict[str, int]) -> list[Any]:
        """Arguments at these sizes."""
        assert self.inputs is not None
        made: list[Any] = []
        for _, dtype, shape, _ in self.inputs.inputs:
            dims = [sizes[d] if isinstance(d, str) else d for d in shape]
            kind = getattr(torch, dtype)
            made.append(
                torch.randn(dims, dtype=kind, device=self.device)
                if kind.is_floating_point
                else torch.randint(0, 2, dims, device=self.device).to(kind)
            )
        return made

    def sampled(self) -> list[dict[str, int]]:
        """Sizes of the range: ends, odd and prime ones, and those around every border between two programs."""
        found = []
        for part in self.parts:
            box = {name: (lo, hi) for name, lo, hi in part.within}
            found += dynamic.sampled(self.dims, box)
        return found

    def fits(self, args: Sequence[Any]) -> bool:
        """Whether kernels compute a call."""
        return bool(self.new._dvk_fits(*args))


@torch.no_grad()
def disagreements(
    forward: str,
    specs: tuple[str, ...],
    init: str,
    backend: BackendName = "cpp",
    device: Device = "cpu",
) -> list[str]:
    """Sampled sizes at which a program does not run, or differs from the original, with what differs."""
    made = SizedModel(f"return {forward}", *specs, init=init, backend=backend, device=device)
    found = []
    for sizes in made.sampled():
        args = made.draw(sizes)
        wrong = (
            differences(made.new(*args), made.model(*args))
            if made.fits(args)
            else ["the original runs"]
        )
        found += [f"{sizes}: {one}" for one in wrong]
    return found
