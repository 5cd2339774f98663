"""A loop over time steps in Triton: a program keeps the state of one index of the outer axes and a block of lanes in registers.

Values are blocks [inner, lanes]. Addresses are made once; a step adds a constant to them.
"""

from __future__ import annotations

from dvk.composer.codegen.triton import chunked_scan
from dvk.composer.codegen.triton.scalar import TYPES, helper
from dvk.composer.codegen.triton.step_texts import TEXT, address, launched, power
from dvk.composer.ir.time_scan import Access, Line, TimeScan

STATE = 1024
"""Elements of a state that a warp keeps: 32 registers a thread."""
LANES = 8
"""Most lanes of a program: with more, too few programs hide the time from one step to the next."""
STAGES = 3
"""Steps whose operands are under way."""


def render(scan: TimeScan, name: str) -> str:
    """Triton source of one loop and its launcher, without the prelude."""
    if scan.chunked:
        return chunked_scan.render(scan, name)
    return _Writer(scan, name).text()


class _Writer:
    def __init__(self, scan: TimeScan, name: str):
        self.scan, self.name = scan, name
        self.whole = power(scan.sizes[scan.inner]) if scan.inner >= 0 else 1
        width = scan.sizes[scan.lanes] if scan.lanes >= 0 else 1
        self.block = min(
            power(width), LANES if scan.inner >= 0 else 32, max(STATE // self.whole, 1)
        )
        self.blocks = -(-width // self.block)
        self.warps = max(1, min(8, self.whole * self.block // STATE))
        self.kind = TYPES[scan.compute]
        self.short_inner = scan.inner >= 0 and self.whole != scan.sizes[scan.inner]
        self.short_lanes = scan.lanes >= 0 and width % self.block != 0
        self.uses = [0] * len(scan.lines)
        for line in scan.lines:
            for given in line.given if line.op != "state" else ():
                if type(given) is int:
                    self.uses[given] += 1
        for _, end, _ in scan.states:
            self.uses[end] += 2
        for result in scan.results:
            self.uses[result.line] += 2

    def text(self) -> str:
        return launched(self.scan, self.name, self._body(), self.blocks, self.warps)

    def _body(self) -> list[str]:
        scan, lines = self.scan, ["pid = tl.program_id(0)"]
        if scan.inner >= 0:
            lines.append(f"i{scan.inner} = tl.arange(0, {self.whole})[:, None]")
        if scan.lanes >= 0:
            lines.append(
                f"i{scan.lanes} = (pid % {self.blocks}) * {self.block} + tl.arange(0, {self.block})[None, :]"
            )
        lines.append(f"left = pid // {self.blocks}")
        for axis in reversed(scan.outer):
            lines += [f"i{axis} = left % {scan.sizes[axis]}", f"left = left // {scan.sizes[axis]}"]
        changing = scan.changing
        for n, line in enumerate(scan.lines):
            if line.op == "load" and n in changing:
                assert line.access is not None
                lines.append(f"p{n} = {address(f'a{line.access.tensor}', line.access)}")
            elif n not in changing and line.op != "state":
                lines.append(f"v{n} = {self._value(n, line)}")
        for n, result in enumerate(scan.results):
            lines.append(f"q{n} = {address(f'o{n}', result.access)}")
        for n, (start, _, axes) in enumerate(scan.states):
            shape = f"({self.whole if scan.inner in axes else 1}, {self.block if scan.lanes in axes else 1})"
            lines.append(f"s{n} = tl.zeros({shape}, {self.kind}) + v{start}")
        for kept in sorted({r.line for r in scan.last}):
            of = set(scan.lines[kept].axes)
            shape = f"({self.whole if scan.inner in of else 1}, {self.block if scan.lanes in of else 1})"
            lines.append(f"f{kept} = tl.zeros({shape}, {self.kind})")
        lines.append(f"for t in tl.range({scan.steps}, num_stages={STAGES}):")
        lines += [f"    {line}" for line in self._step(changing)]
        for n, result in enumerate(scan.last, len(scan.outputs)):
            lines.append(self._store(n, result.line, result.access, "f"))
        return lines

    def _step(self, changing: frozenset[int]) -> list[str]:
        scan, lines = self.scan, []
        inside = {n for n in range(len(scan.lines)) if n in changing}
        loads = [n for n in sorted(inside) if scan.lines[n].op == "load"]
        rest = [n for n in sorted(inside) if scan.lines[n].op != "load"]
        for n in (*loads, *rest):
            if not self._is_folded(n):
                lines.append(f"v{n} = {self._value(n, scan.lines[n])}")
        for n, result in enumerate(scan.outputs):
            lines.append(self._store(n, result.line, result.access, "v"))
        for kept in sorted({r.line for r in scan.last}):
            lines.append(f"f{kept} = tl.zeros((1, 1), {self.kind}) + v{kept}")
        for n, (_, end, axes) in enumerate(scan.states):
            shape = f"({self.whole if scan.inner in axes else 1}, {self.block if scan.lanes in axes else 1})"
            full = set(scan.lines[end].axes) == set(axes) and {scan.inner, scan.lanes} & set(axes)
            lines.append(
                f"s{n} = v{end}" if full else f"s{n} = tl.zeros({shape}, {self.kind}) + v{end}"
            )
        return lines

    def _mask(self, axes: set[int]) -> str:
        scan = self.scan
        parts = []
        if self.short_inner and scan.inner in axes:
            parts.append(f"(i{scan.inner} < {scan.sizes[scan.inner]})")
        if self.short_lanes and scan.lanes in axes:
            parts.append(f"(i{scan.lanes} < {scan.sizes[scan.lanes]})")
        return " & ".join(parts)

    def _is_folded(self, n: int) -> bool:
        """A product that one addition alone reads: it is part of it."""
        scan = self.scan
        return (
            scan.lines[n].op == "mul"
            and self.uses[n] == 1
            and n in scan.changing
            and any(line.op == "add" and self._product(line) == n for line in scan.lines)
        )

    def _product(self, line: Line) -> int:
        """Number of the product that an addition takes in, -1 if there is none."""
        scan = self.scan
        for n, other in (line.given, line.given[::-1]):
            if (
                type(n) is int
                and type(other) is int
                and scan.lines[n].op == "mul"
                and self.uses[n] == 1
            ):
                known = all(type(g) is int for g in scan.lines[n].given) and n in scan.changing
                if known and n != other:
                    return int(n)
        return -1

    def _value(self, n: int, line: Line) -> str:
        scan = self.scan
        if line.op == "literal":
            return f"tl.full((1, 1), {line.given[0]!r}, {self.kind})"
        if line.op == "state":
            return f"s{line.given[0]}"
        if line.op == "load":
            assert line.access is not None
            moves = n in scan.changing
            at = (
                f"p{n} + t * {line.access.step}"
                if moves
                else address(f"a{line.access.tensor}", line.access)
            )
            mask = self._mask(set(line.axes))
            return f"tl.load({at}{f', mask={mask}, other=0.0' if mask else ''}).to({self.kind})"
        given = [f"v{g}" if type(g) is int else repr(g) for g in line.given]
        if line.op == "sum":
            value = given[0]
            if self.short_inner:
                value = f"tl.where(i{scan.inner} < {scan.sizes[scan.inner]}, {value}, 0.0)"
            return f"tl.sum({value}, 0, keep_dims=True)"
        if line.op == "add" and (product := self._product(line)) >= 0:
            other = line.given[1] if line.given[0] == product else line.given[0]
            a, b = scan.lines[product].given
            return f"tl.fma(v{a}, v{b}, v{other})"
        text = TEXT[line.op].format(*given)
        return text.replace("dvk_tanh(", f"{helper('dvk_tanh', scan.compute)}(")

    def _store(self, n: int, line: int, access: Access, letter: str) -> str:
        at = f"q{n}" + (f" + t * {access.step}" if access.step else "")
        axes = {a for a, _ in access.strides}
        mask = self._mask(axes)
        # Where the value spans fewer axes than the result, it is spread.
        spread = f"{letter}{line}"
        if set(self.scan.lines[line].axes) & {self.scan.inner, self.scan.lanes} != axes & {
            self.scan.inner,
            self.scan.lanes,
        }:
            rows = self.whole if self.scan.inner in axes else 1
            columns = self.block if self.scan.lanes in axes else 1
            spread = f"tl.zeros(({rows}, {columns}), {self.kind}) + {spread}"
        return f"tl.store({at}, ({spread}).to(o{n}.dtype.element_ty){f', mask={mask}' if mask else ''})"


__all__ = ["render"]
