"""A captured graph as a query: its operators in the skills' vocabulary, cut to the rarest.

Only operators and unusual dtypes count; SSA names, sizes and other literals carry no information on technique.
`_softmax` becomes `softmax`, `addmm` also `linear` and `matmul`; a word is useful when few skills have it,
so rarity in the library decides which are kept.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from dvk import aten
from dvk.skills.library import Library

QUERY_TERMS = 32
"""Rarest terms of the graph's listing in a retrieval query."""
NUM_RANKED = 20
"""Skills that retrieval ranks for a task, for the order of recipes."""

if TYPE_CHECKING:
    from dvk.records import Graph

_LINE = re.compile(r"^\w+: (?P<dtype>\w+|\?)(?:\[[^\]]*\])? = (?P<op>[\w.:]+)\(")
_WRAPPING = re.compile(r"^_*(?:native_|cudnn_|miopen_|mkldnn_|efficient_|flash_|fused_)*")
_TAIL = re.compile(r"(?:_legit|_no_training|_no_stats|_functional|_forward|_with_update)+$")

_TOGETHER = (
    ({"matmul", "softmax"}, "attention"),
    ({"mean", "rsqrt"}, "rms_norm normalization"),
    ({"matmul", "sum"}, "collapse"),
    ({"sigmoid", "mul"}, "silu gated"),
)
"""Names of groups of operators that occur together, for modules that spell them out."""
_ENGLISH = {"t", "to", "any", "all", "where", "eq", "ge", "gt", "le", "lt", "ne"}
"""Operators whose names, as words, mean nothing in a text."""
_DTYPES = {
    "float16": "float16 fp16 half",
    "bfloat16": "bfloat16 bf16 half",
    "float64": "float64 double",
    "int8": "int8 quantization",
    "uint8": "uint8 quantization",
}


def query_from_graph(graph: Graph, library: Library, num_terms: int) -> str:
    """Search terms for `graph`: at most `num_terms` words that `library` has, rarest first.

    Words that no skill has are left out; the result may be empty.
    """
    frequency = {word: library.frequency(word) for word in graph_words(graph.listing())}
    known = [word for word, count in frequency.items() if count]
    return " ".join(sorted(known, key=lambda word: frequency[word])[:num_terms])


def graph_words(listing: str) -> list[str]:
    """The distinct words of a listing (`Graph.listing()`), in order of appearance, before any cut."""
    words: dict[str, None] = {}
    for line in listing.splitlines():
        if not (match := _LINE.match(line)):
            continue
        operator = _plain(match["op"])
        if (terms := _words().get(operator, "")) is not None:
            own = "" if operator in _ENGLISH else operator
            words.update(dict.fromkeys(f"{own} {terms}".split()))
        words.update(dict.fromkeys(_DTYPES.get(match["dtype"], "").split()))
    for parts, known_as in _TOGETHER:
        if parts <= words.keys():
            words.update(dict.fromkeys(known_as.split()))
    return list(words)


@cache
def _words() -> dict[str, str | None]:
    """Operator, in the form of `_plain` → search terms besides its name; None for operators that no skill is about."""
    known = {
        _plain(f"aten.{name}.default"): row.words
        for name, row in aten.OPERATORS.items()
        if row.words != ""
    }
    return {**known, "getitem": None, "convert_element_type": "cast"}


def _plain(op: str) -> str:
    """`aten._native_batch_norm_legit_no_training.default` → `batch_norm`; `relu_` → `relu`."""
    parts = re.split(r"\.|::", op)
    name = parts[1] if len(parts) > 1 and parts[0] in ("aten", "prims", "torchvision") else parts[0]
    plain = _TAIL.sub("", _WRAPPING.sub("", name).rstrip("_"))
    if "dot_product" in plain and "attention" in plain:  # one operator a kernel that may serve it
        return "scaled_dot_product_attention"
    return "batch_norm" if "batch_norm" in plain else plain or name
