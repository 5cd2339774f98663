"""A loop over time steps in C++: a thread has the state for one index of the outer axes and a block of lanes.

Each value of a step is an array [inner][lanes] on the stack, filled by a vector loop.
"""

from __future__ import annotations

from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.time_scan import Access, Line, TimeScan

LANES = 32
"""Most lanes of a block."""
CTYPES = {"float32": "float", "float64": "double"}
TEXT = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "maximum": "({0} != {0} || {0} > {1} ? {0} : {1})",
    "minimum": "({0} != {0} || {0} < {1} ? {0} : {1})",
    "neg": "-{0}",
    "exp": "dvk_exp$({0})",
    "exp2": "__builtin_exp2$({0})",
    "log": "__builtin_log$({0})",
    "sigmoid": "1 / (1 + dvk_exp$(-{0}))",
    "tanh": "__builtin_tanh$({0})",
    "silu": "{0} / (1 + dvk_exp$(-{0}))",
    "relu": "({0} < 0 ? 0 : {0})",
    "sqrt": "__builtin_sqrt$({0})",
    "rsqrt": "1 / __builtin_sqrt$({0})",
    "abs": "__builtin_fabs$({0})",
    "reciprocal": "1 / {0}",
    "square": "{0} * {0}",
}


def render(scan: TimeScan, name: str) -> str:
    """C++ source of one loop, without the prelude.

    Raises:
        CannotCompose: it has values of 16 bits.
    """
    kinds = {kind for *_, kind in scan.operands} | {r.dtype for r in scan.results}
    if not kinds <= set(CTYPES):
        raise CannotCompose("loops over time steps in C++ are of float32 or float64")
    return _Writer(scan, name).text()


