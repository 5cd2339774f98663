"""The input sets a candidate is checked on, with what the reference makes of them. Child side.

A case holds fresh inputs, the reference's outputs and state after the call, and the float64 truth
where it can be had. Cases are made once a session and reused for every candidate in it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from dvk.harness import compare
from dvk.records import Task
from dvk.tasks.build import Built
from dvk.tasks.state import restore, seeded, snapshot
from dvk.tasks.trees import map_tensors, named_tensors

MEMORY_SHARE = 0.25
"""Part of the device's memory that kept cases may take."""
NOISE = 2.0 ** -23
"""Relative input noise under which the truth's jumps are counted: one float32 rounding."""
NUM_NOISES = 3


@dataclass
class Case:
    """One input set."""

    variant: str
    seed: int
    args: list[Any]
    kwargs: dict[str, Any]
    outputs: Any
    """The reference's result."""
    inputs_after: list[torch.Tensor]
    state_after: dict[str, torch.Tensor]
    truth: list[torch.Tensor | None]
    """float64 outputs, in tree order; None where there is no truth."""
    tolerances: list[float] = field(default_factory=list)
    quick: list[tuple[torch.Tensor, torch.Tensor] | None] = field(default_factory=list)
    """Expected values and |t| + rms(t) in float32, where that is exact enough for the tolerance."""
    _jumps: list[torch.Tensor] | None = None

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """A private copy of the inputs."""
        return map_tensors(_clone, self.args), map_tensors(_clone, self.kwargs)

    def tensors(self) -> list[torch.Tensor]:
        return [t for _, t in named_tensors((self.args, self.kwargs))]

    def num_bytes(self) -> int:
        held = [*self.tensors(), *self.inputs_after, *(t for t in self.truth if t is not None)]
        held += [t for _, t in named_tensors(self.outputs)] + [t for pair in self.quick if pair for t in pair]
        return sum(t.numel() * t.element_size() for t in held)


class Reference:
    """The reference model of a session and its cases."""

    def __init__(self, built: Built, task: Task, num_seeds: int, num_variants: int):
        self.built, self.task, self.num_seeds, self.num_variants = built, task, num_seeds, num_variants
        self.model = built.model
        self.state = snapshot(self.model)
        self.cases: list[Case] = []
        self._wide: nn.Module | None = None
        self._has_truth = not task.stochastic and task.precision not in ("exact",)

    def plan(self) -> list[tuple[str, int]]:
        """(variant, seed) of every case, the native shape first."""
        others = [v for v in self.built.variants if v != "native"][:self.num_variants]
        return [("native", 1), *((v, 101 + i) for i, v in enumerate(others)), *(("native", 1 + n) for n in range(1, self.num_seeds))]

    def each(self) -> Iterator[Case]:
        """Cases one by one, made on first use, within the memory they may take."""
        budget = MEMORY_SHARE * device_memory_bytes(self.task.device)
        for number, (variant, seed) in enumerate(self.plan()):
            if number < len(self.cases):
                yield self.cases[number]
                continue
            used = sum(c.num_bytes() for c in self.cases)
            if self.cases and used + max(c.num_bytes() for c in self.cases) > budget:
                return
            case = self._make(variant, seed)
            self.cases.append(case)
            yield case

    def _make(self, variant: str, seed: int) -> Case:
        args, kwargs = self.built.inputs(seed, variant)
        given, keywords = map_tensors(_clone, args), map_tensors(_clone, kwargs)
        restore(self.model, self.state)
        with torch.no_grad(), seeded(seed):
            outputs = self.model(*given, **keywords)
        # An output may alias an input or a buffer that a later call writes.
        outputs = map_tensors(_clone, outputs)
        after = {name: tensor.detach().clone() for name, tensor in self.model.named_buffers()}
        inputs_after = [_clone(t) for _, t in named_tensors((given, keywords))]
        restore(self.model, self.state)
        case = Case(variant, seed, args, kwargs, outputs, inputs_after, after, self._truth(args, kwargs, seed))
        for position, (_, reference) in enumerate(named_tensors(outputs)):
            truth = case.truth[position] if case.truth else None
            self_error = 0.0
            if truth is not None and reference.is_floating_point():
                error = compare.relative_error(reference, truth)
                error = error[torch.isfinite(error)]
                # Jumps are no rounding error: the tolerance follows the bulk.
                self_error = float(error.flatten().kthvalue(max(1, int(0.999 * error.numel()))).values) if error.numel() else 0.0
            case.tolerances.append(compare.tolerance(self.task.precision, reference.dtype, self_error))
            case.quick.append(compare.quick_form(truth, reference, case.tolerances[-1]))
        if not case.truth:
            case.truth = [None] * len(case.tolerances)
        return case

    def _truth(self, args: list[Any], kwargs: dict[str, Any], seed: int) -> list[torch.Tensor | None]:
        if not self._has_truth:
            return []
        try:
            if self._wide is None:
                self._wide = copy.deepcopy(self.model).double()
            kept = snapshot(self._wide)
            with torch.no_grad(), seeded(seed):
                result = self._wide(*map_tensors(_widen, args), **map_tensors(_widen, kwargs))
            restore(self._wide, kept)
            return [t.clone() for _, t in named_tensors(result)]
        except Exception:  # noqa: BLE001 - a module that cannot run in float64 is compared with itself
            self._has_truth = False
            return []

    def jumps(self, case: Case) -> list[torch.Tensor] | None:
        """Per output: elements that jump beyond tolerance under noise of one float32 rounding; None without a truth."""
        if not self._has_truth or any(t is None for t in case.truth):
            return None
        if case._jumps is None:
            masks = [torch.zeros(t.shape, dtype=torch.bool, device=t.device) for t in case.truth if t is not None]
            for number in range(NUM_NOISES):
                with seeded(10_000 + number):
                    args, kwargs = map_tensors(_noisy, case.args), map_tensors(_noisy, case.kwargs)
                moved = self._truth(args, kwargs, case.seed)
                for mask, truth, other, tol in zip(masks, case.truth, moved, case.tolerances, strict=True):
                    if truth is not None and other is not None:
                        mask |= compare.relative_error(other, truth) > max(tol, 1e-6)
            case._jumps = masks
        return case._jumps


def device_memory_bytes(device: str) -> int:
    """Memory of the device that cases live on."""
    if device == "cuda":
        return int(torch.cuda.get_device_properties(0).total_memory)
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def same_structure(a: Any, b: Any) -> bool:
    """Two pytrees differ in leaves only."""
    return pytree.tree_structure(a) == pytree.tree_structure(b)


def _clone(tensor: torch.Tensor) -> torch.Tensor:
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        return tensor.detach().clone().expand(tensor.shape)
    copy_ = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy_.copy_(tensor.detach())


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().double() if tensor.is_floating_point() else tensor.detach().clone()


def _noisy(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    return tensor.double() * (1 + NOISE * (2 * torch.rand_like(tensor, dtype=torch.float64) - 1))
