"""Python state that a call of forward() changes: counters, caches, globals, class attributes, assigned buffers.

A graph holds none of it. Snapshots before and after the call are compared. They cover everything that the module's code can reach by name:
attributes of modules and of their classes, the globals next to these, and the containers and plain objects in all of them. Tensor values
are excluded: writes into those are operators.
"""

from __future__ import annotations

import dis
import functools
import inspect
import os
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch

from dvk.composer.ir.errors import CannotCompose, ChangesState

MAX_SEEN = 200_000
"""Maximum number of values in one snapshot; values beyond it are not compared."""
MAX_DEPTH = 8
ATOMS = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    slice,
    torch.dtype,
    torch.device,
    torch.Size,
    type(None),
)
CONTAINERS = (list, tuple, dict, set, frozenset, deque)


@dataclass(frozen=True)
class StateChange:
    """A change that a call made."""

    path: str
    """Path of the module whose attribute it is or whose code names it; empty for the model itself."""
    text: str
    """The change and its line in the source."""
    name: str = ""
    """Name of the attribute or global."""
    owner: str = ""
    """Owner: `self` followed by the path of a module, a class or a file."""
    lines: tuple[tuple[str, int], ...] = ()
    """File and line of the code that names it."""
    is_cache: bool = False
    """A dictionary outside the module has grown, and kept its items."""


class _Same:
    """A value that equals only itself."""

    def __init__(self, value: object):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]


class _Snapshot:
    def __init__(self) -> None:
        self.seen: dict[int, object] = {}

    def of(self, value: Any, depth: int = 0) -> object:
        """A key that equals that of a later snapshot if the value is unchanged."""
        if isinstance(value, ATOMS):
            return type(value), value
        if isinstance(value, torch.Tensor):
            return _Same(value), value.requires_grad
        if id(value) in self.seen or depth > MAX_DEPTH or len(self.seen) > MAX_SEEN:
            return _Same(value)
        self.seen[id(value)] = value
        if isinstance(value, dict):
            return type(value), [
                (self.of(k, depth + 1), self.of(v, depth + 1)) for k, v in list(dict.items(value))
            ]
        if isinstance(value, (set, frozenset)):
            return type(value), len(value), {id(v) for v in value}
        if isinstance(value, CONTAINERS):
            return type(value), [self.of(v, depth + 1) for v in list(value)]
        kind = type(value)
        if kind is FunctionType and not str(value.__module__).startswith(("torch.", "dvk.")):
            cells = [_contents(cell) for cell in value.__closure__ or ()]
            return _Same(value), [
                self.of(v, depth + 1)
                for v in (vars(value), cells, value.__defaults__, value.__kwdefaults__)
            ]
        if kind.__module__ == "itertools":
            return kind, repr(value)
        if isinstance(value, random.Random):
            return _Same(value), value.getstate()
        if (
            isinstance(value, (torch.nn.Module, ModuleType, type))
            or is_library(kind)
            or not hasattr(value, "__dict__")
        ):
            return _Same(value)
        return _Same(value), self.of(vars(value), depth + 1)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return None


def is_library(kind: type) -> bool:
    root = kind.__module__.partition(".")[0]
    return root in ("torch", "numpy", "dvk") or (
        root in sys.stdlib_module_names and kind is not SimpleNamespace
    )


Names = dict[tuple[str, str], Any]
"""Snapshots by location (a path after `self`, a class or a file) and name."""


