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
NARROW = INT32 - (1 << 16)
"""What indices of 32 bits reach, with room for a block."""


@dataclass
class TileAxis:
    """One flat index; `block` 1 makes it a scalar."""

    name: str
    vars: tuple[Var, ...]
    block: int = 1
    masked: bool = False
    """Lanes may exceed `size`, so accesses need the mask `{name}mask`."""
    origin: str = ""
    """Name of a scalar of 64 bits that the index is counted from; `left` more elements follow it."""

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
    narrow: frozenset[str] = frozenset()
    """Axes whose share of every offset needs 32 bits all the same: they are added last, to a pointer."""
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
        text = f"tl.arange(0, {axis.block})" + self._widened(axis.name)
        if len(self.vectors) == 2:
            text += "[:, None]" if axis is self.vectors[0] else "[None, :]"
        return text

    def _widened(self, name: str) -> str:
        """The conversion that an axis' index needs."""
        return ".to(tl.int64)" if self.wide and name not in self.narrow else ""

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
            self.put(
                f"{axis.name}mask = {axis.name} < {'left' if axis.origin else repr(axis.size)}"
            )

    def put_mask(self, axis: TileAxis) -> None:
        """Declare an axis' mask, if it has one."""
        if axis.masked:
            self.put(
                f"{axis.name}mask = {axis.name} < {'left' if axis.origin else repr(axis.size)}"
            )

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
        # Where lanes have 32 bits, a program's digits are computed in as many: divisions of 64 bits are slow.
        late = self.wide and bool(self.narrow)
        whole = "tl.program_id(0)" + (".to(tl.int64)" if self.wide and not late else "")
        if len(live) == 1 and not named:
            (name, _), *_ = live
            return {
                **result,
                name: whole + (self._widened(name.removesuffix("id")) if late else ""),
            }
        if live:
            self.put(f"pid = {whole}")
        step = 1
        for position, (name, count) in enumerate(reversed(live)):
            text = "pid" if step == 1 else f"pid // {step}"
            text += f" % {count}" if position < len(live) - 1 else ""
            if late and (widened := self._widened(name.removesuffix("id"))):
                text = f"({text}){widened}"
            self.put(f"{name} = {text}")
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
            (f"({axis.origin} + {axis.name})" if axis.origin else axis.name)
            + (f" // {stride}" if stride > 1 else "")
            + (f" % {modulus}" if modulus else "")
        )
        self.put(f"{name} = {text}")
        self._digits[-1][key] = name
        return name

    def terms(self, axis: TileAxis, offset: Affine) -> list[tuple[str, int]]:
        """The axis' share of an offset: an index and its coefficient for each run of variables that is contiguous in memory."""
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
            out.append((self._digit(axis, stride, modulus), coef))
        return out

    def parts(self, offset: Affine) -> tuple[str, str]:
        """Source texts of an element offset: what may need 64 bits, and what does not; `0` or empty for nothing."""
        far: list[str] = []
        near: list[str] = []
        for axis in self.axes:
            for index, coef in self.terms(axis, offset):
                counted = bool(axis.origin) and index == axis.name
                small = axis.name in self.narrow and (counted or not axis.origin)
                (near if small else far).append(_times(index, coef))
                if counted:
                    far.append(_times(axis.origin, coef))
        if offset.const:
            far.append(str(offset.const))
        return _sum(far) or "0", _sum(near)

    def offset(self, offset: Affine) -> str:
        """Element offset as source text; `0` for a constant zero."""
        far, near = self.parts(offset)
        return _sum([*([far] if far != "0" or not near else []), *([near] if near else [])])


def _times(index: str, coef: int) -> str:
    return index if coef == 1 else f"{index} * {coef}"


def _sum(terms: list[str]) -> str:
    return " + ".join(terms).replace("+ -", "- ")


def narrow_axes(kernel: Kernel, axes: Iterable[TileAxis], whole: int = 0) -> frozenset[str]:
    """Axes of lanes whose share of every offset fits in 32 bits.

    Args:
        whole: elements after which the last axis counts from another origin; 0: it does not.
    """
    if kernel.size_arguments:
        return frozenset()
    offsets = [i.offset for i in kernel.instrs if i.op in (*READS, "iota")]
    offsets += [part for i in kernel.instrs for part, _ in i.bounds]
    offsets += [s.offset for s in kernel.stores]
    found: set[str] = set()
    used = [0] * len(offsets)
    for axis in reversed(list(axes)):
        if axis.block == 1:
            continue
        counted = whole if axis.origin else axis.size
        own = [
            max((abs(o.coef(v)) for v in axis.vars), default=0) * counted
            if axis.origin
            else sum(abs(o.coef(v)) * (v.size - 1) for v in axis.vars)
            for o in offsets
        ]
        both = [a + b for a, b in zip(used, own, strict=True)]
        if max(counted + axis.block, *both) < NARROW:
            used, found = both, found | {axis.name}
    return frozenset(found)


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
    return max(reach, most) >= NARROW
