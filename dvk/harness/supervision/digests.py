"""Digests: whether a tensor has changed, without a second copy of it.

A digest is a sum of the tensor's words, each times a random number of 64 bits that the process keeps secret; two contents have the same one
with a probability of at most 2⁻³². Computed some words at a time.
"""

from __future__ import annotations

import torch

from dvk.harness.transport.lent_tensors import flat, memory_of

WORDS = 1 << 22
"""Words of four bytes at a time."""
SMALL_BYTES = 64 << 20
"""A tensor up to this size is compared by a copy, which is faster on a CPU."""


class Digests:
    """Digests under one secret."""

    def __init__(self) -> None:
        self._factors: dict[torch.device, torch.Tensor] = {}
        self._steps = torch.randint(-(2**62), 2**62, (1 << 16,), dtype=torch.int64)

    def of(self, tensor: torch.Tensor) -> int:
        """Return the digest of a strided tensor's memory, gaps between its elements included."""
        if not tensor.numel():
            return 0
        content = flat(memory_of(tensor)).view(torch.uint8)
        whole = content.numel() // 4 * 4
        aligned = (content.data_ptr() % 4) == 0
        words = content[:whole].view(torch.int32) if aligned else content
        total = self._summed(words)
        return (total + 31 * self._summed(content[whole:])) % 2**64 if aligned else total

    def _summed(self, words: torch.Tensor) -> int:
        factors = self._factors_on(words.device)
        total = 0
        for number, part in enumerate(words.split(WORDS)):
            # Wraps around on purpose.
            one = int((part.to(torch.int64) * factors[: part.numel()]).sum())
            total = (total + one * (int(self._steps[number % len(self._steps)]) | 1)) % 2**64
        return total

    def _factors_on(self, device: torch.device) -> torch.Tensor:
        if device not in self._factors:
            generator = torch.Generator().manual_seed(int(self._steps[0]))
            drawn = torch.randint(-(2**62), 2**62, (WORDS,), dtype=torch.int64, generator=generator)
            self._factors[device] = (drawn | 1).to(device)
        return self._factors[device]
