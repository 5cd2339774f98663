"""GPU memory of an update, estimated, so that the sampler and idle judges give theirs back before it is missing."""

from __future__ import annotations

from typing import Any

import torch

from dvk.backbone.decoding.forward import unwrapped
from dvk.config import LearningConfig
from dvk.learn.scoring import KEPT_LOGITS, LOGITS

HIDDEN_COPIES = 18
"""Activations of a layer that the backward pass reads, in hidden states: projections, rotary copies, norms in float32."""
INTERMEDIATE_COPIES = 6
"""The same of its MLP, in intermediate states."""


def update_bytes(model: Any, longest: int, settings: LearningConfig) -> int:
    """Bytes that an optimizer step needs besides weights and optimizer state: gradients, activations, logits.

    Args:
        model: a causal language model of transformers, or one wrapped by peft.
        longest: tokens of the longest row.
        settings: `micro_packs` × `pack_tokens` tokens are computed at a time, or one longer row.
    """
    config = unwrapped(model).config
    tokens = max(settings.micro_packs * settings.pack_tokens, longest)
    half = settings.precision == "bf16" or (
        settings.precision == "auto" and model.device.type == "cuda"
    )
    width = 2 if half else 4
    hidden = config.hidden_size
    inside = getattr(config, "intermediate_size", None) or 4 * hidden
    layer = width * (HIDDEN_COPIES * hidden + INTERMEDIATE_COPIES * inside)
    layers = config.num_hidden_layers
    each = layers * width * hidden + layer if settings.gradient_checkpointing else layers * layer
    logits = min(tokens * config.vocab_size, KEPT_LOGITS) + LOGITS
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    # Logits and their log-softmax are in float32, as are gradients.
    return tokens * each + 2 * 4 * logits + 4 * trained


def is_short(device: torch.device, num_bytes: int) -> bool:
    """Whether a GPU has fewer free bytes, counting what torch's allocator holds unused; never on a CPU."""
    if device.type != "cuda":
        return False
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused < num_bytes
