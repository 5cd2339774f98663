"""Cross-entropy of a linear's result without all logits in memory. The text travels inside drop-ins, as that of `guards.py` does."""

from __future__ import annotations

import torch


def dvk_chunked_loss(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    target: torch.Tensor,
    mean: bool,
    ignored: int,
    smoothing: float,
    rows: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The loss, and its gradients of x, weight and bias, from `rows` rows of logits at a time."""
    # The gradients are made with the loss, while the logits are there: computing logits again would be a fourth matrix product.
    flat, target = x.reshape(-1, x.shape[-1]), target.reshape(-1)
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    kept = target != ignored
    safe, each = torch.where(kept, target, 0).unsqueeze(1), kept.to(wide)
    if mean:
        each = torch.where(kept, 1 / each.sum(), each)
    each, hit = each.unsqueeze(1), torch.full((1, 1), smoothing - 1.0, dtype=wide, device=x.device)
    lost = torch.empty(flat.shape[0], dtype=wide, device=x.device)
    to_x = torch.empty_like(flat)
    to_weight = torch.zeros(weight.shape, dtype=wide, device=x.device)
    to_bias = torch.zeros(weight.shape[0] if bias is not None else 0, dtype=wide, device=x.device)
    for first in range(0, flat.shape[0], rows):
        part = slice(first, first + rows)
        p = torch.nn.functional.linear(flat[part], weight, bias)
        if wide is x.dtype:
            torch.log_softmax(p, 1, out=p)
        else:
            p = torch.log_softmax(p, 1, dtype=wide)
        lost[part] = p.gather(1, safe[part]).squeeze(1) * (smoothing - 1.0)
        if smoothing:
            lost[part] -= p.sum(1) * (smoothing / weight.shape[0])
        p = p.exp_()
        if smoothing:
            p -= smoothing / weight.shape[0]
        p.scatter_add_(1, safe[part], hit.expand(p.shape[0], 1))
        if bias is not None:
            to_bias.addmv_(p.t(), each[part, 0])
        p = p.to(x.dtype)
        torch.mm(p, weight, out=to_x[part])
        # A row's share of the loss scales what is narrow, not the row of p.
        own = (flat[part] * each[part]).to(x.dtype)
        if wide is x.dtype:
            to_weight.addmm_(p.t(), own, beta=float(first > 0))
        else:
            to_weight += p.t() @ own
        del p
    to_x *= each
    loss = torch.where(kept, lost, 0).sum()
    loss = loss / kept.sum() if mean else loss
    return (
        loss.to(x.dtype),
        to_x.view(x.shape),
        to_weight.to(weight.dtype),
        to_bias.to(weight.dtype),
    )
