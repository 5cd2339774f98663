"""Models of which parts are left to PyTorch."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from dvk.composer import Plan, applicable, compose
from dvk.composer.capture.export import CapturedGraph, trace_call
from dvk.composer.lowering.convolution import PRODUCTS
from dvk.records import Task


class Made:
    """A file's module and its drop-in."""

    def __init__(self, name: str, source: str, training: bool, *args: Any):
        self.reference, self.candidate = (
            ModuleType(f"{name}_reference"),
            ModuleType(f"{name}_candidate"),
        )
        for module in (self.reference, self.candidate):
            sys.modules[module.__name__] = module
        linecache.cache[f"<{name}>"] = (len(source), None, source.splitlines(True), f"<{name}>")
        exec(compile(source, f"<{name}>", "exec"), vars(self.reference))
        torch.manual_seed(0)
        self.model = self.reference.Model().train(training)
        before = {key: value.clone() for key, value in self.model.state_dict().items()}
        self.captured: CapturedGraph = trace_call(
            self.model, list(args), {}, ["x", "mask"][: len(args)]
        )
        assert all(
            torch.equal(value, before[key]) for key, value in self.model.state_dict().items()
        ), "capturing changes no state"
        task = Task(id=name, name=name, source=source, entry="Model", kind="module")
        recipes = tuple(
            r for r in applicable(self.captured.graph, "cpu", "cpp") if r not in PRODUCTS
        )
        self.text = compose(task, self.captured, Plan(recipes), "cpp")
        exec(compile(self.text.source, f"<{name} drop-in>", "exec"), vars(self.candidate))
        self.new = self.candidate.ModelNew().train(training)
        self.new.load_state_dict(self.model.state_dict())

    def close(self) -> None:
        del sys.modules[self.reference.__name__], sys.modules[self.candidate.__name__]

    def both(self, *args: Any) -> tuple[Any, Any, bool]:
        """The drop-in's result, eager's, and whether a fused program ran to its end."""
        ended = []
        run: Callable[..., Any] = type(self.new)._dvk_run
        self.new._dvk_run = lambda *given: ended.append(run(self.new, *given)) or ended[-1]
        try:
            with torch.no_grad():
                got, want = self.new(*args), self.model(*args)
        finally:
            del self.new._dvk_run
        whole = bool(ended) and ended[0] is not getattr(self.candidate, "dvk_else", None)
        return got, want, whole
