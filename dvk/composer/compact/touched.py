"""Which elements Triton kernels load and store, all programs and steps together.

A kernel that never writes some of its result, or never reads what the result depends on (`needed.py`), is wrong, however well within
bounds it is. The programs are gone through at once, as one more axis of every number; a tensor that is reached at places which are
not known, or a kernel with too many lanes, is left alone.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dvk.composer.compact.lanes import UNKNOWN, Value, Wrong, lined_up, scalar
from dvk.composer.compact.reach import Walk
from dvk.composer.compact.scopes import Strange
from dvk.composer.compact.width import value as number

MOST_PROGRAMS = 1 << 16
MOST_STEPS = 4096
"""Of a loop."""
MOST_LANES = 1 << 24
"""Of all programs together."""


class Touched:
    """What a text's kernels have touched so far."""

    def __init__(self) -> None:
        self.loaded: dict[str, np.ndarray | None] = {}
        """Tensor → flags over its memory; None where not all places are known."""
        self.stored: dict[str, np.ndarray | None] = {}

    def by(self, head: str, body: Sequence[str], sizes: Mapping[str, int], tensors: Mapping[str, int | None], written: Collection[str],
           functions: Collection[str] = ()) -> None:
        """Go through a kernel; see `reach.amiss`.

        Args:
            written: those of its tensors that it writes.
        """
        try:
            lines = ast.parse(textwrap.dedent("\n".join(body))).body
            launch = ast.parse(f"({head})", mode="eval").body
            pair = launch.elts if isinstance(launch, ast.Tuple) else []
            programs = number(pair[0], sizes) if len(pair) == 2 else None
            if programs is None or not 0 < programs <= MOST_PROGRAMS:
                raise Strange
            _All(self, programs, sizes, tensors, functions).run(lines)
        except (Wrong, Strange, SyntaxError, ValueError, RecursionError, MemoryError):
            self.loaded.update(dict.fromkeys(tensors))
            self.stored.update(dict.fromkeys(written))


class _All(Walk):
    """All programs of a kernel."""

    def __init__(self, touched: Touched, programs: int, sizes: Mapping[str, int], tensors: Mapping[str, int | None],
                 functions: Collection[str]):
        super().__init__(None, programs, sizes, tensors, functions)
        self.touched, self.count = touched, programs
        self.sure = False  # what cannot be was told by `reach`, of programs that run for certain

    def program(self) -> Value:
        return Value((), np.arange(self.count)) if self.count != 1 else scalar(0)

    def _loop(self, line: ast.For, variable: str) -> None:
        steps = self._steps(line.iter)
        if steps is None or len(steps) > MOST_STEPS:
            raise Strange
        for step in steps:
            self._set(variable, scalar(step))
            self.run(line.body)

    def _tried(self, make: Any, *operands: Any) -> Value:
        found = super()._tried(make, *operands)
        if self.lanes > MOST_LANES:
            raise Strange
        return found

    def _access(self, name: str, values: Sequence[Value], keyed: Mapping[str, Value]) -> Value:
        found = super()._access(name, values, keyed)
        names = ("pointer", "mask", "other") if name == "tl.load" else ("pointer", "value", "mask")
        given = {**dict(zip(names, values, strict=False)), **keyed}
        where, mask = given.get("pointer", UNKNOWN), given.get("mask", Value((), True))
        into = self.touched.loaded if name == "tl.load" else self.touched.stored
        extent = self.tensors.get(where.base)
        places, active = lined_up([where, mask], found.shape)
        if not where.base or extent is None or not name.startswith(("tl.load", "tl.store")) or places is None or active is None:
            for name in [where.base] if where.base else self.tensors:
                self.touched.loaded[name] = self.touched.stored[name] = None
            return found
        flags = into.setdefault(where.base, np.zeros(extent, bool))
        if flags is not None:
            places, active = np.broadcast_arrays(places, np.not_equal(active, 0))
            self.lanes += places.size
            reached = places[active]
            flags[reached[(reached >= 0) & (reached < extent)]] = True
        return found


__all__ = ["Touched"]
