"""The tokenizer of models made from nothing: byte-level BPE that learns whole phrases of a small language.

Text is split after newlines and around every digit, nowhere else: a merge may span spaces (`tl.load(` with what surrounds it
is one token once it is frequent), and numbers stay readable digit by digit. Nothing is unknown, every text comes back whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("system", "user", "assistant", "tool")
SPECIAL = (PAD, END, *(f"<|{role}|>" for role in ROLES))
LONGEST_TOKEN = 32
"""Characters: without a bound whole frequent lines become tokens, each seen in one context only."""

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
            "open": "<tool_call>", "close": "</tool_call>", "repeats": True, "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close": [END], "content": "text"},
    },
}  # fmt: skip
"""How `transformers serve` reads an answer: without it, it reads every Qwen3 as ChatML."""


def train_tokenizer(texts: Iterable[str], vocabulary: int, positions: int) -> Any:
    """A transformers tokenizer with at most `vocabulary` tokens, special ones included.

    Args:
        texts: a sample of what the model will read and write, prompts and answers alike.
        vocabulary: at least the 256 bytes and the special tokens; fewer tokens result when the texts run out of pairs.
        positions: longest sequence of the model it is for, in tokens.

    Raises:
        ValueError: the vocabulary is too small.
    """
    if vocabulary < 256 + len(SPECIAL):
        raise ValueError(f"a byte-level vocabulary has at least {256 + len(SPECIAL)} tokens, not {vocabulary}")
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex("\n+"), behavior="merged_with_previous"),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=LONGEST_TOKEN, show_progress=False,
    )  # fmt: skip
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token=PAD, eos_token=END, additional_special_tokens=list(SPECIAL[2:]),
        chat_template=TEMPLATE, response_template=RESPONSE, model_max_length=positions, clean_up_tokenization_spaces=False,
    )  # fmt: skip
