"""Gaps of missing layers are reported, and no others."""

from __future__ import annotations

import pytest

from dvk.sandbox import lacking

FULL = "pid+proc+rofs+net+ipc+landlock7+seccomp"


@pytest.mark.parametrize(
    ("level", "words"),
    [
        (FULL, []),
        (FULL.replace("landlock7+", ""), ["Landlock"]),
        (FULL.replace("+seccomp", ""), ["traced"]),
        (FULL.replace("landlock7", "landlock3"), ["6.7"]),
        ("rofs+net+landlock5+seccomp", ["command lines", "signals"]),
        (FULL + "+readsall", ["root's right"]),
        ("rlimits", ["read", "traced", "permissions", "command lines", "Unix sockets"]),
    ],
)
def test_each_layer_that_is_absent_has_its_sentence(level: str, words: list[str]) -> None:
    found = lacking.missing_layers(level)
    assert len(found) == len(words)
    for word in words:
        assert any(word in sentence for sentence in found), word
