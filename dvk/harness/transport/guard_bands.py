"""Guard bands: known bytes around tensors in device memory, which show writes outside a tensor.

A CPU has unmapped pages for that (`process_memory.Mapping`), on which an access faults at once. On a GPU allocations are adjacent in pages
of 2 MiB, and mapping each tensor separately (cuMemMap, one process to another) costs more than the checks do. So reads go unnoticed here,
and writes are noticed after the call. A check of all bands together is a kernel or two and a few bytes back.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

BAND = 1024
"""Bytes before and behind each tensor, at least."""
ALIGNMENT = 512
"""PyTorch's own on GPUs."""


class Bands:
    """Layout of tensors of these sizes in one block of memory, with bands between.

    Args:
        sizes: bytes of each tensor.

    Attributes:
        offsets: where each begins.
        size: bytes of the block.
    """

    def __init__(self, sizes: Sequence[int]):
        self.offsets: list[int] = []
        self._gaps: list[tuple[int, int]] = []
        end = 0
        for size in sizes:
            start = -(-(end + BAND) // ALIGNMENT) * ALIGNMENT
            self._gaps.append((end, start))
            self.offsets.append(start)
            end = start + size
        self._gaps.append((end, end + BAND))
        self.size = end + BAND
        self._byte = random.SystemRandom().randrange(1, 255)

    def paint(self, block: torch.Tensor) -> None:
        """Write the bands; `block` is all of it, in bytes."""
        for gap in self.views(block):
            gap.fill_(self._byte)

    def flood(self, block: torch.Tensor) -> None:
        """Write the bands and all between them, which is faster if there are many."""
        block.fill_(self._byte)

    def views(self, block: torch.Tensor) -> list[torch.Tensor]:
        """Return the bands, the first before the first tensor and each of the others behind one."""
        return [block[start:end] for start, end in self._gaps]

    def broken(self, block: torch.Tensor) -> list[int]:
        """Return numbers of the tensors next to which something was written: behind them, or before the first."""
        views = self.views(block)
        if not bool((torch.cat(views) != self._byte).any()):
            return []
        return [max(0, i - 1) for i, view in enumerate(views) if bool((view != self._byte).any())]


class Guarded:
    """Allocates tensors with bands around them.

    Args:
        most_bytes: limit over all; tensors beyond it have no bands.
    """

    def __init__(self, most_bytes: int):
        self._room = most_bytes
        self._held: list[tuple[Bands, torch.Tensor, str]] = []

    def twin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a new tensor with the layout of `tensor`, its contents undefined; itself if there is no room."""
        extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        size = extent * tensor.element_size()
        bands = Bands([size])
        if not tensor.numel() or bands.size > self._room:
            return tensor
        self._room -= bands.size
        block = torch.empty(bands.size, dtype=torch.uint8, device=tensor.device)
        bands.paint(block)
        self._held.append(
            (bands, block, f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}")
        )
        return (
            block[bands.offsets[0] : bands.offsets[0] + size]
            .view(tensor.dtype)
            .as_strided(tensor.shape, tensor.stride())
        )

    def broken(self) -> str | None:
        """Describe a tensor next to which something was written, for people."""
        return next((name for bands, block, name in self._held if bands.broken(block)), None)
