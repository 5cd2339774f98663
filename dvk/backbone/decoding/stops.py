"""Stop conditions: a stop token, which the device detects, or a stop text, which needs decoding.

A stop text can only be completed by a token that contains its last character. The device marks such tokens, and the host
decodes only the rows that are marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dvk.backbone import Sampling

_SPELLINGS = {" ": (" ", "Ġ", "▁"), "\n": ("\n", "Ċ"), "\t": ("\t", "ĉ"), "\r": ("\r", "č")}
"""Markers of white space in byte-level and SentencePiece vocabularies."""


class Stops:
    """Stop conditions of one model's completions.

    Args:
        tokenizer: transformers' tokenizer.
        vocabulary: number of logits, which may exceed the tokenizer's.
        ids: tokens that end a completion.
        texts: texts that end one.
    """

    def __init__(self, tokenizer: Any, vocabulary: int, ids: Sequence[int], texts: Sequence[str]):
        self.tokenizer, self.ids, self.texts = (
            tokenizer,
            frozenset(ids),
            tuple(text for text in texts if text),
        )
        self.ends = torch.zeros(vocabulary, dtype=torch.bool)
        """bool [vocabulary]: the token ends a completion."""
        self.ends[[i for i in self.ids if i < vocabulary]] = True
        self.may_end = self._last_characters(vocabulary)
        """bool [vocabulary]: the token may complete a stop text."""

    def _last_characters(self, vocabulary: int) -> Tensor:
        marked = torch.zeros(vocabulary, dtype=torch.bool)
        for last in {text[-1] for text in self.texts}:
            if not (last in _SPELLINGS or "!" <= last <= "~"):
                marked[:] = True  # bytes of a multi-byte character, meaningless one by one
                continue
            spellings = _SPELLINGS.get(last, (last,))
            for token, index in self.tokenizer.get_vocab().items():
                if index < vocabulary and (
                    token.startswith("<0x") or any(s in token for s in spellings)
                ):
                    marked[index] = True
        return marked

    def find(self, tokens: Sequence[int]) -> int | None:
        """How many tokens it takes to complete the first stop text, None if there is none."""
        if not self.texts or not self._stopped(tokens):
            return None
        low, high = 1, len(tokens)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._stopped(tokens[:middle]) else (middle + 1, high)
        return low

    def _stopped(self, tokens: Sequence[int]) -> bool:
        text = self.decode(tokens)
        return any(stop in text for stop in self.texts)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of the tokens; special tokens are left out."""
        text: str = self.tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def text(self, tokens: Sequence[int]) -> str:
        """Text of a completion, cut before its first stop text."""
        return Sampling(stop=self.texts).cut(
            self.decode([token for token in tokens if token not in self.ids])
        )
