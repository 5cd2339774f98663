"""What a program may write before it goes back to the original. The text travels inside drop-ins, as that of `guards.py` does."""

from __future__ import annotations

from typing import Any


def dvk_before(module: Any, written: tuple) -> list:
    """Tensors that may be written, given by themselves or by their paths in a module, with copies of their values (`dvk_put`)."""
    held = []
    for one in written:
        if isinstance(one, str):
            owner, _, name = one.rpartition(".")
            one = getattr(module.get_submodule(owner), name)
        held.append((one, one.detach().clone()))
    return held
