"""Baselines besides the eager reference: one function and one line in the table each.

Each takes the reference module, a call's arguments (lent tensors whose addresses stay) and a function that restores those that a call
writes, and returns a replacement to call, compiled and warm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Arm = Callable[..., Any]
Restore = Callable[[], None]
Timed = Callable[[Arm], Arm]
"""What a timed call calls, of a forward: itself, or forward and backward."""


def compiled(
    model: nn.Module, args: list[Any], kwargs: dict[str, Any], restore: Restore, timed: Timed
) -> Arm:
    """torch.compile with defaults."""
    return _warm(timed(torch.compile(model)), args, kwargs, restore)


def max_autotune(
    model: nn.Module, args: list[Any], kwargs: dict[str, Any], restore: Restore, timed: Timed
) -> Arm:
    """torch.compile with max-autotune, without CUDA graphs, which are a separate arm."""
    made = torch.compile(model, mode="max-autotune-no-cudagraphs")
    return _warm(timed(made), args, kwargs, restore)


def cuda_graph(
    model: nn.Module, args: list[Any], kwargs: dict[str, Any], restore: Restore, timed: Timed
) -> Arm:
    """The eager module captured once in a CUDA graph and replayed on the same addresses.

    Raises:
        ValueError: gradients are wanted, too.
    """
    if timed(model) is not model:
        raise ValueError("a CUDA graph of the eager module has no gradients")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            restore()
            model(*args, **kwargs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        result = model(*args, **kwargs)

    def replay(*_: Any, **__: Any) -> Any:
        graph.replay()
        return result

    return replay


def _warm(call: Arm, args: list[Any], kwargs: dict[str, Any], restore: Restore) -> Arm:
    with torch.no_grad():
        for _ in range(2):
            restore()
            call(*args, **kwargs)
    return call


ARMS: dict[str, Callable[[nn.Module, list[Any], dict[str, Any], Restore, Timed], Arm]] = {
    "compile": compiled,
    "max-autotune": max_autotune,
    "graph": cuda_graph,
}
