"""Eager run of a module: results of calls left to PyTorch, answers about values, and changes of state."""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch

from dvk.composer.capture.calling import ModuleCall
from dvk.composer.capture.eager_calls import (
    CallRecording,
    CallSite,
    ObservedCall,
    StepRefused,
    answering,
    given,
    paths_of,
    replaced,
)
from dvk.composer.capture.python_state import take_snapshot, watched
from dvk.composer.capture.state_between import random_kept
from dvk.composer.ir import structures
from dvk.composer.ir.errors import CannotCompose

log = logging.getLogger(__name__)

MAX_COMPARED = 20_000_000
"""Elements of weights that are compared before and after a call: `data` and numpy write without a version bump."""


def recorded(
    call: ModuleCall,
    places: Collection[CallSite],
    *,
    answers: bool,
    parts: dict[str, str] | None = None,
    is_strict: bool = True,
) -> CallRecording:
    """Run a copy of the module once, eagerly. If `is_strict`, the functions `parts` may return no plain values.

    Raises:
        StepRefused: a place cannot be a step.
        CannotCompose: the run itself raised.
    """
    recording = CallRecording(
        places, answers=[] if answers else None, parts=parts or {}, is_strict=is_strict
    )
    with (
        torch.random.fork_rng(
            [d for d in {t.device for t in call.tensors.values()} if d.type == "cuda"]
        ),
        torch.no_grad(),
    ):
        try:
            # Hooks such as weight_norm's store results as attributes, which do not copy by themselves.
            kept = [
                value
                for module in call.model.modules()
                for value in vars(module).values()
                if isinstance(value, torch.Tensor)
            ]
            model = copy.deepcopy(
                call.model, {id(t): t.detach().clone() for t in kept if not t.is_leaf}
            )
        except Exception as error:  # noqa: BLE001 - copying runs the user's code
            raise CannotCompose(
                f"the module cannot be copied: {type(error).__name__}: {error}"
            ) from None
        args, kwargs = call.arguments([t.detach().clone() for t in call.tensors.values()])
        noting = _Noting(recording, call.home, model)
        with (
            watched(model, recording.changes),
            replaced(model, places, noting.called, call.home),
            answering(noting.told, answers),
        ):
            noting.run(args, kwargs, call if parts and is_strict else None)
    return recording


