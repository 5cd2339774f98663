"""Losses of target tokens: pure functions of log-probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def likelihood(logprobs: torch.Tensor, weights: torch.Tensor, num_targets: int) -> torch.Tensor:
    """Negative log-likelihood, a mean over tokens: REINFORCE with the weights as advantages, on policy.

    Args:
        logprobs: of the targets, shape (targets,), with gradient.
        weights: their advantages, shape (targets,); all 1 in SFT.
        num_targets: targets of the whole step, over all micro-batches and devices.

    Returns:
        A scalar; summed over micro-batches it is the step's loss.
    """
    return -(logprobs * weights).sum() / num_targets
