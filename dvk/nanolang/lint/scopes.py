"""Find undeclared and twice declared names in C++ kernels, without a compiler.

Only certain errors are reported. Kernels are loops, conditions, declarations and expressions in C's own types; one with anything else is
left to the compiler.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

TYPES = frozenset(
    {"float", "double", "bool", "long", "int", "short", "char", "_Float16", "unsigned", "signed"}
)
AROUND = frozenset({"const", "constexpr", "static", "__restrict"})
WORDS = TYPES | AROUND | {"true", "false", "sizeof", "break", "continue", "return", "linux", "unix"}
"""The last two are compiler macros."""
STRANGE = frozenset(
    {
        "alignas",
        "alignof",
        "and",
        "and_eq",
        "asm",
        "auto",
        "bitand",
        "bitor",
        "case",
        "catch",
        "char16_t",
        "char32_t",
        "char8_t",
        "class",
        "co_await",
        "co_return",
        "co_yield",
        "compl",
        "concept",
        "const_cast",
        "consteval",
        "constinit",
        "decltype",
        "default",
        "define",
        "delete",
        "do",
        "dynamic_cast",
        "enum",
        "explicit",
        "export",
        "extern",
        "friend",
        "goto",
        "inline",
        "mutable",
        "namespace",
        "new",
        "noexcept",
        "not",
        "not_eq",
        "nullptr",
        "operator",
        "or",
        "or_eq",
        "private",
        "protected",
        "public",
        "register",
        "reinterpret_cast",
        "requires",
        "static_assert",
        "static_cast",
        "struct",
        "switch",
        "template",
        "this",
        "thread_local",
        "throw",
        "try",
        "typedef",
        "typeid",
        "typename",
        "typeof",
        "union",
        "using",
        "virtual",
        "void",
        "volatile",
        "wchar_t",
        "xor",
        "xor_eq",
    }
)
"""The language's other words: some stand for operators, some declare or convert in ways that are not supported here."""
_TOKEN = re.compile(
    r'(#[^\n]*)|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|\.?\d(?:[eEpP][+-]|[\w.])*|\w+|->|::|\n|\S'
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_STRANGE = re.compile(
    r"(?<!\w)_(?!Float16\b|_restrict\b|_builtin_)|\( \{|\[ []=&[]|\w \"|\w '|(?:^|[;{}] )\w+ :"
)
"""Unsupported tokens: compiler extensions, statement expressions, lambdas, attributes, literals with a prefix, labels."""
_CLAUSE = re.compile(r"reduction\([^:()]+:([^()]*)\)")
_NAME = re.compile(r"[A-Za-z]\w*")
_CLOSES = {"(": ")", "[": "]", "{": "}"}


class ScopeUncertain(Exception):
    """The analysis cannot be certain."""


class ScopeError(Exception):
    """An error of a kernel; the message is a verb phrase."""


def undeclared_name(body: str, known: Collection[str]) -> str | None:
    """Describe a name error of a kernel, as a verb phrase; None if there is none.

    Args:
        body: its lines.
        known: available tensors, sizes, functions and macros.
    """
    return Scopes(body, known).wrong()


class Scopes:
    """One walk over a kernel's statements, with the names in scope."""

    def __init__(self, body: str, known: Collection[str]):
        self.tokens = [m[0] for m in _TOKEN.finditer(_COMMENT.sub(" ", body)) if m[0] != "\n"]
        self.known, self.at = known, 0
        self.scopes: list[dict[str, int | None]] = [{}]
        """Names of each enclosing block, and the facts about them."""
        self.conditions = 0
        """Enclosing statements that may not run."""
        self.strange = (
            bool(STRANGE & set(self.tokens))
            or "\\" in body
            or _STRANGE.search(" ".join(self.tokens)) is not None
        )

    def wrong(self) -> str | None:
        """The walk's error; None if nothing is certain."""
        if self.strange:
            return None
        try:
            self.block()
        except ScopeError as error:
            return str(error)
        except (
            ScopeUncertain,
            IndexError,
            RecursionError,
        ):  # too few tokens: the compiler's message is better
            return None
        return None

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
                raise ScopeUncertain
            for names in _CLAUSE.findall(token):
                self.names(re.findall(r"\w+", names))
        elif token == "{":
            self.at += 1
            self.scopes.append({})
            self.block()
            self.scopes.pop()
            self.at += 1
        elif token in ("for", "if", "while", "else"):
            self.scopes.append({})
            conditions, start = self.conditions, self.at
            self.at += 1
            if token != "else":
                self._head(token)
            self.conditions += not (
                token == "for" and self.runs(self.tokens[start + 2 : self.at - 1])
            )
            while self.tokens[self.at].startswith("#"):
                self._statement()
            self._statement()
            self.conditions = conditions
            self.scopes.pop()
        else:
            self._simple(";")

    def _head(self, word: str) -> None:
        if self.tokens[self.at] != "(":
            raise ScopeUncertain
        self.at += 1
        if word == "for":
            self._simple(";")
            self._simple(";")
        self._simple(")")

    def _simple(self, end: str) -> None:
        """A declaration or an expression, and its terminator."""
        start = self.at
        while self.tokens[self.at] in TYPES | AROUND:
            self.at += 1
        if self.at == start:
            if (
                _NAME.fullmatch(self.tokens[start])
                and self.tokens[start] not in WORDS
                and _NAME.fullmatch(self.tokens[start + 1])
            ):
                raise ScopeUncertain  # its type is not C's own
            self.names(self._until((end,)))
        else:
            words = self.tokens[start : self.at]
            if self.tokens[self.at] in ("(", ")"):
                raise ScopeUncertain
            constant = (
                "const" in words
                and not {"long", "int"}.isdisjoint(words)
                and {"unsigned", "short"}.isdisjoint(words)
            )
            self._declaration(end, constant)
            while self.tokens[self.at] == ",":
                self.at += 1
                self._declaration(end, constant)
        self.at += 1

    def _declaration(self, end: str, constant: bool) -> None:
        while self.tokens[self.at] in ("*", "&") or self.tokens[self.at] in AROUND:
            self.at += 1
        name = self.tokens[self.at]
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in WORDS:
            raise ScopeUncertain
        if name in self.scopes[-1]:
            raise ScopeError(f"declares `{name}` twice in one block")
        self.scopes[-1][name] = None
        self.at += 1
        rest = self._until((end, ","))
        self.names(rest)
        self.scopes[-1][name] = self.known_of(rest, constant)

    def _until(self, ends: Sequence[str]) -> list[str]:
        """The tokens before one of `ends` outside brackets, which then is the next token."""
        start = self.at
        open_: list[str] = []
        while open_ or self.tokens[self.at] not in ends:
            token = self.tokens[self.at]
            if token in _CLOSES:
                open_.append(_CLOSES[token])
            elif token in _CLOSES.values() and (not open_ or open_.pop() != token):
                raise ScopeUncertain
            elif (
                token.startswith("#")
                or (token == ";" and ";" not in ends)
                or token in ("for", "if", "while", "else")
            ):
                raise ScopeUncertain
            self.at += 1
        return self.tokens[start : self.at]

    # ------------------------------------------------------------ names

    def runs(self, head: Sequence[str]) -> bool:
        """A loop's body certainly runs."""
        return False

    def known_of(self, rest: Sequence[str], constant: bool) -> int | None:
        """The facts to record about a declared name, from the tokens after it."""
        return None

    def names(self, tokens: Sequence[str]) -> None:
        """Check the names in an expression."""
        for number, token in enumerate(tokens):
            before = tokens[number - 1] if number else ""
            if (
                not _NAME.fullmatch(token)
                or token in WORDS
                or token in self.known
                or before in (".", "->", "::")
            ):
                continue
            if any(token in scope for scope in self.scopes):
                continue
            after = tokens[number + 1] if number + 1 < len(tokens) else ""
            if after == "::":
                raise ScopeUncertain
            raise ScopeError(
                f"calls `{token}`, which is no function here"
                if after == "("
                else f"uses `{token}`, which nothing declares there"
            )


__all__ = ["Scopes", "ScopeError", "undeclared_name"]
