"""Write one kernel as a C++ function: loops over rows and lanes, one pass over a row per stage.

Row kernels reduce along memory: a task is a row, SIMD runs along it. Column kernels reduce across memory: a task is a slice of the fastest
row variable, accumulators are arrays over the slice. Pointwise kernels are column kernels without reductions. A row-sized buffer on the
stack keeps costly values that a later pass needs again. Sums over long rows accumulate in double.
"""

from __future__ import annotations

import math

from dvk.composer.codegen.cpp.convolution import CppConvolution
from dvk.composer.codegen.cpp.kept import plan_kept
from dvk.composer.codegen.cpp.lanes import ahead, flat_kernel, row_segments, segments
from dvk.composer.codegen.cpp.matmul import CppMatmul
from dvk.composer.codegen.cpp.pooling import window_pass
from dvk.composer.codegen.cpp.rows import accumulate, clause, constant_reduce, one_pass, open_loop
from dvk.composer.codegen.cpp.scalar import REGISTER, identity, may_be_nan
from dvk.composer.codegen.cpp.scan import scan_kernel
from dvk.composer.codegen.cpp.writer import CppWriter, ref_of
from dvk.composer.ir.affine import Var
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.loops import Instr, Kernel, Store
from dvk.composer.ir.schedules.cpp import CppDirect, CppForm, CppProduct