def take_snapshot(model: torch.nn.Module) -> Names:
    """Snapshot everything that the model's code can reach by name."""
    snapshot = _Snapshot()
    result: Names = {}
    kinds: dict[type, None] = {}
    functions: list[FunctionType] = []
    for path, module in model.named_modules():
        where = f"self.{path}" if path else "self"
        held = vars(module)
        for name, value in held.items():
            if name in ("_parameters", "_buffers", "_modules"):
                result.update({(where, key): snapshot.of(part) for key, part in value.items()})
            elif isinstance(module, torch.nn.RNNBase) and name.startswith("_flat_weight"):
                continue  # its own list of its weights, rebuilt after tracing substituted others
            elif name != "forward" and not (name.startswith("_") and "hooks" in name):
                result[where, name] = snapshot.of(value)
        kinds.update(dict.fromkeys(kind for kind in type(module).__mro__ if not is_library(kind)))
        functions += [*functions_of(module), *functions_in(held)]
    for kind in kinds:
        result.update(
            {
                (kind.__qualname__, name): snapshot.of(value)
                for name, value in vars(kind).items()
                if not name.startswith("__")
            }
        )
    result.update(
        {
            (str(space.get("__name__")), name): snapshot.of(value)
            for space, name, value in globals_of(functions)
        }
    )
    result["random", "state"] = random.getstate()
    if (numpy := sys.modules.get("numpy")) is not None:
        result["numpy.random", "state"] = [
            v.tobytes() if hasattr(v, "tobytes") else v for v in numpy.random.get_state()
        ]
    return result


def functions_in(value: Any, depth: int = 3) -> Iterator[FunctionType]:
    """Functions in the containers that a module holds."""
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, CONTAINERS) and depth:
        for part in list(value.values() if isinstance(value, dict) else value):
            yield from functions_in(part, depth - 1)


