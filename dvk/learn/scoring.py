"""Log-probabilities of target tokens under a causal language model, with gradient.

The decoder runs once over whole packs; the vocabulary's logits are made for targets only, a piece at a
time, and made again in the backward pass: with 150,000 words they would not fit beside the model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from dvk.backbone.forward import unwrapped
from dvk.errors import UsageError
from dvk.learn.packs import Packs

LOGITS = 1 << 27
"""Logits held at a time: half a gigabyte in float32."""


class Scorer(torch.nn.Module):
    """A language model whose forward pass scores packs; what is wrapped for several GPUs."""

    decoder: Any
    head: Any

    def __init__(self, model: Any, *, compiled: bool = False):
        """Around a causal LM of transformers, or one that peft has wrapped.

        Args:
            model: its logits must be its output embedding applied to the decoder's last hidden state.
            compiled: run the decoder through torch.compile; pays for many steps of one shape.

        Raises:
            UsageError: the model changes its logits after the output embedding.
        """
        super().__init__()
        self.model = model
        plain = unwrapped(model)
        for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
            if getattr(plain.config, name, None) not in (None, 1.0):
                raise UsageError(f"models with `{name}` cannot be trained here", "choose a model of the Qwen or Llama families")
        decoder = plain.get_decoder()
        # Not registered a second time: they are parts of the model.
        self.__dict__["decoder"] = torch.compile(decoder, dynamic=False) if compiled else decoder
        self.__dict__["head"] = plain.get_output_embeddings()

    def forward(self, packs: Packs, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        """Score every target.

        Args:
            packs: on the model's device.
            temperature: logits are divided by it first, as the sampler did.

        Returns:
            Log-probabilities and entropies (nats) of the targets in row-major order, shape (targets,) each,
            float32; the entropies carry no gradient.
        """
        kind = packs.ids.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else self.head.weight.dtype
        hidden = self.decoder(input_ids=packs.ids, attention_mask=packs.bias(dtype), position_ids=packs.positions,
                              use_cache=False).last_hidden_state
        wanted = packs.targets[:, 1:]
        before = hidden[:, :-1][wanted]
        labels = packs.ids[:, 1:][wanted]
        size = max(1, LOGITS // self.head.weight.shape[0])
        pieces = [self._piece(before[i : i + size], labels[i : i + size], temperature) for i in range(0, len(labels), size)]
        if not pieces:
            nothing = hidden.sum() * 0.0
            return nothing[None][:0], nothing[None][:0].detach()
        logprobs, entropies = zip(*pieces, strict=True)
        return torch.cat(logprobs), torch.cat(entropies)

    def _piece(self, hidden: torch.Tensor, labels: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
        if torch.is_grad_enabled():
            scored: tuple[torch.Tensor, torch.Tensor] = checkpoint(_score, self.head, hidden, labels, temperature, use_reentrant=False)
            return scored
        return _score(self.head, hidden, labels, temperature)


def _score(head: Any, hidden: torch.Tensor, labels: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    logs = (head(hidden).float() / temperature).log_softmax(-1)
    with torch.no_grad():
        entropy = -(logs.exp() * logs).sum(-1)
    return logs.gather(-1, labels[:, None]).squeeze(-1), entropy
