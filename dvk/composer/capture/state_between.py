"""Python state that parts left to PyTorch change: it is restored between attempts, and no graph may hold it."""

from __future__ import annotations

import copy
import functools
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch

from dvk.composer.capture import reads
from dvk.composer.capture.python_state import (
    ATOMS,
    MAX_DEPTH,
    StateChange,
    functions_in,
    functions_of,
    globals_of,
    is_library,
    lines_of,
    names_in,
    place_of,
)
from dvk.composer.ir.errors import CannotCompose


@contextmanager
def random_kept() -> Iterator[None]:
    """Restore the random states of Python and numpy after the block, so that the same numbers are drawn again."""
    state, numpy = random.getstate(), sys.modules.get("numpy")
    theirs = numpy.random.get_state() if numpy is not None else None
    try:
        yield
    finally:
        random.setstate(state)
        if numpy is not None:
            numpy.random.set_state(theirs)


@contextmanager
def kept(model: torch.nn.Module) -> Iterator[None]:
    """Restore the state that the model's code can reach by name: modules, classes, globals and their contents."""
    saved = _Saved()
    functions: list[FunctionType] = []
    for module in model.modules():
        saved.contents_of(vars(module))
        functions += [*functions_of(module), *functions_in(vars(module))]
        for kind in type(module).__mro__:
            if not is_library(kind):
                saved.attributes_of(kind)
    for space, name, value in list(globals_of(functions)):
        if isinstance(value, (*ATOMS, torch.Tensor, list, dict, set, tuple, deque)):
            saved.bound.append((space, name, value))
        if not callable(value) and type(value) is not type(sys):
            saved.contents_of(value)
    try:
        with random_kept():
            yield
    finally:
        saved.restore()


class _Saved:
    """Copies of containers, and what names are bound to."""

    def __init__(self) -> None:
        self.bound: list[tuple[Any, str, Any]] = []
        """(namespace or class, name, value)"""
        self._copies: list[tuple[Any, Any]] = []
        self._seen: set[int] = set()

    def attributes_of(self, kind: type) -> None:
        """Save a class."""
        for name, value in list(vars(kind).items()):
            if not name.startswith("__"):
                self.bound.append((kind, name, value))
                self.contents_of(value)

    def contents_of(self, value: Any, depth: int = 0) -> None:
        """Save a container, and those that it holds."""
        if (
            id(value) in self._seen
            or depth > MAX_DEPTH
            or isinstance(value, (torch.Tensor, type, *ATOMS))
        ):
            return
        self._seen.add(id(value))
        if isinstance(value, (list, dict, set, deque)):
            # Past methods of subclasses: some create what is looked up.
            saved = dict(dict.items(value)) if isinstance(value, dict) else copy.copy(value)
            self._copies.append((value, saved))
            for part in list(dict.values(value) if isinstance(value, dict) else value):
                self.contents_of(part, depth + 1)
        elif isinstance(value, tuple):
            for part in value:
                self.contents_of(part, depth + 1)
        elif (
            not is_library(type(value))
            and hasattr(value, "__dict__")
            and not isinstance(value, torch.nn.Module)
        ):
            self.contents_of(vars(value), depth + 1)

    def restore(self) -> None:
        """Bind the names and fill the containers as they were."""
        for owner, name, value in self.bound:
            if isinstance(owner, dict):
                owner[name] = value
            elif vars(owner).get(name) is not value:
                setattr(owner, name, value)
        for value, before in self._copies:
            _refill(value, before)


def _refill(value: Any, before: Any) -> None:
    """Give a container its earlier contents."""
    if isinstance(value, list):
        value[:] = before
    elif isinstance(value, dict):
        now = dict(dict.items(value))
        if now.keys() != before.keys() or any(now[k] is not v for k, v in before.items()):
            dict.clear(value)
            dict.update(value, before)
    else:
        value.clear()
        (value.extend if isinstance(value, deque) else value.update)(before)


def freed(changes: Iterable[StateChange], left: tuple[str, ...]) -> tuple[str, ...]:
    """The changed attributes, by path and name, except those of submodules that are left."""
    names = {
        (change.owner.removeprefix("self").removeprefix("."), change.name)
        for change in changes
        if change.owner[:4] == "self"
    }
    return tuple(
        sorted(
            f"{path}.{name}"
            for path, name in names
            if not any(f"{path}.".startswith(f"{one}.") for one in left)
        )
    )


@contextmanager
def unread(
    model: torch.nn.Module, changes: list[StateChange], left: tuple[str, ...], parts: Iterable[str]
) -> Iterator[None]:
    """Forbid captured code to read, during the block, what a part left to PyTorch has changed: a graph would hold the old value.

    Raises:
        CannotCompose: captured code reads it.
    """
    undo: list[Callable[[], None]] = []
    whose: dict[tuple[type, str], set[int]] = {}
    for change in changes:
        if change.owner == "self" or change.owner.startswith("self."):
            module = model.get_submodule(change.owner.removeprefix("self").removeprefix("."))
            whose.setdefault((type(module), change.name), set()).add(id(module))
        elif change.owner not in ("random", "numpy.random", ""):
            _check_unnamed(model, change, left, set(parts))
    try:
        for (kind, name), modules in whose.items():
            before = vars(kind).get(name)
            if before is None or not hasattr(before, "__set__"):
                setattr(kind, name, _forbidden(name, modules, getattr(kind, name, None)))
                undo.append(
                    functools.partial(delattr, kind, name)
                    if before is None
                    else functools.partial(setattr, kind, name, before)
                )
        yield
    finally:
        for one in undo:
            one()


def _forbidden(name: str, modules: set[int], otherwise: Any) -> property:
    def read(self: Any) -> Any:
        frame = reads.reader(sys._getframe(1))
        asker = str(frame.f_globals.get("__name__")).partition(".")[0]
        if id(self) in modules and asker not in ("torch", "dvk", "copy"):
            error = CannotCompose(f"forward() reads `{name}`, which changes from call to call")
            raise error
        held = vars(self)
        for space in (
            held,
            held.get("_parameters", {}),
            held.get("_buffers", {}),
            held.get("_modules", {}),
        ):
            if name in space:
                return space[name]
        if otherwise is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return otherwise

    def write(self: Any, value: Any) -> None:
        vars(self)[name] = value

    def remove(self: Any) -> None:
        del vars(self)[name]

    return property(read, write, remove)


def _check_unnamed(
    model: torch.nn.Module, change: StateChange, left: tuple[str, ...], parts: set[str]
) -> None:
    """Raise if captured code names a global or a class attribute that has changed."""
    functions = [
        f
        for path, module in model.named_modules()
        if not any(f"{path}.".startswith(f"{one}.") for one in left)
        for f in (*functions_of(module), *functions_in(vars(module)))
    ]
    known: set[int] = set()
    while functions:
        function = functions.pop()
        if (
            id(function) in known
            or function.__name__ in parts
            or _is_library_name(str(function.__module__))
        ):
            continue
        known.add(id(function))
        if lines := lines_of([function.__code__], change.name):
            error = CannotCompose(
                f"forward() reads `{change.name}`, which changes from call to call{place_of(lines)}"
            )
            error.lines = lines
            raise error
        functions += [
            value
            for name in names_in(function.__code__)
            if isinstance(value := function.__globals__.get(name), FunctionType)
        ]


def _is_library_name(module: str) -> bool:
    root = module.partition(".")[0]
    return root in ("torch", "dvk") or root in sys.stdlib_module_names
