"""Render a kernel as C++: `extern "C"`, OpenMP over rows, SIMD over the fastest variable.

Reductions make one pass over the row a stage; a row stays in cache between passes. Math functions
are declared with the vector signatures of libmvec, so that loops with `exp` or `erf` vectorise
without -ffast-math. Sums over long rows accumulate in double. NaN propagates through max and min.

Not covered: matrix products, scatter, types wider than 8 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from dvk.composer.affine import Affine, Var
from dvk.composer.kernel import Argument, Instr, Kernel, Ref

FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fno-builtin-expf", "-fno-builtin-exp", "-fopenmp", "-shared", "-fPIC")
"""GCC may not know exp by name: it would fold a clamped argument back into a branch around the call, and not vectorise.
Strict IEEE apart from errno and traps: enough for GCC to vectorise, without -ffast-math's loss of NaN and infinity."""
LONG_SUM = 1 << 16
"""Elements above which a float sum accumulates in double: 65,536 additions in one float lane cost about four digits."""
KEPT_BYTES = 1 << 17
"""Bytes of a thread's stack that values kept between passes may take; half of a usual L2 cache."""
COSTLY = {"exp", "log", "log1p", "expm1", "tanh", "erf", "sin", "cos", "exp2", "log2", "sigmoid"}
SERIAL_BELOW = 1 << 13
"""Elements below which starting threads costs more than it saves (a parallel region takes about 5 µs)."""

STORAGE = {"float32": "float", "float64": "double", "float16": "_Float16", "bfloat16": "unsigned short", "int64": "long",
           "int32": "int", "int16": "short", "int8": "signed char", "uint8": "unsigned char", "bool": "unsigned char"}
REGISTER = {**STORAGE, "bool": "bool"}

PRELUDE = """\
#define VMATH __attribute__((simd("notinbranch"), const))
extern "C" {
VMATH float expf(float); VMATH float logf(float); VMATH float log1pf(float); VMATH float expm1f(float);
VMATH float tanhf(float); VMATH float erff(float); VMATH float sinf(float); VMATH float cosf(float);
VMATH float exp2f(float); VMATH float log2f(float);
VMATH double exp(double); VMATH double log(double); VMATH double log1p(double); VMATH double expm1(double);
VMATH double tanh(double); VMATH double erf(double); VMATH double sin(double); VMATH double cos(double);
VMATH double exp2(double); VMATH double log2(double);
}
// The vector expf leaves its fast path for a whole vector when one argument is below -87, as masked softmax has them.
static inline float dvk_expf(float x) { float r = expf(x < -86.0f ? -86.0f : x); return r < 4.48e-38f ? 0.0f : r; }
static inline double dvk_exp(double x) { double r = exp(x < -700.0 ? -700.0 : x); return r < 9.9e-305 ? 0.0 : r; }
"""
BF16 = """\
static inline float bf2f(unsigned short h) { unsigned u = (unsigned)h << 16; float f; __builtin_memcpy(&f, &u, 4); return f; }
static inline unsigned short f2bf(float f) {
  unsigned u; __builtin_memcpy(&u, &f, 4);
  unsigned r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return f != f ? 0x7fc0 : (unsigned short)r;
}
"""

_CALLS = {"exp", "log", "log1p", "expm1", "tanh", "erf", "sin", "cos", "exp2", "log2"}
_ROUND = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "nearbyint", "sqrt": "sqrt", "abs": "fabs"}
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
          "and": "&", "or": "|"}


def default_schedule(kernel: Kernel) -> dict[str, Any]:
    """What a person would write first."""
    few_rows = kernel.family == "row" and kernel.num_rows < 4
    return {"parallel": "inner" if few_rows else "rows", "chunk": 256 if kernel.family == "column" else 4096, "width": 512}


