"""An example's features that the filter keeps after its text is released: facts to count by, and two sketches.

A million tokens of text become some hundred bytes a row, so that 200,000 rows fit in memory without their
texts. `ExampleRow` is one row's facts, `ExampleRows` all of them with their sketches, one line of an array each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from sys import intern

import numpy as np

from dvk.learn.diversity import lexing, sketches
from dvk.learn.diversity.signatures import family
from dvk.learn.examples import Example
from dvk.learn.messages import first_user

TEXT_PLACES = 128
"""Places of the sketch for near-duplicates: a standard error of 0.027 at a similarity of 0.9."""
SHAPE_PLACES = 64
"""Places of the sketch for clusters: 0.06 at 0.6 is precise enough."""
SHINGLE = 5
"""Tokens a shingle: about one call with its arguments."""
_NUMBER = re.compile(r"(?<![\w.])\d{1,12}(?![\w.])")
_PLAYS = ("policy", "policy_with_skills")


@dataclass(slots=True)
class ExampleRow:
    """One example without its text."""

    id: str
    kind: str
    level: str
    backend: str
    task: str
    origin: str
    family: str
    """Its signature, made coarse: see `signatures.family`; roles that write no code are separate families."""
    operators: tuple[str, ...]
    """The distinct operators of its task, sorted."""
    skills: tuple[str, ...]
    """The distinct skills that it teaches to use or to choose, sorted; skills that a summary proposes are not in use yet."""
    speedup: float | None
    length: int
    """Characters of the assistant's text."""
    alike: int
    """Hash of the features that near-duplicates share besides the wording: kind, backend, turns, skills, signature, and the
    sizes to within a factor of two (schedules change by powers of two, so a task twice as large is another one)."""
    digest: int
    """Hash of all contents except the id: the last tie-breaker in every order."""


@dataclass
class ExampleRows:
    """Many rows; arrays are aligned with `facts`."""

    facts: list[ExampleRow]
    text: np.ndarray
    """Sketches of the text, numbers included, shape (rows, TEXT_PLACES), uint32."""
    shape: np.ndarray
    """Sketches of its structure, shape (rows, SHAPE_PLACES), uint8."""

    def __len__(self) -> int:
        return len(self.facts)


def facts(example: Example) -> ExampleRow:
    """The facts of one example."""
    plays = example.kind in _PLAYS
    sizes = tuple(
        int(number).bit_length() for number in dict.fromkeys(_NUMBER.findall(statement(example)))
    )
    turns = sum(message["role"] == "assistant" for message in example.messages)
    taught = {"policy_with_skills": example.skills, "selection": example.chosen}.get(
        example.kind, ()
    )
    common = (
        example.kind,
        example.backend,
        turns,
        example.skills if plays else (),
        example.signature,
        sizes if plays else (),
    )
    return ExampleRow(
        id=example.id,
        kind=intern(example.kind),
        level=intern(example.task.level or "unknown"),
        backend=intern(example.backend or "none"),
        task=example.task.id,
        origin=intern(example.origin),
        family=intern(family(example.signature) if plays else example.kind),
        operators=tuple(intern(name) for name in sorted(set(example.signature))),
        skills=tuple(intern(name) for name in sorted(set(taught))),
        speedup=example.speedup,
        length=len(example.answer()),
        alike=_digest(repr(common)),
        digest=_digest(example.model_dump_json()),
    )


def texts(example: Example) -> lexing.TokenHashes:
    """The tokens that similarity is computed on: a program, or for the other roles question and answer."""
    if example.kind in _PLAYS:
        return lexing.code_tokens(example.answer())
    return lexing.prose_tokens(f"{first_user(example.messages)}\n{example.answer()}")


def sketched(examples: Sequence[Example]) -> tuple[np.ndarray, np.ndarray]:
    """The two sketches of some examples, as `ExampleRows` keeps them."""
    tokens = [texts(example) for example in examples]
    text = sketches.sketch([one.exact for one in tokens], SHINGLE, TEXT_PLACES)
    # The lowest 8 of 32 bits agree by chance once in 256 times: little compared with the estimate's error.
    shape = sketches.sketch([one.shape for one in tokens], SHINGLE, SHAPE_PLACES, salt=1).astype(
        np.uint8
    )
    return text, shape


def words(example: Example) -> list[str]:
    """Text by which BM25 compares rows of one cluster: the task and the answer, verbatim."""
    return lexing.words(f"{statement(example)}\n{example.answer()}")


def statement(example: Example) -> str:
    """The text that states the task's sizes, if known."""
    return example.listing or example.task.source or first_user(example.messages)


def _digest(text: str) -> int:
    return int.from_bytes(
        blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"
    )
