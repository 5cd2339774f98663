"""The dialect of nano: the task as a symbolic listing, candidates as short texts, skills as notes; a dozen words of grammar.

What each agent reads, and what it writes after `→`; LISTING and TEXT are the composer's (`dvk.nanolang`):

    LISTING                                  LISTING                         LISTING
    1 online_softmax | long rows | …         skill online_softmax            try 1 ok 1.02
    2 fused_chain | …                        when rows too long for …        TEXT
    select 3                                 do one sweep: running …         try 2 wrong [0, 3] 1.5 not 2
    → select 1 2                             write                           try 3 ok 1.61
                                             → TEXT                          TEXT
                                             wrong [0, 3] 1.5 not 2          learn 2
                                             best 1.02                       → skill online_softmax_rows
                                             again                             when …
                                             → TEXT                            do …

Nothing to choose or to learn is `select none` and `none`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dvk.agents import feedback, notes, task_context
from dvk.agents.bounds import Bounds
from dvk.agents.evidence.offered import shown
from dvk.agents.reading import MalformedAnswer
from dvk.agents.task_context import SUMMARY_TOKENS, TaskContext
from dvk.agents.turns import speedup
from dvk.backbone import Completion, Conversation
from dvk.config import AgentsConfig
from dvk.records import Candidate, Role, Skill, Timing, Trace, Verdict

LISTED = 60
"""Characters of `when` and of `do` in a list of candidates: 20 lines stay within 1,000 tokens."""
TRIED_TOKENS = 1200
"""All texts in a summary's prompt together."""
MAX_REASON = 80
"""Characters of a parse error's reason."""

WRITE = "write"

_SELECT = re.compile(r"select((?: +\d+)+| +none)? *")
_SKILL = re.compile(r"skill +(\S+) *\nwhen +(\S.*)\ndo +(\S.*)")


class CompactDialect:
    """See the module."""

    reads_graph = True
    longest: Mapping[Role, int] = {"selection": 24, "policy": 1024, "summary": 192}

    def note(self, skill: Skill) -> notes.Note:
        """A skill as this dialect writes it."""
        return notes.note(skill)

    # ------------------------------------------------------------ selection

    def selection(
        self, subject: TaskContext, skills: Sequence[Skill], settings: AgentsConfig
    ) -> Conversation:
        rows = []
        for number, skill in enumerate(skills, 1):
            note, evidence = self.note(skill), shown(subject, skill)
            parts = [note.name, notes.line(note.when, LISTED), notes.line(note.do, LISTED)]
            rows.append(f"{number} {' | '.join([*parts, *([evidence] if evidence else [])])}")
        return ask(listing(subject), *rows, f"select {settings.num_chosen}")

    def read_selection(
        self, answer: Completion, names: Sequence[str], settings: AgentsConfig
    ) -> list[str]:
        first = answer.text.strip().partition("\n")[0].replace(",", " ")
        match = _SELECT.fullmatch(first)
        if match is None:
            raise MalformedAnswer(f"not `select` and numbers: `{first[:40]}`")
        numbers = [int(word[:9]) for word in (match[1] or "").split() if word != "none"]
        return [names[n - 1] if 1 <= n <= len(names) else str(n) for n in numbers]

    def write_selection(self, names: Sequence[str], reasons: Mapping[str, str], think: str) -> str:
        return (
            " ".join(["select", *(str(1 + names.index(name)) for name in reasons)])
            if reasons
            else "select none"
        )

    # ------------------------------------------------------------ policy

    def policy(
        self, subject: TaskContext, skills: Sequence[Skill], settings: AgentsConfig
    ) -> Conversation:
        return ask(listing(subject), *(self.note(skill).text() for skill in skills), WRITE)

    def read_policy(self, subject: TaskContext, answer: Completion) -> Candidate:
        from dvk import nanolang

        if answer.finish == "length":
            raise MalformedAnswer("the text was cut at the token limit", len(answer.text))
        if not answer.text.strip():
            raise MalformedAnswer("an empty answer")
        assert subject.captured is not None, "the compact dialect needs a graph"
        try:
            return nanolang.assemble(subject.task, subject.captured, answer.text, subject.backend)
        except nanolang.ParseError as error:
            raise MalformedAnswer(str(error), error.shown_by(answer.text)) from None

    def write_policy(self, text: str) -> str:
        return text.strip()

    def feedback(
        self,
        verdict: Verdict | None,
        malformed: str | None,
        best: Timing | None,
        settings: AgentsConfig,
        bounds: Bounds | None = None,
    ) -> str:
        return "\n".join(
            [
                _found(verdict, malformed),
                *([f"best {best.speedup.value:.2f}"] if best is not None else []),
                "again",
            ]
        )

    # ------------------------------------------------------------ summary

    def summary(
        self, subject: TaskContext, trace: Trace, skills: Sequence[Skill], settings: AgentsConfig
    ) -> Conversation:
        texts = task_context.fit(
            [turn.completion.strip() for turn in trace.turns], min(TRIED_TOKENS, SUMMARY_TOKENS)
        )
        told = []
        for number, (turn, text) in enumerate(zip(trace.turns, texts), 1):
            told += [f"try {number} {_found(turn.verdict, turn.malformed)}", text]
        return ask(
            listing(subject),
            *(self.note(skill).text() for skill in skills),
            *told,
            f"learn {settings.num_new_skills}",
        )

    def read_summary(
        self, subject: TaskContext, answer: Completion, trace: Trace, settings: AgentsConfig
    ) -> list[dict[str, Any]]:
        text = answer.text.strip()
        if text == "none":
            return []
        found = _SKILL.findall(text)
        if not found:
            raise MalformedAnswer(
                f"neither `none` nor `skill`, `when`, `do`: `{text[:40]}`"
                if text
                else "an empty answer"
            )
        return [
            _entry(subject, notes.Note(name, notes.line(when), notes.line(do)), trace)
            for name, when, do in found
        ]

    def write_summary(self, skills: Sequence[Skill], think: str) -> str:
        return "\n".join(self.note(skill).text() for skill in skills) or "none"


def _entry(subject: TaskContext, note: notes.Note, trace: Trace) -> dict[str, Any]:
    """A note as the fields of a library entry, with the fastest version as its example."""
    timed = [turn for turn in trace.turns if speedup(turn)]
    best = max(timed, key=speedup, default=None)
    operators = (
        tuple(dict.fromkeys(subject.captured.graph.signature()))
        if subject.captured is not None
        else ()
    )
    evidence = (
        f"Seen on `{subject.task.name}`: from {speedup(timed[0]):.2f}× to {speedup(best):.2f}× of eager."
        if best
        else "Proposed."
    )
    body = notes.body(note, evidence=evidence, example=best.completion if best else "")
    return {
        "name": note.name,
        "description": notes.line(f"{note.do}; {note.when}"),
        "tags": list(operators[:6]),
        "body": body,
    }


def _found(verdict: Verdict | None, malformed: str | None) -> str:
    return (
        feedback.short(verdict)
        if verdict is not None
        else f"unread {notes.line(malformed or 'empty', MAX_REASON)}"
    )


def listing(subject: TaskContext) -> str:
    """The task's graph, as `nanolang.prompt` lists it."""
    from dvk import nanolang

    assert subject.captured is not None, "the compact dialect needs a graph"
    return nanolang.prompt(subject.captured.graph, subject.task.device, subject.backend).rstrip(
        "\n"
    )


def ask(*rows: str) -> Conversation:
    """One question of these rows."""
    return Conversation(messages=({"role": "user", "content": "\n".join(rows)},))
