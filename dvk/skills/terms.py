"""Text → search terms: words, whole identifiers, and parts of identifiers.

SQLite's `unicode61` tokenizer breaks `num_warps`, `tl.dot` and `torch.compile` into words, which makes
the parts findable. The wholes go into one more indexed column, `identifiers`, squashed to letters and
digits: `num_warps` → `numwarps`, `tl.dot` → `tldot`, `log-sum-exp` → `logsumexp`. The same column holds
the parts that unicode61 does not see: `LayerNorm` → `layer`, `norm`; `float4` → `float`.

Reason, measured at 100,000 skills: a search for a whole identifier as an FTS5 phrase of its parts
(`"num warps"`) reads the postings of both parts, which are common words; 27 ms to find and 48 ms to rank
while one squashed token takes 1 and 4. Making `_` and `.` token characters instead keeps wholes but loses
the parts and glues full stops to words. And squashing makes `LayerNorm`, `layer_norm` and `layernorm` one
spelling. Porter stemming (in `schema`) joins `warp`, `warps`; `fuse`, `fused`, `fusing`.

This module knows no SQL; it never fails on any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_CHUNK = re.compile(r"\w+(?:(?:\.|::|->|-)\w+)*")
_WORD = re.compile(r"[^\W_]+")
_MEMBER = re.compile(r"\.|::|->")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LONGEST = 200
"""Characters of the longest term; FTS5 cuts tokens at 32 kB, and real terms are shorter than this."""
_MOST_PAIRED = 16
"""Words of the longest query whose neighbours are also tried as one identifier (`online softmax` → `onlinesoftmax`)."""


def clean(text: str) -> str:
    """`text` in SQLite's alphabet: no NUL, no lone surrogates."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def identifiers(*texts: str) -> str:
    """Content of the `identifiers` column for a skill made of `texts`: each spelling once, in order."""
    return " ".join(dict.fromkeys(spelling for text in texts for spelling in _spellings(text)))


def terms(text: str) -> list[str]:
    """The distinct terms of a query, in order: words of letters and digits only, safe inside FTS5 quotes."""
    text = clean(text)
    words = [word.lower() for word in _WORD.findall(text)]
    pairs = [a + b for a, b in zip(words, words[1:])] if len(words) <= _MOST_PAIRED else []
    return [
        term for term in dict.fromkeys([*words, *_spellings(text), *pairs]) if len(term) <= _LONGEST
    ]


def whole_and_parts(word: str) -> tuple[str, list[str]]:
    """One identifier as its squashed whole and its words; both empty when it has neither letter nor digit."""
    parts = [part.lower() for part in _WORD.findall(clean(word))]
    return "".join(parts), parts


def _spellings(text: str) -> Iterator[str]:
    for chunk in dict.fromkeys(_CHUNK.findall(text)):
        if chunk.isalpha() and chunk.islower():  # a plain word, as most are
            continue
        hyphened = chunk.split("-")
        if len(hyphened) > 1 and all(part.isalpha() for part in hyphened):
            yield _squash(chunk)
        for dotted in hyphened:
            members = [member for member in _MEMBER.split(dotted) if member.strip("_")]
            if len(members) > 1 and not any(member[0].isdigit() for member in members):
                yield _squash(dotted)
                if len(members) > 2:
                    yield from (_squash(a + b) for a, b in zip(members, members[1:]))
            for member in members:
                if "_" in member.strip("_"):
                    yield _squash(member)
                for word in member.split("_"):
                    yield from _camel_parts(word)


def _camel_parts(word: str) -> Iterator[str]:
    """`LayerNorm` → layer, norm; `float4` → float; `ReLU`, `fp16` and plain words → nothing."""
    parts = _CAMEL.findall(word)
    if parts and parts[0] != word:
        yield from (part.lower() for part in parts if len(part) > 2)


def _squash(identifier: str) -> str:
    return "".join(_WORD.findall(identifier)).lower()