def schedules(kernel: Kernel) -> list[dict[str, Any]]:
    """The alternatives worth measuring, the default first."""
    first = default_schedule(kernel)
    options = [first]
    chunks = (64, 256, 1024) if kernel.family == "column" else (1024, 4096, 16384) if kernel.family == "pointwise" else (4096,)
    for parallel in ("rows", "inner") if kernel.family == "row" and kernel.num_rows < 64 else (first["parallel"],):
        for chunk in chunks:
            for width in (512, 256):
                option = {"parallel": parallel, "chunk": chunk, "width": width}
                if option not in options:
                    options.append(option)
    return options


def render(kernel: Kernel, schedule: dict[str, Any], inplace: dict[int, int] | None = None) -> str:
    """C++ source of one kernel, without the prelude.

    Args:
        inplace: output number → input number that shares its memory (same offset in every element).
    """
    return _Writer(kernel, schedule, inplace or {}).function()


def prelude(kernels: Iterable[Kernel]) -> str:
    """Declarations the kernels need."""
    types = {b.dtype for k in kernels for b in (*k.inputs, *k.outputs)}
    types |= {i.op.removeprefix("cast_") for k in kernels for i in k.instrs if i.op.startswith("cast_")}
    return PRELUDE + (BF16 if "bfloat16" in types else "")


