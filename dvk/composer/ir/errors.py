"""What is raised where a module cannot be captured or composed."""

from __future__ import annotations


class CannotCompose(Exception):
    """The module is outside what the composer covers; the message says why in one line.

    Attributes:
        traceback: of an exception of ours; empty otherwise.
        path: of the submodule that it happened in, where that is known.
    """

    path: str | None = None
    lines: tuple[tuple[str, int], ...] = ()
    """Files and lines of the model's code that it happened on, innermost first, where no traceback shows them."""

    def __init__(self, message: str, traceback: str = ""):
        super().__init__(message)
        self.traceback = traceback


class ChangesState(CannotCompose):
    """forward() changes Python state; another attempt would find it changed already, unless what changes it is left."""
