"""Bytes that every right answer must read and write: a lower bound for `roofline.impossible`. Child side.

An input element counts if its derivative is not zero, and if changing all such elements of its tensor changes the output: a derivative
alone may be rounding noise, as in a sum over a softmax, which is always 1. Elements with zero derivative may matter nevertheless (the
negative ones of a ReLU); they are not counted, nor are small inputs, very large ones, or those without a derivative. Errors thus favour
the candidate.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dvk.harness.checking.norms import parts, root_mean_square
from dvk.tasks.trees import named_tensors

LEAST_BYTES = 1 << 20
"""Smaller inputs are skipped: they fit into caches, and each costs a call."""
MOST_BYTES = 1 << 30
"""Inputs of more bytes in all are not counted: their derivatives take several times as much memory."""
NOTICED = 1e-3
"""Least change of an output, relative to its root mean square, that is not rounding…"""
BEYOND_ROUNDING = 100.0
"""…and as a multiple of the change from rounding the same elements."""


def needed_bytes(call: Callable[[], Any], inputs: Sequence[torch.Tensor]) -> int:
    """Return the bytes of `inputs` that the outputs of `call` depend on, plus bytes of outputs in separate memory.

    Args:
        call: one call of the reference on `inputs`, the same each time; runs 2 times and 2 more per large input.
        inputs: inputs and weights, leaves of no graph; their values are changed temporarily.
    """
    with torch.no_grad():
        outputs = _tensors(call())
    total = _own_bytes(outputs, inputs)
    if sum(_distinct(t) * t.element_size() for t in inputs) > MOST_BYTES:
        return total
    large = [
        t
        for t in inputs
        if t.is_floating_point() and t.is_leaf and _distinct(t) * t.element_size() >= LEAST_BYTES
    ]
    read: dict[int, int] = {}
    for tensor, gradient in zip(large, _gradients(call, large), strict=True):
        if gradient is None or not _matters(call, tensor, gradient, outputs):
            continue
        place, storage = tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()
        count = int(torch.count_nonzero(gradient)) * _distinct(tensor) // tensor.numel()
        read[place] = min(storage, read.get(place, 0) + count * tensor.element_size())
    return total + sum(read.values())


def _gradients(
    call: Callable[[], Any], inputs: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """Return derivatives of a random projection of the outputs; None if there are none. A call that returns a view reads nothing."""
    asked, views = (
        [t.requires_grad for t in inputs],
        {t.untyped_storage().data_ptr() for t in inputs},
    )
    for tensor in inputs:
        tensor.requires_grad_(True)
    try:
        with torch.enable_grad():
            roots = [
                t
                for t in _tensors(call())
                if t.requires_grad and t.untyped_storage().data_ptr() not in views
            ]
            if not roots or not inputs:
                return [None] * len(inputs)
            return list(
                torch.autograd.grad(
                    roots, inputs, [torch.randn_like(t) for t in roots], allow_unused=True
                )
            )
    except (
        RuntimeError,
        NotImplementedError,
    ):  # an operator without a derivative, or one that writes into an input
        return [None] * len(inputs)
    finally:
        for tensor, before in zip(inputs, asked, strict=True):
            tensor.requires_grad_(before)


def _matters(
    call: Callable[[], Any],
    tensor: torch.Tensor,
    gradient: torch.Tensor,
    outputs: Sequence[torch.Tensor],
) -> bool:
    """Whether changing the elements whose derivative is not zero changes an output, far more than rounding them does."""
    if _distinct(tensor) != tensor.numel():
        return False  # expanded: its elements cannot be set one by one
    kept = tensor.clone(memory_format=torch.preserve_format)
    seed = random.getrandbits(31)
    moved = []
    with torch.no_grad():
        for size in (1.0, 4 * torch.finfo(tensor.dtype).eps):
            try:
                _move(tensor, gradient, size, seed)
                moved.append(
                    [
                        _distance(before, after)
                        for before, after in zip(outputs, _tensors(call()), strict=False)
                    ]
                )
            finally:
                tensor.copy_(kept)
    return any(
        much > max(NOTICED, BEYOND_ROUNDING * little) for much, little in zip(*moved, strict=False)
    )


def _move(tensor: torch.Tensor, gradient: torch.Tensor, size: float, seed: int) -> None:
    """Enlarge the elements with a derivative by up to `size` of each, the same ones for equal seeds."""
    generator = torch.Generator(tensor.device).manual_seed(seed)
    for part, slope in parts(tensor, gradient):
        reach = torch.rand(
            part.shape, dtype=part.dtype, device=part.device, generator=generator
        ).masked_fill_(slope == 0, 0.0)
        part.add_(reach.mul_(part), alpha=size)


def _distance(before: torch.Tensor, after: torch.Tensor) -> float:
    """Return the largest difference relative to the root mean square of `before`; 0 if that is undefined."""
    if before.shape != after.shape or not before.is_floating_point():
        return 0.0
    scale = root_mean_square(before)
    largest = [(b.double() - a.double()).abs().max() for a, b in parts(before, after)]
    return float(torch.stack(largest).max()) / scale if scale > 0 else 0.0


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [
        tensor
        for _, tensor in named_tensors(tree)
        if tensor.layout is torch.strided and tensor.numel()
    ]


def _distinct(tensor: torch.Tensor) -> int:
    """Return a mask of elements with distinct addresses."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride else 1
    return count


def _own_bytes(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> int:
    taken = {t.untyped_storage().data_ptr() for t in inputs}
    total = 0
    for tensor in outputs:
        place = tensor.untyped_storage().data_ptr()
        if place not in taken:
            total += min(
                _distinct(tensor) * tensor.element_size(), tensor.untyped_storage().nbytes()
            )
        taken.add(place)
    return total
