"""Runs of the reference in its precision, in float64, on coarsened values and with noise, under any weight set.

Executes the user's code, so it belongs to the referee. An exception of a variation means that there is no such answer, not that the task is
broken; only a plain `run` lets exceptions through.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dvk.harness.checking.in_float64 import InFloat64, in_float64, widened
from dvk.harness.checking.input_domains import Domain, DomainMode
from dvk.harness.checking.input_families import kind_of
from dvk.harness.checking.input_usage import TensorUses, Use
from dvk.harness.checking.nonfinite_spread import EarlyOverflow, Spread, Way, early
from dvk.harness.checking.other_algorithms import Contexts
from dvk.harness.checking.patience import patience
from dvk.harness.checking.rounding_noise import (
    RoundingNoise,
    with_low_bits_cleared,
    with_rounding_noise,
)
from dvk.harness.checking.weight_sets import WeightSets
from dvk.harness.checking.written_inputs import WrittenInputs, fresh
from dvk.harness.transport.calls import (
    Buffers,
    Called,
    apart,
    buffers_of,
    call,
    describe,
    in_mode,
    leaf_names,
    put_buffers,
)
from dvk.harness.transport.lent_tensors import copied, layout_of, memory_of, values_of
from dvk.tasks.trees import map_tensors, named_tensors

PATIENCE_S = 20.0
"""Time of one call with generated values."""


@dataclass
class InputDraw:
    """The inputs of one call."""

    args: list[Any]
    kwargs: dict[str, Any]
    seed: int
    weights: int
    backward: bool = False
    loose: list[bool] | None = None
    """For each input tensor, whether noise may touch it; None: see `input_families.kind_of`."""
    other_mode: bool = False  # train and eval mode are swapped
    along: list[torch.Tensor] | None = None
    """Cotangents of the outputs, lent like inputs; the first run fills an empty list. None: each run draws them from the seed."""
    told: str = ""
    """Arguments other than tensors that are not native."""


@dataclass
class Answer:
    """Return value of a call, and the buffers it left."""

    leaves: list[Any]
    spec_text: str
    names: list[str]
    buffers: Buffers = field(default_factory=dict)


class WritesInput(Exception):
    """The reference writes an input in place that the task's record does not list."""


