"""Matmuls in C++: strips of a few rows and a panel of columns, kept in registers or in the L1 cache while k runs.

Two forms, by the dimension that is contiguous in memory:
    dot    k: SIMD runs along k, a tile of `rows` × few columns has one vector of partial sums per element
    outer  columns: SIMD runs along the panel, `rows` rows take `steps` elements of k at a time
Partial sums cover at most BLOCK elements of k, so that a long sum loses no digits. The epilogue is computed for the whole strip at once.
Products of plain loads may be contracted to fused multiply-adds, which only saves a rounding; arithmetic around them may not (see
`cpp.FLAGS`). A small right operand in another layout is packed once per task.
"""

from __future__ import annotations

import math

from dvk.composer.codegen.cpp import convolution
from dvk.composer.codegen.cpp.scalar import REGISTER
from dvk.composer.codegen.cpp.vectors import widths
from dvk.composer.codegen.cpp.writer import CppWriter
from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.loops import Instr, Kernel, Ref
from dvk.composer.ir.matmul_form import form_of
from dvk.composer.ir.schedules.cpp import CppProduct, CppSchedule, Form, Width
from dvk.target import Cpu

BLOCK = {"dot": 4096, "outer": 256}
"""Elements of k per run of partial sums; a vector has sixteen sums, an element of a panel one."""
BAND = 64
"""Rows of a task, which share a panel of the right operand in the L2 cache."""
IN_L1 = 4096
"""Elements of the right operand that stay in the L1 cache in any layout (16 KiB of floats)."""
PACKED = 1 << 14
"""Elements of the right operand that a task may pack before it starts (64 KiB of floats)."""
SHORT = 16
"""Elements of k too few for a vector along it; the loop is unrolled by as many steps."""
SUMS = 16
"""Vectors of partial sums that a tile keeps in registers."""


