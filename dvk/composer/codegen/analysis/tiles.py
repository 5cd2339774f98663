"""Tiles: how loop variables become program ids and lanes, and how element offsets are written over them.

A `TileAxis` is a run of loop variables iterated as one flat index. Its value is a scalar (a program's row) or a vector of `block` lanes; a
tile has at most two vector axes. An offset is written with as few divisions as the access allows: neighbouring variables that are
contiguous in memory stay one term.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.loops import READS, Kernel
from dvk.composer.ir.symint import SymbolicSize

INT32 = 2**31


@dataclass
class TileAxis:
    """One flat index; `block` 1 makes it a scalar."""

    name: str
    vars: tuple[Var, ...]
    block: int = 1
    masked: bool = False
    """Lanes may exceed `size`, so accesses need the mask `{name}mask`."""

    @property
    def size(self) -> int:
        return math.prod(v.size for v in self.vars)

    @property
    def program(self) -> str:
        """Name of the program-id digit that indexes its blocks."""
        return self.name if self.block == 1 else f"{self.name}id"

    @property
    def blocks(self) -> int:
        return -(-self.size // self.block)


@dataclass
class Tile:
    """The axes of a kernel, and the text being written for it."""

    axes: list[TileAxis]
    wide: bool = False
    """Offsets need 64 bits."""
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    _digits: list[dict[tuple[str, int, int], str]] = field(default_factory=lambda: [{}])

    @property
    def vectors(self) -> list[TileAxis]:
        return [a for a in self.axes if a.block > 1]

    def put(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def enter(self, text: str) -> None:
        self.put(text)
        self.depth += 1
        self._digits.append({})

    def leave(self) -> None:
        self.depth -= 1
        self._digits.pop()

    # -------------------------------------------------------------- axes

    def lanes(self, axis: TileAxis) -> str:
        """`tl.arange` along the axis, shaped for the tile."""
        text = f"tl.arange(0, {axis.block})" + (".to(tl.int64)" if self.wide else "")
        if len(self.vectors) == 2:
            text += "[:, None]" if axis is self.vectors[0] else "[None, :]"
        return text

    def shape(self, axes: Iterable[TileAxis]) -> str:
        """Shape of a value that varies along `axes`."""
        chosen = [a.name for a in axes]
        return "[" + ", ".join(str(a.block if a.name in chosen else 1) for a in self.vectors) + "]"

    def define(self, axis: TileAxis, base: str) -> None:
        """Declare the axis' index (and mask); `base` is its first lane."""
        if axis.block == 1:
            self.put(f"{axis.name} = {base}")
        else:
            self.put(f"{axis.name} = {'' if base == '0' else base + ' + '}{self.lanes(axis)}")
        if axis.masked:
            self.put(f"{axis.name}mask = {axis.name} < {axis.size!r}")

    def again(self, axis: TileAxis, base: str) -> None:
        """Declare an axis again and drop the names derived from its former value."""
        for scope in self._digits:
            for key in [key for key in scope if key[0] == axis.name]:
                del scope[key]
        self.define(axis, base)

    def reaching(self, variables: Iterable[Var]) -> list[TileAxis]:
        """Axes that contain any of the variables."""
        wanted = set(variables)
        return [a for a in self.axes if wanted & set(a.vars)]

    def mask(self, axes: Iterable[TileAxis]) -> str:
        """Conjunction of the masks of these axes, or empty."""
        return " & ".join(f"{a.name}mask" for a in axes if a.masked)

    def programs(self, counts: list[tuple[str, int]], named: bool = False) -> dict[str, str]:
        """Split the program id into digits, the last one fastest; returns the text of each digit.

        Args:
            named: name a digit even if it is the only one.
        """
        live = [(n, c) for n, c in counts if c > 1 or isinstance(c, SymbolicSize)]
        result = {n: "0" for n, _ in counts}
        whole = "tl.program_id(0)" + (".to(tl.int64)" if self.wide else "")
        if len(live) == 1 and not named:
            return {**result, live[0][0]: whole}
        if live:
            self.put(f"pid = {whole}")
        step = 1
        for position, (name, count) in enumerate(reversed(live)):
            text = "pid" if step == 1 else f"pid // {step}"
            self.put(f"{name} = {text}" + (f" % {count}" if position < len(live) - 1 else ""))
            result[name] = name
            step *= count
        return result

    def place(self, axis: TileAxis, program: str) -> None:
        """Declare an axis whose blocks a program-id digit indexes."""
        if axis.block > 1:
            self.define(axis, program if program == "0" else f"{program} * {axis.block}")
        elif axis.vars and program != axis.name:
            self.define(axis, program)

    # -------------------------------------------------------------- offsets

    def _digit(self, axis: TileAxis, stride: int, modulus: int) -> str:
        """The name of `axis // stride % modulus`, declared on first use."""
        if stride == 1 and modulus == 0:
            return axis.name
        key = (axis.name, stride, modulus)
        for scope in self._digits:
            if key in scope:
                return scope[key]
        name = f"{axis.name}_{sum(k[0] == axis.name for scope in self._digits for k in scope)}"
        text = (
            axis.name
            + (f" // {stride}" if stride > 1 else "")
            + (f" % {modulus}" if modulus else "")
        )
        self.put(f"{name} = {text}")
        self._digits[-1][key] = name
        return name

    def terms(self, axis: TileAxis, offset: Affine) -> list[str]:
        """The axis' share of an offset, one text per run of variables that is contiguous in memory."""
        inner = axis.size
        runs: list[
            list[int]
        ] = []  # coefficient, stride of the innermost variable, position of the outermost
        previous = 0
        for position, var in enumerate(axis.vars):
            inner //= var.size
            coef = offset.coef(var)
            if coef and previous == coef * var.size:
                runs[-1][:2] = [coef, inner]
            elif coef:
                runs.append([coef, inner, position])
            previous = coef
        out = []
        for coef, stride, first in runs:
            modulus = math.prod(v.size for v in axis.vars[first:]) // stride if first else 0
            text = self._digit(axis, stride, modulus)
            out.append(text if coef == 1 else f"{text} * {coef}")
        return out

    def offset(self, offset: Affine) -> str:
        """Element offset as source text; `0` for a constant zero."""
        parts = [text for axis in self.axes for text in self.terms(axis, offset)]
        if offset.const:
            parts.append(str(offset.const))
        return " + ".join(parts).replace("+ -", "- ") or "0"


def needs_int64(kernel: Kernel) -> bool:
    """Some element offset, or the flat index itself, does not fit in 32 bits with room for a block."""
    spans = [i.offset.span() for i in kernel.instrs if i.op in READS] + [
        s.offset.span() for s in kernel.stores
    ]
    spans += [(0, kernel.inputs[i.buffer].last) for i in kernel.instrs if i.op == "gather"]
    reach = max((max(abs(lo), abs(hi)) for lo, hi in spans), default=0)
    # The tiles of a matmul and of windows have separate indices for rows, columns and terms, which are never multiplied.
    apart = kernel.family in ("product", "window")
    most = max(kernel.num_rows, kernel.row_length) if apart else kernel.num_rows * kernel.row_length
    return max(reach, most) >= INT32 - (1 << 16)
