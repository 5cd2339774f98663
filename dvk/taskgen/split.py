"""Split of compositions into training and held-out, by the sequence of operator families.

An operator belongs to a family in any spelling (`x * x`, `x ** 2`, `x / 2` all multiply), and views, casts and copies belong to none. The
key of a task is its sequence of families with consecutive repeats merged, so that two tasks with the same captured ATen sequence always
fall on the same side. The held-out part of the benchmark suite (`data/tasks/suite`) is held out here, too, whatever its key's share says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from typing import Literal

from dvk import aten
from dvk.resources import resource

Split = Literal["train", "heldout"]

HELD_OUT = {1: 0.25}
"""Share of keys held out, by length; a key of one operator is rare, so more of those are."""
HELD_OUT_OTHERS = 0.1

SILENT = frozenset(
    {"getitem", "identity", *(name for name in aten.OPERATORS if aten.family(name) is None)}
)
"""Operators that change no value."""


def collapsed(families: Iterable[str]) -> tuple[str, ...]:
    """The canonical sequence, with consecutive repeats merged."""
    return tuple(family for family, _ in groupby(families))


def signature_of(operators: Iterable[str]) -> tuple[str, ...]:
    """The canonical sequence of ATen operators, as `Graph.signature()` gives them."""
    plain = (
        name if name.startswith("_") or not name.endswith("_") else name[:-1] for name in operators
    )
    return collapsed(
        family for name in plain if name not in SILENT and (family := aten.family(name)) is not None
    )


@cache
def reserved() -> frozenset[tuple[str, ...]]:
    """The canonical sequences of the benchmark suite's held-out part."""
    index = json.loads(resource("data", "tasks", "suite", "index.json").read_text(encoding="utf-8"))
    return frozenset(
        tuple(entry["signature"])
        for entry in index
        if entry["half"] == "heldout" and entry["signature"]
    )


def split_of(signature: tuple[str, ...]) -> Split:
    """The side on which every task with that canonical sequence falls."""
    if signature in reserved():
        return "heldout"
    digest = hashlib.sha256("\0".join(signature).encode()).digest()
    share = int.from_bytes(digest[:6], "big") / 2**48
    return "heldout" if share < HELD_OUT.get(len(signature), HELD_OUT_OTHERS) else "train"