def schedules(kernel: Kernel, cpu: Cpu) -> list[CppSchedule]:
    """The alternatives worth measuring, the default first."""
    form = form_of(kernel)
    assert form is not None
    column, k = form.columns[-1], kernel.reduced[-1]
    step = {
        v: min(
            (abs(o.coef(v)) for o in _loads(kernel, form.terms[0].right.id) if v in o.vars),
            default=1,
        )
        for v in (column, k)
    }
    # Every strided element costs a cache line, unless the whole panel stays in the L1 cache.
    fits = min(256, column.size) * kernel.row_length <= (IN_L1 if form.sizes[1] < BAND else PACKED)
    forms: list[tuple[Form, int]] = [("outer", 256)] * (step[column] == 1 or fits)
    forms += [("dot", 64)] if step[k] == 1 or fits else []
    if step[k] == 1 and kernel.row_length > SHORT:
        forms.reverse()
    forms = forms or [("outer", 256)]
    first, usual = forms[0]
    every = widths(cpu)
    found: list[tuple[Form, int, Width]] = [(f, p, w) for f, p in forms for w in every]
    found += [(first, usual // 4, every[0]), (first, usual * 4, every[0])]
    shortened = [
        CppProduct(form=form_, parallel="rows", panel=min(panel, column.size), width=width)
        for form_, panel, width in found
    ]
    return [*convolution.schedules(kernel, cpu), *dict.fromkeys(shortened)]


def _loads(kernel: Kernel, id_: int) -> list[Affine]:
    """The memory index of an operand."""
    instr = kernel.instrs[id_]
    below = [offset for a in instr.args if isinstance(a, Ref) for offset in _loads(kernel, a.id)]
    return [*below, *([instr.offset] if instr.op == "load" and instr.offset.vars else [])]


class CppMatmul:
    """The source of one matmul under a schedule."""

    def __init__(self, writer: CppWriter, schedule: CppProduct):
        form = form_of(writer.k)
        assert form is not None
        self.w, self.form, self.k = writer, form, writer.k
        self.kind, self.width = schedule.form, schedule.width
        *self.outer_columns, self.x = form.columns
        *self.outer_rows, self.y = form.rows or (Var(1),)
        *self.outer_k, self.lane = [v for v in self.k.reduced if v.size > 1]
        self.rows = max(min(4, self.y.size, SUMS // len(form.terms)), 1)
        self.panel = min(schedule.panel, self.x.size)
        self.panels = -(-self.x.size // self.panel)
        self.block = min(BLOCK[self.kind], self.lane.size)
        self.type = REGISTER[form.terms[0].reduce.type]
        rights = list(dict.fromkeys(t.right.id for t in form.terms))
        few = (
            not self.outer_k
            and len(rights) * self.lane.size * self.panel <= PACKED
            and self.y.size > self.rows
        )
        self.packed = [
            r for r in rights if few and self.kind == "outer" and not self._lies_ready(r)
        ]
        self.outer = [*form.batch, *self.outer_rows, *self.outer_columns]

    def _lies_ready(self, right: int) -> bool:
        """The operand can be read in place: floats are contiguous along the panel."""
        instr = self.k.instrs[right]
        return (
            instr.op == "load"
            and instr.offset.coef(self.x) == 1
            and self.k.inputs[instr.buffer].dtype == instr.type
        )

    # -------------------------------------------------------------- the function

    def text(self) -> str:
        """The strips' functions, then the kernel's."""
        self._write()
        self.w.close()
        return "\n".join(self.w.lines)

    def _write(self) -> None:
        w = self.w
        whole = {self.rows, BAND % self.rows} if self.y.size >= BAND else {self.rows}
        heights = sorted({*whole, self.y.size % BAND % self.rows} - {0}, reverse=True)
        for height in heights:
            self._strip(height)
        w.signature()
        bands = -(-self.y.size // BAND)
        w.parallel_for("t", math.prod(v.size for v in self.outer) * bands * self.panels)
        w.decompose("t", [*self.outer, ("band", bands), ("p", self.panels)])
        w.lane_piece(self.x, self.panel)
        w.put(
            f"const long end = band * {BAND} + {BAND} < {self.y.size!r} ? band * {BAND} + {BAND} : {self.y.size!r};"
        )
        self._pack()
        w.open(f"for (long y0 = band * {BAND}; y0 < end; y0 += {self.rows})")
        sums = len(self.form.terms) * self.rows * self.panel
        w.put(f"{self.type} c[{sums}] = {{0}};")
        if self.rows == 1:
            w.put("const long high = 1;")
        else:
            w.put(f"const long high = end - y0 < {self.rows} ? end - y0 : {self.rows};")
        arguments = ", ".join([*self._names(), "y0", "lo", "len", "c"])
        for n, height in enumerate(heights):
            last = n == len(heights) - 1
            w.put(
                ("" if n == 0 else "else ")
                + ("" if last else f"if (high == {height}) ")
                + f"{self.k.name}_{height}({arguments});"
            )
        self._behind()
        w.close()
        w.close()

    def _names(self) -> list[str]:
        """Arguments of every strip: the kernel's pointers and the outer loop variables."""
        pointers = [f"a{n}" for n in range(len(self.k.inputs))]
        return [
            *pointers,
            *(f"b{id_}" for id_ in self.packed),
            *(self.w.names[v] for v in self.outer),
        ]

    def _pack(self) -> None:
        """Pack a panel of the right operand once for all rows of the task, with contiguous columns."""
        w = self.w
        for id_ in self.packed:
            w.put(f"{self.type} b{id_}[{self.lane.size * self.panel}];")
            w.open(f"for (long k = 0; k < {self.lane.size!r}; ++k)")
            w.put("#pragma omp simd")
            w.open("for (long l = 0; l < len; ++l)")
            w.put(f"{self.type} q;")
            self._at("q", id_, {self.lane: "k", self.x: "lo + l"})
            w.put(f"b{id_}[k * {self.panel} + l] = q;")
            w.close()
            w.close()

    def _behind(self) -> None:
        """Write the epilogue of the sums, row by row of the strip."""
        w = self.w
        w.open("for (long i = 0; i < high; ++i)")
        w.put(f"const long {self._name(self.y)} = y0 + i;")
        w.put("#pragma omp simd")
        w.open("for (long l = 0; l < len; ++l)")
        w.put(f"const long {self._name(self.x)} = lo + l;")
        for n, term in enumerate(self.form.terms):
            w.put(
                f"const {self.type} v{term.reduce.id} = c[({n * self.rows} + i) * {self.panel} + l];"
            )
        sums = {t.reduce.id for t in self.form.terms}
        for instr in self._made_of([s.value for s in self.k.stores], sums):
            w.scalar(instr)
        for store in self.k.stores:
            w.store(store)
        w.close()
        w.close()

    def _name(self, var: Var) -> str:
        return self.w.names.setdefault(var, "y")

    def _made_of(
        self, targets: list[int], given: set[int] | frozenset[int] = frozenset()
    ) -> list[Instr]:
        """All dependencies of the targets, in order."""
        needed: set[int] = set()
        pending = list(targets)
        while pending:
            id_ = pending.pop()
            if id_ not in needed and id_ not in given:
                needed.add(id_)
                pending.extend(a.id for a in self.k.instrs[id_].args if isinstance(a, Ref))
        return [i for i in self.k.instrs if i.id in needed]

    # -------------------------------------------------------------- strips

    def _strip(self, height: int) -> None:
        """A function that adds the sums of `height` rows and `len` columns from `x0` to `c`."""
        w = self.w
        plain = all(i.op == "load" for t in self.form.terms for i in (t.left, t.right))
        attributes = [
            "noinline",
            *(['optimize("fp-contract=fast")'] if plain else []),
            f'target("prefer-vector-width={self.width}")',
        ]
        pointers = [
            *w.params().split(", ")[: len(self.k.inputs)],
            *(f"const {self.type}* __restrict b{id_}" for id_ in self.packed),
        ]
        numbers = [*(w.names[v] for v in self.outer), "y0", "x0", "len"]
        w.put(f"__attribute__(({', '.join(attributes)}))")
        w.open(
            f"static void {self.k.name}_{height}({', '.join([*pointers, *(f'long {n}' for n in numbers)])}, {self.type}* __restrict c)"
        )
        if self.panels == 1:
            w.put(f"len = {self.x.size!r};")
        depth = 0
        for var in self.outer_k:
            w.open(
                f"for (long {w.names[var]} = 0; {w.names[var]} < {var.size!r}; ++{w.names[var]})"
            )
            depth += 1
        if self.block < self.lane.size:
            w.open(f"for (long k0 = 0; k0 < {self.lane.size!r}; k0 += {self.block})")
            w.put(
                f"const long k1 = k0 + {self.block} < {self.lane.size!r} ? k0 + {self.block} : {self.lane.size!r};"
            )
            depth += 1
        else:
            w.put(f"const long k0 = 0, k1 = {self.lane.size!r};")
        self._dot(height) if self.kind == "dot" else self._outer(height)
        for _ in range(depth):
            w.close()
        w.close()
        w.put("")

    def _dot(self, height: int) -> None:
        w = self.w
        across = max(SUMS // (height * len(self.form.terms)), 1)
        w.put("long j = 0;")
        # Whole panels hold whole tiles: the size of the last one is known.
        tiles = across if self.panels == 1 or self.panel % across == 0 else 1
        for width in {tiles: None, self.x.size % tiles or tiles: None}:
            w.open(f"for (; j + {width} <= len; j += {width})")
            sums = [
                (t, i, j)
                for t in range(len(self.form.terms))
                for i in range(height)
                for j in range(width)
            ]
            w.put(f"{self.type} {', '.join(f's{t}_{i}_{j} = 0' for t, i, j in sums)};")
            w.put(f"#pragma omp simd reduction(+:{', '.join(f's{t}_{i}_{j}' for t, i, j in sums)})")
            w.open(
                f"for (long {w.names[self.lane]} = k0; {w.names[self.lane]} < k1; ++{w.names[self.lane]})"
            )
            self._operands("p", height, self.y, "y0")
            self._operands("q", width, self.x, "x0 + j")
            for t, i, j in sums:
                term = self.form.terms[t]
                w.put(f"s{t}_{i}_{j} += p{term.left.id}_{i} * q{term.right.id}_{j};")
            w.close()
            for t, i, j in sums:
                w.put(f"c[{(t * self.rows + i) * self.panel} + j + {j}] += s{t}_{i}_{j};")
            w.close()

    def _operands(self, letter: str, count: int, var: Var, start: str) -> None:
        """Declare an operand's values at so many positions of its side."""
        for id_ in dict.fromkeys(
            (t.left if letter == "p" else t.right).id for t in self.form.terms
        ):
            for n in range(count):
                self._value(f"{letter}{id_}_{n}", id_, var, f"{start} + {n}")

    def _value(self, name: str, id_: int, var: Var, at: str) -> None:
        """Declare the value of an instruction where a loop variable is `at`."""
        w = self.w
        w.put(f"{REGISTER[self.k.instrs[id_].type]} {name};")
        w.open("")
        w.put(f"const long {self._name(var)} = {at};")
        for instr in self._made_of([id_]):
            w.scalar(instr)
        w.put(f"{name} = v{id_};")
        w.close()

    def _outer(self, height: int) -> None:
        w = self.w
        terms = self.form.terms
        steps = max(SUMS // (height * len(terms)), 2) if height > 1 else 8
        steps = self.lane.size if self.lane.size <= SHORT // 2 else steps
        once = self.block == self.lane.size and not self.outer_k
        sums, rows = ("c", self.rows) if once else ("s", height)
        if not once:
            w.put(f"{self.type} s[{len(terms) * height * self.panel}];")
            w.put(f"for (long l = 0; l < {len(terms) * height * self.panel}; ++l) s[l] = 0;")
        w.put("long k = k0;")
        for count in (steps, 1) if self.lane.size % steps or not once else (steps,):
            w.open(f"for (; k + {count} <= k1; k += {count})")
            lefts = dict.fromkeys(t.left.id for t in terms)
            for id_ in lefts:
                for i in range(height):
                    w.put(
                        f"{REGISTER[self.k.instrs[id_].type]} "
                        + ", ".join(f"p{id_}_{i}_{u}" for u in range(count))
                        + ";"
                    )
                    for u in range(count):
                        self._at(
                            f"p{id_}_{i}_{u}", id_, {self.y: f"y0 + {i}", self.lane: f"k + {u}"}
                        )
            w.put("#pragma omp simd")
            w.open("for (long l = 0; l < len; ++l)")
            w.put(f"const long {self._name(self.x)} = x0 + l;")
            for id_ in dict.fromkeys(t.right.id for t in terms):
                w.put(
                    f"{REGISTER[self.k.instrs[id_].type]} "
                    + ", ".join(f"q{id_}_{u}" for u in range(count))
                    + ";"
                )
                for u in range(count):
                    if id_ in self.packed:
                        w.put(f"q{id_}_{u} = b{id_}[(k + {u}) * {self.panel} + l];")
                    else:
                        self._at(f"q{id_}_{u}", id_, {self.lane: f"k + {u}"})
            for t, term in enumerate(terms):
                for i in range(height):
                    cell = f"{sums}[{(t * rows + i) * self.panel} + l]"
                    w.put(f"{{ {self.type} sum = {cell};")
                    for u in range(count):
                        w.put(f"  sum += p{term.left.id}_{i}_{u} * q{term.right.id}_{u};")
                    w.put(f"  {cell} = sum; }}")
            w.close()
            w.close()
        for t in range(0 if once else len(terms)):
            for i in range(height):
                to, source = (t * self.rows + i) * self.panel, (t * height + i) * self.panel
                w.put(f"for (long l = 0; l < len; ++l) c[{to} + l] += s[{source} + l];")

    def _at(self, name: str, id_: int, places: dict[Var, str]) -> None:
        """Assign the value of an instruction at some positions to a declared name."""
        w = self.w
        w.open("")
        for var, at in places.items():
            w.put(f"const long {self._name(var)} = {at};")
        for instr in self._made_of([id_]):
            w.scalar(instr)
        w.put(f"{name} = v{id_};")
        w.close()
