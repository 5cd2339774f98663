"""The tokenizer of models trained from scratch: byte-level BPE that learns whole phrases of a small language.

Text is split after newlines and around every digit, nowhere else: a merge may span spaces (`tl.load(` with its surroundings
is one token once it is frequent), and numbers are tokenised digit by digit. There are no unknown tokens, and every text round-trips.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("system", "user", "assistant", "tool")
SPECIAL = (PAD, END, *(f"<|{role}|>" for role in ROLES))
LONGEST_TOKEN = 32
"""Characters: without a bound whole frequent lines become tokens, each seen in one context only."""
REMEMBERED = 1 << 16
"""Lines whose tokens are cached: some 40 MB."""

TEMPLATE = """\
{%- for tool in tools or [] %}<|system|>{{ tool | tojson }}<|end|>{% endfor -%}
{%- for message in messages -%}
<|{{ message.role }}|>{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|end|>
{%- endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""

RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close": [END], "content": "text"},
    },
}
"""Response format for `transformers serve`: without it, it parses every Qwen3 as ChatML."""


def train_tokenizer(texts: Iterable[str], vocabulary: int, positions: int) -> Any:
    """A transformers tokenizer with at most `vocabulary` tokens, special ones included.

    Args:
        texts: a sample of the model's inputs and outputs, prompts and answers alike.
        vocabulary: at least the 256 bytes and the special tokens; fewer tokens result when the texts run out of pairs.
        positions: longest sequence of the model it is for, in tokens.

    Raises:
        ValueError: the vocabulary is too small.
    """
    if vocabulary < 256 + len(SPECIAL):
        raise ValueError(
            f"a byte-level vocabulary has at least {256 + len(SPECIAL)} tokens, not {vocabulary}"
        )
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("\n+"), behavior="merged_with_previous"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=LONGEST_TOKEN,
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=list(SPECIAL[2:]),
        chat_template=TEMPLATE,
        response_template=RESPONSE,
        model_max_length=positions,
        clean_up_tokenization_spaces=False,
    )


# ------------------------------------------------------------------ many similar texts


class ByLine:
    """Text → ids as the tokenizer gives them, for one that splits after newlines and around digits: line by line, cached.

    No token spans such a split, so a text's tokens are those of its parts. Ninety percent of the lines of generated kernels repeat,
    and nearly all of the text between their digits: ten times faster than the tokenizer on whole texts.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self._lines: dict[str, list[int]] = {}
        self._parts: dict[str, list[int]] = {}

    def __call__(self, text: str) -> list[int]:
        result: list[int] = []
        for line in _LINE.findall(text):
            ids = self._lines.get(line)
            if ids is None:
                if len(self._lines) >= REMEMBERED:
                    self._lines.clear()
                ids = self._lines[line] = [
                    id_ for part in _PART.findall(line) for id_ in self._part(part)
                ]
            result += ids
        return result

    def _part(self, text: str) -> list[int]:
        ids = self._parts.get(text)
        if ids is None:
            if len(self._parts) >= REMEMBERED:
                self._parts.clear()
            ids = self._parts[text] = _whole(self.tokenizer, text)
        return ids

    def __reduce__(self) -> Any:
        return ByLine, (self.tokenizer,)


_LINE = re.compile(r"[^\n]*\n+|[^\n]+")
_PART = re.compile(r"[0-9]|[^0-9]+")


def encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    """The fastest function from a text to its ids, with special tokens parsed but none added."""
    return ByLine(tokenizer) if splits_lines(tokenizer) else partial(_whole, tokenizer)


def _whole(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def splits_lines(tokenizer: Any) -> bool:
    """Whether `ByLine` is correct for it: it splits as `train_tokenizer` does, and no added token spans a split."""
    try:
        made = json.loads(tokenizer.backend_tokenizer.to_str())
        steps = made["pre_tokenizer"]["pretokenizers"]
        return (
            [step["type"] for step in steps] == ["Split", "Digits", "ByteLevel"]
            and (steps[0]["pattern"], steps[0]["behavior"], steps[0]["invert"])
            == ({"Regex": "\n+"}, "MergedWithPrevious", False)
            and steps[1]["individual_digits"]
            and not steps[2]["add_prefix_space"]
            and not steps[2]["use_regex"]
            and made["normalizer"] is None
            and not made["model"]["dropout"]
            and not any(
                token["lstrip"]
                or token["rstrip"]
                or token["single_word"]
                or re.search("[0-9\n]", token["content"])
                for token in made["added_tokens"]
            )
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