class _Writer:
    def __init__(self, scan: TimeScan, name: str):
        self.scan, self.name = scan, name
        self.real = CTYPES[scan.compute]
        self.f = "f" if scan.compute == "float32" else ""
        self.inner = scan.sizes[scan.inner] if scan.inner >= 0 else 1
        self.width = scan.sizes[scan.lanes] if scan.lanes >= 0 else 1
        self.block = min(self.width, LANES)
        self.blocks = -(-self.width // self.block)

    def text(self) -> str:
        scan = self.scan
        given = [f"const {CTYPES[kind]}* a{n}" for n, (*_, kind) in enumerate(scan.operands)]
        given += [f"{CTYPES[r.dtype]}* o{n}" for n, r in enumerate(scan.results)]
        programs = self.blocks
        for axis in scan.outer:
            programs *= scan.sizes[axis]
        lines = [
            f"// {scan.summary}",
            f'extern "C" void {self.name}({", ".join(given)}) {{',
            "#pragma omp parallel for schedule(static)",
            f"  for (long program = 0; program < {programs}; ++program) {{",
            f"    long left = program / {self.blocks};",
            f"    const long from = program % {self.blocks} * {self.block};",
            f"    const long wide = {self.width} - from < {self.block} ? {self.width} - from : {self.block};",
            "    (void)left;",
        ]
        for axis in reversed(scan.outer):
            lines += [
                f"    const long i{axis} = left % {scan.sizes[axis]};",
                f"    left /= {scan.sizes[axis]};",
            ]
        lines += [f"    {line}" for line in self._body()]
        return "\n".join([*lines, "  }", "}"])

    def _body(self) -> list[str]:
        scan, changing = self.scan, self.scan.changing
        lines = [
            self._array(f"v{n}", set(line.axes))
            for n, line in enumerate(scan.lines)
            if line.op != "state"
        ]
        lines += [self._array(f"s{n}", set(axes)) for n, (_, _, axes) in enumerate(scan.states)]
        # A state that becomes another one's value is read before that one changes.
        moved = [n for n, (_, end, _) in enumerate(scan.states) if scan.lines[end].op == "state"]
        lines += [self._array(f"e{n}", set(scan.states[n][2])) for n in moved]
        for n, line in enumerate(scan.lines):
            if n not in changing and line.op != "state":
                lines += self._value(n, line)
        for n, (start, _, axes) in enumerate(scan.states):
            lines += self._each(set(axes), f"{self._cell(f's{n}', set(axes))} = {self._of(start)};")
        lines.append(f"for (long t = 0; t < {scan.steps}; ++t) {{")
        for n, line in enumerate(scan.lines):
            if n in changing and line.op != "state":
                lines += [f"  {part}" for part in self._value(n, line)]
        for n, result in enumerate(scan.outputs):
            lines += [f"  {part}" for part in self._store(n, result.line, result.access)]
        for n, result in enumerate(scan.last, len(scan.outputs)):
            store = self._store(n, result.line, result.access)
            lines += [f"  if (t == {scan.steps - 1}) {{", *(f"    {part}" for part in store), "  }"]
        for n in moved:
            held = set(scan.states[n][2])
            each = self._each(held, f"{self._cell(f'e{n}', held)} = {self._of(scan.states[n][1])};")
            lines += [f"  {part}" for part in each]
        for n, (_, end, axes) in enumerate(scan.states):
            value = self._cell(f"e{n}", set(axes)) if n in moved else self._of(end)
            each = self._each(set(axes), f"{self._cell(f's{n}', set(axes))} = {value};")
            lines += [f"  {part}" for part in each]
        return [*lines, "}"]

    def _array(self, name: str, axes: set[int]) -> str:
        inner = self.inner if self.scan.inner in axes else 1
        lanes = self.block if self.scan.lanes in axes else 1
        return f"{self.real} {name}[{inner}][{lanes}];"

    def _cell(self, name: str, axes: set[int]) -> str:
        inner = f"i{self.scan.inner}" if self.scan.inner in axes else "0"
        return f"{name}[{inner}][{'l' if self.scan.lanes in axes else '0'}]"

    def _of(self, line: int) -> str:
        made = self.scan.lines[line]
        name = f"s{made.given[0]}" if made.op == "state" else f"v{line}"
        return self._cell(name, set(made.axes))

    def _each(self, axes: set[int], statement: str) -> list[str]:
        """A statement for each place of the block that the axes span."""
        loops = []
        if self.scan.inner in axes and self.scan.inner >= 0:
            i = f"i{self.scan.inner}"
            loops.append(f"for (long {i} = 0; {i} < {self.inner}; ++{i})")
        if self.scan.lanes in axes and self.scan.lanes >= 0:
            loops.append("for (long l = 0; l < wide; ++l)")
        if loops:
            return (
                ["#pragma GCC ivdep", " ".join([*loops, statement])]
                if len(loops) == 1
                else [" ".join([*loops, statement])]
            )
        return [statement]

    def _place(self, base: str, access: Access) -> str:
        parts = [str(access.base)] + ([f"t * {access.step}"] if access.step else [])
        for axis, stride in access.strides:
            index = "(from + l)" if axis == self.scan.lanes else f"i{axis}"
            parts.append(f"{index} * {stride}")
        return f"{base}[{' + '.join(parts)}]"

    def _value(self, n: int, line: Line) -> list[str]:
        axes = set(line.axes)
        cell = self._cell(f"v{n}", axes)
        if line.op == "literal":
            return [f"{cell} = {line.given[0]!r};"]
        if line.op == "load":
            assert line.access is not None
            return self._each(
                axes, f"{cell} = {self._place(f'a{line.access.tensor}', line.access)};"
            )
        if line.op == "sum":
            (source,) = line.given
            whole = axes | {self.scan.inner}
            added = self._each(whole, f"{cell} += {self._of(source)};")
            # One place takes all of a sum over `inner` alone: its additions depend on each other.
            return [*self._each(axes, f"{cell} = 0;"), added[-1]]
        given = [self._of(g) if type(g) is int else f"({self.real}){g!r}" for g in line.given]
        return self._each(axes, f"{cell} = {TEXT[line.op].format(*given).replace('$', self.f)};")

    def _store(self, n: int, line: int, access: Access) -> list[str]:
        axes = {a for a, _ in access.strides}
        return self._each(axes, f"{self._place(f'o{n}', access)} = {self._of(line)};")


__all__ = ["render"]