class Reference:
    """The reference of a task under its weight sets.

    Args:
        model: the live reference; this object changes its weights and buffers.
        sets: the weight sets.
        twin: whether it may be run in float64.
        written: the inputs that it writes.
        product_eps: one rounding of a product's operands, if it is coarser than their type: TF32's.
        exact_inputs: its rounding steps depend on inputs as they are, so noise does not touch them: it quantises.
    """

    def __init__(
        self,
        model: nn.Module,
        sets: WeightSets,
        twin: bool,
        written: WrittenInputs,
        product_eps: float = 0.0,
        exact_inputs: bool = False,
    ):
        self.model = model
        self._exact_inputs = exact_inputs
        self._product_eps = product_eps
        self.written = written
        self.sets = sets
        self._constructed = buffers_of(model)
        self._current: int | None = 0
        self._double: nn.Module | None = None
        self._double_tried = not twin
        self._on_cpu: nn.Module | None = None
        self._domain: Domain | None = None
        self._keeps: dict[tuple[Any, ...], set[int]] = {}
        self.gives_buffers = False
        """Whether it returned one of its buffers, or a part of one."""

    def initial(self, weights: int) -> Buffers:
        """Return all buffers before a call under a weight set."""
        state = self.sets.state(weights)
        return {name: state.get(name, value) for name, value in self._constructed.items()}

    def use(self, weights: int) -> None:
        """Load a weight set into the reference, with buffers as before any call."""
        weights = self.sets.effective(weights)
        if weights != self._current:
            self.model.load_state_dict(self.sets.state(weights))
            self._current = weights
        put_buffers(self.model, self.initial(weights))

    def run(self, draw: InputDraw) -> Answer:
        """Return the reference's answer.

        Raises:
            NotDifferentiable: `draw.backward`, and it has no gradient.
            WritesInput: it writes an input that it does not write on the example inputs.
        """
        self.use(draw.weights)
        before = _versions(draw)
        with in_mode(self.model, draw.other_mode):
            given = self._call(self.model, draw.args, draw.kwargs, draw, separate=False)
        if _versions(draw) != before:
            raise WritesInput(
                "it writes an input in place here, and does not on the example inputs"
            )
        result = apart(self.model, given)
        pairs = zip(describe(given)[0], describe(result)[0], strict=True)
        self.gives_buffers |= any(
            isinstance(one, torch.Tensor) and one is not other for one, other in pairs
        )
        after = buffers_of(self.model)
        put_buffers(self.model, self.initial(draw.weights))
        return _answer(result, after)

    def retained_leaves(self, draw: InputDraw) -> set[int]:
        """Return numbers of the leaves in memory that it keeps and returns again, or in its buffers, which are restored between calls.

        Weights and inputs count, too: callers do not expect outputs in them to stay.
        """
        key = (
            draw.backward,
            *[tensor.shape for _, tensor in named_tensors((draw.args, draw.kwargs))],
        )
        if key not in self._keeps:
            self.use(draw.weights)
            args, kwargs = self._fresh(
                draw
            )  # the same for both calls: outputs that share memory with inputs count
            one, buffers = (
                self._given(draw, args, kwargs),
                {_memory(buffer) for buffer in self.model.buffers()},
            )
            other = self._given(draw, args, kwargs)
            put_buffers(self.model, self.initial(draw.weights))
            kept = {*buffers, *map(_memory, other)} - {0}
            self._keeps[key] = {number for number, leaf in enumerate(one) if _memory(leaf) in kept}
        return self._keeps[key]

    def run_with(self, draw: InputDraw, state: dict[str, Any]) -> Answer | None:
        """Return the answer under given weights; None if there is none."""

        def run() -> Any:
            self._current = None
            self.model.load_state_dict(state)
            return self._call(self.model, draw.args, draw.kwargs, draw)

        try:
            return self._attempt(run)
        finally:
            self.use(draw.weights)

    def in_float64(self, draw: InputDraw, fused: bool = False) -> Answer | None:
        """Return the answer of the module deep-copied to float64; `fused`: see `InFloat64`."""

        def run() -> Any:
            model = self._double_model()
            if model is None:
                raise TypeError("no float64 twin")
            model.load_state_dict(self.sets.state(draw.weights))
            put_buffers(model, self.initial(draw.weights))
            args, kwargs = map_tensors(widened, (draw.args, draw.kwargs))
            with in_mode(model, draw.other_mode):
                return self._call(model, args, kwargs, draw, InFloat64(fused))

        return self._attempt(run, self._double_model)

    def with_few_bits(self, draw: InputDraw, bits: int, outputs: bool) -> Answer | None:
        """Return the answer with inputs and weights, and optionally `outputs`, rounded to `bits` significant bits."""

        def run() -> Any:
            inward = self.domain(draw).demanding
            state = self.sets.state(draw.weights)
            self._current = None
            self.model.load_state_dict(
                {
                    n: with_low_bits_cleared(v, bits) if isinstance(v, torch.Tensor) else v
                    for n, v in state.items()
                }
            )
            args, kwargs = map_tensors(
                lambda t: with_low_bits_cleared(t, bits, inward), (draw.args, draw.kwargs)
            )
            with in_mode(self.model, draw.other_mode):
                result = self._call(self.model, args, kwargs, draw)
            return (
                map_tensors(lambda t: with_low_bits_cleared(t, bits), result) if outputs else result
            )

        try:
            return self._attempt(run, lambda: self.model)
        finally:
            self.use(draw.weights)

    def with_noise(
        self,
        draw: InputDraw,
        seed: int,
        strong: bool = False,
        inputs: bool = True,
        alike: bool = False,
    ) -> Answer | None:
        """Return the answer with rounding noise in every operator's result, and in `inputs`; `strong`, `alike`: see `RoundingNoise`."""

        def run() -> Any:
            domain = self.domain(draw)
            self.use(draw.weights)
            loose = iter(draw.loose) if draw.loose is not None else None

            def noisy(tensor: torch.Tensor) -> torch.Tensor:
                free = next(loose) if loose is not None else kind_of(tensor, domain) != "fixed"
                return (
                    with_rounding_noise(tensor, seed, domain.demanding, strong) if free else tensor
                )

            args, kwargs = draw.args, draw.kwargs
            if inputs and not self._exact_inputs:
                args, kwargs = map_tensors(noisy, (args, kwargs))
            with in_mode(self.model, draw.other_mode):
                how = (domain.demanding, strong, self._product_eps, alike)
                noise = RoundingNoise(seed, *how)
                return self._call(self.model, args, kwargs, draw, noise)

        try:
            return self._attempt(run, lambda: self.model)
        finally:
            put_buffers(self.model, self.initial(draw.weights))

    def under(self, draw: InputDraw, contexts: Contexts) -> Answer | None:
        """Return the answer, and the buffers it left, by other algorithms (`other_algorithms`)."""

        def run() -> Any:
            self.use(draw.weights)
            with in_mode(self.model, draw.other_mode):
                return self._call(self.model, draw.args, draw.kwargs, draw, contexts())

        try:
            return self._attempt(run, lambda: self.model)
        finally:
            put_buffers(self.model, self.initial(draw.weights))

    def spread(self, draw: InputDraw, way: Way) -> tuple[Answer | None, bool]:
        """Return the answer with products as another program may compute them (`nonfinite_spread`), and whether it discards some of their
        results."""
        mode = Spread(way)

        def run() -> Any:
            self.use(draw.weights)
            return self._call(self.model, draw.args, draw.kwargs, draw, mode)

        try:
            return self._attempt(run), mode.chooses
        finally:
            put_buffers(self.model, self.initial(draw.weights))

    def overflowing_early(self, draw: InputDraw) -> Answer | None:
        """The answer with everything near overflow taken as infinite."""

        def run() -> Any:
            self.use(draw.weights)
            args, kwargs = map_tensors(
                lambda t: early(t) if t.is_floating_point() else t, (draw.args, draw.kwargs)
            )
            return self._call(self.model, args, kwargs, draw, EarlyOverflow())

        try:
            return self._attempt(run)
        finally:
            put_buffers(self.model, self.initial(draw.weights))

    def domain(self, draw: InputDraw) -> Domain:
        """Return what its operators require of inputs; the first `draw` must be a native one."""
        if self._domain is None:
            watch = DomainMode()
            self.use(draw.weights)
            call(self.model, *self._fresh(draw), draw.seed, False, watch)
            put_buffers(self.model, self.initial(draw.weights))
            self._domain = watch.domain
        return self._domain

    def uses(self, draw: InputDraw, tensors: list[torch.Tensor]) -> list[Use]:
        """Return the uses of integers and masks among the inputs."""
        trace = TensorUses(tensors)
        self.use(draw.weights)
        with trace:  # copies of what it follows are followed, too
            args, kwargs = self._fresh(draw)
        call(self.model, args, kwargs, draw.seed, False, trace)
        put_buffers(self.model, self.initial(draw.weights))
        return trace.uses

    def try_inputs(self, draw: InputDraw, other_arguments: bool = True) -> Answer | None:
        """Return its answer to a generated call, or None.

        On a GPU a call with other arguments than native ones, or of a module that takes indices, is tried on a CPU first: a bad index kills
        the process there. Others are not, since a network takes a CPU seconds to minutes.
        """
        tensors = [t for _, t in named_tensors((draw.args, draw.kwargs))]
        on_gpu = any(t.device.type != "cpu" for t in tensors)
        try:
            with patience(PATIENCE_S):
                risky = on_gpu and (other_arguments or self.takes_indices(draw))
                if risky and not self._runs_on_cpu(draw):
                    return None
                return self.run(draw)
        except Exception:  # noqa: BLE001 - values of our making
            put_buffers(self.model, self.initial(draw.weights))
            return None

    def takes_indices(self, draw: InputDraw) -> bool:
        """Whether some operator takes indices or probabilities, and ends the process on a GPU if they are out of range."""
        return self.domain(draw).indexed or self.domain(draw).probabilities

    def release(self) -> None:
        """Drop the float64 twin; it is made again when needed."""
        if self._double is not None:
            self._double, self._double_tried = None, False

    def _runs_on_cpu(self, draw: InputDraw) -> bool:
        try:
            if self._on_cpu is None:
                self._on_cpu = copy.deepcopy(self.model).cpu()
            args, kwargs = map_tensors(lambda t: t.cpu(), self._fresh(draw))
            call(self._on_cpu, args, kwargs, draw.seed)
        except Exception:  # noqa: BLE001 - what a CPU cannot do is not tried elsewhere
            return False
        return True

    def _given(self, draw: InputDraw, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
        fixed = self.written.positions(args, kwargs)
        how = (draw.seed, draw.backward, None, False, fixed, draw.along)
        return describe(call(self.model, args, kwargs, *how))[0]

    def _fresh(self, draw: InputDraw) -> tuple[list[Any], dict[str, Any]]:
        """Return args and kwargs of a call, with copies of the inputs that it writes."""
        return fresh(draw.args, draw.kwargs, self.written.positions(draw.args, draw.kwargs))

    def _call(
        self,
        model: nn.Module,
        args: list[Any],
        kwargs: dict[str, Any],
        draw: InputDraw,
        under: AbstractContextManager[Any] | None = None,
        separate: bool = True,
    ) -> Any:
        """Call the reference or a variation of it, on copies of what it writes; those count as outputs."""
        fixed = self.written.positions(args, kwargs)
        args, kwargs = fresh(args, kwargs, fixed) if fixed else (args, kwargs)
        how = (draw.seed, draw.backward, under, separate, fixed, draw.along)
        returned = call(model, args, kwargs, *how)
        return Called(returned, self.written.values(args, kwargs)) if fixed else returned

    def _attempt(
        self, run: Callable[[], Any], left: Callable[[], nn.Module | None] | None = None
    ) -> Answer | None:
        """Return a variation's answer, with the buffers of the module that `left` returns."""
        try:
            result = run()
        except Exception:  # noqa: BLE001 - a module that cannot run in a variation is judged without it
            return None
        model = left() if left is not None else None
        return _answer(result, None if model is None else buffers_of(model))

    def _double_model(self) -> nn.Module | None:
        if not self._double_tried:
            self._double_tried = True
            try:
                self._double = in_float64(self.model)
            except Exception:  # noqa: BLE001 - as above
                self._double = None
        return self._double


def _answer(result: Any, buffers: Buffers | None = None) -> Answer:
    """Return a call's result in separate memory, since later calls change weights, inputs and memory that the reference keeps."""
    leaves, text = describe(result)
    return Answer([_own(leaf) for leaf in leaves], text, leaf_names(result), buffers or {})


def _own(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    leaf = leaf.detach()
    return (
        values_of(copied(memory_of(leaf)), layout_of(leaf))
        if leaf.layout is torch.strided
        else leaf.clone()
    )


def _versions(draw: InputDraw) -> list[int]:
    """Return version counters of all input tensors, which every in-place write changes."""
    named = named_tensors((draw.args, draw.kwargs))
    return [0 if t.is_inference() else t._version for _, t in named]


def _memory(leaf: Any) -> int:
    """Return the address of a strided tensor's memory; 0 for anything else."""
    return (
        leaf.untyped_storage().data_ptr()
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
        else 0
    )
