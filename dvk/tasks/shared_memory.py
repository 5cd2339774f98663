"""Inputs that share memory: one tensor passed twice, views of one base.

They are judged as separate tensors of equal values. That is what a caller sees as long as no call writes what they share; a
reference that does is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dvk.errors import TaskError
from dvk.tasks.trees import Named

MOST_BYTES = 256 << 20
"""Largest storage whose bytes are compared one by one; parts of a larger one count as overlapping."""


def check_shared(names: tuple[str, ...], shared: Sequence[tuple[str, str]], entry: str) -> None:
    """Refuse writes to memory that inputs share.

    Args:
        names: of the inputs that are written.
        shared: names of inputs that share memory where they come from.
        entry: what was called, for messages.

    Raises:
        TaskError: one of these is written.
    """
    for pair in shared:
        name = next((name for name in pair if name in names), None)
        if name is not None:
            other = pair[0] if name == pair[1] else pair[1]
            raise TaskError(
                f"{entry} writes its input `{name}`, which shares memory with its input `{other}`",
                "give get_inputs() tensors that share no memory (x.clone()): they are judged as separate ones",
            )


def sharing(inputs: Named) -> tuple[tuple[str, str], ...]:
    """Pairs of names of inputs that have bytes in common."""
    pairs = [(one, other) for number, one in enumerate(inputs) for other in inputs[number + 1 :]]
    return tuple((one, other) for (one, mine), (other, theirs) in pairs if overlap(mine, theirs))


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Two tensors are strided and have bytes in common."""
    if (
        one.layout is not torch.strided
        or other.layout is not torch.strided
        or one.is_meta
        or other.is_meta
    ):
        return False
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr() or not (
        one.numel() and other.numel()
    ):
        return False
    if one.untyped_storage().nbytes() > MOST_BYTES:
        return True
    marks = torch.zeros(one.untyped_storage().nbytes(), dtype=torch.bool)
    _bytes_of(marks, one).fill_(True)
    return bool(_bytes_of(marks, other).any())


def _bytes_of(marks: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Those of a tensor among marks of all bytes of its storage."""
    size = tensor.element_size()
    strides = [stride * size for stride in tensor.stride()]
    return marks.as_strided((*tensor.shape, size), (*strides, 1), tensor.storage_offset() * size)
