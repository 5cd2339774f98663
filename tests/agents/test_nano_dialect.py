"""The compact dialect: short, regular, and read back; whole episodes in it are judged for real."""

from __future__ import annotations

import random
import shutil

import pytest

from dvk import nanolang
from dvk.agents import TaskContext, dialects, notes, policy, run_episode, selection, summary
from dvk.agents.dialects.nano import CompactDialect
from dvk.backbone import Completion, Conversation
from dvk.composer import Plan, applicable
from dvk.config import Config
from dvk.records import Candidate, Status, Trace, Turn
from dvk.skills.markdown import parse, render
from tests.agents.conftest import Said, affine, captured, configured, make_skill, ok, turn, wrong

DIALECT = dialects.get("compact")
SETTINGS = Config().agents


def here() -> TaskContext:
    return TaskContext(affine(), captured(), "cpp")


def listing() -> str:
    return nanolang.prompt(captured().graph, "cpu", "cpp").rstrip("\n")


def text() -> str:
    """The composer's own text."""
    return nanolang.write(
        captured(), Plan(tuple(applicable(captured().graph, "cpu", "cpp"))), "cpp"
    )


def said(answer: str, finish: str = "stop") -> Completion:
    return Completion.model_validate({"text": answer, "finish": finish})


def content(asked: Conversation) -> str:
    (message,) = asked.messages
    assert not asked.tools
    return str(message["content"])


# ---------------------------------------------------------------- selection

OFFERED = [make_skill(name) for name in ("a", "b", "c", "d")]


def test_a_selection_is_the_listing_and_a_line_a_skill() -> None:
    rows = (
        content(DIALECT.selection(here(), OFFERED[:2], SETTINGS))
        .split(listing() + "\n")[1]
        .split("\n")
    )
    assert rows == [
        "1 a | On long rows | Do a in one sweep",
        "2 b | On long rows | Do b in one sweep",
        "select 3",
    ]


@pytest.mark.parametrize(
    ("answer", "chosen", "malformed"),
    [
        ("select 3 1", ["c", "a"], None),
        ("select 3, 1\n", ["c", "a"], None),
        ("select 2\nand more", ["b"], None),
        ("select none", [], None),
        ("select", [], None),
        ("select 1 1 9 2", ["a", "b"], None),
        ("select 1 2 3 4", ["a", "b", "c"], None),
        ("select 0 77", [], "none of the names was offered: 0, 77"),
        ("3 1", [], "not `select` and numbers: `3 1`"),
        ("", [], "not `select` and numbers: ``"),
        ("select a", [], "not `select` and numbers: `select a`"),
        ("select " + "9" * 5000, [], "none of the names was offered: 999999999"),
    ],
)
def test_a_choice_is_read(answer: str, chosen: list[str], malformed: str | None) -> None:
    found = selection.read(DIALECT, said(answer), OFFERED, SETTINGS)
    assert ([s.name for s in found.skills], found.malformed) == (chosen, malformed)


# ---------------------------------------------------------------- policy


def test_a_policy_gets_notes_first_and_one_word_later() -> None:
    error = "`output`: 7 of 99 elements are off, worst at [1, 2]: 3.5 instead of 4 (rms 1)"
    turns = [
        turn(wrong(error=error), "TEXT 1"),
        turn(ok(1.3), "TEXT 2"),
        turn(None, "TEXT 3", malformed="no `run`"),
    ]
    asked = policy.build_prompt(DIALECT, here(), OFFERED[:1], turns, SETTINGS)
    assert [message["content"] for message in asked.messages] == [
        f"{listing()}\nskill a\nwhen On long rows\ndo Do a in one sweep\nwrite",
        "TEXT 1",
        "wrong 7/99 [1, 2] 3.5 not 4\nagain",
        "TEXT 2",
        "ok 1.30\nagain",
        "TEXT 3",
        "unread no `run`\nbest 1.30\nagain",
    ]
    assert content(policy.build_prompt(DIALECT, here(), [], [], SETTINGS)) == f"{listing()}\nwrite"


def test_a_composers_text_is_a_candidate() -> None:
    found = policy.read(DIALECT, here(), said(text()), "nano", OFFERED[:1], "turn 1")
    assert isinstance(found, Candidate) and "class ModelNew" in found.source
    assert (found.backend, found.proposer, found.skills) == ("cpp", "nano", ("a",))


@pytest.mark.parametrize("answer", ["", "run away", "return v9", "k0:\n  x0[0] = (1;\nreturn x"])
def test_an_unreadable_text_says_why(answer: str) -> None:
    found = policy.read(DIALECT, here(), said(answer), "nano", [], "")
    assert isinstance(found, str) and found


