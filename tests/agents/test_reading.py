"""Answers of models: well-formed ones in every form are parsed, others raise `MalformedAnswer` with the reason, and nothing else."""

from __future__ import annotations

import json
import random

import pytest

from dvk.agents import reading, tools
from dvk.agents.reading import MalformedAnswer

TOOL = tools.select_skills(3)
PICKED = [{"name": "a", "reason": "it's fast"}, {"name": "b", "reason": 'says "so"'}]
ARGUMENTS = {"think": "memory bound", "selected_skills": PICKED}


def xml(selected: str, think: str = "memory bound") -> str:
    return (
        f"<tool_call>\n<function=select_skills>\n<parameter=think>\n{think}\n</parameter>\n"
        f"<parameter=selected_skills>\n{selected}\n</parameter>\n</function>\n</tool_call>"
    )


def call(arguments: object, name: str = "select_skills") -> str:
    return json.dumps({"name": name, "arguments": arguments}, indent=1)


FORMS = {
    "xml, JSON": xml(json.dumps(PICKED)),
    "xml, Python literal": xml(repr(PICKED)),
    "xml, after prose and thinking": "<think>maybe <tool_call>{}</tool_call></think>I choose:\n"
    + xml(repr(PICKED)),
    "xml, template opened the thinking": "hm, or b?\n</think>\n\n" + xml(repr(PICKED)),
    "xml, not closed": xml(repr(PICKED)).replace("</function>\n</tool_call>", ""),
    "xml, parameters not closed": xml(repr(PICKED)).replace("</parameter>", ""),
    "xml, no tool_call around": xml(repr(PICKED))
    .replace("<tool_call>", "")
    .replace("</tool_call>", ""),
    "xml, other parameters too": xml(repr(PICKED)).replace(
        "<parameter=think>", "<parameter=mood>gay</parameter><parameter=think>"
    ),
    "json in tool_call": f"<tool_call>\n{call(ARGUMENTS)}\n</tool_call>",
    "json in tool_call, not closed": f"<tool_call>{call(ARGUMENTS)}",
    "json, arguments as text": f"<tool_call>{call(json.dumps(ARGUMENTS))}</tool_call>",
    "json, list as Python text": f"<tool_call>{call({**ARGUMENTS, 'selected_skills': repr(PICKED)})}</tool_call>",
    "json, parameters": f"<tool_call>{json.dumps({'name': 'select_skills', 'parameters': ARGUMENTS})}</tool_call>",
    "json, OpenAI's wrapping": json.dumps(
        {"type": "function", "function": {"name": "select_skills", "arguments": ARGUMENTS}}
    ),
    "json, a list of calls": f"<tool_call>{json.dumps([{'name': 'select_skills', 'arguments': ARGUMENTS}])}</tool_call>",
    "python dict in tool_call": f"<tool_call>{ {'name': 'select_skills', 'arguments': ARGUMENTS}!r}</tool_call>",
    "fenced": f"My choice:\n```json\n{call(ARGUMENTS)}\n```\n",
    "fenced, after another block": f"```python\nx = 1\n```\n```\n{call(ARGUMENTS)}\n```",
    "fenced, only the arguments": f"```json\n{json.dumps(ARGUMENTS)}\n```",
    "the whole answer": call(ARGUMENTS),
    "two calls, the first counts": f"<tool_call>{call(ARGUMENTS)}</tool_call><tool_call>{call({'selected_skills': []})}</tool_call>",
    "windows line ends": xml(repr(PICKED)).replace("\n", "\r\n"),
}

