"""Texts that cannot become a candidate: why, and how far one must read to see it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

_HEAD = re.compile(r"(\w+)(?:\[.+\]| wide)?:\s*")


class Unreadable(Exception):
    """A text that cannot become a candidate; the message says why.

    Args:
        kernel: the one that shows it, where one does.
        name: what is read without being there, where that is it.
    """

    def __init__(self, message: str, kernel: str | None = None, name: str | None = None):
        super().__init__(message)
        self.kernel, self.name = kernel, name

    def shown_by(self, text: str) -> int:
        """Characters at the beginning of `text` that show it, in whole lines: nothing that follows them would mend it."""
        end, inside = 0, False
        for line in text.splitlines(keepends=True):
            head = _HEAD.fullmatch(line)
            if self.kernel is not None and inside and not line.startswith(" ") and line.strip():
                return end
            inside = head[1] == self.kernel if head is not None else inside
            end += len(line)
            if self.name is not None and re.search(rf"(?<![\w.]){re.escape(self.name)}\b", line):
                return end
        return len(text)


@contextmanager
def about(kernel: str) -> Iterator[None]:
    """Who finds a text unreadable here finds it in this kernel."""
    try:
        yield
    except Unreadable as error:
        error.kernel = kernel
        raise


__all__ = ["Unreadable", "about"]
