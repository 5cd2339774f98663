"""A call captured in a CUDA graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch


class MemoryRegion:
    """A tensor's memory without a reference to it: temporaries of a graph share memory only if nothing holds them."""

    def __init__(self, tensor: torch.Tensor):
        storage = tensor.untyped_storage()
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": (storage.nbytes(),),
            "typestr": "|u1",
            "data": (storage.data_ptr(), False),
            "strides": None,
        }


@dataclass
class GraphedCall:
    """A call as a CUDA graph over fixed addresses."""

    graph: torch.cuda.CUDAGraph
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    scratch: list[torch.Tensor]
    """Memory whose values before a call must not matter: poison it between replays. Ranges overlap where memory is used twice."""

    def replay(self) -> None:
        """Enqueue one call on the current stream; it reads the current contents of `inputs`."""
        self.graph.replay()
