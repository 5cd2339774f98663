"""Calls inside forward() that are left to PyTorch, as steps of an otherwise captured graph.

A place is a submodule, a method of a module or a function. The module runs once unchanged (`recorded`), and the run records every call at a
place with its result. During tracing such a call becomes one operator, `dvk::left`, whose result is known from that run. In the drop-in the
step calls the user's own code, and the program falls back to the original if the result differs from the recorded kind.

The same run answers the questions that forward() asks of values (`if x.isnan().any()`): a graph has no branches, so the answers become
conditions.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from dvk.composer.capture.calling import ModuleCall
from dvk.composer.capture.python_state import StateChange
from dvk.composer.ir import structures
from dvk.composer.ir.errors import CannotCompose


@dataclass(frozen=True)
class CallSite:
    """A place that is left to PyTorch wherever it is called.

    Attributes:
        path: path of a module; empty for the model itself and for functions.
        name: name of a method; empty for a whole module.
        module: import path of a function; None for members of a module.
    """

    path: str = ""
    name: str = ""
    module: str | None = None

    def __str__(self) -> str:
        return ".".join(part for part in (self.module, self.path, self.name) if part)


class StepRefused(CannotCompose):
    """A place cannot be a step of a graph: it writes its arguments, or returns a value that cannot be described.

    Attributes:
        inputs: positions of the arguments that are the reason, if any.
        outputs: paths of the parts of the result that are the reason, if any.
        is_plain: the reason is a plain value in the result.
    """

    def __init__(
        self,
        place: CallSite,
        why: str,
        inputs: Collection[int] = (),
        outputs: Collection[int] = (),
        is_plain: bool = False,
    ):
        super().__init__(f"`{place}` {why}")
        self.place, self.inputs, self.outputs, self.is_plain = place, inputs, outputs, is_plain


@dataclass
class ObservedCall:
    """One call at a place: its encoded result and the tensors of the result."""

    place: CallSite
    result: Any
    tree: Any
    leaves: list[tuple[str, torch.Tensor]]
    is_steady: bool = False
    """The result had the same kind for other inputs and on a second call."""
    has_effects: bool = False
    """The call must not run twice: it draws random numbers, writes the module's tensors, or changes Python state."""
    written: tuple[str, ...] = ()
    """Paths of the weights and buffers that it wrote."""


@dataclass
class CallRecording:
    """Observations of one run of the module, in order."""

    places: Collection[CallSite] = ()
    calls: list[ObservedCall] = field(default_factory=list)
    answers: list[bool] | None = None
    """Answers that forward() got about values; None if it must not get any."""
    is_known: bool = True
    """The run took place; else no call is left, and no run is needed."""
    repeated: bool = False
    """One line asked more than once in one call of its function."""
    parts: dict[str, str] = field(default_factory=dict)
    """Functions that were made of statements: name → text."""
    is_strict: bool = True
    """Parts may return no plain values: a program would fall back whenever they differ."""
    written: set[str] = field(default_factory=set)
    """Weights and buffers that a call has written: other code may not read them, since it would see the old values."""
    changes: list[StateChange] = field(default_factory=list)
    """Python state that the run has changed."""


_library: list[torch.library.Library] = []
_current: list[CallRecording] = []
"""The recording of the current trace."""


def _operators() -> None:
    """Register `dvk::left` and `dvk::asked`, once per process."""
    if _library:
        return
    library = torch.library.Library("dvk", "DEF")
    library.define("left(Tensor[] tensors, SymInt[] numbers, int call) -> Tensor[]")
    library.define("asked(Tensor value, bool answer) -> Tensor")

    def left(tensors: Any, numbers: Any, call: int) -> list[torch.Tensor]:
        like = [t for _, t in _current[-1].calls[call].leaves]
        return [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) for t in like
        ]

    def left_really(tensors: Any, numbers: Any, call: int) -> list[torch.Tensor]:
        return [
            t.clone()
            if t.is_contiguous()
            else torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t)
            for _, t in _current[-1].calls[call].leaves
        ]

    def asked(value: torch.Tensor, answer: bool) -> torch.Tensor:
        return torch.empty_like(value, dtype=torch.bool)

    library.impl("left", left_really, "CompositeExplicitAutograd")
    library.impl("asked", asked, "CompositeExplicitAutograd")
    torch.library.register_fake("dvk::left", left, lib=library)
    torch.library.register_fake("dvk::asked", asked, lib=library)
    torch.fx.node._side_effectful_functions |= {
        torch.ops.dvk.left.default,
        torch.ops.dvk.asked.default,
    }
    _library.append(library)


