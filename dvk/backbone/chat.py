"""Conversations as token ids: by the model's own chat template, or by a default one if it has none.

The default is ChatML with tools in Qwen's form (a JSON schema a line inside `<tools>`, calls as JSON inside `<tool_call>`), which
most base models have seen. Answers are tokenised separately from prompts, as in sampling.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from jinja2.exceptions import TemplateError

from dvk.backbone import Conversation
from dvk.backbone.tokenizer import encoder
from dvk.errors import UsageError

END = "<|im_end|>"
THINK = "<think>"

TEMPLATE = """\
{%- set told = messages[0].role == 'system' -%}
{%- if tools or told -%}
<|im_start|>system
{% if told %}{{ messages[0].content }}{% endif %}
{%- if tools %}{% if told %}{{ '\\n\\n' }}{% endif %}You may call these functions:
<tools>
{%- for tool in tools %}{{ '\\n' }}{{ tool | tojson }}{% endfor %}{{ '\\n' }}</tools>

Write a call as
<tool_call>
{"name": "the function's name", "arguments": {"argument": "value"}}
</tool_call>
{%- endif %}<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if not (loop.first and told) -%}
<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}{{ '\\n' }}<tool_call>
{{ call.function | tojson }}
</tool_call>
{%- endfor %}<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""


class ChatTemplate:
    """One tokenizer's rendering of conversations."""

    def __init__(self, tokenizer: Any, name: str, thinking: bool = False):
        self.tokenizer, self.name, self.thinking = tokenizer, name, thinking
        self.template = tokenizer.chat_template or TEMPLATE
        speaks_chatml = isinstance(self.template, str) and END in self.template
        known = tokenizer.get_vocab().get(END) if speaks_chatml else None
        self.end: int | None = known if known is not None else tokenizer.eos_token_id
        """The token that ends an answer; None for a tokenizer without one."""
        self.stop: tuple[str, ...] = (END,) if speaks_chatml and known is None else ()
        """Texts that end an answer because the tokenizer lacks them as tokens."""
        self._ids = encoder(tokenizer)

    @cached_property
    def opening(self) -> str:
        """Text with which the template begins every answer, `<think>` for models that always think; empty for others.

        An answer's text contains it, so that one cut while thinking is not read as an answer.
        """
        try:
            asked = self.render(Conversation(messages=({"role": "user", "content": "?"},)))
        except UsageError:  # the template wants another order of roles
            return ""
        return f"{THINK}\n" if asked.rstrip().endswith(THINK) else ""

    def render(self, conversation: Conversation) -> str:
        """The conversation as the model's input text, up to where its answer begins.

        Raises:
            UsageError: the model's template refuses these messages.
        """
        try:
            text: str = self.tokenizer.apply_chat_template(
                [_with_objects(message) for message in conversation.messages],
                tools=list(conversation.tools) or None,
                chat_template=self.template,
                add_generation_prompt=True,
                tokenize=False,
                enable_thinking=self.thinking,
            )
        except TemplateError as error:
            problem = f"the chat template of `{self.name}` refuses these messages: {error}"
            raise UsageError(
                problem, "change the order or the roles of the messages, or use another model"
            ) from None
        return text

    def encode(self, conversation: Conversation) -> tuple[int, ...]:
        """Token ids of `render`."""
        return tuple(self._ids(self.render(conversation)))

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of an answer's tokens, without special ones and the one that ends it."""
        text: str = self.tokenizer.decode(
            [token for token in tokens if token != self.end],
            skip_special_tokens=True,
            clean_up_tokenization_spaces=False,
        )
        return text

    def encode_text(self, text: str) -> tuple[int, ...]:
        """Token ids of a piece of text within an answer."""
        return tuple(self._ids(text))

    def encode_answer(self, text: str) -> tuple[int, ...]:
        """Token ids of an answer with the token that ends it."""
        return (*self._ids(text), *([] if self.end is None else [self.end]))


def _with_objects(message: dict[str, Any]) -> dict[str, Any]:
    """Tool calls carry their arguments as JSON text between client and server, as objects in templates."""
    if not message.get("tool_calls"):
        return message
    calls = []
    for call in message["tool_calls"]:
        function = dict(call["function"])
        if isinstance(function.get("arguments"), str):
            try:
                function["arguments"] = json.loads(function["arguments"])
            except json.JSONDecodeError:  # the model's text: rendered unchanged
                pass
        calls.append({**call, "function": function})
    return {**message, "tool_calls": calls}
