"""Input domains that the reference's operators require, observed while it runs.

Some operators take probabilities only, some floats become indices. Values outside their domain make a CPU raise, but on a GPU they end the
whole process, so trying is not enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dvk.tasks.trees import named_tensors

_PROBABILITIES = frozenset({"binary_cross_entropy", "bernoulli", "multinomial"})
_INDEXED = frozenset(
    "index index_put _index_put_impl index_select index_add index_copy index_fill gather scatter scatter_add take put "
    "embedding _embedding_bag nll_loss_forward nll_loss2d_forward one_hot scatter_reduce".split()
)


@dataclass(frozen=True)
class Domain:
    """Requirements on inputs."""

    probabilities: bool = False
    """Some operator takes only values in [0, 1]."""
    indices: bool = False
    """Floating values become integers that index."""
    decisions: int = 0
    """Number of tensor values read in Python."""
    indexed: bool = False
    """Some operator takes indices."""

    @property
    def demanding(self) -> bool:
        """Whether values must not be made larger, not even by rounding."""
        return self.probabilities or self.indices


class DomainMode(TorchDispatchMode):
    """Records which operators with requirements run."""

    def __init__(self) -> None:
        super().__init__()
        self._probabilities = self._indexed = self._converted = False
        self._decisions = 0

    @property
    def domain(self) -> Domain:
        """Return the observed requirements."""
        converted = self._indexed and self._converted
        return Domain(self._probabilities, converted, self._decisions, self._indexed)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's default would import torch._dynamo at the first operator, which takes 2 s

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2].rstrip("_")
        self._probabilities |= name in _PROBABILITIES
        self._indexed |= name in _INDEXED
        self._decisions += name == "_local_scalar_dense"
        if name in ("_to_copy", "copy") and args and isinstance(args[0], torch.Tensor):
            given = [t for _, t in named_tensors((args, kwargs or {}))]
            self._converted |= not _floating(result) and any(_floating(t) for t in given)
        return result


def _floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
