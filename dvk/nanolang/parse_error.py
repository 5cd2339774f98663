"""Parse errors of compact texts: the reason, and the shortest prefix that shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

_HEAD = re.compile(r"(\w+)(?:\[.+\]| wide)?:\s*")


class ParseError(Exception):
    """A text cannot become a candidate; the message is the reason.

    Args:
        kernel: the kernel with the error, if any.
        name: the name whose first occurrence, in that kernel or outside of all, shows the error, if it is a name.
    """

    def __init__(self, message: str, kernel: str | None = None, name: str | None = None):
        super().__init__(message)
        self.kernel, self.name = kernel, name

    def shown_by(self, text: str) -> int:
        """Characters at the beginning of `text` that show the error, in whole lines: no continuation can repair it."""
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
            if (
                kernel == self.kernel
                and self.name is not None
                and re.search(rf"(?<![\w.]){re.escape(self.name)}\b", line)
            ):
                return end
        return len(text)


@contextmanager
def error_context(kernel: str) -> Iterator[None]:
    """Attribute parse errors raised in the block to this kernel."""
    try:
        yield
    except ParseError as error:
        error.kernel = kernel
        raise


__all__ = ["ParseError", "error_context"]
