"""The form of a matmul kernel: the loop variables of its rows, columns and batch, and the values it multiplies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dvk.composer.ir.affine import Var
from dvk.composer.ir.loops import Argument, Instr, Kernel, Ref
from dvk.composer.ir.nodes import HALVES, IRNode

SUMMED_IN_UNITS = 128


@dataclass(frozen=True)
class MatmulTerm:
    """One sum of products."""

    reduce: Instr
    left: Instr
    """The factor that varies along rows and k."""
    right: Instr
    """The factor that varies along columns and k."""
    dtypes: tuple[str, str]
    """Dtype of both operands in memory, or as they would be stored."""
    times: IRNode
    """The multiplication, with the kind that lowering recorded; the sum's primitive may be a cast after it."""
    scales: tuple[Instr, ...] = ()
    """What scales the sum of each block of k."""


@dataclass(frozen=True)
class MatmulForm:
    """Loop variables by role, outermost first; the kernel's fastest one is a column."""

    batch: tuple[Var, ...]
    """Variables along which both operands vary."""
    rows: tuple[Var, ...]
    columns: tuple[Var, ...]
    terms: tuple[MatmulTerm, ...]
    beside: tuple[Instr, ...] = ()
    """Sums over k of values of the rows, such as their squares."""

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Elements of batch, rows and columns."""
        return tuple(
            math.prod(v.size for v in part) for part in (self.batch, self.rows, self.columns)
        )  # type: ignore[return-value]

    @property
    def dtype(self) -> str:
        """The factors."""
        return self.terms[0].dtypes[0]

    @property
    def implicit(self) -> bool:
        """The rows of one operand are windows, whose places come before the channels in k."""
        return bool(self.terms[0].times.attrs.get("implicit"))

    @property
    def block(self) -> int:
        """Elements of k that `scales` are the same for; 0 without any."""
        return int(self.terms[0].times.attrs.get("blocks", 0))

    @property
    def rounds(self) -> int:
        """Products of 8-bit codes whose sum matrix units keep, before it is added in float32; 0 for all."""
        return SUMMED_IN_UNITS if self.terms[0].times.attrs.get("narrow") == "sums" else 0

    @property
    def tf32(self) -> bool:
        """The task permits TF32 products."""
        return bool(self.terms[0].times.attrs["tf32"])


def form_of(kernel: Kernel) -> MatmulForm | None:
    """The form; None for a kernel without a matmul, or with neither rows nor columns."""
    sums = [i for i in kernel.instrs if i.op.startswith("reduce_")]
    made_of = {i.id: made for i in sums if (made := _summed(kernel, i)) is not None}
    reduces = [i for i in sums if i.id in made_of and made_of[i.id].attrs.get("product")]
    times = [made_of[i.id] for i in reduces]
    beside = tuple(i for i in sums if i not in reduces)
    if not reduces or (beside and not all(t.attrs.get("normed") for t in times)):
        return None
    pairs = [_factors(kernel, i) for i in reduces]
    own = frozenset(kernel.rows)
    first = pairs[0]
    fastest = next((v for v in reversed(kernel.rows) if v.size > 1), None)
    if fastest is None:
        return None
    if (fastest in first[0].vars and fastest not in first[1].vars) or not first[
        1
    ].vars & own - first[0].vars:
        pairs = [(right, left) for left, right in pairs]
    left, right = pairs[0]
    turned = [pairs[0]]
    for a, b in pairs[1:]:
        straight = len((a.vars | left.vars) & (b.vars | right.vars) & own)
        crossed = len((b.vars | left.vars) & (a.vars | right.vars) & own)
        turned.append((a, b) if straight <= crossed else (b, a))
    ups = frozenset().union(*(a.vars for a, _ in turned)) & own
    sides = frozenset().union(*(b.vars for _, b in turned)) & own
    live = [v for v in kernel.rows if v.size > 1]
    batch, columns = _of(live, ups & sides), _of(live, sides - ups)
    rows = tuple(v for v in live if v not in batch and v not in columns)
    if not columns:
        return None
    terms = tuple(
        MatmulTerm(i, a, b, (_dtype(a, i, made), _dtype(b, i, made)), made, _scales(kernel, i))
        for i, (a, b), made in zip(reduces, turned, times, strict=True)
    )
    return MatmulForm(batch, rows, columns, terms, beside)


def _of(live: Sequence[Var], wanted: frozenset[Var]) -> tuple[Var, ...]:
    return tuple(v for v in live if v in wanted)


def _summed(kernel: Kernel, reduce: Instr) -> IRNode | None:
    summed = reduce.args[0]
    prim = None if isinstance(summed, (bool, int, float)) else kernel.instrs[summed.id].prim
    return prim if prim is not None and prim.kind == "pw" else None


def _factors(kernel: Kernel, reduce: Instr) -> tuple[Instr, Instr]:
    left, right = _made_by(kernel, reduce.args[0]).args[:2]
    return _made_by(kernel, left), _made_by(kernel, right)


def _scales(kernel: Kernel, reduce: Instr) -> tuple[Instr, ...]:
    own = _made_by(kernel, reduce.args[0]).args[2:]
    return tuple(kernel.instrs[scale.id] for scale in own if isinstance(scale, Ref))


def _made_by(kernel: Kernel, value: Argument) -> Instr:
    assert not isinstance(value, (bool, int, float)), "what is multiplied are values"
    return kernel.instrs[value.id]


def _dtype(operand: Instr, reduce: Instr, times: IRNode) -> str:
    """The dtype in which an operand is multiplied: that of PyTorch, as registers are wider than it; codes of 8 bits may become fp16."""
    prim = operand.prim
    narrow = times.attrs.get("narrow")
    if narrow == "halves" or narrow in HALVES:
        return "float16" if narrow == "halves" else str(narrow)
    return prim.dtype if prim is not None else reduce.type
