"""What a runner reports of a timed call besides its tensors: constants, nesting, and checksums of the inputs that it has written.

The judge reads written inputs from shared memory when it is scheduled, on a busy machine milliseconds after the call. A thread of the
candidate may have finished its work by then. The checksums are made in the runner, as soon as the call is over.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Sequence
from typing import Any

import torch

from dvk.harness.transport.lent_tensors import flat, memory_of

SUMMED_BYTES = 64 << 20
"""Part of a tensor that is summed: tens of milliseconds."""


def told_of(
    leaves: Sequence[Any], spec: str, written: Sequence[torch.Tensor] = ()
) -> dict[str, Any]:
    """Return the message on a call that returned `leaves`, nested as in `spec`."""
    constants = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
    return {"constants": constants, "spec": spec, "written": checksums(written)}


def checksums(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return a checksum of each tensor's memory; 0 on a GPU, where the judge's copy waits for the call's work."""
    return [_checksum(tensor) for tensor in tensors]


def _checksum(tensor: torch.Tensor) -> int:
    if tensor.device.type != "cpu" or not tensor.numel():
        return 0
    content = flat(memory_of(tensor.detach())).view(torch.uint8)
    size = min(content.numel(), SUMMED_BYTES)
    return zlib.crc32((ctypes.c_char * size).from_address(content.data_ptr()))
