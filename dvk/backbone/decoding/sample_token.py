"""Draw the next token of every row of a batch, on the device, each row with its own random number (`seeds`).

The token is the inverse of the cumulative distribution at that number, so a conversation's sample does not depend on what
else is in the batch, on its slot or on when it was admitted, up to the rounding of matmuls of another shape.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sample_token(
    logits: Tensor, numbers: Tensor, temperature: Tensor | float, greedy: bool, top_p: float = 1.0
) -> tuple[Tensor, Tensor]:
    """One token a row and its log-probability.

    Args:
        logits: float32 [b, vocabulary].
        numbers: float32 [b], in [0, 1).
        temperature: positive; ignored when greedy.
        greedy: take the most likely token; its log-probability is then that at temperature 1.
        top_p: keep the most likely tokens that hold this share. The log-probability stays that of the whole
            distribution: it is what the learner computes again.

    Returns: int64 [b], float32 [b].
    """
    logprobs = torch.log_softmax(logits if greedy else logits / temperature, -1)
    best = logprobs.argmax(-1, keepdim=True)
    if greedy:
        return best[:, 0], logprobs.gather(1, best)[:, 0]
    weights = logprobs.exp()
    if top_p < 1:
        ranked, order = weights.sort(stable=True, dim=-1, descending=True)
        beyond = ranked.cumsum(-1) - ranked >= top_p
        weights = weights.scatter(1, order, ranked.masked_fill(beyond, 0))
    heights = weights.cumsum(-1)
    token = torch.searchsorted(heights, numbers[:, None] * heights[:, -1:], right=True).clamp_(
        max=logits.shape[-1] - 1
    )
    # A parallel sum may step back by a rounding error, so that a token of weight 0 looks reached.
    token = torch.where(weights.gather(1, token) > 0, token, best)
    return token[:, 0], logprobs.gather(1, token)[:, 0]
