"""C++ kernels that name what nothing declares, or declare it twice: no compiler is needed to see it.

Only what is certain is said. Kernels are loops, conditions, declarations and expressions in C's own types; one that holds
anything else is left to the compiler.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

TYPES = frozenset({"float", "double", "bool", "long", "int", "short", "char", "_Float16", "unsigned", "signed"})
AROUND = frozenset({"const", "constexpr", "static", "__restrict"})
WORDS = TYPES | AROUND | {"true", "false", "sizeof", "break", "continue", "return", "linux", "unix"}
"""The last two are macros of the compiler."""
STRANGE = frozenset({"auto", "struct", "class", "union", "enum", "template", "typename", "typedef", "using", "namespace", "goto", "switch",
                     "case", "default", "do", "try", "catch", "asm", "operator", "this", "decltype", "extern", "void", "define"})
_TOKEN = re.compile(r'(#[^\n]*)|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|\.?\d(?:[eEpP][+-]|[\w.])*|\w+|->|::|\n|\S')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CLAUSE = re.compile(r"reduction\([^:()]+:([^()]*)\)")
_NAME = re.compile(r"[A-Za-z]\w*")
_CLOSES = {"(": ")", "[": "]", "{": "}"}


class _Strange(Exception):
    """Nothing certain can be said."""


class _Wrong(Exception):
    """The message says what cannot be compiled."""


def undeclared(body: str, known: Collection[str]) -> str | None:
    """What of a kernel's names cannot be compiled, as a verb and what follows; None where nothing speaks against it.

    Args:
        body: its lines.
        known: tensors, sizes, functions and macros that are there.
    """
    try:
        _Scopes(body, known).block()
    except _Wrong as error:
        return str(error)
    except (_Strange, IndexError, RecursionError):  # too few tokens: the compiler says it better
        return None
    return None


class _Scopes:
    def __init__(self, body: str, known: Collection[str]):
        self.tokens = [m[0] for m in _TOKEN.finditer(_COMMENT.sub(" ", body)) if m[0] != "\n"]
        self.known, self.at = known, 0
        self.scopes: list[set[str]] = [set()]
        if STRANGE & set(self.tokens) or "\\" in body:
            raise _Strange

    # ------------------------------------------------------------ statements

    def block(self) -> None:
        """Statements up to the end, or a closing brace."""
        while self.at < len(self.tokens) and self.tokens[self.at] != "}":
            self._statement()

    def _statement(self) -> None:
        token = self.tokens[self.at]
        if token.startswith("#"):
            self.at += 1
            if not token.startswith("#pragma"):
                raise _Strange
            for names in _CLAUSE.findall(token):
                self._names(re.findall(r"\w+", names))
        elif token == "{":
            self.at += 1
            self.scopes.append(set())
            self.block()
            self.scopes.pop()
            self.at += 1
        elif token in ("for", "if", "while"):
            self.scopes.append(set())
            self._head(token)
            while self.tokens[self.at].startswith("#"):
                self._statement()
            self._statement()
            self.scopes.pop()
        elif token == "else":
            self.at += 1
            self.scopes.append(set())
            self._statement()
            self.scopes.pop()
        else:
            self._simple(";")

    def _head(self, word: str) -> None:
        self.at += 1
        if self.tokens[self.at] != "(":
            raise _Strange
        self.at += 1
        if word == "for":
            self._simple(";")
            self._simple(";")
        self._simple(")")

    def _simple(self, end: str) -> None:
        """A declaration or an expression, and what ends it."""
        start = self.at
        while self.tokens[self.at] in TYPES | AROUND:
            self.at += 1
        if self.at == start or self.tokens[self.at] in ("(", ")"):
            self.at = start
            if _NAME.fullmatch(self.tokens[start]) and self.tokens[start] not in WORDS and _NAME.fullmatch(self.tokens[start + 1]):
                raise _Strange  # of a type that is not C's own
            self._names(self._until((end,)))
        else:
            self._declared()
            self._names(self._until((end, ",")))
            while self.tokens[self.at] == ",":
                self.at += 1
                self._declared()
                self._names(self._until((end, ",")))
        self.at += 1

    def _declared(self) -> None:
        while self.tokens[self.at] in ("*", "&") or self.tokens[self.at] in AROUND:
            self.at += 1
        name = self.tokens[self.at]
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in WORDS:
            raise _Strange
        if name in self.scopes[-1]:
            raise _Wrong(f"declares `{name}` twice in one block")
        self.scopes[-1].add(name)
        self.at += 1

    def _until(self, ends: Sequence[str]) -> list[str]:
        """The tokens ahead of one of `ends` outside brackets, which is the next then."""
        start = self.at
        open_: list[str] = []
        while open_ or self.tokens[self.at] not in ends:
            token = self.tokens[self.at]
            if token in _CLOSES:
                open_.append(_CLOSES[token])
            elif token in _CLOSES.values() and (not open_ or open_.pop() != token):
                raise _Strange
            elif token.startswith("#") or (token == ";" and ";" not in ends) or token in ("for", "if", "while", "else"):
                raise _Strange
            self.at += 1
        return self.tokens[start : self.at]

    # ------------------------------------------------------------ names

    def _names(self, tokens: Sequence[str]) -> None:
        for number, token in enumerate(tokens):
            before = tokens[number - 1] if number else ""
            if not _NAME.fullmatch(token) or token in WORDS or token in self.known or before in (".", "->", "::"):
                continue
            if any(token in scope for scope in self.scopes):
                continue
            after = tokens[number + 1] if number + 1 < len(tokens) else ""
            if after == "::":
                raise _Strange
            raise _Wrong(f"calls `{token}`, which is no function here" if after == "(" else f"uses `{token}`, which nothing declares there")


__all__ = ["undeclared"]
