"""Log-probabilities of target tokens under a causal language model, with gradient.

The decoder runs once over whole packs; the vocabulary's logits are computed for targets only, a chunk at a
time, and recomputed in the backward pass: with a vocabulary of 150,000 they would not fit in memory with the model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from dvk.backbone.decoding.forward import unwrapped
from dvk.errors import UsageError
from dvk.learn import attention
from dvk.learn.packs import Packs

LOGITS = 1 << 27
"""Logits computed at a time: half a gigabyte in float32."""
KEPT_LOGITS = 1 << 29
"""Logits kept for the backward pass; further ones are recomputed."""


class Scorer(torch.nn.Module):
    """A language model whose forward pass scores packs; the module that is wrapped for several GPUs."""

    decoder: Any
    head: Any
    score: Any

    def __init__(self, model: Any, *, compiled: bool = False):
        """Scorer around a causal LM of transformers, or one wrapped by peft.

        Args:
            model: its logits must be its output embedding applied to the decoder's last hidden state.
            compiled: run the decoder's layers through torch.compile; pays for many steps of one shape.

        Raises:
            UsageError: the model changes its logits after the output embedding.
        """
        super().__init__()
        self.model = model
        plain = unwrapped(model)
        for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
            if getattr(plain.config, name, None) not in (None, 1.0):
                raise UsageError(
                    f"models with `{name}` cannot be trained here",
                    "choose a model of the Qwen or Llama families",
                )
        attention.install(plain)
        decoder = plain.get_decoder()
        if compiled:  # layer by layer: they share the code compiled for the first, a sixth of the whole model's compile time
            for layer in decoder.layers:
                layer.compile(dynamic=False)
        # Not registered a second time: they are parts of the model.
        self.__dict__["decoder"] = decoder
        self.__dict__["head"] = plain.get_output_embeddings()
        self.__dict__["score"] = torch.compile(_score, dynamic=True) if compiled else _score

    def forward(self, packs: Packs, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        """Score every target.

        Args:
            packs: on the model's device.
            temperature: divides the logits first, as in sampling.

        Returns:
            Log-probabilities and entropies (nats) of the targets in row-major order, shape (targets,) each,
            float32; the entropies carry no gradient.
        """
        # A 4-D mask is passed through unchanged; no layer reads it by rows.
        unused = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=packs.ids.device)
        hidden = self.decoder(
            input_ids=packs.ids,
            attention_mask=unused,
            position_ids=packs.positions,
            use_cache=False,
            row_offsets=packs.row_offsets(),
            longest_row=packs.ids.shape[1],
        ).last_hidden_state
        wanted = packs.targets[:, 1:]
        before = hidden[:, :-1][wanted]
        labels = packs.ids[:, 1:][wanted]
        words = self.head.weight.shape[0]
        size, again = max(1, LOGITS // words), len(labels) * words > KEPT_LOGITS
        pieces = [
            self._piece(before[i : i + size], labels[i : i + size], temperature, again)
            for i in range(0, len(labels), size)
        ]
        if not pieces:
            # With a gradient, of zero, for every parameter: processes wait for each other's.
            nothing = hidden.sum() * 0.0 + self.head.weight.sum() * 0.0
            none = nothing[None][:0].clone()
            return none, none.detach()
        logprobs, entropies = zip(*pieces, strict=True)
        return torch.cat(logprobs), torch.cat(entropies)

    def _piece(
        self, hidden: torch.Tensor, labels: torch.Tensor, temperature: float, again: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        scored: tuple[torch.Tensor, torch.Tensor]
        if again and torch.is_grad_enabled():
            scored = checkpoint(_score, self.head, hidden, labels, temperature, use_reentrant=False)
        else:
            scored = self.score(self.head, hidden, labels, temperature)
        return scored


def _score(
    head: Any, hidden: torch.Tensor, labels: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = head(hidden).float() / temperature
    logs = logits.log_softmax(-1)
    with torch.no_grad():
        entropy = -(logs.exp() * logs).sum(-1)
    return logs.gather(-1, labels[:, None]).squeeze(-1), entropy
