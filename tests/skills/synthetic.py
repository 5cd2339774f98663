"""Made-up skills at any number: words by Zipf's law, identifiers among them, bodies of realistic length."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate

from dvk.records import Skill

NUM_WORDS = 30_000
"""Distinct words, as a corpus of technical prose and code of this size has them."""
_SYLLABLES = "ba ke lo mi nu ra te vo su pi da fo gre ska tri ple con ver den tor mul".split()


@cache
def vocabulary(num_words: int = NUM_WORDS, seed: int = 0) -> tuple[str, ...]:
    """Words from most to least common; 15 % are snake_case, some dotted or numbered."""
    draw = random.Random(seed)

    def word(most: int) -> str:
        return "".join(draw.choice(_SYLLABLES) for _ in range(draw.randint(1, most)))

    words: dict[str, None] = {}
    while len(words) < num_words:
        kind = draw.random()
        text = word(4)
        if kind < 0.15:
            text += f"_{word(3)}"
        elif kind < 0.18:
            text += str(draw.randint(1, 64))
        elif kind < 0.20:
            text += f".{word(3)}"
        words[text] = None
    return tuple(words)


class Zipf:
    """Draws from a vocabulary with probability 1 / rank."""

    def __init__(self, seed: int, words: Sequence[str] | None = None):
        self.words = words or vocabulary()
        self._weights = list(accumulate(1 / (rank + 1) for rank in range(len(self.words))))
        self.random = random.Random(seed)

    def draw(self, count: int) -> list[str]:
        return self.random.choices(self.words, cum_weights=self._weights, k=count)


def skills(count: int, seed: int = 1, zipf: Zipf | None = None) -> Iterator[Skill]:
    """`count` skills; their bodies have 150 to 300 words."""
    zipf = zipf or Zipf(seed)
    for number in range(count):
        words = zipf.draw(zipf.random.randint(150, 300))
        third = len(words) // 3
        parts = [" ".join(words[start : start + third]) for start in range(0, 3 * third, third)]
        yield Skill(
            name="_".join(zipf.draw(3)).replace(".", "_") + f"_{number}",
            description=" ".join(zipf.draw(14)),
            scope=zipf.random.choice(["general", "task_specific/norm", "task_specific/matmul"]),
            tags=tuple(dict.fromkeys(zipf.draw(4))),
            body=f"## Motivation\n{parts[0]}\n\n## Key Idea\n{parts[1]}\n\n## Example\n```python\n{parts[2]}\n```",
        )
