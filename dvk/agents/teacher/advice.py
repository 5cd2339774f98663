"""Advice: the meaning of a skill for scheduling, as data; as the text of a note, and applied to a task.

    condition  {"does": "softmax", "row length": "long"}      which kernels it is about
    algorithm  "row looped online"                            how they should compute
    numbers    {"warps": 8}                                   with which numbers, if it says
    structure  "epilogue separate"                            instead: what the whole plan should be like

A note is all that a model sees of it, and there are many notes for one advice (`phrases`).
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dvk import nanolang
from dvk.agents.notes import Note
from dvk.agents.teacher import phrases
from dvk.composer import CapturedGraph, Plan
from dvk.composer.algorithms import numbers as numbers_of
from dvk.nanolang.text.variants import full
from dvk.nanolang.text.write import fused
from dvk.records import BackendName

UNSEEN_SHARE = 0.1
"""Share of pairs of condition and algorithm that are never taught, to see whether following generalises."""
ALIKE = ("row", "column", "product")
"""Words of algorithm names that give the place, not the method."""


@dataclass(frozen=True)
class Advice:
    """See the module."""

    condition: Mapping[str, str] = field(default_factory=dict)
    algorithm: str = ""
    numbers: Mapping[str, int] = field(default_factory=dict)
    structure: str = ""

    @property
    def unseen(self) -> bool:
        """Whether training never pairs this condition with this advice."""
        text = f"{sorted(self.condition.items())} {algorithm_kind(self.algorithm)} {self.structure}"
        return (
            int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") < UNSEEN_SHARE * 2**32
        )

    def about(self, facts: Mapping[str, Any]) -> bool:
        """Whether it applies to a kernel with these facts."""
        return all(facts.get(key) == value for key, value in self.condition.items())


def algorithm_kind(algorithm: str) -> str:
    """An algorithm's name without the place: `row looped online` → `looped online`."""
    return " ".join(word for word in algorithm.split() if word not in ALIKE) or algorithm


def advice_for(
    facts: Mapping[str, Any], algorithm: str, numbers: Sequence[str], rng: random.Random
) -> Advice:
    """Advice that a kernel with these facts should run so, under one or two of the conditions that hold."""
    keys = [
        k
        for k in ("does", "row length", "row count", "elements", "family")
        if (k, str(facts.get(k))) in phrases.CONDITIONS
    ]
    if facts.get("does") == "pointwise":
        keys = [k for k in keys if k not in ("row length", "row count")]
    first = "does" if "does" in keys and rng.random() < 0.7 else rng.choice(keys)
    chosen = {
        first,
        *(rng.sample([k for k in keys if k != first], k=min(len(keys) - 1, rng.choice((0, 1, 1))))),
    }
    said = (
        {name: int(value) for name, _, value in (n.rpartition(" ") for n in numbers)}
        if rng.random() < 0.35
        else {}
    )
    if said and rng.random() < 0.7:
        name = rng.choice(list(said))
        said = {name: said[name]}
    return Advice({k: str(facts[k]) for k in keys if k in chosen}, algorithm_kind(algorithm), said)


def format_note(advice: Advice, rng: random.Random, *, unseen: bool = False) -> Note:
    """A note with this meaning.

    Args:
        unseen: in phrases that training never uses.
    """
    when = [
        phrases.pick(phrases.CONDITIONS[item], rng, unseen=unseen)
        for item in advice.condition.items()
    ]
    rng.shuffle(when)
    if advice.structure:
        do = phrases.pick(phrases.PLANS[advice.structure], rng, unseen=unseen)
    else:
        do = ", ".join(
            phrases.pick(phrases.ALGORITHMS[word], rng, unseen=unseen)
            for word in _words(advice.algorithm)
        )
    do = " ".join(
        [
            do,
            *(
                phrases.pick(phrases.NUMBERS, rng, unseen=unseen).format(*item)
                for item in advice.numbers.items()
            ),
        ]
    )
    return Note(name_of(advice), rng.choice(phrases.JOINS).join(when) or phrases.ALWAYS, do)


def parse_note(note: Note) -> Advice | None:
    """The advice of a note made of known phrases; None if any part is unknown."""
    condition = (
        _parts(note.when, phrases.CONDITIONS, phrases.JOINS) if note.when != phrases.ALWAYS else []
    )
    words, numbers = note.do, {}
    while (match := re.search(r"(?: and| with)? ([a-z]+)(?: |=)(\d+)$", words)) is not None:
        numbers[match[1]] = int(match[2])
        words = words[: match.start()]
    plan, algorithm = _parts(words, phrases.PLANS, ()), _parts(words, phrases.ALGORITHMS, (", ",))
    if (
        condition is None
        or not (plan or algorithm)
        or len({key for key, _ in condition}) < len(condition)
    ):
        return None
    return Advice(
        dict(condition),
        "" if plan else " ".join(algorithm or ()),
        dict(reversed(numbers.items())),
        plan[0] if plan else "",
    )


def _parts(text: str, known: Mapping[Any, Sequence[str]], joins: Sequence[str]) -> list[Any] | None:
    """The keys whose phrases, joined, are the text; None if there are none. Phrases may contain joining words themselves."""
    for key, ways in known.items():
        for way in ways:
            if text == way:
                return [key]
            for join in joins:
                if (
                    text.startswith(way + join)
                    and (rest := _parts(text[len(way) + len(join) :], known, joins)) is not None
                ):
                    return [key, *rest]
    return None


def name_of(advice: Advice) -> str:
    """A skill's name: what it does, then where."""
    words = [advice.structure or advice.algorithm, *(str(v) for v in advice.condition.values())]
    words += [f"{k}{v}" for k, v in advice.numbers.items()]
    return "_".join("_".join(words).split())


def follow(captured: CapturedGraph, advices: Sequence[Advice], backend: BackendName) -> Plan | None:
    """The composer's plan with the advice applied; None if none of it applies.

    Of several advices on one kernel the first counts.
    """
    shapes = nanolang.structures(captured, backend)
    names, changed = shapes[0], False
    for advice in advices:
        if (
            advice.structure
            and (other := _structure(captured, advice.structure, shapes, backend)) is not None
        ):
            names, changed = other, other != shapes[0]
            break
    base = full(captured, Plan(names), backend)
    facts = nanolang.facts(captured, base, backend)
    schedules = dict(base.schedules)
    for kernel in fused(captured, names, backend).ordered:
        options = nanolang.algorithms(kernel, backend)
        for advice in advices:
            if advice.structure or not advice.about(facts[kernel.name]):
                continue
            option = next(
                (o for name, o in options.items() if algorithm_kind(name) == advice.algorithm), None
            )
            if not option:
                continue
            wanted = {f"{k} {v}" for k, v in advice.numbers.items()}
            chosen = next((o for o in option if wanted <= set(numbers_of(kernel, o))), None)
            if chosen is not None:
                schedules[kernel.name] = chosen
                changed = True
                break
    return Plan(names, schedules) if changed else None


def _structure(
    captured: CapturedGraph, wanted: str, shapes: Sequence[tuple[str, ...]], backend: BackendName
) -> tuple[str, ...] | None:
    for names in shapes:
        if wanted in nanolang.described(captured, Plan(names), backend).tags:
            return names
    return None


def _words(algorithm: str) -> list[str]:
    """`looped online` → its parts, as `phrases.ALGORITHMS` knows them."""
    if algorithm in phrases.ALGORITHMS:
        return [algorithm]
    return [word for word in algorithm.split() if word in phrases.ALGORITHMS]