def paths_of(model: torch.nn.Module) -> dict[int, str]:
    """Map the identity of every module to its path."""
    return {id(module): path for path, module in model.named_modules()}


def given(
    args: Any, kwargs: Any, home: dict[str, Any], paths: dict[int, str]
) -> tuple[Any, list[Any], list[Any]]:
    """Encode the arguments of a call: indices stand for tensors and, after those, for symbolic numbers; `paths` name modules."""
    tensors: list[Any] = []
    numbers: list[Any] = []

    def leaf(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return {"ref": len(tensors) - 1}
        if isinstance(value, torch.SymInt):
            numbers.append(value)
            return {"ref": -len(numbers)}
        return {"module": paths[id(value)]} if id(value) in paths else None

    tree = structures.StructureEncoder(leaf, home).encode((args, kwargs))
    return tree, tensors, numbers


class Tracing:
    """Replacements for places and questions during a trace.

    Attributes:
        given: the encoded arguments of every call at a place.
    """

    def __init__(self, call: ModuleCall, recording: CallRecording):
        self.call, self.recording = call, recording
        self.given: list[Any] = []
        self.num_answers = 0
        self.paths = paths_of(call.model)

    @contextmanager
    def known(self) -> Iterator[None]:
        """Make the stand-in operators return what was recorded."""
        _operators()
        _current.append(self.recording)
        try:
            yield
        finally:
            _current.pop()

    @contextmanager
    def meanwhile(self) -> Iterator[None]:
        """Turn calls at the places into steps, and answer questions as in the recording."""
        self.given, self.num_answers = [], 0
        places, answered = self.recording.places, self.recording.answers is not None
        with (
            self.known(),
            replaced(self.call.model, places, self.called, self.call.home, tracing=True),
            answering(self.told, answered),
        ):
            yield

    def called(self, place: CallSite, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        number = len(self.given)
        if number >= len(self.recording.calls) or self.recording.calls[number].place != place:
            raise CannotCompose(f"`{place}` is called in another order during tracing")
        try:
            tree, tensors, numbers = given(args, kwargs, self.call.home, self.paths)
        except CannotCompose as error:
            bad = [
                n for n, value in enumerate([*args, *kwargs.values()]) if not self._can_give(value)
            ]
            raise StepRefused(
                place, f"takes an argument that a drop-in cannot build: {error}", bad
            ) from None
        self.given.append(tree)
        noted = self.recording.calls[number]
        made = torch.ops.dvk.left(tensors, numbers, number)
        results = iter(made)
        return structures.filled(noted.result, lambda _: next(results))

    def _can_give(self, value: Any) -> bool:
        try:
            given((value,), {}, self.call.home, self.paths)
        except CannotCompose:
            return False
        return True

    def told(self, tensor: torch.Tensor, answer: Callable[[], bool]) -> bool:
        answers = self.recording.answers or []
        if self.num_answers >= len(answers):
            raise CannotCompose("values are read in another order during tracing")
        value = answers[self.num_answers]
        self.num_answers += 1
        torch.ops.dvk.asked(tensor, value)
        return value

    def step(self, number: int, tensors: Sequence[Any], numbers: Sequence[Any]) -> dict[str, Any]:
        """Describe a call for the graph: the place, the arguments as a tree of the graph's values, and the expected result."""

        def of(tree: Any) -> Any:
            if isinstance(tree, dict):
                if set(tree) == {"ref"}:
                    return tensors[tree["ref"]] if tree["ref"] >= 0 else numbers[-tree["ref"] - 1]
                return {key: of(part) for key, part in tree.items()}
            return [of(part) for part in tree] if isinstance(tree, list) else tree

        noted = self.recording.calls[number]
        shapes = {
            path: [list(t.shape), list(t.stride()), str(t.dtype).removeprefix("torch.")]
            for path, t in noted.leaves
        }
        place = noted.place
        once = {"once": True} if noted.has_effects else {}
        once |= {"steady": True} if noted.is_steady else {}
        writes = {"writes": [*noted.written]} if noted.written else {}
        return {
            "place": [place.module, place.path, place.name],
            "given": of(self.given[number]),
            **once,
            **writes,
            "result": json.dumps({"tree": noted.tree, "shapes": shapes}),
        }  # as text: its names are not the graph's


@contextmanager
def replaced(
    model: torch.nn.Module,
    places: Collection[CallSite],
    called: Callable[..., Any],
    home: dict[str, Any],
    *,
    tracing: bool = False,
) -> Iterator[None]:
    """Route calls at the places through `called(place, function, args, kwargs)`; traced calls of whole modules include their hooks."""
    whole = {
        id(model.get_submodule(place.path)): place
        for place in places
        if place.module is None and not place.name
    }
    real = torch.nn.Module.__call__
    undo: list[Callable[[], object]] = []

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        place = whole.get(id(self))
        if place is None:
            return real(self, *args, **kwargs)
        return called(place, lambda *a, **k: real(self, *a, **k), args, kwargs)

    def through(place: CallSite, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: called(place, function, args, kwargs)

    def route(place: CallSite) -> Iterator[Callable[[], object]]:
        """Have calls at the place go through `called`; yields what takes each change back."""
        owner = model.get_submodule(place.path)
        if isinstance(owner, torch.jit.ScriptModule) and tracing:
            yield from _swap_submodule(model, owner, through(place, owner))
        elif id(owner) in whole and not place.name and tracing:
            # The tracer calls modules by another path, which ends in their forward.
            kept = {
                key: owner.__dict__.get(key)
                for key in ("forward", "_forward_hooks", "_forward_pre_hooks")
            }
            yield partial(_restore, owner, kept)
            owner.__dict__.update(
                _forward_hooks=OrderedDict(),
                _forward_pre_hooks=OrderedDict(),
                forward=through(place, owner.forward),
            )
        elif place.module is not None:
            function = structures.resolved([place.module, place.name], home)
            yield from _swap_global(function, through(place, function), home)
        elif place.name:
            owner.__dict__[place.name] = through(place, getattr(owner, place.name))
            yield partial(owner.__dict__.pop, place.name)

    try:
        if whole and not tracing:
            torch.nn.Module.__call__ = call  # type: ignore[method-assign]
        for place in places:
            for back in route(place):
                undo.append(back)
        yield
    finally:
        torch.nn.Module.__call__ = real  # type: ignore[method-assign]
        for one in undo:
            one()


class _StandIn(torch.nn.Module):
    """Stand-in for a module without a forward to replace."""

    def __init__(self, call: Callable[..., Any]):
        super().__init__()
        self.forward = call


def _swap_submodule(
    model: torch.nn.Module, owner: torch.nn.Module, call: Callable[..., Any]
) -> Iterator[Callable[[], object]]:
    """Put a stand-in that makes `call` wherever `model` holds `owner`; yields what takes each back."""
    for parent in model.modules():
        for name in [name for name, held in parent._modules.items() if held is owner]:
            parent._modules[name] = _StandIn(call)
            yield partial(parent._modules.update, {name: owner})


def _swap_global(
    function: Any, call: Callable[..., Any], home: dict[str, Any]
) -> Iterator[Callable[[], object]]:
    """Put `call` wherever a loaded module, or `home`, has `function` as a global; yields what takes each back."""
    for space in [
        home,
        *(vars(module) for module in list(sys.modules.values()) if isinstance(module, type(sys))),
    ]:
        for name in [name for name, held in list(space.items()) if held is function]:
            space[name] = call
            yield partial(space.update, {name: function})


def _restore(owner: Any, kept: dict[str, Any]) -> None:
    for key, held in kept.items():
        if held is None:
            owner.__dict__.pop(key, None)
        else:
            owner.__dict__[key] = held


INTERNAL = (
    "torch._",
    "torch.fx",
    "torch.export",
    "torch.utils",
    "torch.library",
    "torch.autograd",
    "torch.overrides",
    "torch.random",
)


@contextmanager
def answering(
    told: Callable[[torch.Tensor, Callable[[], bool]], bool], wanted: bool
) -> Iterator[None]:
    """Let `answered` decide the truth value of a tensor if code outside torch's machinery asks for it."""
    if not wanted:
        yield
        return
    kind: Any = torch.Tensor
    real = kind.__bool__

    def ask(self: Any) -> bool:
        asker = str(sys._getframe(1).f_globals.get("__name__"))
        if asker.startswith(INTERNAL) or asker == "torch":
            return real(self)
        return told(self, lambda: real(self))

    kind.__bool__ = ask
    try:
        yield
    finally:
        del kind.__bool__
