"""Exceptions of capture and composition."""

from __future__ import annotations


class CannotCompose(Exception):
    """The module is outside what the composer covers; the message is one line with the reason.

    Attributes:
        traceback: of an internal exception; empty otherwise.
        path: path of the submodule that failed, if known.
    """

    path: str | None = None
    lines: tuple[tuple[str, int], ...] = ()
    """Files and lines of the model's code that failed, innermost first, if no traceback shows them."""

    def __init__(self, message: str, traceback: str = ""):
        super().__init__(message)
        self.traceback = traceback


class ChangesState(CannotCompose):
    """forward() changes Python state; another attempt would find it changed already, unless the code that changes it is left to PyTorch."""


class NothingToFuse(CannotCompose):
    """All operators that could become kernels are left to PyTorch."""
