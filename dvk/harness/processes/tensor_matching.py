"""Matching of a candidate's tensors with the reference's. Runner side.

Names and shapes come first. Tensors with other names are matched by value: both modules were built under one seed, so a renamed or
transposed parameter has the value that the reference's had when it was new; equal values (a norm's ones) go in order. The rest goes by
order if a shape occurs equally often on both sides. Unmatched tensors are reported: a candidate that takes no weights would be judged under
one set only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Form = Callable[[torch.Tensor], torch.Tensor]


class Places:
    """Find the places of the reference's tensors in a candidate's state_dict.

    Args:
        own: the candidate's tensors, as built.
        lent: the reference's tensors, as constructed.
    """

    def __init__(self, own: Mapping[str, Any], lent: Mapping[str, torch.Tensor]):
        tensors = {name: value for name, value in own.items() if isinstance(value, torch.Tensor)}
        self.exact = own.keys() == lent.keys() and all(
            tensors[n].shape == lent[n].shape for n in lent if n in tensors
        )
        self._found: dict[str, tuple[str, Form]] = {
            name: (name, _as_it_is)
            for name, value in lent.items()
            if name in tensors and tensors[name].shape == value.shape
        }
        free = [name for name in tensors if name not in self._found]
        for name in [name for name in lent if name not in self._found]:
            for mine in free:
                if (form := _form(tensors[mine], lent[name])) is not None:
                    self._found[name] = (mine, form)
                    free.remove(mine)
                    break
        left = [name for name in lent if name not in self._found]
        for shape in {tuple(lent[name].shape) for name in left}:
            theirs = [name for name in left if tuple(lent[name].shape) == shape]
            ours = [name for name in free if tuple(tensors[name].shape) == shape]
            if len(theirs) == len(ours):
                self._found |= {
                    name: (mine, _as_it_is) for name, mine in zip(theirs, ours, strict=True)
                }

    @property
    def names(self) -> dict[str, str]:
        """The reference's names → the candidate's."""
        return {name: mine for name, (mine, _) in self._found.items()}

    def missing(self, lent: Mapping[str, torch.Tensor]) -> list[str]:
        """Names of unmatched tensors."""
        return [name for name in lent if name not in self._found]

    def state(self, own: Mapping[str, Any], lent: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """Return a state_dict for the candidate with the lent values."""
        return {**own, **self.values(own, lent)}

    def values(
        self, own: Mapping[str, Any], lent: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Return the lent values under the candidate's names, in its shapes."""
        return {
            mine: form(lent[name]).reshape(own[mine].shape)
            for name, (mine, form) in self._found.items()
        }


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.t()


def _form(mine: torch.Tensor, theirs: torch.Tensor) -> Form | None:
    """Return the permutation that turns `theirs` into `mine`; None if there is none."""
    if (
        mine.numel() != theirs.numel()
        or mine.dtype != theirs.dtype
        or mine.layout is not torch.strided
    ):
        return None
    for form in (_as_it_is, _transposed) if theirs.dim() == 2 else (_as_it_is,):
        if torch.equal(_comparable(mine.reshape(-1)), _comparable(form(theirs).reshape(-1))):
            return form
    return None


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits of floats of eight bits, which torch.equal refuses on a CPU."""
    eight = tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1
    return tensor.view(torch.uint8) if eight else tensor
