"""The kernel of an attention: scores, their softmax and the product with the values in one, without the scores in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from dvk.composer.ir.affine import Var
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.matmul_form import MatmulForm, form_of

FAMILY = "attention"


@dataclass(frozen=True)
class AttentionKernel(Kernel):
    """A kernel of two matmuls; inputs and outputs are those of both, and it has no instructions itself.

    The flat indices of batch, rows and keys of both are the same: scores are [batch, rows, keys], values [batch, keys, columns].
    """

    scores: Kernel = field(kw_only=True)
    """q · kᵀ with what follows up to the softmax; its only store is the scores."""
    values: Kernel = field(kw_only=True)
    """weights · v with what follows; the load of the weights has no buffer."""

    zero_if_none: bool = field(default=False, kw_only=True)
    """A query that sees no key has the result 0, not NaN."""

    @property
    def parts(self) -> tuple[Kernel, ...]:
        return self.scores, self.values

    @property
    def forms(self) -> tuple[MatmulForm, MatmulForm]:
        """Both matmuls, of the same sizes of batch and rows."""
        found = aligned(self.scores, self.values)
        assert found is not None
        return found


def aligned(scores: Kernel, values: Kernel) -> tuple[MatmulForm, MatmulForm] | None:
    """The forms of both with the same sizes of batch and rows; None if there are none.

    Keys may be repeated for each query of a group and values not, or the other way round: what is a row of one is then batch of both.
    """
    one, other = form_of(scores), form_of(values)
    if one is None or other is None or len(one.terms) != 1 or len(other.terms) != 1:
        return None
    columns, reduced = {*one.columns}, {*values.reduced}
    first = tuple(v for v, _ in scores.stores[0].offset.terms if v not in columns)
    last = tuple(v for v, _ in other.terms[0].left.offset.terms if v not in reduced)
    if {*first} != {*one.batch, *one.rows} or {*last} != {*other.batch, *other.rows}:
        return None
    many = max(one.sizes[0], other.sizes[0])
    left, right = _split(one, first, many), _split(other, last, many)
    return (left, right) if left is not None and right is not None else None


def _split(form: MatmulForm, order: tuple[Var, ...], many: int) -> MatmulForm | None:
    """The form whose batch are `many` elements, the outermost of its results."""
    for count in range(len(order) + 1):
        batch, rows = order[:count], order[count:]
        if math.prod(v.size for v in batch) == many and {*form.batch} <= {*batch}:
            return replace(form, batch=batch, rows=rows)
    return None
