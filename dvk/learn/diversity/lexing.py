"""Texts → tokens that do not depend on the author: names, comments, layout and, if asked, numbers are removed.

One lexer reads Python, Triton, C++ and CUDA, also C++ inside the triple-quoted strings of a Python file: it runs on
hundreds of thousands of answers, some of which no parser accepts. Tokens that carry the code's meaning stay: keywords,
punctuation, attributes (`tl.exp`, `.stride`), and calls of functions that the text does not define itself (`expf`, `range`).
Tokens are 32-bit hashes, equal on every machine and in every run.
"""

from __future__ import annotations

import re
import zlib
from typing import NamedTuple

import numpy as np

_TRIPLE = re.compile(r"\"\"\"(.*?)\"\"\"|'''(.*?)'''", re.S)
_TOKEN = r"""(?:self\.|\.|::)?[A-Za-z_]\w*\(?|[^\w\s"']|\d[\w.]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|["']|\Z"""
# One match consumes blanks and comments before the token: a third faster than separate tokens for them.
_PYTHON = re.compile(rf"\s*(?:#[^\n]*\s*)*({_TOKEN})")
_C = re.compile(rf"\s*(?:(?://[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)\s*)*({_TOKEN})")
_DEFINED = re.compile(r"(?:def|class) (\w+)")
_C_DEFINED = re.compile(r"\b(?:void|auto|float|double|int|bool|half)[ \t]+(\w+)[ \t]*\(")
_WORD = re.compile(r"[a-z]+|\d+")
_KEPT = frozenset(
    # Python
    "and as assert break class continue def del elif else except False finally for from global if import in is lambda None "
    "nonlocal not or pass raise return True try while with yield "
    # C++ and CUDA
    "auto bool case char const constexpr default do double enum extern float half inline int long namespace operator private "
    "public restrict short signed sizeof static struct switch template this typedef typename union unsigned using void volatile "
    "__global__ __device__ __shared__ __restrict__ __launch_bounds__ __syncthreads blockIdx threadIdx blockDim gridDim omp pragma "
    "parallel simd collapse reduction __m256 __m512 size_t int32_t int64_t uint32_t "
    # roots of attribute accesses
    "tl triton torch F nn math std np numpy jit".split()
)
_MEMORY = 1 << 20
"""Distinct spellings cached: 100 MB at most."""


class TokenHashes(NamedTuple):
    """A text as two sequences of token hashes, uint32, of equal length."""

    shape: np.ndarray
    """Names and numbers normalised: the structure."""
    exact: np.ndarray
    """Only names normalised: the same with its numbers."""


def code_tokens(text: str) -> TokenHashes:
    """The tokens of a program, or of an answer that contains one."""
    spellings: list[str] = []
    own: list[str] = []
    position = 0
    for match in _TRIPLE.finditer(text) if '"""' in text or "'''" in text else ():
        _spell(text[position : match.start()], spellings, own)
        inner = match.group(1) if match.group(1) is not None else match.group(2)
        if _is_c(inner):  # else a docstring
            _spell(inner, spellings, own)
        position = match.end()
    _spell(text[position:], spellings, own)
    if own:
        calls = {f"{name}(" for name in own}
        spellings = ["_(" if spelling in calls else spelling for spelling in spellings]
    both = np.array([_codes[spelling] for spelling in spellings], dtype=np.uint64)
    return TokenHashes((both >> np.uint64(32)).astype(np.uint32), both.astype(np.uint32))


def prose_tokens(text: str) -> TokenHashes:
    """The words of a text, in lower case; structure and text are the same."""
    ids = np.array([_words[word] for word in _WORD.findall(text.lower())], dtype=np.uint32)
    return TokenHashes(ids, ids)


def words(text: str) -> list[str]:
    """The words of a text for retrieval: names and numbers unchanged, in lower case."""
    return re.findall(r"[a-z_]\w+|\d+", text.lower())


def _is_c(text: str) -> bool:
    return text.count(";\n") > 1 or "__global__" in text


def _spell(text: str, spellings: list[str], own: list[str]) -> None:
    """Append the tokens of one piece, and the names that it defines as functions."""
    c = _is_c(text)
    spellings += (_C if c else _PYTHON).findall(text)
    while spellings and not spellings[-1]:  # the end of the text
        spellings.pop()
    own += (_C_DEFINED if c else _DEFINED).findall(text)


def _hash(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


class _Codes(dict[str, int]):
    """Spelling → hash without numbers in the high half, with them in the low half; cached."""

    def __missing__(self, spelling: str) -> int:
        if len(self) >= _MEMORY:
            self.clear()
        self[spelling] = value = _hash(normal(spelling, False)) << 32 | _hash(
            normal(spelling, True)
        )
        return value


def normal(spelling: str, numbers: bool) -> str:
    """A token's spelling with the author's choices removed.

    Args:
        numbers: keep them.
    """
    first = spelling[0]
    if first.isdigit():
        return spelling if numbers else "0"
    if first in "\"'":
        return "''"
    if spelling.startswith("self."):
        return "_(" if spelling[-1] == "(" else "_"
    if first in ".:" and len(spelling) > 1:
        return spelling
    if first.isalpha() or first == "_":
        name = spelling.rstrip("(")
        return (
            spelling
            if name in _KEPT or (len(spelling) > len(name) and spelling != "_(")
            else "_" + spelling[len(name) :]
        )
    return spelling


class _Words(dict[str, int]):
    """Word → hash, cached."""

    def __missing__(self, word: str) -> int:
        if len(self) >= _MEMORY:
            self.clear()
        self[word] = value = _hash(word)
        return value


_codes, _words = _Codes(), _Words()
