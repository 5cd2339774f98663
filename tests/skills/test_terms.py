"""Words, wholes and parts."""

from __future__ import annotations

import pytest

from dvk.skills.terms import clean, identifiers, terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("num_warps", {"numwarps"}),
        ("tl.dot", {"tldot"}),
        ("torch.nn.functional", {"torchnnfunctional", "torchnn", "nnfunctional"}),
        ("at::native", {"atnative"}),
        ("LayerNorm", {"layer", "norm"}),
        ("float4 and conv2d", {"float", "conv"}),
        ("fp16 x1 GELU relu", set()),
        ("log-sum-exp", {"logsumexp"}),
        ("a-b tl.dot-based", {"ab", "tldot"}),
        ("__shared__", set()),
        ("the end. Next", set()),
        ("3.14 v1.2", set()),
    ],
)
def test_identifiers(text: str, expected: set[str]) -> None:
    assert set(identifiers(text).split()) == expected


def test_terms_have_words_wholes_and_neighbours_joined() -> None:
    assert terms("online softmax") == ["online", "softmax", "onlinesoftmax"]
    assert terms("num_warps=8") == ["num", "warps", "8", "numwarps", "warps8"]
    assert "ab" not in terms(" ".join(["a", "b"] * 20)), "only short queries join neighbours"


def test_terms_are_safe_to_quote() -> None:
    for text in (
        '"a" OR b*',
        "x\0y",
        "\ud800z",
        "(^{[]})'",
        "💥",
        "",
        "NEAR(a b)",
        "-" * 1000,
        "ß İ ﬁ é",
    ):
        assert all(term and '"' not in term and "\0" not in term for term in terms(text))
        clean(text).encode()
