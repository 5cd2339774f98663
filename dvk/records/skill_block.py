"""The checkable part of a skill: a condition over facts (`when`) and a change of plan (`do`), each one line of text.

    when: device = cuda, does = softmax | logsumexp, row_length > 16384
    do: kernels = looped online yes

    when: has = convolution, dtype = float16 | bfloat16
    do: +channels_last -inplace_epilogue

A condition is `always`, or terms joined by commas, all of which must hold: a fact, a comparison, a value; `|` separates words of which
one is enough. Terms on kernels must hold together for at least one kernel. A change adds (`+`) and takes away (`-`) recipes, or gives
the kernels for which the condition holds another schedule, in the words of a plan's line (`composer.plan_line`), as many as matter.
What is not known of a task does not hold.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from pydantic import Field

from dvk.records.record import Record

TASK_WORDS = {
    "backend": "what kernels are written in: triton, cuda, cpp",
    "device": "where they run: cuda, cpu",
    "machine": "a word of the device's name, e.g. h100",
    "regime": "how it is timed: device, end_to_end",
    "has": "an operator of the graph, e.g. softmax, convolution, addmm",
    "dtype": "a type of the graph's tensors, e.g. bfloat16",
    "applies": "a recipe that would change something, e.g. own_matmul",
}
TASK_NUMBERS = {
    "kernels": "kernels of the default plan",
    "calls": "library calls of the default plan",
    "bytes": "that these kernels read and write",
}
KERNEL_WORDS = {
    "does": "pointwise, softmax, logsumexp, norm, reduction, product, convolution",
    "family": "pointwise, row, row_sums, column, window, scan, scan_column, product",
}
KERNEL_NUMBERS = {
    "row_length": "elements that are reduced together; 1 if none are",
    "rows": "rows, or elements of pointwise work",
    "elements": "rows × row length",
}
WORDS = {**TASK_WORDS, **KERNEL_WORDS}
NUMBERS = {**TASK_NUMBERS, **KERNEL_NUMBERS}
CLOSED = {
    "device": ("cuda", "cpu"),
    "regime": ("device", "end_to_end"),
    **{fact: tuple(words.split(", ")) for fact, words in KERNEL_WORDS.items()},
}
"""Facts with few values: another one would never hold."""
OF_KERNELS = {**KERNEL_WORDS, **KERNEL_NUMBERS}
ALWAYS = "always"
KERNELS = "kernels"

Comparison = Literal["=", "!=", "<", "<=", ">", ">="]
_TERM = re.compile(r"([a-z_]+)\s*(!=|<=|>=|=|<|>)\s*(\S.*)")
_WORD = re.compile(r"\w[\w.\-]*")
_RECIPE = re.compile(r"[+-][a-z][a-z0-9_]*")
_NUMBER = re.compile(r"(\d{1,15})(?:\^(\d{1,2}))?")

PlanValue = str | int | bool


class BlockError(ValueError):
    """A text that is no condition or no change; the message says what to write."""


class GraphFacts(Record):
    """What conditions are about, for one task on one machine under the composer's default plan."""

    words: dict[str, tuple[str, ...]] = Field(description="By fact of TASK_WORDS.")
    numbers: dict[str, int] = Field(description="By fact of TASK_NUMBERS.")
    kernels: dict[str, dict[str, str | int]] = Field(
        description="Kernel of the default plan → its facts, by name of OF_KERNELS."
    )


class Term(NamedTuple):
    """One comparison."""

    fact: str
    comparison: Comparison
    values: tuple[str | int, ...]

    def __str__(self) -> str:
        return f"{self.fact} {self.comparison} {' | '.join(map(str, self.values))}"

    def holds(self, found: Collection[str] | int | None) -> bool:
        """Whether it holds for a fact's value, or for one of several; never for an unknown one."""
        if found is None:
            return False
        if isinstance(found, int):
            value = self.values[0]
            assert isinstance(value, int), "a number is compared with a number"
            return {
                "=": found == value,
                "!=": found != value,
                "<": found < value,
                "<=": found <= value,
                ">": found > value,
                ">=": found >= value,
            }[self.comparison]
        among = any(value in found for value in self.values)
        return among if self.comparison == "=" else bool(found) and not among


@dataclass(frozen=True)
class Condition:
    """See the module."""

    terms: tuple[Term, ...] = ()

    def __str__(self) -> str:
        return ", ".join(map(str, self.terms)) or ALWAYS

    def holds(self, facts: GraphFacts) -> bool:
        """Whether all terms hold."""
        return self.of_task(facts) and (not self.on_kernels or bool(self.kernels(facts)))

    def of_task(self, facts: GraphFacts) -> bool:
        """Whether the terms on the task hold."""
        return all(
            term.holds(facts.numbers.get(term.fact, facts.words.get(term.fact)))
            for term in self.terms
            if term.fact not in OF_KERNELS
        )

    @property
    def on_kernels(self) -> tuple[Term, ...]:
        """The terms on kernels."""
        return tuple(term for term in self.terms if term.fact in OF_KERNELS)

    def kernels(self, facts: GraphFacts) -> tuple[str, ...]:
        """The kernels for which the terms on kernels hold; all where there are no such terms."""
        return tuple(name for name, of in facts.kernels.items() if self.covers(of))

    def covers(self, kernel: Mapping[str, str | int]) -> bool:
        """Whether the terms on kernels hold for one."""
        for term in self.on_kernels:
            value = kernel.get(term.fact)
            if not term.holds((value,) if isinstance(value, str) else value):
                return False
        return True


