"""What the reference's operators ask of floating inputs, seen while it runs.

Some operators take probabilities only, some floats become indices. Values outside their domain make a
CPU raise, but on a GPU they end the whole process, so it is not enough to try.
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
    """Demands on inputs."""

    probabilities: bool = False
    """Some operator takes nothing outside [0, 1]."""
    indices: bool = False
    """Floating values become integers, and integers index."""
    decisions: int = 0
    """Values of tensors that Python looked at."""

    @property
    def demanding(self) -> bool:
        """Values must not be made larger than they are, not even by a rounding."""
        return self.probabilities or self.indices


class DomainMode(TorchDispatchMode):
    """Notes which demanding operators run."""

    def __init__(self) -> None:
        super().__init__()
        self._probabilities = self._indexed = self._converted = False
        self._decisions = 0

    @property
    def domain(self) -> Domain:
        """What was seen."""
        return Domain(self._probabilities, self._indexed and self._converted, self._decisions)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's default would import torch._dynamo at the first operator: 2 s for nothing

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
