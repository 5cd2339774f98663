"""What a candidate is compared on: input sets with everything the reference made of them.

Child side. One `Case` is a shape variant under a seed. Its reference outputs, float64 truth and
admitted errors are computed once a session and kept while they fit `KEEP_BYTES`; larger ones are
recomputed for every candidate. Both arms start from the same module state and the same random
generators, so running statistics are part of the result and dropout is compared mask by mask.

The truth is the module deep-copied to float64. It is set aside where that cannot be done, where
random numbers are drawn (masks differ between dtypes), and where it disagrees with the reference by
more than the class admits at more than one element in a thousand: then the module means something
else in float64.

Where a module jumps (rounding to a grid, thresholds, indices of near ties), two correct programs
differ by a whole step at the few elements that sit on an edge. `jumps` finds how many elements do
so, and how far they move, by shaking the inputs of the float64 module by one float32 rounding.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from dvk.harness.compare import Expected, worst_ratio
from dvk.harness.tolerance import Range, admitted
from dvk.records import Task
from dvk.tasks.build import Built
from dvk.tasks.state import seeded
from dvk.tasks.trees import map_tensors, named_tensors

KEEP_BYTES = {"cpu": 1 << 30, "cuda": 8 << 30}
TRUTH_BYTES = {"cpu": 2 << 30, "cuda": 16 << 30}
"""No float64 truth for a call whose inputs, weights and outputs are larger."""

FEW = 1e-3
"""Share of elements that may sit on an edge."""
NOISE = 2.0**-23
NUM_NOISES = 3

Buffers = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Jumps:
    """How often an output jumps under noise of one float32 rounding, and the largest step relative to its scale."""

    count: int
    size: float


@dataclass
class Case:
    """One input set and what the reference made of it."""

    variant: str
    seed: int
    args: list[Any]
    kwargs: dict[str, Any]
    kept: list[torch.Tensor]
    """The input tensors' values before any call."""
    spec: pytree.TreeSpec
    expected: list[Expected]
    buffers: Buffers
    """The module's buffers after the call."""
    jumps: list[Jumps] | None = None
    """By output leaf; None until asked for, empty where there is no float64 module."""

    @property
    def inputs(self) -> list[torch.Tensor]:
        """The tensors of the call."""
        return [t for _, t in named_tensors((self.args, self.kwargs))]

    @property
    def num_bytes(self) -> int:
        """Inputs and outputs of one call."""
        return _bytes([*self.inputs, *_tensors([e.same for e in self.expected])])

    @property
    def text(self) -> str:
        """Shapes for people: `native 64x1024`."""
        return f"{self.variant} " + ", ".join("x".join(map(str, t.shape)) or "scalar" for t in self.inputs)


