"""Prompts of searching strategies to general models, and the parsing of their answers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dvk.agents import TaskContext, dialects, policy, tools
from dvk.agents.briefs import Brief
from dvk.agents.dialects import ProseDialect, searching
from dvk.agents.reading import MalformedAnswer
from dvk.agents.task_context import CHARS_PER_TOKEN, traffic
from dvk.backbone import Completion
from dvk.composer import CapturedGraph
from dvk.config import Config
from dvk.records import Candidate, Graph, Node, Task, TensorSpec, Turn, Verdict
from tests.agents.conftest import fenced, make_skill, ok, turn, wrong

DIALECT = dialects.get("chat")
SETTINGS = Config().agents
TASK = Task(id="t", name="t", source="class Model: ...", entry="Model", kind="module")
HERE = TaskContext(TASK, None, "cpp")


def version(verdict: Verdict, source: str = "class ModelNew: ...\n") -> Turn:
    return Turn(
        candidate=Candidate(source=source, backend="cpp"),
        completion=fenced(source),
        verdict=verdict,
    )


def said(text: str, **fields: Any) -> Completion:
    return Completion(text=text, finish="stop", **fields)


def test_who_speaks_in_words() -> None:
    assert isinstance(DIALECT, ProseDialect) and not isinstance(
        dialects.get("compact"), ProseDialect
    )


def test_a_revision_is_the_policys_question_and_the_versions() -> None:
    skills = [make_skill("a")]
    versions = version(ok(1.5), "class ModelNew: one = {1}\n"), version(wrong(error="off at [3]"))
    brief = Brief("improve", versions, lessons="- a {b}: 1 to 2")
    (message,) = policy.revise(DIALECT, HERE, skills, brief, SETTINGS).messages
    opening, _, rest = str(message["content"]).partition("\n\nVersions that exist")
    assert (
        opening == policy.build_prompt(DIALECT, HERE, skills, (), SETTINGS).messages[0]["content"]
    )
    for earlier, later in [
        ("one = {1}", "off at [3]"),
        ("Version 1: 1.50×", "Version 2: not right"),
        ("off at [3]", "- a {b}: 1 to 2"),
    ]:
        assert 0 <= rest.index(earlier) < rest.index(later)
    assert (
        "Version 2 is not right: find the cause and repair it. What the others show may help."
        in rest
    )


def test_what_could_not_be_read_is_a_version_too() -> None:
    brief = Brief("improve", (turn(None, "just words", "no fenced block of code"),))
    (message,) = policy.revise(DIALECT, HERE, (), brief, SETTINGS).messages
    assert (
        "just words" in message["content"]
        and "Nothing could be read from your answer: no fenced block of code." in message["content"]
    )


def test_versions_keep_within_the_budget() -> None:
    settings = SETTINGS.model_copy(update={"prompt_tokens": 2000})
    long = "class ModelNew:\n" + "  x = 1\n" * 4000
    (message,) = policy.revise(
        DIALECT, HERE, (), Brief("contrast", (version(ok(1.1), long), version(ok(2.0)))), settings
    ).messages
    assert (
        len(message["content"]) < 2100 * CHARS_PER_TOKEN
        and "characters left out" in message["content"]
    )
    assert "First compare" in message["content"] and "### Version 2: 2.00×" in message["content"]


@pytest.mark.parametrize(
    ("text", "idea"),
    [
        ("Idea: one sweep\n```python\nx\n```", "one sweep"),
        ("Some words.\n**Idea:** one sweep**\n", "one sweep"),
        ("idea : x", "x"),
        ("<think>Idea: no</think>Idea: yes", "yes"),
        ("```\nIdea: in code\n```", ""),
        ("no", ""),
        ("", ""),
        ("> *Idea*: quoted", "quoted"),
        ("Ideas are cheap: no", ""),
    ],
)
def test_an_idea(text: str, idea: str) -> None:
    assert searching.idea(text) == idea


def call(change: str) -> tuple[dict[str, Any], ...]:
    return (
        {
            "function": {
                "name": tools.ADVISE,
                "arguments": {"think": "t", "problem": "a  b", "change": change},
            }
        },
    )


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ("tile", "tile"),
        ('["tile"]', "tile"),
        ("tile:\n- rows\n- columns", "tile:\n- rows\n- columns"),
        ("- tile", "- tile"),
        ("Replace:\n```\n1. a\n2. b\n```", "Replace:\n```\n1. a\n2. b\n```"),
        ("[0] is wrong", "[0] is wrong"),
        ("x" * 5000, "x" * 1199 + "…"),
    ],
)
def test_one_change_is_read(change: str, read: str) -> None:
    found = searching.read_advice(said("", tool_calls=call(change)))
    assert (found.change, found.problem) == (read, "a b")


@pytest.mark.parametrize(
    "change", ["", '["a", "b"]', "[]", "1. a\n2. b", "- a\n  more\n- b", "* a\n\n* b"]
)
def test_no_change_and_several_are_malformed(change: str) -> None:
    with pytest.raises(MalformedAnswer, match="no change|instead of one"):
        searching.read_advice(said("", tool_calls=call(change)))


def test_a_summary_is_words_within_its_budget() -> None:
    asked = searching.digest(HERE, "tiles pay", [version(ok(1.2))], 100).messages[0]["content"]
    assert "\n\ntiles pay\n\n" in asked and "at most 50 words" in asked and "1.20×" in asked
    assert (
        searching.read_digest(said("<think>hm</think>\nTiles pay.\n```python\nx\n```\n"), 100)
        == "Tiles pay."
    )
    assert len(searching.read_digest(said("word " * 1000), 100)) < 400
    with pytest.raises(MalformedAnswer):
        searching.read_digest(said("```\nonly code\n```"), 100)


def test_a_reviewer_knows_what_has_to_move() -> None:
    spec = TensorSpec(name="x", dtype="bfloat16", shape=(1000, 1000), strides=(1000, 1))
    weight = Node(name="p0", op="param", shape=(1000, 250), dtype="float32")
    drawn = Node(name="v0", op="aten.relu.default", shape=(1000, 1000), dtype="float32")
    captured = CapturedGraph(graph=Graph(nodes=(weight, drawn), outputs=None), arguments=())
    subject = TaskContext(
        TASK.model_copy(
            update={"inputs": (spec,), "outputs": (spec.model_copy(update={"dtype": "bool"}),)}
        ),
        captured,
        "cpp",
    )
    assert traffic(subject) == 2_000_000 + 1_000_000 + 1_000_000
    asked = searching.advise(subject, version(ok(2.0)), (), SETTINGS).messages[1]["content"]
    assert "once each, are 4 MB: it moves them at 8 GB/s." in asked
    assert (
        "GB/s"
        not in searching.advise(subject, version(wrong()), (), SETTINGS).messages[1]["content"]
    )


PIECES = [
    "Idea:",
    "\n",
    "- ",
    "1. ",
    "```",
    "<tool_call>",
    '{"name": "advise", "arguments": ',
    '{"change": ',
    '"x"',
    "}",
    "}",
    "[",
    "]",
    "<function=advise>",
    "<parameter=change>",
    "</think>",
    "\ud800",
    "\0",
]


def test_nothing_but_malformed_is_ever_raised() -> None:
    rng = random.Random(2)
    read = 0
    for _ in range(2000):
        answer = Completion.model_construct(
            text="".join(rng.choices(PIECES, k=rng.randrange(12))), finish="stop", tool_calls=()
        )
        searching.idea(answer.text)
        for reader in (searching.read_advice, lambda one: searching.read_digest(one, 100)):
            try:
                read += bool(reader(answer))
            except MalformedAnswer:
                pass
    assert read
