"""Linear attention over time steps in Triton, in chunks: products on tensor cores within a chunk, the state in registers between chunks.

Decays are summed as logarithms, and their signs counted apart. A decay of 0 counts as 2⁻¹²⁶. See `ir.chunked_form` for the formula.
"""

from __future__ import annotations

from typing import Any

from dvk.composer.codegen.triton.scalar import TYPES
from dvk.composer.codegen.triton.step_texts import TEXT, address, launched, power
from dvk.composer.ir.chunked_form import chunked_form
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.time_scan import Line, Result, TimeScan

WARPS = 4
"""Of a program."""


def render(scan: TimeScan, name: str) -> str:
    """Triton source of one loop and its launcher.

    Raises:
        CannotCompose: it is not linear attention.
    """
    return _Writer(scan, name).text()


class _Writer:
    def __init__(self, scan: TimeScan, name: str):
        form = chunked_form(scan)
        if form is None:
            raise CannotCompose("a loop over time steps that has no chunked form")
        self.scan, self.name, self.form = scan, name, form
        self.whole = max(power(scan.sizes[scan.inner]), 16)
        self.block = max(min(power(scan.sizes[scan.lanes]), 64), 16)
        self.blocks = -(-scan.sizes[scan.lanes] // self.block)
        self.stages = 1 if scan.narrow == "float32" else 2
        self.kind = TYPES[scan.narrow]
        self.precision = ', input_precision="tf32x3"' if scan.narrow == "float32" else ""
        self.changing = scan.changing

    def text(self) -> str:
        return launched(self.scan, self.name, self._body(), self.blocks, WARPS)

    def _body(self) -> list[str]:
        scan, n = self.scan, self.scan.chunked
        lines = [
            "pid = tl.program_id(0)",
            f"i{scan.inner} = tl.arange(0, {self.whole})[None, :]",
            f"i{scan.lanes} = (pid % {self.blocks}) * {self.block} + tl.arange(0, {self.block})[None, :]",
            f"c = tl.arange(0, {n})",
            "low = c[:, None] >= c[None, :]",
            f"left = pid // {self.blocks}",
        ]
        for axis in reversed(scan.outer):
            lines += [f"i{axis} = left % {scan.sizes[axis]}", f"left = left // {scan.sizes[axis]}"]
        lines += self._start()
        lines.append(f"for first in tl.range(0, {scan.steps}, {n}, num_stages={self.stages}):")
        lines += [f"    {line}" for line in self._chunk()]
        for number, result in enumerate(scan.last, len(scan.outputs)):
            lines.append(self._store_state(number, result))
        return lines

    # -------------------------------------------------------------- values

    def _start(self) -> list[str]:
        """The first state, [inner, lanes]."""
        scan = self.scan
        ((start, _, _),) = scan.states
        line = scan.lines[start]
        zeros = f"s = tl.zeros(({self.whole}, {self.block}), tl.float32)"
        if line.op == "literal":
            return [f"{zeros} + {line.given[0]!r}" if line.given[0] else zeros]
        if line.op != "load" or line.access is None:
            raise CannotCompose("a first state that is computed")
        turned = {scan.inner: f"tl.arange(0, {self.whole})[:, None]"}
        at = address(f"a{line.access.tensor}", line.access, turned)
        mask = self._state_mask(set(line.axes))
        return [f"{zeros} + tl.load({at}{mask}).to(tl.float32)"]

    def _state_mask(self, axes: set[int], load: bool = True) -> str:
        scan, parts = self.scan, []
        if scan.inner in axes:
            parts.append(f"(tl.arange(0, {self.whole})[:, None] < {scan.sizes[scan.inner]})")
        if scan.lanes in axes:
            parts.append(f"(i{scan.lanes} < {scan.sizes[scan.lanes]})")
        return f", mask={' & '.join(parts)}{', other=0.0' if load else ''}" if parts else ""

    def _mask(self, axes: set[int], moves: bool) -> str:
        scan, parts = self.scan, []
        if moves and scan.steps % scan.chunked:
            parts.append(f"(t < {scan.steps})")
        if scan.inner in axes and self.whole != scan.sizes[scan.inner]:
            parts.append(f"(i{scan.inner} < {scan.sizes[scan.inner]})")
        if scan.lanes in axes and scan.sizes[scan.lanes] % self.block:
            parts.append(f"(i{scan.lanes} < {scan.sizes[scan.lanes]})")
        return " & ".join(parts)

    def _load(self, line: Line, moves: bool) -> str:
        assert line.access is not None
        at = address(f"a{line.access.tensor}", line.access, {})
        at += f" + t * {line.access.step}" if moves else ""
        mask = self._mask(set(line.axes), moves and bool(line.access.step))
        return f"tl.load({at}{f', mask={mask}, other=0.0' if mask else ''})"

    def _needed(self) -> list[int]:
        """Lines that the factors and results are computed from, in order; none of the state."""
        form, scan = self.form, self.scan
        pending = [f for part in (form.decay, form.keys, form.values, form.queries) for f in part]
        pending += list(form.after) + [r.line for r in scan.outputs]
        found: set[int] = set()
        while pending:
            n = pending.pop()
            if type(n) is int and n not in found and n != form.scores:
                found.add(n)
                pending += (
                    scan.lines[n].given if scan.lines[n].op not in ("state", "literal") else ()
                )
        return sorted(found - set(form.after))

    def _line(self, n: int) -> str:
        line = self.scan.lines[n]
        if line.op == "literal":
            return repr(line.given[0])
        if line.op == "load":
            return f"{self._load(line, bool(line.access and line.access.step))}.to(tl.float32)"
        given = [f"v{g}" if type(g) is int else repr(g) for g in line.given]
        if line.op == "sum":
            (source,) = line.given
            value = given[0]
            if self.whole != self.scan.sizes[self.scan.inner]:
                value = f"tl.where(i{self.scan.inner} < {self.scan.sizes[self.scan.inner]}, {value}, 0.0)"
            del source
            return f"tl.sum({value}, 1, keep_dims=True)"
        return TEXT[line.op].format(*given)

    def _product(self, factors: tuple[Any, ...], shape: str) -> str:
        """Factors as one operand of a matrix product. Rows beyond the last step and columns beyond the inner axis are 0."""
        text = " * ".join(f"v{f}" if type(f) is int else repr(f) for f in factors)
        if (
            all(type(f) is int and self.scan.lines[f].op == "load" for f in factors)
            and len(factors) == 1
        ):
            return f"({text}).to({self.kind})"
        guard = [f"(t < {self.scan.steps})"] if self.scan.steps % self.scan.chunked else []
        if self.whole != self.scan.sizes[self.scan.inner] and shape == "inner":
            guard.append(f"(i{self.scan.inner} < {self.scan.sizes[self.scan.inner]})")
        size = self.whole if shape == "inner" else self.block
        text = f"tl.zeros(({self.scan.chunked}, {size}), tl.float32) + {text}"
        if guard:
            text = f"tl.where({' & '.join(guard)}, {text}, 0.0)"
        return f"({text}).to({self.kind})"

    def _chunk(self) -> list[str]:
        scan, form = self.scan, self.form
        lines = ["t = (first + c)[:, None]"]
        lines += [f"v{n} = {self._line(n)}" for n in self._needed()]
        lines += [
            f"q = {self._product(form.queries, 'inner')}",
            f"k = {self._product(form.keys, 'inner')}",
            f"v = {self._product(form.values, 'lanes')}",
        ]
        p = self.precision
        lines.append(f"w = tl.dot(q, tl.trans(k){p})")
        if form.decay:
            decay = " * ".join(f"v{f}" if type(f) is int else repr(f) for f in form.decay)
            lines += [
                f"g = tl.reshape(tl.zeros(({scan.chunked}, 1), tl.float32) + {decay}, ({scan.chunked},))",
                f"g = tl.where(first + c < {scan.steps}, g, 1.0)",
                "odd = tl.cumsum((g < 0.0).to(tl.int32), 0)",
                "sign = (1 - 2 * (odd & 1)).to(tl.float32)",
                "g = tl.log2(tl.maximum(tl.abs(g), 1.1754943508222875e-38, propagate_nan=tl.PropagateNan.ALL))",
                "total = tl.sum(g, 0)",
                f"whole = (1 - 2 * (tl.sum(tl.where(c == {scan.chunked - 1}, odd, 0), 0) & 1)).to(tl.float32)",
                "g = tl.cumsum(g, 0)",
                "ahead = tl.exp2(g) * sign",
                "w = w * sign[:, None] * sign[None, :]",
                "w = tl.where(low, w * tl.exp2(tl.where(low, g[:, None] - g[None, :], 0.0)), 0.0)",
                f"y = tl.dot(q, s.to({self.kind}){p}) * ahead[:, None]",
                f"k = (k.to(tl.float32) * (tl.exp2(total - g) * sign * whole)[:, None]).to({self.kind})",
                "s = s * (tl.exp2(total) * whole)",
            ]
        else:
            lines += ["w = tl.where(low, w, 0.0)", f"y = tl.dot(q, s.to({self.kind}){p})"]
        lines += [
            f"y = tl.dot(w.to({self.kind}), v, y{p})",
            f"s = tl.dot(tl.trans(k), v, s{p})",
            f"v{form.scores} = y",
        ]
        lines += [f"v{n} = {self._line(n)}" for n in form.after]
        for number, result in enumerate(scan.outputs):
            lines.append(self._store(number, result))
        return lines

    def _store(self, number: int, result: Result) -> str:
        at = address(f"o{number}", result.access, {}) + f" + t * {result.access.step}"
        axes = {a for a, _ in result.access.strides}
        mask = self._mask(axes, True)
        if self.scan.inner in axes:
            raise CannotCompose("a result over the inner axis")
        width = self.block if self.scan.lanes in axes else 1
        value = f"tl.zeros(({self.scan.chunked}, {width}), tl.float32) + v{result.line}"
        if self.scan.lanes in self.scan.lines[result.line].axes and result.line in self.changing:
            value = f"v{result.line}"
        return f"tl.store({at}, ({value}).to(o{number}.dtype.element_ty){f', mask={mask}' if mask else ''})"

    def _store_state(self, number: int, result: Result) -> str:
        turned = {self.scan.inner: f"tl.arange(0, {self.whole})[:, None]"}
        at = address(f"o{number}", result.access, turned)
        mask = self._state_mask({a for a, _ in result.access.strides}, load=False)
        return f"tl.store({at}, s.to(o{number}.dtype.element_ty){mask})"


__all__ = ["render"]
