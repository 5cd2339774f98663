"""Training drop-ins of a file's text, and their gradients beside the original's in double precision."""

from __future__ import annotations

import copy
import types
from typing import Any

import torch
from torch import nn

from dvk.composer import Plan, applicable_to, compose
from dvk.composer.capture.export import trace_module
from dvk.composer.capture.joint import with_backward
from dvk.composer.recipes import OWN_FAMILIES
from dvk.harness.transport.calls import call, describe, leaf_names
from dvk.records import Task
from tests.composer.programs import run_source


class TrainingDropIn:
    """The executed drop-in, with the original beside it and a count of the programs' runs.

    Args:
        args: of the captured call.
        train: the mode.
    """

    def __init__(self, source: str, *args: Any, train: bool = True, backend: str = "cpp"):
        original = run_source(source, "reference")
        self.model: nn.Module = original.Model().train(train)
        names = [f"x{n}" for n in range(len(args))]
        forward = self.model.forward.__code__.co_varnames[1 : 1 + len(args)]
        names = list(forward) or names
        captured = with_backward(trace_module(self.model, list(args), names), self.model)
        task = Task(id="test", name="test", source=source, entry="Model", kind="module", train=True)
        recipes = tuple(
            name for name in applicable_to(captured, "cpu", backend) if name not in OWN_FAMILIES
        )
        self.candidate = compose(task, captured, Plan(recipes), backend)
        self.module: types.ModuleType = run_source(self.candidate.source)
        self.args = args
        self.runs = {"run": 0, "back": 0}
        for name in self.runs:
            self._count(name)
        self.new = self.build().train(train)

    def _count(self, name: str) -> None:
        function = getattr(self.module.ModelNew, f"_dvk_{name}")

        def counted(*given: Any) -> Any:
            self.runs[name] += 1
            return function(*given)

        setattr(self.module.ModelNew, f"_dvk_{name}", counted)

    def build(self) -> nn.Module:
        """Another drop-in with the original's weights."""
        made: nn.Module = self.module.ModelNew()
        made.load_state_dict(self.model.state_dict())
        return made

    def gradients(self, new: bool, *args: Any) -> list[torch.Tensor]:
        """Gradients of inputs and weights of one step; results are pulled along fixed cotangents."""
        model = self.new if new else self.model
        result = call(model, list(args or self.args), {}, 1, backward=True)
        return [leaf for leaf in describe(result)[0] if isinstance(leaf, torch.Tensor)]


def errors(made: TrainingDropIn) -> dict[str, tuple[float, float]]:
    """The largest error of the original and of the drop-in in each result and gradient, against double precision."""
    along: list[torch.Tensor] = []
    args = list(made.args)
    twin = copy.deepcopy(made.model).double()
    wide = [t.double() if t.is_floating_point() else t for t in args]
    runs = [(made.model, args), (made.new, args), (twin, wide)]
    results = [call(model, given, {}, 1, backward=True, along=along) for model, given in runs]
    leaves = [describe(result)[0] for result in results]
    found = {}
    for name, eager, new, truth in zip(leaf_names(results[0]), *leaves, strict=True):
        scale = truth.abs().max().clamp_min(1e-30)
        found[name] = tuple(float((t - truth).abs().max() / scale) for t in (eager, new))
    return found
