"""Another measurement of a program that was judged: verdicts are known by the source, so a repeat has a last line of comment more."""

from __future__ import annotations

import re

from dvk.records import Candidate

_LINE = re.compile(r"\n*# measurement \d+\n\Z")


def repeat(candidate: Candidate, number: int) -> Candidate:
    """The same program as another candidate, to be judged for the `number`-th time."""
    source = f"{original(candidate.source).rstrip()}\n\n# measurement {number}\n"
    return candidate.model_copy(
        update={"source": source, "title": f"{candidate.title} (measurement {number})"}
    )


def program(source: str) -> str:
    """A program's key: equal for all measurements of one."""
    return original(source).rstrip()


def original(source: str) -> str:
    """The program that `source` repeats, or itself: equal for all measurements of one program, trailing blank lines aside."""
    return _LINE.sub("\n", source)