def test_a_cut_text_is_not_read() -> None:
    assert (
        policy.read(DIALECT, here(), said(text(), "length"), "nano", [], "")
        == "the text was cut at the token limit"
    )


# ---------------------------------------------------------------- summary

TRACE = Trace(
    role="policy",
    turns=(turn(ok(1.0), "TEXT 1"), turn(wrong(Status.TIMEOUT), "TEXT 2"), turn(ok(2.0), "TEXT 3")),
)


def test_a_summary_prompt_lists_the_attempts() -> None:
    asked = content(DIALECT.summary(here(), TRACE, OFFERED[:1], SETTINGS))
    assert asked == (
        f"{listing()}\nskill a\nwhen On long rows\ndo Do a in one sweep\n"
        "try 1 ok 1.00\nTEXT 1\ntry 2 timeout\nTEXT 2\ntry 3 ok 2.00\nTEXT 3\nlearn 2"
    )


def test_a_note_becomes_a_skill_that_reads_as_the_note() -> None:
    answer = said(
        "skill long_rows\nwhen rows of 4096 or more\ndo split each row over programs\nskill b\nwhen x\ndo y"
    )
    found = summary.read(DIALECT, here(), answer, TRACE, SETTINGS, {"source": "run"})
    first, second = found.skills
    assert notes.note(first) == notes.Note(
        "long_rows", "rows of 4096 or more", "split each row over programs"
    )
    assert (
        second.name == "b"
        and first.tags[:1] == ("relu",)
        and "TEXT 3" in first.body
        and "from 1.00× to 2.00×" in first.body
    )
    back = parse(render(first))
    assert notes.note(back) == notes.note(first)
    assert (
        summary.read(DIALECT, here(), said("none"), TRACE, SETTINGS, {})
        == summary.SummaryProposals()
    )
    assert summary.read(DIALECT, here(), said("do it"), TRACE, SETTINGS, {}).malformed
    assert [
        s.name
        for s in summary.read(
            DIALECT, here(), said("skill a\nwhen b\ndo c\n" * 3), TRACE, SETTINGS, {}
        ).skills
    ] == ["a"]


# ---------------------------------------------------------------- all of it

PIECES = [
    "select",
    " 3",
    " none",
    "\n",
    "skill ",
    "when ",
    "do ",
    "x",
    "k0:",
    "return ",
    " v2",
    "v2 = ",
    "x0",
    "k0 wide:",
    "relu(e1)",
    "float e1 = ",
    "z0 = empty(f32, s0)",
    "{",
    "}",
    "(",
    ")",
    "'",
    '"""',
    "\\",
    "\0",
    "\ud800",
    "𝕏",
    "#",
    "    ",
    "torch.",
    "empty_like",
    ":",
    "@",
    "import os",
]


def test_nothing_is_ever_raised() -> None:
    rng = random.Random(1)
    good = text()
    read = 0
    for _ in range(600):
        answer = "".join(rng.choice(PIECES) for _ in range(rng.randrange(25)))
        if rng.random() < 0.5:
            start = rng.randrange(len(good))
            answer = good[:start] + answer + good[start + rng.randrange(30) :]
        read += isinstance(policy.read(DIALECT, here(), said(answer), "nano", [], ""), Candidate)
        selection.read(DIALECT, said(answer), OFFERED, SETTINGS)
        summary.read(DIALECT, here(), said(answer), TRACE, SETTINGS, {})
    assert read


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.slow
def test_an_episode_is_judged_for_real() -> None:
    """Unparsable, then wrong, then right: each reported in the dialect's own words."""
    answers = ["run", text().replace("2.0f", "3.0f"), text()]

    def answer(conversation: Conversation) -> str:
        return answers[sum(message["role"] == "assistant" for message in conversation.messages)]

    backbone = Said(answer, dialect="compact")
    (trace,) = run_episode(here(), backbone, None, configured(turns=3)).traces
    first, second, third = trace.turns
    assert (
        first.malformed and second.verdict is not None and second.verdict.status is Status.MISMATCH
    )
    assert (
        third.verdict is not None
        and third.verdict.status is Status.OK
        and third.verdict.timing is not None
    )
    told = [message["content"] for message in third.messages if message["role"] == "user"]
    assert (
        told[1].startswith("unread ")
        and told[2].startswith("wrong ")
        and told[2].endswith("\nagain")
    )
    assert all(
        sampling.max_tokens == CompactDialect.longest["policy"] for _, sampling in backbone.calls
    )
    assert (
        isinstance(third, Turn)
        and third.candidate is not None
        and third.candidate.proposer == "said"
    )
