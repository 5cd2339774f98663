"""Words that a generated text uses, found block by block and remembered.

Most blocks of a drop-in, its guards and launchers, are the same in every drop-in, and a search writes thousands.
"""

from __future__ import annotations

import re
from functools import lru_cache

BETWEEN = "\n\n"


def words(pattern: re.Pattern[str], text: str) -> set[str]:
    """What `pattern.findall(text)` finds. A match must not span an empty line, nor look beyond one."""
    return set[str]().union(*(_in_block(pattern, block) for block in text.split(BETWEEN)))


@lru_cache(maxsize=4096)
def _in_block(pattern: re.Pattern[str], block: str) -> frozenset[str]:
    return frozenset(pattern.findall(block))