BROKEN = {
    "empty": ("", "an empty answer"),
    "only thinking": ("<think>so many skills", "a thought without an answer"),
    "prose": ("I would choose a and b.", "no tool call"),
    "half of a surrogate pair": (
        call({"selected_skills": [{"name": "\ud800"}]}),
        "what no JSON can",
    ),
    "half of one, in a tool's name": (
        call({"selected_skills": []}, "bash\ud800"),
        "it called `bash\\?`",
    ),
    "a number of thousands of digits": (xml(f"[0x{'f' * 5000}]"), "what no JSON can"),
    "another tool": (
        xml("[]").replace("select_skills", "update_skill_library"),
        "it called `update_skill_library`",
    ),
    "another tool, json": (f"<tool_call>{call({}, 'bash')}</tool_call>", "it called `bash`"),
    "no list": (xml("[]").replace("=selected_skills", "=selected"), "`selected_skills` is missing"),
    "cut in the list": (xml(repr(PICKED))[:180], "cannot be decoded"),
    "not a list": (xml("'a'"), "is not a list"),
    "prose for a list": (xml("a and b"), "cannot be decoded"),
    "cut json": (f"<tool_call>{call(ARGUMENTS)[:60]}", "cannot be decoded"),
    "json of something else": ('```json\n{"x": 1}\n```', "without name and arguments"),
    "a number": ("<tool_call>7</tool_call>", "not an object"),
    "arguments that are a list": (f"<tool_call>{call([1])}</tool_call>", "not an object"),
    "deep": (xml("[" * 5000), "cannot be decoded"),
    "many signs": (xml("-" * 100_000 + "1"), "cannot be decoded"),
    "code that looks like a list": (xml("[__import__('os').getcwd()]"), "cannot be decoded"),
    "far too long": ("x" * (reading.MAX_CHARS + 1), "characters"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_call_is_read_in_every_form(form: str) -> None:
    assert reading.arguments(FORMS[form], (), TOOL) == ARGUMENTS


def test_the_servers_own_calls_come_first() -> None:
    for given in (ARGUMENTS, json.dumps(ARGUMENTS)):
        calls = (
            {
                "id": "1",
                "type": "function",
                "function": {"name": "select_skills", "arguments": given},
            },
            {"function": {"name": "x"}},
        )
        assert reading.arguments("ignored", calls, TOOL) == ARGUMENTS
    for calls in (
        ({},),
        ({"function": {"name": 3}},),
        ({"function": {"name": "select_skills", "arguments": "{"}},),
    ):
        with pytest.raises(MalformedAnswer):
            reading.arguments("", calls, TOOL)


def test_text_stays_text() -> None:
    assert reading.arguments(xml("[]", think="[1, 2]"), (), TOOL)["think"] == "[1, 2]"
    assert reading.arguments(call({"think": 7, "selected_skills": []}), (), TOOL)["think"] == "7"


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_says_why(name: str) -> None:
    text, why = BROKEN[name]
    with pytest.raises(MalformedAnswer, match=why.replace("(", r"\(")):
        reading.arguments(text, (), TOOL)


# ---------------------------------------------------------------- code

MODEL = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"```python\n{MODEL}```", MODEL),
        (
            f"First\n```python\nprint(1)\n```\nthen\n```\n{MODEL}```\nand run\n```bash\npython x.py\n```",
            MODEL,
        ),
        (f"```python\n{MODEL}# old\n```\nbetter:\n```python\n{MODEL}# new\n```", MODEL + "# new\n"),
        ("```python\nx = 1\n```\n```python\ny = 2\n```", "y = 2\n"),
        (f"<think>```python\n{MODEL}# draft\n```</think>\n```python\n{MODEL}```", MODEL),
        (f"~~~python\ns = '''\n```\n'''\n{MODEL}~~~", f"s = '''\n```\n'''\n{MODEL}"),
        (f"```python\n{MODEL}", MODEL),  # ended by itself without closing
        (MODEL, MODEL),
        (f"    ```python\n{MODEL}    ```", MODEL),
        ("```python\nModelNew = make()\n```\n```json\n{}\n```", "ModelNew = make()\n"),
    ],
)
def test_code_is_found(text: str, wanted: str) -> None:
    assert reading.code(text) == wanted


@pytest.mark.parametrize(
    ("text", "complete", "why"),
    [
        ("", True, "empty answer"),
        ("Sorry", True, "no fenced block"),  # parses as Python, and is none
        ("class ModelNew is what I would write", True, "no fenced block"),
        (f"```python\n{MODEL}", False, "cut at the token limit"),
        ("```python\n\n```", True, "empty block"),
        (f"<think>```python\n{MODEL}```", True, "thought without an answer"),
    ],
)
def test_no_code_says_why(text: str, complete: bool, why: str) -> None:
    with pytest.raises(MalformedAnswer, match=why):
        reading.code(text, complete)


# ---------------------------------------------------------------- whatever comes

PIECES = [
    "<tool_call>",
    "</tool_call>",
    "<function=select_skills>",
    "<function=>",
    "</function>",
    "<parameter=selected_skills>",
    "<parameter=",
    "</parameter>",
    "```",
    "```python\n",
    "\n```\n",
    "~~~",
    "{",
    "}",
    "[",
    "]",
    "'",
    '"',
    ":",
    ",",
    "\\",
    "\0",
    "\n",
    "name",
    "arguments",
    "<think>",
    "</think>",
    "class ModelNew",
    "\ud800",
    "𝕏",
    "-1",
    "1e999",
    "True",
    "(" * 50,
]


def test_nothing_but_malformed_is_ever_raised() -> None:
    rng = random.Random(4)
    texts = list(FORMS.values())
    read = refused = 0
    for _ in range(4000):
        if rng.random() < 0.5:
            text = "".join(rng.choice(PIECES) for _ in range(rng.randrange(30)))
        else:  # a good answer with a piece taken out, doubled or replaced
            good = rng.choice(texts)
            start = rng.randrange(len(good))
            end = min(len(good), start + rng.randrange(40))
            text = good[:start] + rng.choice([*PIECES, good[start:end] * 2]) + good[end:]
        for attempt in (
            lambda: reading.arguments(text, (), TOOL),  # noqa: B023
            lambda: reading.code(text, rng.random() < 0.5),  # noqa: B023
        ):
            try:
                attempt()
                read += 1
            except MalformedAnswer as error:
                assert str(error)
                refused += 1
    assert read > 500 and refused > 500
