"""Tokenizers that are made here."""

from __future__ import annotations

from dvk.backbone.tokenizer import train_tokenizer


def bare_tokenizer() -> object:
    tokenizer = train_tokenizer(["some text"] * 3, 270, 512)
    tokenizer.chat_template = None
    return tokenizer
