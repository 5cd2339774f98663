"""Conversations as text: the model's own template with tools, or the default one."""

from __future__ import annotations

import json
import pickle
import random

import pytest
from tokenizers import normalizers, pre_tokenizers

from dvk.backbone import Conversation
from dvk.backbone.chat import ChatTemplate
from dvk.backbone.hf import HfBackbone
from dvk.backbone.tokenizer import ByLine, encoder, splits_lines, train_tokenizer
from dvk.errors import UsageError
from tests.backbone.tokenizers import bare_tokenizer

TOOL = {
    "type": "function",
    "function": {
        "name": "select_skills",
        "parameters": {"type": "object", "properties": {"names": {}}},
    },
}
CALL = {
    "id": "1",
    "type": "function",
    "function": {"name": "select_skills", "arguments": '{"names": ["tile <&> it"]}'},
}
TALK = Conversation(
    messages=(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Choose."},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "done"},
        {"role": "user", "content": "And now?"},
    ),
    tools=(TOOL,),
)


def test_ours_is_chatml_with_qwen_s_tools() -> None:
    chat = ChatTemplate(bare_tokenizer(), "bare")
    text = chat.render(TALK)
    system, user, call, tool, question, rest = text.split("<|im_end|>\n")
    assert system.startswith("<|im_start|>system\nBe brief.\n\n")
    assert json.loads(system.split("<tools>\n")[1].split("\n</tools>")[0]) == TOOL
    assert user == "<|im_start|>user\nChoose."
    assert json.loads(call.split("<tool_call>\n")[1].split("\n</tool_call>")[0]) == {
        "name": "select_skills",
        "arguments": {"names": ["tile <&> it"]},
    }
    assert tool == "<|im_start|>tool\ndone" and question == "<|im_start|>user\nAnd now?"
    assert rest == "<|im_start|>assistant\n"
    assert chat.stop == ("<|im_end|>",), (
        "not a token of this tokenizer, so it is watched for as text"
    )
    plain = chat.render(Conversation(messages=({"role": "user", "content": "Hi"},)))
    assert plain == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_the_model_s_own_template_is_used_tools_included() -> None:
    tokenizer = bare_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})  # type: ignore[attr-defined]
    tokenizer.chat_template = (  # type: ignore[attr-defined]
        "{{ tools[0].function.name }}|{% for m in messages %}{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}"
        "{% if enable_thinking %}<think>{% endif %}"
    )
    text = ChatTemplate(tokenizer, "own").render(TALK)
    assert (
        text.startswith("select_skills|system:Be brief.<|im_end|>user:Choose.")
        and "<think>" not in text
    )
    assert ChatTemplate(tokenizer, "own", thinking=True).render(TALK).endswith("<think>")
    chat = ChatTemplate(tokenizer, "own")
    assert chat.stop == () and chat.end == tokenizer.get_vocab()["<|im_end|>"]  # type: ignore[attr-defined]


def test_a_template_s_refusal_is_said() -> None:
    tokenizer = bare_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="roles must alternate"):
        ChatTemplate(tokenizer, "strict").render(TALK)


def test_nano_s_template_uses_its_role_tokens(shared_nano: HfBackbone) -> None:
    conversation = Conversation(messages=({"role": "user", "content": "v0 = aten.relu\n"},))
    ids = shared_nano.encode(conversation)
    names = shared_nano.tokenizer.convert_ids_to_tokens(list(ids))
    assert names[0] == "<|user|>" and names[-2:] == ["<|end|>", "<|assistant|>"]
    answer = shared_nano.encode_answer("k0: relu\n")
    assert answer[-1] in shared_nano.end_ids
    assert shared_nano.tokenizer.decode(answer[:-1]) == "k0: relu\n"
    assert "select_skills" in shared_nano.chat.render(TALK)


def test_remembered_lines_are_what_the_tokenizer_says() -> None:
    """Any text: newlines in runs, digits of any script, special tokens and parts of them, invalid characters."""
    kernels = "k0:\n  for (long i0 = 0; i0 < s0*s1; ++i0) {\n    float e29 = x38[i0];\n\n  }\nreturn v31\n"
    tokenizer = train_tokenizer([kernels] * 9, 320, 512)
    quick = encoder(tokenizer)
    assert isinstance(quick, ByLine)
    draw = random.Random(0)
    parts = [
        "\n",
        "\n\n",
        " ",
        "7",
        "10",
        "\u00b2",
        "\u0663",
        "\u00e9",
        "\r\n",
        "<|end|>",
        "<|en",
        "d|>",
        "<|user|>",
        "for (long i",
        "x38[i0];",
        "\U0001f600",
    ]
    for _ in range(400):
        text = "".join(draw.choices(parts, k=draw.randint(0, 12)))
        assert quick(text) == tokenizer(text, add_special_tokens=False)["input_ids"], repr(text)
    again = pickle.loads(pickle.dumps(ChatTemplate(tokenizer, "own")))
    assert again.encode_answer(kernels) == ChatTemplate(tokenizer, "own").encode_answer(kernels)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.add_tokens(["e29 = x3"]),
        lambda t: setattr(t.backend_tokenizer, "pre_tokenizer", pre_tokenizers.ByteLevel()),
        lambda t: setattr(t.backend_tokenizer, "normalizer", normalizers.NFC()),
    ],
)
def test_tokens_that_reach_over_lines_or_digits_are_left_to_the_tokenizer(change) -> None:  # type: ignore[no-untyped-def]
    tokenizer = train_tokenizer(["float e29 = x38;\n"] * 3, 270, 512)
    change(tokenizer)
    assert not splits_lines(tokenizer)
    text = "float e29 = x38;\nfloat"
    assert encoder(tokenizer)(text) == tokenizer(text, add_special_tokens=False)["input_ids"]
    assert pickle.loads(pickle.dumps(ChatTemplate(tokenizer, "own"))).encode_answer(text)[
        :-1
    ] == tuple(encoder(tokenizer)(text))