class _Noting:
    """Behaviour of the eager run at a place."""

    def __init__(self, recording: CallRecording, home: dict[str, Any], model: torch.nn.Module):
        self.recording, self.home, self.depth = recording, home, 0
        self.model, self.paths = model, paths_of(model)
        self.replayed: Iterator[ObservedCall] | None = None
        self.compared: dict[int, int] = {}
        self.held = {
            **dict(model.named_parameters(remove_duplicate=False)),
            **dict(model.named_buffers(remove_duplicate=False)),
        }
        self.is_small = sum(t.numel() for t in self.held.values()) < MAX_COMPARED
        self.modes = _modes()
        self.asked: dict[tuple[int, int], Any] = {}

    def run(self, args: Any, kwargs: Any, again: ModuleCall | None) -> None:
        """Call the module, and where `again` is given, with other values too.

        Raises:
            CannotCompose: see `recorded`.
        """
        try:
            with random_kept():
                self.model.forward(*args, **kwargs)
                if again is not None:
                    self.again(again)
        except CannotCompose:
            raise
        except Exception as error:  # a module of any kind may break any part of the capture
            raise CannotCompose(f"forward() raised {type(error).__name__}: {error}") from error

    def again(self, call: ModuleCall) -> None:
        """Call the module with other values, twice: a part must return the same kind each time.

        Raises:
            StepRefused: the kinds differ.
        """
        for seed in (1, 2):
            self.replayed = iter(self.recording.calls)
            generator = torch.Generator().manual_seed(seed)
            args, kwargs = call.arguments([_otherwise(t, generator) for t in call.tensors.values()])
            try:
                self.model.forward(*args, **kwargs)
            except StepRefused:
                raise
            except Exception as error:  # noqa: BLE001 - the user's code may reject these values
                log.debug("with other values: %s", error)
                self.compared.clear()
        for number, noted in enumerate(self.recording.calls):
            noted.is_steady = self.compared.get(number) == 2

    def _compared(self, place: CallSite, result: Any) -> Any:
        """Compare a result with the recorded result of the same call."""
        noted = next(self.replayed, None) if self.replayed is not None else None
        if noted is None or noted.place != place:
            self.replayed = iter(())
        elif place.name in self.recording.parts:
            was, now = (list(v) if type(v) is tuple else [v] for v in (noted.result, result))
            bad = [
                n
                for n, (a, b) in enumerate(zip(was, now, strict=False))
                if _kind(a, self.home) != _kind(b, self.home)
            ]
            if bad or len(was) != len(now):
                raise StepRefused(
                    place, "returns tensors of other sizes or types for other inputs", (), bad
                )
            number = next(n for n, one in enumerate(self.recording.calls) if one is noted)
            self.compared[number] = self.compared.get(number, 0) + 1
        return result

    def told(self, tensor: torch.Tensor, answer: Callable[[], bool]) -> bool:
        value = answer()
        if not self.depth and self.replayed is None:
            assert self.recording.answers is not None
            self.recording.answers.append(value)
            frame = sys._getframe(3)
            place = id(frame), frame.f_lineno
            self.recording.repeated |= place in self.asked
            self.asked[place] = frame  # kept, so that no other frame gets its identity
        return value

    def called(self, place: CallSite, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self.depth:
            return function(*args, **kwargs)
        if self.replayed is not None:
            self.depth += 1
            try:
                result = function(*args, **kwargs)
            finally:
                self.depth -= 1
            return self._compared(place, result)
        is_part = place.name in self.recording.parts
        if _modes() != self.modes:
            raise StepRefused(place, "runs under another autograd or autocast mode than the module")
        values = [*args, *kwargs.values()]
        before = self._given(place, values)
        tensors = given(args, kwargs, self.home, self.paths)[1]
        versions = [(t._version, t.detach().clone()) for t in tensors]
        drawn, python = _random_state(), take_snapshot(self.model) if is_part else {}
        held = {
            name: (t._version, t.detach().clone() if self.is_small else t)
            for name, t in self.held.items()
        }
        self.depth += 1
        try:
            result = function(*args, **kwargs)
        finally:
            self.depth -= 1
        after = self._given(place, values)
        changed = {
            id(t)
            for t, (version, was) in zip(tensors, versions, strict=True)
            if t._version != version or not _is_same(t, was)
        }
        if inputs := [
            n
            for n, (a, b) in enumerate(zip(before, after, strict=True))
            if a[0] != b[0]
            or any(x is not y or id(x) in changed for x, y in zip(a[1], b[1], strict=True))
        ]:
            raise StepRefused(place, "changes its arguments", inputs)
        tree, leaves = self._result(place, result, is_part)
        written = {
            name
            for name, t in self.held.items()
            if t._version != held[name][0] or not _is_same(t, held[name][1])
        }
        self.recording.written |= written
        effects = is_part and (
            drawn != _random_state() or bool(written) or python != take_snapshot(self.model)
        )
        paths = tuple(sorted(written))
        noted = ObservedCall(place, result, tree, leaves, has_effects=effects, written=paths)
        self.recording.calls.append(noted)
        return result

    def _result(
        self, place: CallSite, result: Any, is_part: bool
    ) -> tuple[Any, list[tuple[str, torch.Tensor]]]:
        """The encoded result and its tensors."""
        bad: list[int] = []
        why, is_plain = "", False
        for number, part in enumerate(result if is_part and type(result) is tuple else [result]):
            try:
                tree, leaves = structures.taken(part, "r", self.home)
                if any(t.layout is not torch.strided or t.is_nested for _, t in leaves):
                    raise CannotCompose("tensors without strides")
                if is_part and self.recording.is_strict and _has_values(tree):
                    is_plain = True
                    raise CannotCompose("a plain value, which may be another one for other inputs")
            except CannotCompose as error:
                bad.append(number)
                why = why or str(error)
        if bad:
            raise StepRefused(
                place, f"returns what no step of a graph can: {why}", (), bad, is_plain
            )
        return structures.taken(result, "r", self.home)

    def _given(self, place: CallSite, values: list[Any]) -> list[tuple[Any, list[torch.Tensor]]]:
        """Each argument encoded, with its tensors."""
        result: list[tuple[Any, list[torch.Tensor]]] = []
        bad: list[int] = []
        why = ""
        for number, value in enumerate(values):
            try:
                result.append(given((value,), {}, self.home, self.paths)[:2])
            except CannotCompose as error:
                bad.append(number)
                why = why or str(error)
        if bad:
            raise StepRefused(place, f"takes an argument that a drop-in cannot build: {why}", bad)
        return result


def _kind(value: Any, home: dict[str, Any]) -> Any:
    """The part of a result that conditions see."""
    try:
        tree, leaves = structures.taken(value, "r", home)
    except CannotCompose:
        return None
    return tree, [(t.shape, t.dtype) for _, t in leaves]


def _otherwise(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A tensor of the same kind with other values."""
    plain = tensor.detach().cpu()
    if plain.dtype is torch.bool:
        made = torch.rand(plain.shape, generator=generator) < 0.5
    elif plain.dtype.is_floating_point:
        spread = plain.double().std().nan_to_num(1.0) if plain.numel() > 1 else 1.0
        made = torch.randn(
            plain.shape, generator=generator, dtype=torch.float64
        ) * spread + plain.double().mean().nan_to_num(0.0)
    else:
        made = plain.flatten()[torch.randperm(plain.numel(), generator=generator)].view(plain.shape)
    return torch.empty_like(tensor).copy_(made.to(tensor.dtype))


def _has_values(tree: Any) -> bool:
    if isinstance(tree, dict):
        return tree.get("value") is not None or any(map(_has_values, tree.values()))
    return isinstance(tree, list) and any(map(_has_values, tree))


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.layout is not torch.strided or a.is_quantized:
        return True
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _modes() -> tuple[Any, ...]:
    """State that a call depends on and its arguments do not show."""
    kinds = ("cpu", "cuda")
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        *((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds),
    )


def _random_state() -> list[Any]:
    states = [
        torch.get_rng_state(),
        *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []),
    ]
    return [state.numpy().tobytes() for state in states]
