"""The base of all drop-ins: what a module has prepared for its calls goes when the module changes, and stays out of its copies.

It travels inside drop-ins like the functions of `guards`.
"""

from __future__ import annotations

from typing import Any

import torch


class dvk_prepared(torch.nn.Module):
    """A module that prepares itself for its calls; the names of what it has prepared begin with _dvk_."""

    def _dvk_forget(self) -> None:
        raise NotImplementedError

    def train(self, mode: bool = True) -> Any:
        self._dvk_forget()
        return super().train(mode)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self._dvk_forget()
        return super()._apply(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        self._dvk_forget()
        return super().load_state_dict(*args, **kwargs)

    def __getstate__(self) -> Any:
        # Copies and pickles prepare themselves again: kernels are loaded once per process.
        state = super().__getstate__()
        kept = state if isinstance(state, dict) else {}
        return {k: v for k, v in kept.items() if k[:5] != "_dvk_"} if kept else state
