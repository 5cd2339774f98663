"""Choose what to leave to PyTorch so that the rest of a module can be captured.

A module that is captured whole is traced once and nothing here runs. Otherwise the traceback names the innermost submodule, method or
function that broke the capture: it is left to PyTorch (`eager_calls`), and the capture is tried again. Submodules with hooks are left from
the beginning, as are attention layers for which eager PyTorch would choose a fused kernel under a mask.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from dvk.composer.capture.attention_layers import fused_attention_layers, is_fake
from dvk.composer.capture.blame import innermost_user_line
from dvk.composer.capture.call_sites import (
    candidates,
    children,
    hooked_submodules,
    outward,
    same_class_places,
    scripted_submodules,
)
from dvk.composer.capture.calling import ModuleCall
from dvk.composer.capture.eager_calls import CallRecording, CallSite, StepRefused
from dvk.composer.capture.eager_run import recorded
from dvk.composer.capture.python_state import take_snapshot
from dvk.composer.capture.state_between import kept
from dvk.composer.capture.statement_runs import PREFIX, Parts
from dvk.composer.ir.errors import CannotCompose, ChangesState, NothingToFuse
from dvk.records import Graph

MAX_TRIES = 16
"""Captures of one module, each of which leaves more to PyTorch."""
MAX_PARTS = 60
"""Captures of one module if statements are left, in all: a run of statements grows by a few at a time."""

log = logging.getLogger(__name__)


Trace = Callable[[CallRecording | None], Any]


def captured(call: ModuleCall, trace: Trace) -> Any:
    """Capture a call with `trace`, leaving as little as possible to PyTorch.

    Raises:
        CannotCompose: the first reason, if leaving code to PyTorch does not help.
    """
    if (
        torch.nn.modules.module._global_forward_hooks
        or torch.nn.modules.module._global_forward_pre_hooks
    ):
        raise CannotCompose("hooks on all modules are set")
    quick = fused_attention_layers(call)
    left = [*hooked_submodules(call.model), *scripted_submodules(call.model), *quick]
    search = _Search(call, dict.fromkeys(left))
    if is_fake(call):
        if search.places:
            raise CannotCompose(
                f"`{next(iter(search.places))}` has hooks, which need the module to run"
            )
        return trace(None)
    before = take_snapshot(call.model)
    try:
        return _searched(search, trace, iter(range(MAX_TRIES)))
    except CannotCompose as error:
        first = error
        if take_snapshot(call.model) != before:
            raise _with_remedy(first, quick) from first.__cause__
    tries = iter(range(MAX_PARTS))
    for is_strict in (True, False):
        search = _Search(call, dict.fromkeys(left), Parts(call.home), is_strict)
        try:
            return _searched(search, trace, tries)
        except CannotCompose as error:
            log.debug("parts of functions (strict: %s): %s", is_strict, error)
            first = error if _says_more(error, first) else first
        if (
            not search.has_plain
        ):  # without parts that return plain values, the same would be tried again
            break
    raise _with_remedy(first, quick) from first.__cause__


def _says_more(error: CannotCompose, first: CannotCompose) -> bool:
    """It is the same reason with the line, which the first attempt does not know."""
    return len(str(error)) > len(str(first)) and str(error).startswith(str(first))


def _searched(search: _Search, trace: Trace, tries: Iterator[int]) -> Any:
    """Capture with `trace`, leaving more to PyTorch at each attempt.

    Args:
        tries: numbers of the attempts that may be made.

    Raises:
        CannotCompose: the first reason, if leaving code to PyTorch does not help.
    """
    first: CannotCompose | None = None
    before = take_snapshot(search.call.model)
    for number in tries:
        try:
            with kept(search.call.model):
                if made := search.attempt(
                    trace, whole=not number and not search.places and search.parts is None
                ):
                    return made[0]
        except CannotCompose as error:
            log.debug("attempt %d: %s", number, error)
            first = error if first is None or _says_more(error, first) else first
            # If the state is not fully restored, another attempt would find changes already made that it must see.
            if take_snapshot(search.call.model) != before or not search.goes_on_after(error):
                raise first from first.__cause__
    raise first or CannotCompose("the cause of the failed capture is unknown")


REMEDY = "moved into a separate submodule, that code is left to PyTorch and the rest is fused"


FUSED = (
    "PyTorch has fused functions for these attention layers in eval mode, on nested tensors under a padding mask; "
    "`torch.backends.mha.set_fastpath_enabled(False)` in the file makes them operators that can be fused, and the reference slower"
)
OUTPUTS = "return tensors in tuples, dicts or dataclasses (in transformers: `return_dict=False`, `use_cache=False`)"


def _with_remedy(error: CannotCompose, quick: Collection[CallSite]) -> CannotCompose:
    """The error with the usual remedy.

    Args:
        quick: attention layers that are left because PyTorch has one function for them.
    """
    remedy = (
        FUSED
        if quick and isinstance(error, NothingToFuse)
        else OUTPUTS
        if "output" in str(error)
        else REMEDY
    )
    remedied = CannotCompose(f"{error}; {remedy}", error.traceback)
    remedied.path = error.path
    return remedied


class _Search:
    """The code to leave to PyTorch, extended as attempts fail.

    Attributes:
        places: left so far.
        answers: questions that forward() asks of values get the answers of the recorded run.
        has_plain: some part would have returned a plain value, which `is_strict` forbids.
    """

    def __init__(
        self,
        call: ModuleCall,
        places: dict[CallSite, None],
        parts: Parts | None = None,
        is_strict: bool = True,
    ):
        self.call, self.places, self.parts, self.is_strict = call, places, parts, is_strict
        self.answers = False
        self.has_plain = False
        self.refused: set[CallSite] = set()
        self.asking: list[CallSite] = []
        """Locations of questions about values, from the error raised before they had answers."""
        self.untried = [CallSite(path) for path in children(call.model)]

    def attempt(self, trace: Trace, *, whole: bool) -> tuple[Any, ...]:
        """Return the result of `trace`, of the module as it is if `whole`; empty if a run shows more to leave to PyTorch."""
        if whole:
            return (trace(None),)
        with self.installed():
            recording = self.recorded()
            return () if self.is_routed(recording) else (trace(recording),)

    def installed(self) -> AbstractContextManager[None]:
        return self.parts.installed() if self.parts is not None else nullcontext()

    def recorded(self) -> CallRecording:
        made = self.parts.texts() if self.parts is not None else {}
        places = [*self.places, *(CallSite(name=name, module="") for name in made)]
        return recorded(
            self.call, places, answers=self.answers, parts=made, is_strict=self.is_strict
        )

    def is_routed(self, recording: CallRecording) -> bool:
        """Leave a submodule that asks the same question repeatedly in one call, and continue the search.

        Its answers choose among experts, and change with every input.
        """
        if not recording.repeated or not self._leave(self.asking):
            return False
        self.answers, self.asking = False, []
        return True

    def goes_on_after(self, error: CannotCompose) -> bool:
        """Change the code left to PyTorch, or the answers, after an attempt that ended in `error`; False if no choice remains."""
        self.has_plain = self.has_plain or isinstance(error, StepRefused) and error.is_plain
        if (
            isinstance(error, StepRefused)
            and self.parts is not None
            and (at := self.parts.find(error.place.name))
        ):
            return at[0].grow(at[1], error.inputs, error.outputs) or self.parts.leave(error)
        if (
            self.parts is not None
            and not isinstance(error, StepRefused)
            and self.parts.leave(error)
        ):
            return True
        if isinstance(error, StepRefused):
            self.refused.add(error.place)
            self.places.pop(error.place, None)
            return self._leave(outward(error.place, self.call))
        if isinstance(error, ChangesState) and not error.path:
            return False
        repairs = list(candidates(error, self.call))
        if not self.answers and _is_about_values(error):
            self.answers, self.asking = True, repairs
            return True
        if isinstance(error, Unrepeatable) and self._leave(self.asking):
            self.answers, self.asking = False, []
            return True
        if self._leave(repairs):
            return True
        if not repairs and not innermost_user_line(error.__cause__ or error) and error.path is None:
            # The location is unknown.
            while self.untried:
                place = self.untried.pop(0)
                if self._leave([place]):
                    return True
        return False

    def _leave(self, places: Iterable[CallSite]) -> bool:
        for place in places:
            if place not in self.refused and place not in self.places:
                self.places.update(
                    dict.fromkeys(
                        one
                        for one in same_class_places(place, self.call.model)
                        if one not in self.refused
                    )
                )
                return True
        return False


def _is_about_values(error: BaseException) -> bool:
    chain = [error, error.__cause__, error.__context__]
    return any(
        one is not None and ("data-dependent" in str(one) or "DataDependent" in type(one).__name__)
        for one in chain
    )


def is_worthwhile(graph: Graph) -> bool:
    """Some operator of the graph can become a kernel."""
    from dvk.composer.ir.effects import is_view, packet_of
    from dvk.composer.lowering import CODEGEN_RULES, RULES

    return any(
        packet_of(n.op) in RULES or packet_of(n.op) in CODEGEN_RULES
        for n in graph.nodes
        if n.op.startswith("aten.") and not is_view(n)
    )


class Unrepeatable(CannotCompose):
    """A program would fall back to the original too late."""


def check_repeatable(graph: Graph) -> None:
    """Refuse a graph that may fall back to the original after an effect that must not happen twice.

    Raises:
        CannotCompose: the graph asks for a value after a write, after random numbers, or after a call left to PyTorch in train mode.
    """
    from dvk.composer.ir.effects import draws, written

    before, once = "", False
    for node in graph.nodes:
        once = once or bool(node.kwargs.get("once"))
        if node.op == "expect" and (before or once):
            raise Unrepeatable(
                f"a value is asked for after {before or 'state has changed'}, which must not happen twice"
            )
        is_part = node.op == "left" and str(node.kwargs["place"][2]).startswith(PREFIX)
        if is_part and (once or before) and not node.kwargs.get("steady"):
            raise Unrepeatable(
                f"`{node.kwargs['place'][2]}` may return other kinds of values, after {before or 'state has changed'}"
            )
        if written(node) or draws(node) or (node.op == "left" and graph.training):
            before = node.op