def globals_of(functions: Iterable[FunctionType]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Namespace, name and value of the globals that functions name, followed through the functions, classes and modules among these."""
    pending = list(functions)
    known: set[int] = set()
    told: set[tuple[int, str]] = set()

    def named(
        space: dict[str, Any], names: Iterable[str]
    ) -> Iterator[tuple[dict[str, Any], str, Any]]:
        for name in names:
            if name not in space or (id(space), name) in told or name.startswith("__"):
                continue
            told.add((id(space), name))
            value = space[name]
            if isinstance(value, FunctionType):
                pending.append(value)
            elif isinstance(value, type) and not is_library(value):
                pending.extend(f for f in vars(value).values() if isinstance(f, FunctionType))
            yield space, name, value

    while pending:
        function = pending.pop()
        root = str(function.__module__).partition(".")[0]
        if id(function) in known or root in ("torch", "dvk") or root in sys.stdlib_module_names:
            continue
        known.add(id(function))
        names = names_in(function.__code__)
        yield from named(function.__globals__, names)
        for name in names:
            value = function.__globals__.get(name)
            if isinstance(value, ModuleType) and value.__name__.partition(".")[0] not in (
                "torch",
                "dvk",
                *sys.stdlib_module_names,
            ):
                yield from named(vars(value), names)


def names_in(code: CodeType) -> list[str]:
    """Names that code and the functions inside it look up: globals and attributes."""
    return [
        *code.co_names,
        *(
            name
            for inside in code.co_consts
            if isinstance(inside, CodeType)
            for name in names_in(inside)
        ),
    ]


def without_changes(model: torch.nn.Module, run: Callable[[], Any]) -> Any:
    """Return `run()`, which calls forward() once. If it has filled caches outside the module, it runs again with full caches.

    Raises:
        CannotCompose: forward() changes Python state.
    """
    for again in (True, False):
        changes: list[StateChange] = []
        try:
            with watched(model, changes):
                result = run()
        except Exception as error:
            if changes:
                raise _refusal(changes[0]) from error
            raise
        if not changes:
            break
        if not (again and all(change.is_cache for change in changes)):
            raise _refusal(next((change for change in changes if not change.is_cache), changes[0]))
    return result


def _refusal(change: StateChange) -> CannotCompose:
    error = ChangesState(
        f"forward() changes {change.text}: a graph of operators holds no Python state"
    )
    error.path, error.lines = change.path or None, change.lines
    return error


@contextmanager
def watched(model: torch.nn.Module, found: list[StateChange]) -> Iterator[None]:
    """Add forward()'s changes to `found` on return."""
    whole: Callable[..., Any] = model.forward
    held = "forward" in vars(model)

    @functools.wraps(whole)
    def forward(*args: Any, **kwargs: Any) -> Any:
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        wanted = [tensor.requires_grad for tensor in given]
        before = take_snapshot(model)
        result = whole(*args, **kwargs)
        after = take_snapshot(model)
        for key in {**before, **after}:
            if before.get(key) != after.get(key):
                change = _told(model, *key)
                is_cache = not key[0].startswith("self") and _has_grown(
                    before.get(key), after.get(key)
                )
                found.append(replace(change, owner=key[0], name=key[1], is_cache=is_cache))
        if wanted != [tensor.requires_grad for tensor in given]:
            found.append(
                _somewhere(model, "`requires_grad` of an input", "requires_grad_", "requires_grad")
            )
        return result

    forward.__signature__ = inspect.signature(whole)  # type: ignore[attr-defined]  # of the method, not of the function behind it
    model.forward = forward
    try:
        yield
    finally:
        if held:
            model.forward = whole
        else:
            del model.forward


def _has_grown(before: Any, after: Any) -> bool:
    if not (
        isinstance(before, tuple) and isinstance(after, tuple) and before[0] is after[0] is dict
    ):
        return False
    return bool(after[1][: len(before[1])] == before[1])


def _told(model: torch.nn.Module, where: str, name: str) -> StateChange:
    if where in ("random", "numpy.random"):
        return _somewhere(model, f"the state of `{where}`", where.partition(".")[0])
    if where == "self" or where.startswith("self."):
        path = where.removeprefix("self").removeprefix(".")
        lines = lines_of(_codes(model.get_submodule(path)), name)
        return StateChange(path, f"`{where}.{name}`{place_of(lines)}", lines=lines)
    return _somewhere(model, f"`{where}.{name}`", name)


def _somewhere(model: torch.nn.Module, what: str, *names: str) -> StateChange:
    """The change of a value that belongs to no module, with the module whose code names it."""
    places = ((path, lines_of(_codes(module), *names)) for path, module in model.named_modules())
    path, lines = next((found for found in places if found[1]), ("", ()))
    return StateChange(path, what + place_of(lines), lines=lines)


def _codes(module: torch.nn.Module) -> list[CodeType]:
    """The code of the module's methods outside torch, forward() first."""
    functions = sorted(functions_of(module), key=lambda f: f.__name__ != "forward")
    return [
        f.__code__ for f in functions if f.__name__ != "__init__" and f.__code__.co_name != "called"
    ]


def functions_of(module: torch.nn.Module) -> list[FunctionType]:
    """The module's methods outside torch, and the functions that they wrap if they are called as a module."""
    held = [
        value
        for kind in type(module).__mro__
        if not is_library(kind)
        for value in vars(kind).values()
    ]
    held += [value for value in vars(module).values() if isinstance(value, FunctionType)]
    functions = [value for value in held if isinstance(value, FunctionType)]
    return functions + [
        inside
        for f in functions
        for cell in f.__closure__ or ()
        if isinstance(inside := _contents(cell), FunctionType)
    ]


def place_of(lines: tuple[tuple[str, int], ...]) -> str:
    return "".join(f", {os.path.basename(path)}:{line}" for path, line in lines)


def lines_of(codes: list[CodeType], *names: str) -> tuple[tuple[str, int], ...]:
    """The file and line where the code writes the name, or else reads it; empty if it does neither."""
    for wanted in ("STORE", "DELETE", "LOAD", "IMPORT"):
        for code in codes:
            line = code.co_firstlineno
            for step in dis.get_instructions(code):
                line = step.starts_line if type(step.starts_line) is int else line
                if step.opname.startswith(wanted) and step.argval in names:
                    return ((code.co_filename, line),)
    return ()
