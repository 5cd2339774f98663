"""The kernel of an attention: scores, their softmax and the product with the values in one, without the scores in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from dvk.composer.ir.loops import Kernel

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
