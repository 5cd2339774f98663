"""Texts that cannot become a candidate: why, and how far one must read to see it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

_HEAD = re.compile(r"(\w+)(?:\[.+\]| wide)?:\s*")


class ParseError(Exception):
    """A text that cannot become a candidate; the message says why.

    Args:
        kernel: the one that shows it, where one does.
        name: what shows it where it first stands, in that kernel, or outside of all; where it is a name.
    """

    def __init__(self, message: str, kernel: str | None = None, name: str | None = None):
        super().__init__(message)
        self.kernel, self.name = kernel, name

    def shown_by(self, text: str) -> int:
        """Characters at the beginning of `text` that show it, in whole lines: nothing that follows them would mend it."""
        if self.kernel is None and self.name is None:
            return len(text)
        end, kernel = 0, None
        for line in text.splitlines(keepends=True):
            if not line.startswith(" ") and line.strip():
                if kernel is not None and kernel == self.kernel:
                    return end
                head = _HEAD.fullmatch(line)
                kernel = head[1] if head is not None else None
            end += len(line)
            if kernel == self.kernel and self.name is not None and re.search(rf"(?<![\w.]){re.escape(self.name)}\b", line):
                return end
        return len(text)


@contextmanager
def error_context(kernel: str) -> Iterator[None]:
    """Who finds a text unreadable here finds it in this kernel."""
    try:
        yield
    except ParseError as error:
        error.kernel = kernel
        raise


__all__ = ["ParseError", "error_context"]