class _Writer:
    def __init__(self, kernel: Kernel, schedule: dict[str, Any], inplace: dict[int, int]):
        self.k, self.schedule, self.inplace = kernel, schedule, inplace
        self.lines: list[str] = []
        self.names = {v: f"i{n}" for n, v in enumerate((*kernel.rows, *kernel.reduced))}
        self.depth = 0
        # The variable that SIMD runs over: the fastest reduced one, or the fastest row variable.
        pool = kernel.reduced if kernel.family == "row" else kernel.rows
        self.lane: Var | None = pool[-1] if pool else None
        self.arrays = kernel.family == "column"
        self.done: set[int] = set()
        self.kept: set[int] = set()
        self.kept = self._plan_kept()

    def put(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def open(self, text: str) -> None:
        self.put(f"{text} {{".lstrip())
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1
        self.put("}")

    # -------------------------------------------------------------- the function

    def function(self) -> str:
        k = self.k
        aliased = set(self.inplace.values())
        params = [f"const {STORAGE[b.dtype]}* {'' if n in aliased else '__restrict '}a{n}" for n, b in enumerate(k.inputs)]
        params += [f"{STORAGE[b.dtype]}* {'' if n in self.inplace else '__restrict '}o{n}" for n, b in enumerate(k.outputs)]
        self.put(f"// {k.summary}")
        if self.schedule["width"] == 256:
            self.put('__attribute__((target("prefer-vector-width=256")))')
        self.open(f'extern "C" void {k.name}({", ".join(params)})')
        if k.family == "row":
            self._row_kernel()
        else:
            self._lane_kernel()
        self.close()
        return "\n".join(self.lines)

    def _total(self) -> int:
        return self.k.num_rows * self.k.row_length

    def _lane_kernel(self) -> None:
        """Pointwise and column kernels: tasks are pieces of the fastest row variable, SIMD runs inside a piece."""
        k = self.k
        lane = self.lane or Var(1)
        self.names.setdefault(lane, "i0")
        chunk = min(int(self.schedule["chunk"]), max(lane.size, 1))
        pieces = -(-lane.size // chunk)
        outer = [v for v in k.rows if v is not lane]
        tasks = pieces * math.prod(v.size for v in outer)
        self._parallel_for(tasks)
        self._decompose("t", [*outer, ("p", pieces)])
        self.put(f"const long lo = p * {chunk};")
        self.put(f"const long len = {lane.size} - lo < {chunk} ? {lane.size} - lo : {chunk};")
        if k.family == "pointwise":
            self._lane_loop([i for i in k.instrs], [], stores=list(k.stores))
        else:
            self._passes(chunk)
        self.close()

    def _parallel_for(self, tasks: int) -> None:
        if tasks > 1 and self._total() >= SERIAL_BELOW:
            self.put("#pragma omp parallel for schedule(static)")
        self.open(f"for (long t = 0; t < {tasks}; ++t)")

    def _decompose(self, flat: str, variables: list[Any]) -> None:
        """Declare each variable as its digit of the flat index, the last one fastest."""
        named = [(self.names[v], v.size) if isinstance(v, Var) else v for v in variables]
        rest = flat
        for position, (name, size) in enumerate(reversed(named)):
            last = position == len(named) - 1
            self.put(f"const long {name} = {rest if last else f'{rest} % {size}'};")
            if not last:
                self.put(f"const long {flat}{position} = {rest} / {size};")
                rest = f"{flat}{position}"

    def _row_kernel(self) -> None:
        """Row kernels: a task is a row, or with `inner` parallelism a piece of each pass over it."""
        k = self.k
        if self.schedule["parallel"] == "inner":
            self.open(f"for (long t = 0; t < {k.num_rows}; ++t)")
        else:
            self._parallel_for(k.num_rows)
        self._decompose("t", list(k.rows))
        for value in sorted(self.kept):
            self.put(f"{REGISTER[k.instrs[value].type]} s{value}[{k.row_length}];")
        self._passes(0)
        self.close()

    # -------------------------------------------------------------- passes

    def _passes(self, chunk: int) -> None:
        k = self.k
        for stage in range(k.num_stages):
            self._row_values([i for i in k.instrs if k.is_row_value(i) and i.stage == stage and not i.op.startswith("reduce_")], chunk)
            reduces = [i for i in k.instrs if i.op.startswith("reduce_") and i.stage == stage + 1]
            constant = [r for r in reduces if k.is_row_value(k.instrs[_ref(r.args[0])])]
            for r in constant:
                self._constant_reduce(r, chunk)
            looped = [r for r in reduces if r not in constant]
            stores = self._element_stores(stage)
            if looped or stores:
                self._pass(self._closure(self._targets(stage)), looped, stores, chunk)
                self.done.update(i.id for i in self._closure(self._targets(stage)))
        self._row_stores([s for s in k.stores if k.is_row_store(s)])

    def _element_stores(self, stage: int) -> list[Any]:
        return [s for s in self.k.stores if not self.k.is_row_store(s) and self.k.instrs[s.value].stage == stage]

    def _targets(self, stage: int) -> list[int]:
        """Element-level values that the pass of a stage is made for."""
        k = self.k
        reduced = [_ref(i.args[0]) for i in k.instrs if i.op.startswith("reduce_") and i.stage == stage + 1]
        return [t for t in [*reduced, *(s.value for s in self._element_stores(stage))] if not k.is_row_value(k.instrs[t])]

    def _closure(self, targets: list[int]) -> list[Instr]:
        """Element-level instructions that the targets need, not going behind values kept from an earlier pass."""
        needed: set[int] = set()
        pending = list(targets)
        while pending:
            instr = self.k.instrs[pending.pop()]
            if instr.id in needed or self.k.is_row_value(instr):
                continue
            needed.add(instr.id)
            if instr.id not in self.kept or instr.id not in self.done:
                pending.extend(a.id for a in instr.args if isinstance(a, Ref))
        return [i for i in self.k.instrs if i.id in needed]

    def _plan_kept(self) -> set[int]:
        """Costly values of one pass that a later pass needs again: worth a buffer of a row's length."""
        k = self.k
        if k.family != "row" or k.num_stages < 2 or k.row_length * 4 > KEPT_BYTES or not self.schedule.get("keep", True):
            return set()
        kept: set[int] = set()
        seen: set[int] = set()
        for stage in range(k.num_stages):
            pending, here = self._targets(stage), set()
            while pending:
                instr = k.instrs[pending.pop()]
                if instr.id in here or k.is_row_value(instr):
                    continue
                here.add(instr.id)
                if instr.id in seen and self._is_costly(instr, kept):
                    kept.add(instr.id)
                else:
                    pending.extend(a.id for a in instr.args if isinstance(a, Ref))
            seen |= here
        return kept if len(kept) * k.row_length * 4 <= KEPT_BYTES else set()

    def _is_costly(self, instr: Instr, kept: set[int]) -> bool:
        if instr.op in COSTLY:
            return True
        return any(self._is_costly(self.k.instrs[a.id], kept) for a in instr.args
                   if isinstance(a, Ref) and a.id not in kept and not self.k.is_row_value(self.k.instrs[a.id]))

    def _pass(self, needed: list[Instr], reduces: list[Instr], stores: list[Any], chunk: int) -> None:
        if self.arrays:
            for r in reduces:
                self.put(f"{self._acc_type(r)} v{r.id}[{chunk}]; for (long l = 0; l < len; ++l) v{r.id}[l] = {self._identity(r)};")
            for var in self.k.reduced:
                self.open(f"for (long {self.names[var]} = 0; {self.names[var]} < {var.size}; ++{self.names[var]})")
            self._lane_loop(needed, reduces, stores)
            for _ in self.k.reduced:
                self.close()
            return
        for r in reduces:
            self.put(f"{self._acc_type(r)} v{r.id} = {self._identity(r)};")
            if r.op in ("reduce_max", "reduce_min"):
                self.put(f"int nan{r.id} = 0;")
        clauses = " ".join(self._clause(r) for r in reduces)
        lane, outer = self.k.reduced[-1], self.k.reduced[:-1]
        inner = self.names[lane]
        if self.schedule["parallel"] == "inner":
            chunk = int(self.schedule["chunk"])
            pieces = -(-lane.size // chunk)
            tasks = pieces * math.prod(v.size for v in outer)
            if tasks > 1 and self._total() >= SERIAL_BELOW:
                self.put(f"#pragma omp parallel for schedule(static) {clauses}")
            self.open(f"for (long u = 0; u < {tasks}; ++u)")
            self._decompose("u", [*outer, ("p", pieces)])
            self.put(f"const long lo = p * {chunk}, hi = lo + {chunk} < {lane.size} ? lo + {chunk} : {lane.size};")
            depth = 1
        else:
            for var in outer:
                self.open(f"for (long {self.names[var]} = 0; {self.names[var]} < {var.size}; ++{self.names[var]})")
            self.open("")
            self.put(f"const long lo = 0, hi = {lane.size};")
            depth = len(outer) + 1
        self.put(f"#pragma omp simd {clauses}".rstrip())
        self.open(f"for (long {inner} = lo; {inner} < hi; ++{inner})")
        for instr in needed:
            self._scalar(instr)
        for r in reduces:
            self._accumulate(r, f"v{r.id}")
        for s in stores:
            self._store(s)
        self.close()
        for _ in range(depth):
            self.close()
        for r in reduces:
            if r.op in ("reduce_max", "reduce_min"):
                self.put(f"if (nan{r.id}) v{r.id} = __builtin_nan(\"\");")

    def _lane_loop(self, needed: list[Instr], reduces: list[Instr], stores: list[Any]) -> None:
        lane = self.lane
        self.put("#pragma omp simd")
        self.open("for (long l = 0; l < len; ++l)")
        if lane is not None:
            self.put(f"const long {self.names[lane]} = lo + l;")
        for instr in needed:
            self._scalar(instr)
        for r in reduces:
            self._accumulate(r, f"v{r.id}[l]")
        for s in stores:
            self._store(s)
        self.close()

    def _row_values(self, instrs: list[Instr], chunk: int) -> None:
        if not self.arrays:
            for instr in instrs:
                self._scalar(instr)
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

    def _row_stores(self, stores: list[Any]) -> None:
        if not stores:
            return
        if self.arrays:
            self._lane_loop([], [], stores)
        else:
            for s in stores:
                self._store(s)

    def _constant_reduce(self, r: Instr, chunk: int) -> None:
        value = self._arg(r.args[0], r.type)
        times = f" * ({REGISTER[r.type]}){self.k.row_length}" if r.op == "reduce_sum" else ""
        if self.arrays:
            self.put(f"{REGISTER[r.type]} v{r.id}[{chunk}]; for (long l = 0; l < len; ++l) v{r.id}[l] = {value}{times};")
        else:
            self.put(f"{REGISTER[r.type]} v{r.id} = {value}{times};")
        if r.op == "reduce_prod":
            cell = f"v{r.id}[l]" if self.arrays else f"v{r.id}"
            each = "for (long l = 0; l < len; ++l) " if self.arrays else ""
            self.put(f"for (long n = 1; n < {self.k.row_length}; ++n) {each}{cell} *= {value};")

    # -------------------------------------------------------------- reductions

    def _acc_type(self, r: Instr) -> str:
        long_sum = r.op == "reduce_sum" and r.type == "float32" and self.k.row_length > LONG_SUM
        return "double" if long_sum else REGISTER[r.type]

    def _identity(self, r: Instr) -> str:
        if r.op == "reduce_sum":
            return "0"
        if r.op == "reduce_prod":
            return "1"
        return "-__builtin_inf()" if r.op == "reduce_max" else "__builtin_inf()"

    def _clause(self, r: Instr) -> str:
        sign = {"reduce_sum": "+", "reduce_prod": "*", "reduce_max": "max", "reduce_min": "min"}[r.op]
        extra = f" reduction(|:nan{r.id})" if sign in ("max", "min") else ""
        return f"reduction({sign}:v{r.id}){extra}"

    def _accumulate(self, r: Instr, acc: str) -> None:
        value = self._arg(r.args[0], r.type)
        if r.op == "reduce_sum":
            self.put(f"{acc} += {value};")
        elif r.op == "reduce_prod":
            self.put(f"{acc} *= {value};")
        else:
            sign = ">" if r.op == "reduce_max" else "<"
            if self.arrays:
                self.put(f"{acc} = ({value} {sign} {acc} || {value} != {value}) ? {value} : {acc};")
            else:
                self.put(f"{acc} = {value} {sign} {acc} ? {value} : {acc}; nan{r.id} |= {value} != {value};")

    # -------------------------------------------------------------- expressions

    def _scalar(self, instr: Instr) -> None:
        kept = instr.id in self.kept
        place = f"s{instr.id}[{self._offset(self._row_position)}]" if kept else ""
        self.put(f"const {REGISTER[instr.type]} v{instr.id} = {place if instr.id in self.done and kept else self._expression(instr)};")
        if kept and instr.id not in self.done:
            self.put(f"{place} = v{instr.id};")

    @property
    def _row_position(self) -> Affine:
        """Which element of the row, counted along the reduced variables."""
        position, step = Affine(), 1
        for var in reversed(self.k.reduced):
            position = position + Affine.build({var: step})
            step *= var.size
        return position

    def _offset(self, offset: Affine) -> str:
        parts = [f"{self.names[v]} * {c}" if c != 1 else self.names[v] for v, c in offset.terms]
        return " + ".join(parts + ([str(offset.const)] if offset.const else [])) or "0"

    def _arg(self, arg: Argument, want: str) -> str:
        """An operand converted to the compute type."""
        if not isinstance(arg, Ref):
            return literal(arg, want)
        instr = self.k.instrs[arg.id]
        in_array = self.arrays and self.k.is_row_value(instr)
        name = f"v{arg.id}[l]" if in_array else f"v{arg.id}"
        if instr.type == want and not (instr.op.startswith("reduce_") and self._acc_type(instr) != REGISTER[want]):
            return name
        return f"(({REGISTER[want]}){name})" if want != "bool" else f"({name} != 0)"

    def _expression(self, instr: Instr) -> str:
        if instr.op == "load":
            buffer = self.k.inputs[instr.buffer]
            cell = f"a{instr.buffer}[{self._offset(instr.offset)}]"
            return {"bfloat16": f"bf2f({cell})", "float16": f"(float){cell}", "bool": f"({cell} != 0)"}.get(buffer.dtype, cell)
        if instr.op == "iota":
            return self._offset(instr.offset)
        a = [self._arg(x, instr.compute) for x in instr.args]
        return scalar_expression(instr, a, [self._arg(x, "bool") for x in instr.args[:1]])

    def _store(self, store: Any) -> None:
        instr = self.k.instrs[store.value]
        buffer = self.k.outputs[store.buffer]
        value = self._arg(Ref(instr.id), instr.type)
        converted = {"bfloat16": f"f2bf({value})", "bool": f"(unsigned char)({value} ? 1 : 0)"}.get(
            buffer.dtype, f"({STORAGE[buffer.dtype]}){value}")
        self.put(f"o{store.buffer}[{self._offset(store.offset)}] = {converted};")


def _ref(arg: Argument) -> int:
    assert isinstance(arg, Ref), "a reduction's operand is a value"
    return arg.id


def literal(value: bool | int | float, want: str) -> str:
    """A number as a C++ literal of the wanted register type."""
    if want == "bool":
        return "true" if value else "false"
    if want in ("float32", "float64"):
        value = float(value)
        if math.isinf(value):
            return ("-" if value < 0 else "") + ("__builtin_inff()" if want == "float32" else "__builtin_inf()")
        if math.isnan(value):
            return '__builtin_nan("")'
        return repr(value) + ("f" if want == "float32" else "")
    return f"{int(value)}L" if want == "int64" else f"({REGISTER[want]}){int(value)}"


def scalar_expression(instr: Instr, a: list[str], condition: list[str]) -> str:
    """One scalar operation on operands already of the compute type."""
    op, single = instr.op, instr.compute == "float32"
    suffix = "f" if single else ""
    one = literal(1, instr.compute)
    if op in _INFIX:
        return f"({a[0]} {_INFIX[op]} {a[1]})"
    if op == "exp":
        return f"dvk_exp{suffix}({a[0]})"
    if op in _CALLS:
        return f"{op}{suffix}({a[0]})"
    if op == "abs" and instr.compute not in ("float32", "float64"):
        return f"({a[0]} < 0 ? -{a[0]} : {a[0]})"
    if op in _ROUND:
        return f"__builtin_{_ROUND[op]}{suffix}({a[0]})"
    if op == "neg":
        return f"(-{a[0]})"
    if op == "rsqrt":
        return f"({one} / __builtin_sqrt{suffix}({a[0]}))"
    if op == "reciprocal":
        return f"({one} / {a[0]})"
    if op == "sigmoid":
        return f"({one} / ({one} + dvk_exp{suffix}(-{a[0]})))"
    if op == "sign":
        return f"({REGISTER[instr.compute]})(({a[0]} > 0) - ({a[0]} < 0))"
    if op in ("max", "min"):
        sign = "<" if op == "max" else ">"
        if not isinstance(instr.args[1], Ref):
            return f"({a[0]} {sign} {a[1]} ? {a[1]} : {a[0]})"
        return f"(({a[0]} {sign} {a[1]} || {a[1]} != {a[1]}) ? {a[1]} : {a[0]})"
    if op == "where":
        return f"({condition[0]} ? {a[1]} : {a[2]})"
    if op == "not":
        return f"(!{condition[0]})"
    if op == "isnan":
        return f"({a[0]} != {a[0]})"
    if op == "isinf":
        return f"(__builtin_fabs{suffix}({a[0]}) == {literal(math.inf, instr.compute)})"
    if op == "as":
        return a[0]
    if op == "cast_float16":
        return f"((float)(_Float16){a[0]})"
    if op == "cast_bfloat16":
        return f"bf2f(f2bf({a[0]}))"
    assert op.startswith("cast_"), op
    return a[0]
