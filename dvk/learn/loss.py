"""Losses of target tokens: pure functions of log-probabilities."""

from __future__ import annotations

import torch

from dvk.config import ObjectiveConfig

DUAL = 3.0
"""Largest loss of a bad token, as a multiple of its advantage (dual-clip PPO)."""
DIVIDE = 1000.0
"""Divisor of the sums of `sum`."""


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


def clipped(
    logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, settings: ObjectiveConfig
) -> torch.Tensor:
    """PPO's loss of each token with asymmetric clipping, and dual clipping for negative advantages.

    ρ = exp(log π − log π_old);  ℓ = max(−A ρ, −A clip(ρ, 1 − low, 1 + high));  where A < 0: ℓ = min(ℓ, −dual · A)
    (PPO: arXiv 1707.06347, dual clip: arXiv 1912.09729, clip-higher: DAPO, arXiv 2503.14476.)

    Args:
        logprobs: of the targets, shape (targets,), with gradient.
        old: under the weights before the update, shape (targets,).
        advantages: shape (targets,).
        settings: clips.

    Returns:
        Shape (targets,).
    """
    ratio = (logprobs - old).exp()
    inside = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    tensor = torch.maximum(-advantages * ratio, -advantages * inside)
    return torch.where(advantages < 0, torch.minimum(tensor, -DUAL * advantages), tensor)


def divergence(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """An unbiased, nonnegative estimate of KL(π ‖ reference) a token: e^d − d − 1, d = log reference − log π (k3), capped at 20."""
    gap = (reference - logprobs).clamp(max=20.0)
    return torch.expm1(gap) - gap


def gathered(
    losses: torch.Tensor,
    rows: torch.Tensor,
    num_targets: int,
    num_rows: int,
    settings: ObjectiveConfig,
) -> torch.Tensor:
    """A micro-batch's share of the step's loss.

    Args:
        losses: of tokens, shape (targets,).
        rows: answer of each target, shape (targets,), any integers; an answer lies in one micro-batch.
        num_targets: targets of the whole step.
        num_rows: answers of the whole step.
        settings: `aggregate`.
    """
    if settings.aggregate == "token":
        return losses.sum() / max(1, num_targets)
    if settings.aggregate == "sum":
        return losses.sum() / (DIVIDE * max(1, num_rows))
    _, which, lengths = rows.unique(return_inverse=True, return_counts=True)
    return (losses / lengths[which]).sum() / max(1, num_rows)