class Cases:
    """The input sets of one session.

    Args:
        built: the reference.
        plan: (variant, seed) of each case.

    Raises:
        TaskError: the inputs cannot be drawn.
    """

    def __init__(self, built: Built, plan: Sequence[tuple[str, int]]):
        self.built = built
        self.plan = list(plan)
        self.initial = buffers_of(built.model)
        weights = [*built.model.parameters(), *built.model.buffers()]
        self.weight_bytes = _bytes(weights)
        dtypes = {str(t.dtype).removeprefix("torch.") for t in weights} | {
            s.dtype for s in (*built.task.inputs, *built.task.outputs)
        }
        self.range: Range = admitted(built.task.precision, dtypes)
        self._kept: dict[int, Case] = {}
        self._kept_bytes = 0
        self._double: nn.Module | None = None
        self._double_tried = built.task.stochastic or built.task.precision == "exact"

    def __len__(self) -> int:
        return len(self.plan)

    def get(self, number: int) -> Case:
        """The case `number`, from memory or anew."""
        if number in self._kept:
            return self._kept[number]
        case = self._make(*self.plan[number])
        size = _bytes([*case.inputs, *case.kept]) + sum(
            _bytes([t for t in (e.same, e.truth) if isinstance(t, torch.Tensor)]) for e in case.expected
        )
        if self._kept_bytes + size <= KEEP_BYTES[self.built.task.device]:
            self._kept[number] = case
            self._kept_bytes += size
        return case

    def forget(self, number: int) -> None:
        """Drop a case whose inputs a candidate has overwritten."""
        self._kept.pop(number, None)

    def release(self) -> None:
        """Drop the float64 module; it is made again if a case has to be recomputed."""
        if self._double is not None:
            self._double, self._double_tried = None, False

    def _make(self, variant: str, seed: int) -> Case:
        built = self.built
        args, kwargs = built.inputs(seed, variant)
        inputs = [t for _, t in named_tensors((args, kwargs))]
        kept = [t.clone() for t in inputs]
        put_buffers(built.model, self.initial)
        output = call(built.model, args, kwargs, seed)
        after = buffers_of(built.model)
        put_buffers(built.model, self.initial)
        leaves, spec = pytree.tree_flatten(output)
        truths = self._truth(args, kwargs, seed, leaves, spec)
        names = iter([n for n, _ in named_tensors(output)])
        expected = [
            self._expect(next(names) if isinstance(leaf, torch.Tensor) else "output", leaf, truth)
            for leaf, truth in zip(leaves, truths, strict=True)
        ]
        return Case(variant, seed, args, kwargs, kept, spec, expected, after)

    def _expect(self, name: str, leaf: Any, truth: torch.Tensor | None) -> Expected:
        if not isinstance(leaf, torch.Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
            return Expected(name, leaf, None, 0.0, 0.0, True)
        # The reference may return a buffer or an input, which later calls overwrite.
        leaf = leaf.detach().clone()
        real = torch.view_as_real(leaf.resolve_conj()) if leaf.is_complex() else leaf
        size = float(torch.linalg.vector_norm(real, dtype=torch.float64))
        sample, finite = real, math.isfinite(size)
        if not finite:
            sample = real[real.isfinite()]
            size = float(torch.linalg.vector_norm(sample, dtype=torch.float64))
        rms = max(size / max(sample.numel(), 1) ** 0.5, 1e-30)
        own_error = float("nan")
        if truth is not None:
            target = torch.view_as_real(truth) if truth.is_complex() else truth
            own_error = self._own_error(sample, target if finite else target[real.isfinite()], rms)
            if own_error != own_error:
                truth = None
        tolerance = self.range.tolerance(own_error)
        if truth is not None and tolerance >= 1e-6:
            truth = truth.to(torch.complex64 if truth.is_complex() else torch.float32)
        return Expected(name, leaf, truth, rms, tolerance, finite)

    def _own_error(self, sample: torch.Tensor, truth: torch.Tensor, rms: float) -> float:
        """The reference's error against float64, elements on an edge left out; nan when the two have little to do."""
        ceiling = self.range.ceiling
        worst = worst_ratio(sample, truth, rms, ceiling) * ceiling
        if worst <= ceiling:
            return worst
        error = (sample.double() - truth).abs() / (truth.abs() + rms)
        bulk = error[error <= ceiling]
        if error.numel() - bulk.numel() > max(8, FEW * error.numel()) or not bulk.numel():
            return float("nan")
        return float(bulk.max())

    def jumps(self, case: Case) -> list[Jumps]:
        """Per output leaf of a case; empty where the module does not run in float64."""
        if case.jumps is None:
            case.jumps = self._find_jumps(case)
        return case.jumps

    def _find_jumps(self, case: Case) -> list[Jumps]:
        base = self._wide_outputs(case.args, case.kwargs, case.seed, case.spec)
        if base is None:
            return []
        found = [Jumps(0, 0.0) for _ in base]
        for number in range(NUM_NOISES):
            with seeded(10_000 + number):
                args, kwargs = map_tensors(_shaken, (case.args, case.kwargs))
            moved = self._wide_outputs(args, kwargs, case.seed, case.spec)
            if moved is None:
                return []
            for i, (still, other, want) in enumerate(zip(base, moved, case.expected, strict=True)):
                if (
                    not isinstance(still, torch.Tensor)
                    or not isinstance(other, torch.Tensor)
                    or still.shape != other.shape
                ):
                    continue
                if still.is_floating_point():
                    error = (other - still).abs() / (still.abs() + want.rms)
                    jumped = error > max(want.tolerance, 1e-6)
                    size = float(error[jumped].max()) if bool(jumped.any()) else 0.0
                else:
                    jumped, size = other != still, float("inf")
                found[i] = Jumps(found[i].count + int(jumped.sum()), max(found[i].size, size))
        return found

    def _truth(
        self, args: list[Any], kwargs: dict[str, Any], seed: int, leaves: list[Any], spec: pytree.TreeSpec
    ) -> list[torch.Tensor | None]:
        tensors = [*_tensors(leaves), *[t for _, t in named_tensors((args, kwargs))]]
        found = None
        if self.weight_bytes + _bytes(tensors) <= TRUTH_BYTES[self.built.task.device]:
            found = self._wide_outputs(args, kwargs, seed, spec)
        if found is None:
            return [None] * len(leaves)
        return [
            t
            if isinstance(t, torch.Tensor)
            and isinstance(leaf, torch.Tensor)
            and t.shape == leaf.shape
            and t.dtype in (torch.float64, torch.complex128)
            else None
            for t, leaf in zip(found, leaves, strict=True)
        ]

    def _wide_outputs(
        self, args: list[Any], kwargs: dict[str, Any], seed: int, spec: pytree.TreeSpec
    ) -> list[Any] | None:
        try:
            model = self._double_model()
            if model is None:
                return None
            wide_args, wide_kwargs = map_tensors(_widened, (args, kwargs))
            leaves, found = pytree.tree_flatten(call(model, wide_args, wide_kwargs, seed))
        except Exception:  # noqa: BLE001 - a module that cannot run in float64 is judged without it
            return None
        return leaves if found == spec else None

    def _double_model(self) -> nn.Module | None:
        if not self._double_tried:
            self._double_tried = True
            try:
                self._double = copy.deepcopy(self.built.model).double()
            except Exception:  # noqa: BLE001 - as above
                self._double = None
        return self._double


def call(model: nn.Module, args: list[Any], kwargs: dict[str, Any], seed: int) -> Any:
    """One forward without gradients, all random generators seeded; a returned buffer is copied, since buffers are put back."""
    with torch.no_grad(), seeded(seed):
        result = model(*args, **kwargs)
    held = {buffer.untyped_storage().data_ptr() for buffer in model.buffers()}

    def apart(tensor: torch.Tensor) -> torch.Tensor:
        shares = tensor.layout is torch.strided and tensor.untyped_storage().data_ptr() in held
        return tensor.clone() if shares else tensor

    return map_tensors(apart, result) if held else result


def buffers_of(model: nn.Module) -> Buffers:
    """Copies of all buffers."""
    return {name: buffer.detach().clone() for name, buffer in model.named_buffers()}


def put_buffers(model: nn.Module, values: Buffers) -> None:
    """Set the buffers back to `values`; those it does not name stay."""
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name in values and values[name].shape == buffer.shape:
                buffer.copy_(values[name])


def plan(task: Task, tier: str, num_seeds: int, base: int) -> list[tuple[str, int]]:
    """(variant, seed) of the input sets of a tier: the native shape first, under `num_seeds` seeds.

    Other shapes come under one seed each and two at most; at the claim tier all of them, as often as the native one.
    """
    others = [variant.name for variant in task.shape_variants]
    if tier == "claim":
        draws = [(name, i) for i in range(num_seeds) for name in ("native", *others)]
    else:
        spread = others[:: max(1, len(others) // 2)][:2]
        draws = [("native", i) for i in range(num_seeds if tier == "search" else 1)] + [(name, 0) for name in spread]
    return [(name, (base + 7919 * number) % (1 << 31)) for number, (name, _) in enumerate(draws)]


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def _shaken(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    wide = tensor.double()
    return wide * (1 + NOISE * (2 * torch.rand_like(wide) - 1))


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    return [v for v in values if isinstance(v, torch.Tensor)]


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


__all__ = ["FEW", "Buffers", "Case", "Cases", "Jumps", "buffers_of", "call", "plan", "put_buffers"]
