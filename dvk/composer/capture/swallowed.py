"""Exceptions that tracing raises inside a `try` of the user: eager runs the body, and a graph would hold the handler's result."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dvk.composer.ir.errors import CannotCompose

THEIRS = (AttributeError, KeyError, IndexError, StopIteration, ImportError)
"""Exceptions that code raises for reasons that tracing does not change."""


@contextmanager
def none_swallowed(model: Any) -> Iterator[None]:
    """Refuse a trace if the model's code caught an exception during it.

    Raises:
        CannotCompose: names the line.
    """
    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    theirs = [
        kind
        for kind in kinds
        if kind.__module__.partition(".")[0] not in ("torch", "dvk", "builtins")
    ]
    files = {
        f.__code__.co_filename
        for kind in theirs
        for f in vars(kind).values()
        if hasattr(f, "__code__")
    }
    files = {
        file
        for file in files
        if any("except" in line or "suppress" in line for line in linecache.getlines(file))
    }
    if not files:
        yield
        return
    seen: list[tuple[str, int, str]] = []

    def inside(frame: FrameType, event: str, given: Any) -> Any:
        if (
            event == "exception"
            and issubclass(given[0], Exception)
            and not issubclass(given[0], THEIRS)
        ):
            seen.append((frame.f_code.co_filename, frame.f_lineno, given[0].__name__))
        return inside

    def entered(frame: FrameType, event: str, given: Any) -> Any:
        return inside if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        yield
    finally:
        sys.settrace(before)
    if seen:
        error = CannotCompose(
            f"forward() catches the {seen[0][2]} that line {seen[0][1]} raises while it is traced"
        )
        error.lines = ((seen[0][0], seen[0][1]),)
        raise error
