"""Words of generated text, found block by block."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dvk.composer.dropin.imports import OWNERS
from dvk.composer.dropin.namespace import BINDABLE
from dvk.composer.runtime import words
from dvk.composer.runtime.sources import NAMED


@pytest.mark.parametrize("pattern", [OWNERS, BINDABLE, NAMED])
def test_blocks_have_the_words_of_the_whole(pattern: re.Pattern[str]) -> None:
    for path in sorted(Path(words.__file__).parent.glob("*.py")):
        text = path.read_text()
        assert words.words(pattern, text) == set(pattern.findall(text))