@dataclass(frozen=True)
class Change:
    """See the module: recipes, or a schedule for kernels.

    Attributes:
        added, removed: recipes.
        tag: kind of the schedule; empty if any.
        values: of the schedule's keys that matter.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    tag: str = ""
    values: tuple[tuple[str, PlanValue], ...] = ()

    def __str__(self) -> str:
        if self.recipes:
            return " ".join([*(f"+{r}" for r in self.added), *(f"-{r}" for r in self.removed)])
        said = [f"{key} {_printed(value)}" for key, value in self.values]
        return " ".join([KERNELS, "=", *([self.tag] if self.tag else []), *said])

    @property
    def recipes(self) -> tuple[str, ...]:
        """Those that it adds or takes away; none if it is about schedules."""
        return (*self.added, *self.removed)

    def is_in(self, recipes: Collection[str]) -> bool:
        """Whether a plan's recipes are as it says."""
        return set(self.added) <= set(recipes) and not set(self.removed) & set(recipes)

    def is_schedule(self, printed: Mapping[str, Any], tag: str) -> bool:
        """Whether a schedule, printed, is as it says.

        Args:
            tag: the key of the schedule's kind, by back end.
        """
        if self.tag and printed.get(tag) != self.tag:
            return False
        return all(printed.get(key, False) == value for key, value in self.values)


@dataclass(frozen=True)
class SkillBlock:
    """A condition with its change."""

    when: Condition
    do: Change


@lru_cache(maxsize=4096)
def parse_block(when: str, do: str) -> SkillBlock:
    """The block of two lines.

    Raises:
        BlockError: see it.
    """
    return SkillBlock(parse_condition(when), parse_change(do))


def parse_condition(text: str) -> Condition:
    """The condition in a line.

    Raises:
        BlockError: see it.
    """
    if text.strip() == ALWAYS:
        return Condition()
    return Condition(tuple(dict.fromkeys(map(_term, text.split(",")))))


def _term(text: str) -> Term:
    match = _TERM.fullmatch(text.strip())
    if match is None:
        raise BlockError(
            f"`{text.strip()[:60]}` is no term; write FACT = VALUE, or `{ALWAYS}` alone"
        )
    fact, comparison, said = match.groups()
    if fact in NUMBERS:
        number = _NUMBER.fullmatch(said.strip())
        if number is None:
            raise BlockError(f"`{said.strip()[:40]}` is no number; write 4096 or 2^12 for {fact}")
        value = int(number[1]) ** int(number[2] or 1)
        return Term(fact, comparison, (value,))  # type: ignore[arg-type]  # the pattern's choices
    if fact not in WORDS:
        raise BlockError(f"no fact `{fact}`; there are {', '.join((*WORDS, *NUMBERS))}")
    if comparison not in ("=", "!="):
        raise BlockError(f"{fact} is a word; compare it with = or !=")
    values = [value.strip() for value in said.split("|")]
    if fact == "machine":  # its words are lower-case
        values = [value.lower() for value in values]
    if wrong := [value for value in values if not _WORD.fullmatch(value)]:
        raise BlockError(f"`{wrong[0][:40]}` is no value of {fact}; write {fact} = a | b")
    if strange := [value for value in values if value not in CLOSED.get(fact, values)]:
        choices = ", ".join(CLOSED[fact])
        raise BlockError(f"`{strange[0][:40]}` is no value of {fact}; there are {choices}")
    return Term(fact, comparison, tuple(dict.fromkeys(values)))  # type: ignore[arg-type]


def parse_change(text: str) -> Change:
    """The change in a line.

    Raises:
        BlockError: see it.
    """
    words = text.split()
    if words[:2] == [KERNELS, "="]:
        return _schedule(words[2:])
    if wrong := [word for word in words if not _RECIPE.fullmatch(word)]:
        raise BlockError(
            f"`{wrong[0][:40]}` is no change; write +RECIPE, -RECIPE, or `{KERNELS} =` and words of a schedule"
        )
    added, removed = ([w[1:] for w in words if w[0] == sign] for sign in "+-")
    if not words or set(added) & set(removed):
        raise BlockError("a change adds or takes away each recipe once; write +RECIPE or -RECIPE")
    return Change(tuple(dict.fromkeys(added)), tuple(dict.fromkeys(removed)))


def _schedule(words: list[str]) -> Change:
    if not words or any(not _WORD.fullmatch(word) for word in words):
        raise BlockError(f"`{KERNELS} =` needs a schedule; write a kind, keys and values")
    odd = len(words) % 2
    pairs = [(key, _read(word)) for key, word in zip(words[odd::2], words[odd + 1 :: 2])]
    if len(dict(pairs)) < len(pairs):
        raise BlockError("a key of a schedule is given twice; write it once")
    return Change(tag=words[0] if odd else "", values=tuple(pairs))


def _read(word: str) -> PlanValue:
    """As plans' lines have values."""
    if word in ("yes", "no"):
        return word == "yes"
    return int(word) if word.isdecimal() and len(word) < 10 else word


def _printed(value: PlanValue) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
