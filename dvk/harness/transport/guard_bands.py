"""Bands of known bytes around tensors in device memory: what a kernel writes outside a tensor shows in them.

A CPU has unmapped pages for that (`process_memory.Mapping`), which an access faults on at once. A GPU has not: allocations lie side by side
in pages of 2 MiB, and mapping each tensor by itself (cuMemMap, one process to another) costs more than the checks do. So reads go
unnoticed here, and writes are noticed after the call. One look at all bands together is a kernel or two and a few bytes back.
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
    """Where tensors of these sizes lie in one block of memory, and the bands between.

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
        """Write the bands and all between them, which is quicker where there are many."""
        block.fill_(self._byte)

    def views(self, block: torch.Tensor) -> list[torch.Tensor]:
        """The bands, the first before the first tensor and each of the others behind one."""
        return [block[start:end] for start, end in self._gaps]

    def broken(self, block: torch.Tensor) -> list[int]:
        """Numbers of the tensors beside which something was written: behind them, or before the first."""
        views = self.views(block)
        if not bool((torch.cat(views) != self._byte).any()):
            return []
        return [max(0, i - 1) for i, view in enumerate(views) if bool((view != self._byte).any())]


class Guarded:
    """Tensors with bands around them, as many as a call asks for.

    Args:
        most_bytes: no more are kept in all; tensors beyond are given out bare.
    """

    def __init__(self, most_bytes: int):
        self._room = most_bytes
        self._held: list[tuple[Bands, torch.Tensor, str]] = []

    def twin(self, tensor: torch.Tensor) -> torch.Tensor:
        """A new tensor that looks like `tensor`, its contents undefined; itself where there is no room."""
        extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        size = extent * tensor.element_size()
        bands = Bands([size])
        if not tensor.numel() or bands.size > self._room:
            return tensor
        self._room -= bands.size
        block = torch.empty(bands.size, dtype=torch.uint8, device=tensor.device)
        bands.paint(block)
        self._held.append((bands, block, f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"))
        return block[bands.offsets[0] : bands.offsets[0] + size].view(tensor.dtype).as_strided(tensor.shape, tensor.stride())

    def broken(self) -> str | None:
        """A tensor beside which something was written, for people."""
        return next((name for bands, block, name in self._held if bands.broken(block)), None)