class KernelWriter(CppWriter):
    """The source of one kernel under a schedule: passes in order, each by its family."""

    def __init__(self, kernel: Kernel, schedule: CppForm, inplace: dict[int, int]):
        super().__init__(kernel, schedule, inplace)
        self.kept = plan_kept(self)

    def function(self) -> str:
        if isinstance(self.schedule, CppDirect):
            return CppConvolution(self, self.schedule).text()
        if isinstance(self.schedule, CppProduct):
            return CppMatmul(self, self.schedule).text()
        self.signature()
        if self.k.family in ("scan", "scan_column"):
            scan_kernel(self)
        elif self.rows:
            self._row_kernel()
        elif self.loops.form == "flat":
            flat_kernel(self)
        else:
            self._lane_kernel()
        self.close()
        return "\n".join(self.lines)

    def _lane_kernel(self) -> None:
        """Pointwise and column kernels: tasks are slices of the fastest row variable, SIMD runs inside a slice."""
        k = self.k
        lane = self.lane or Var(1)
        self.names.setdefault(lane, "i0")
        if self.lane is not None and self.whole_lane(lane):
            return
        chunk = min(self.loops.chunk, max(lane.size, 1))
        pieces = -(-lane.size // chunk)
        outer = [v for v in k.rows if v is not lane]
        tasks = pieces * math.prod(v.size for v in outer)
        self.parallel_for("t", tasks)
        self.decompose("t", [*outer, ("p", pieces)] if pieces > 1 else outer)
        self.lane_piece(lane, chunk)
        if not k.reduced:
            self.lane_loop([i for i in k.instrs], [], stores=list(k.stores))
        else:
            self._passes(chunk)
        self.close()

    def _row_kernel(self) -> None:
        """Row kernels: a task is a row, or with `inner` parallelism a slice of each pass over it."""
        k = self.k
        if k.rows_of_block:
            self._open_block()
        elif self.loops.parallel == "inner":
            self.open(f"for (long t = 0; t < {k.num_rows!r}; ++t)")
        else:
            self.parallel_for("t", k.num_rows)
        self.decompose("t", list(k.rows))
        for value in sorted(self.kept):
            self.put(f"{REGISTER[k.instrs[value].type]} {self.buffer}{value}[{k.row_length!r}];")
        self._passes(0)
        self.close()
        if k.rows_of_block:
            self.close()

    def _open_block(self) -> None:
        """Open the loops over blocks, whose sums start at 0, and over the rows of a block."""
        k, size = self.k, self.k.rows_of_block
        if self.loops.parallel == "inner":
            raise CannotCompose("rows that are added up are not shared by threads")
        self.parallel_for("b", -(-k.num_rows // size))
        for store in k.stores:
            if store.folded:
                length = k.outputs[store.buffer].shape[1]
                cell = f"o{store.buffer}[b * {length} + l]"
                self.put(f"for (long l = 0; l < {length}; ++l) {cell} = 0;")
        last = f"(b + 1) * {size}"
        stop = f"({last} < {k.num_rows} ? {last} : {k.num_rows})" if k.num_rows % size else last
        self.open(f"for (long t = b * {size}; t < {stop}; ++t)")

    def _passes(self, chunk: int) -> None:
        k = self.k
        for stage in range(k.num_stages):
            self._row_values(
                [
                    i
                    for i in k.instrs
                    if k.is_row_value(i) and i.stage == stage and not i.op.startswith("reduce_")
                ],
                chunk,
            )
            reduces = [i for i in k.instrs if i.op.startswith("reduce_") and i.stage == stage + 1]
            constant = [r for r in reduces if k.is_row_value(k.instrs[ref_of(r.args[0])])]
            for r in constant:
                constant_reduce(self, r, chunk)
            looped = [r for r in reduces if r not in constant and not self._in_pair(r)]
            if self.pair is not None and self.pair.first in reduces:
                one_pass(self, self.pair)
            stores = self.element_stores(stage)
            if looped or stores:
                self._pass(self.closure(self.targets(stage)), looped, stores, chunk)
                self.done.update(i.id for i in self.closure(self.targets(stage)))
        self._row_stores([s for s in k.stores if k.is_row_store(s)])

    def _pass(
        self, needed: list[Instr], reduces: list[Instr], stores: list[Store], chunk: int
    ) -> None:
        if self.arrays and self.k.family == "window":
            window_pass(self, needed, reduces, chunk)
            return
        if self.arrays:
            for r in reduces:
                self.start(r, chunk)
            for var in self.k.reduced:
                self.open(
                    f"for (long {self.names[var]} = 0; {self.names[var]} < {var.size!r}; ++{self.names[var]})"
                )
            self.lane_loop(needed, reduces, stores)
            for _ in self.k.reduced:
                self.close()
            self._finish(reduces)
            return
        for r in reduces:
            self.put(f"{self.accumulator(r)} v{r.id} = {identity(r)};")
            if may_be_nan(r):
                self.put(f"int nan{r.id} = 0;")
        for segment in row_segments(self):
            self.segment = segment
            depth = open_loop(
                self, self.k.reduced[-1], self.k.reduced[:-1], " ".join(clause(r) for r in reduces)
            )
            for instr in needed:
                self.scalar(instr)
            for r in reduces:
                accumulate(self, r, f"v{r.id}")
            for s in stores:
                self.store(s)
            self.close()
            for _ in range(depth):
                self.close()
        self.segment = (0, self.k.reduced[-1].size)
        self._finish(reduces)

    def lane_loop(self, needed: list[Instr], reduces: list[Instr], stores: list[Store]) -> None:
        """Write one vector loop over a slice of the lane, or one per segment of the whole lane."""
        lane, first = self.lane, ahead(self, needed)
        for instr in first:
            self.scalar(instr)
        whole = lane is not None and not self.arrays and self.loops.chunk >= lane.size
        for start, stop in segments(self.k, lane) if whole and lane is not None else [("0", "len")]:
            self.open_vector_loop("l", f"{start}", f"{stop}", lane=lane)
            if lane is not None:
                self.put(f"const long {self.names[lane]} = lo + l;")
            for instr in needed:
                if instr not in first:
                    self.scalar(instr)
            for r in reduces:
                accumulate(self, r, f"v{r.id}[l]")
            for s in stores:
                self.store(s)
            self.close()

    def _row_values(self, instrs: list[Instr], chunk: int) -> None:
        if not self.arrays:
            for instr in instrs:
                self.scalar(instr)
            return
        if not instrs:
            return
        for instr in instrs:
            self.put(f"{REGISTER[instr.type]} v{instr.id}[{chunk}];")
        self.put("#pragma omp simd")
        self.open("for (long l = 0; l < len; ++l)")
        if self.lane is not None:
            self.put(f"const long {self.names[self.lane]} = lo + l;")
        for instr in instrs:
            self.put(f"v{instr.id}[l] = {self._expression(instr)};")
        self.close()

    def _row_stores(self, stores: list[Store]) -> None:
        if self.arrays and stores:
            self.lane_loop([], [], stores)
            return
        for s in stores:
            self.store(s)
