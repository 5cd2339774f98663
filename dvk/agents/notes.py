"""A skill as a note: when it pays and what to do, a line each. What small models read and write instead of a page.

    skill online_softmax
    when rows too long for registers
    do one sweep: running maximum and rescaled sum

A body may carry its note as a section `## Note` with the lines `when …` and `do …`: exact, part of the
Markdown, found by search, without a separate field. Else the note is derived: the first sentence of
`## When it pays`, and of `## Key Idea`; if a section is missing, the description.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dvk.records import Skill

MAX_CHARS = 120
"""Characters of each line: about 30 tokens. Longer sentences are cut at a word."""
SECTION = "Note"

_HEADING = re.compile(r"^## +(.+?) *$", re.M)
_FENCED = re.compile(r"^(```|~~~).*?^\1\s*$", re.M | re.S)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+(?=[A-Z0-9`(∑Σ])")


@dataclass(frozen=True)
class Note:
    """A short form of one skill."""

    name: str
    when: str
    do: str

    def text(self) -> str:
        """Three lines, as in the module's example."""
        return f"skill {self.name}\nwhen {self.when}\ndo {self.do}"


def note(skill: Skill) -> Note:
    """The note in the body, or one derived from it."""
    parts = sections(skill.body)
    given = _given(parts.get(SECTION, ""))
    when = given.get("when") or _first_sentence(parts.get("When it pays", "")) or skill.description
    do = given.get("do") or _first_sentence(parts.get("Key Idea", "")) or skill.description
    return Note(skill.name, line(when), line(do))


def body(made: Note, *, evidence: str, example: str) -> str:
    """A library entry's body from a note; `note` reads the same note back from it, if its lines are within MAX_CHARS.

    Args:
        made: name, when and do.
        evidence: the observation, in a sentence: the motivation.
        example: the code that was measured.
    """
    return (
        f"## Motivation\n{evidence}\n\n## Key Idea\n{made.do}\n\n## When it pays\n{made.when}\n\n"
        f"## {SECTION}\nwhen {made.when}\ndo {made.do}\n\n## Example\n```\n{example.strip()}\n```\n"
    )


def sections(body: str) -> dict[str, str]:
    """Text under each `## ` heading, without code; of equal headings the first."""
    pieces = _HEADING.split(_FENCED.sub("", body))
    result: dict[str, str] = {}
    for heading, text in zip(pieces[1::2], pieces[2::2]):
        result.setdefault(heading, text.strip())
    return result


def line(text: str, most: int = MAX_CHARS) -> str:
    """`text` on one line of at most `most` characters, cut at a word and marked if it was longer."""
    plain = " ".join(text.split())
    if len(plain) <= most:
        return plain
    cut = plain[: most - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut[most // 2 :] else cut).rstrip(" ,;:.") + "…"


def _given(text: str) -> dict[str, str]:
    result: dict[str, str] = {}
    for row in text.splitlines():
        key, _, value = row.partition(" ")
        if key in ("when", "do") and value.strip():
            result.setdefault(key, value.strip())
    return result


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return _SENTENCE.split(paragraph, maxsplit=1)[0].rstrip(".;")
