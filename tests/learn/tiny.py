"""A causal language model small enough for a test."""

from __future__ import annotations

from typing import Any

import torch


def tiny(vocabulary: int = 64, seed: int = 0) -> Any:
    """A Qwen3 of two layers with random weights, float32."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=512,
            tie_word_embeddings=True,
        )
    )
