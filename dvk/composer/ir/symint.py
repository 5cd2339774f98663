"""Integers that remember how they were computed: the symbolic sizes of the compact dialect.

A `SymbolicSize` is an int with its value and a polynomial over named sizes (`s0`, `s1`, …). Lowering, fusion and rendering compute with the
values; they print the polynomial. The same code that writes `x * 768` for a captured graph thus writes `x * s1` for the graph from
`listing.symbolic`, without a search for numbers in finished text. Numbers other than sizes (blocks, warps) stay plain ints.

`str(size)` is safe in any expression, `repr(size)` omits the outer parentheses where nothing binds tighter than a comma or a comparison. A
quotient that its terms do not make exact becomes an atom: `(s1 // 2)`, in C++ `(s1 / 2)`; rounded up, `cdiv(s1, 256)`; the next power of
two, `pow2(s1)`. The frame defines both functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_quotient: ContextVar[str] = ContextVar("quotient", default="//")

ARGUMENT = "n_"
"""Start of the names of sizes that are arguments of kernels."""

Term = tuple[Any, ...]
"""A product of atoms: names, or ('//', a, b), ('%', a, b), ('cdiv', a, b), ('pow2', a, 0)."""


@contextmanager
def as_cpp() -> Iterator[None]:
    """Print quotients as C++ does."""
    token = _quotient.set("/")
    try:
        yield
    finally:
        _quotient.reset(token)


def leaves_rest(size: int, block: int) -> bool:
    """Blocks of `block` lanes may exceed `size`, so that accesses need a mask.

    A symbolic size always may be exceeded: a writer that sees only names should not need arithmetic to know whether a program is correct.
    """
    return block > 1 if isinstance(size, SymbolicSize) else size % block != 0


def divides(by: int, size: int) -> bool:
    """Whether a number divides a size, a symbolic one for every value: of `n - 1` it is not known, though `n` is odd now."""
    if isinstance(size, SymbolicSize):
        return all(coef % by == 0 for coef in size.terms.values())
    return size % by == 0


def power(count: int) -> int:
    """The next power of two, a plain number."""
    return 1 << max(int(count) - 1, 0).bit_length()


def pow2(size: int) -> int:
    """The next power of two: a formula for a symbolic size."""
    value = power(size)
    return (
        _size(value, {(("pow2", size, 0),): 1}, size.known)
        if isinstance(size, SymbolicSize)
        else value
    )


class SymbolicSize(int):
    """An integer with a polynomial; `terms` maps products of atoms to their coefficients (see the module)."""

    terms: dict[Term, int]
    known: dict[int, SymbolicSize]
    """The named sizes of its graph, by value: a quotient equal to one of them gets its name."""

    def __str__(self) -> str:
        text = self.__repr__()
        (term, coef), *more = self.terms.items()
        single = (
            not more
            and coef == 1
            and len(term) == 1
            and (isinstance(term[0], str) or term[0][0] in ("cdiv", "pow2"))
        )
        return text if single else f"({text})"

    def __repr__(self) -> str:
        text = " + ".join(
            _product(term, coef, len(self.terms) == 1)
            for term, coef in sorted(self.terms.items(), key=_order)
        )
        return text.replace("+ -", "- ")

    def __format__(self, spec: str) -> str:
        return self.__str__() if not spec else int(self).__format__(spec)

    __hash__ = int.__hash__

    # -------------------------------------------------------------- ring

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, SymbolicSize):
            if len(self.terms) == len(other.terms) == 1:
                ((a, m),), ((b, n),) = self.terms.items(), other.terms.items()
                return _size(int.__mul__(self, other), {_joined(a, b): m * n}, self.known)
            terms: dict[Term, int] = {}
            for a, m in self.terms.items():
                for b, n in other.terms.items():
                    term = _joined(a, b)
                    terms[term] = terms.get(term, 0) + m * n
            return _made(int.__mul__(self, other), terms, self.known)
        if isinstance(other, int):
            if other == 1:
                return self
            return (
                _size(
                    int.__mul__(self, other),
                    {t: c * other for t, c in self.terms.items()},
                    self.known,
                )
                if other
                else 0
            )
        return NotImplemented

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        if not other:
            return self
        terms = dict(self.terms)
        for term, coef in (
            other.terms.items() if isinstance(other, SymbolicSize) else (((), int(other)),)
        ):
            terms[term] = terms.get(term, 0) + coef
        return _made(int.__add__(self, other), terms, self.known)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return _size(int.__neg__(self), {t: -c for t, c in self.terms.items()}, self.known)

    def __sub__(self, other: Any) -> Any:
        return self + (-other) if isinstance(other, int) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other if isinstance(other, int) else NotImplemented

    def __abs__(self) -> Any:
        return self if int(self) >= 0 else -self

    # -------------------------------------------------------------- quotients

    def __floordiv__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        value, by = int(self), int(other)
        if value < 0 < by:
            # The usual way to round up: -(-size // block).
            return -_quotient_of("cdiv", -self, other, -(value // by))
        return _quotient_of("//", self, other, value // by)

    def __mod__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        value, by = int(self), int(other)
        rest = value % by
        return (
            rest
            if rest in (0, 1)
            else self
            if rest == value
            else _made(rest, {(("%", self, other),): 1}, self.known)
        )

    def __rmod__(self, other: Any) -> Any:
        # The usual way to count an index from the end.
        if isinstance(other, int) and -int(self) <= other < 0:
            return self + other
        return int.__rmod__(self, other)


class Ratio(float):
    """A number over a size; prints as `(1.0/s1)`."""

    number: float
    size: SymbolicSize

    def __repr__(self) -> str:
        return f"({self.number!r}/{self.size})"

    __str__ = __repr__


def over(number: float, size: float) -> float:
    """`number / size` as a formula (a float's own division would take precedence over the size's)."""
    if not isinstance(size, SymbolicSize):
        return number / size
    made = Ratio(number / int(size))
    made.number, made.size = number, size
    return made


class Constant(float):
    """A number with a name."""

    name: str

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


def constant(name: str, value: float) -> Constant:
    """A number that prints as its name."""
    made = Constant(value)
    made.name = name
    return made


def named(name: str, value: int, known: dict[int, SymbolicSize]) -> SymbolicSize:
    """A named size, entered among the `known` ones."""
    made = known[value] = _size(value, {(name,): 1}, known)
    return made


def symbol(name: str, value: int) -> SymbolicSize:
    """A dimension that programs read at run time: its name begins with `ARGUMENT` in every text."""
    return _size(value, {(ARGUMENT + name,): 1}, {})


def arguments(values: Iterable[Any]) -> list[str]:
    """The names of dimensions that occur in sizes, sorted."""
    names: set[str] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        if isinstance(value, Ratio):
            pending.append(value.size)
        elif isinstance(value, SymbolicSize):
            atoms = [atom for term in value.terms for atom in term]
            names |= {a for a in atoms if isinstance(a, str) and a.startswith(ARGUMENT)}
            pending += [part for a in atoms if not isinstance(a, str) for part in a[1:]]
    return sorted(names)


def _size(value: int, terms: dict[Term, int], known: dict[int, SymbolicSize]) -> SymbolicSize:
    made = SymbolicSize(value)
    made.terms, made.known = terms, known
    return made


def _made(value: int, terms: dict[Term, int], known: dict[int, SymbolicSize]) -> int:
    """A size; a plain number if no name is left or the value needs none."""
    terms = {t: c for t, c in terms.items() if c}
    return _size(value, terms, known) if value not in (0, 1) and any(terms) else value


def _joined(a: Term, b: Term) -> Term:
    return tuple(sorted((*a, *b), key=_atom_order)) if a and b else a or b


def _quotient_of(kind: str, a: SymbolicSize, b: int, value: int) -> Any:
    if value == 0 or (value == 1 and kind != "cdiv"):
        return value
    exact = _exact(a, b)
    if exact is not None:
        return _made(value, exact, a.known)
    if (
        kind == "cdiv"
    ):  # one block, too, is a count of blocks: the text must not depend on how many there are
        return _size(value, {((kind, a, b),): 1}, a.known)
    named_so = value * b == a and value in a.known
    return a.known[value] if named_so else _made(value, {((kind, a, b),): 1}, a.known)


def _exact(a: SymbolicSize, b: int) -> dict[Term, int] | None:
    """Terms of a / b if b divides every term; else None."""
    if isinstance(b, SymbolicSize):
        if len(b.terms) != 1:
            return {(): 1} if a.terms == b.terms else None
        ((wanted, by),) = b.terms.items()
    else:
        wanted, by = (), b
    result: dict[Term, int] = {}
    for term, coef in a.terms.items():
        rest = list(term)
        for atom in wanted:
            if atom not in rest:
                return None
            rest.remove(atom)
        if coef % by:
            return None
        result[tuple(rest)] = coef // by
    return result


def _atom_order(atom: Any) -> tuple[int, int, str]:
    if not isinstance(atom, str):
        return 1, 0, _atom(atom)
    return (0, 0, atom) if atom.startswith(ARGUMENT) else (0, int(atom[1:]), "")


def _order(item: tuple[Term, int]) -> tuple[int, list[Any]]:
    return -len(item[0]), [_atom_order(a) for a in item[0]]


def _atom(atom: Any, alone: bool = False) -> str:
    if isinstance(atom, str):
        return atom
    kind, a, b = atom
    if kind == "cdiv":
        return f"cdiv({a!r}, {b!r})"
    if kind == "pow2":
        return f"pow2({a!r})"
    text = f"{a} {_quotient.get() if kind == '//' else '%'} {b}"
    return text if alone else f"({text})"


def _product(term: Term, coef: int, only: bool) -> str:
    if not term:
        return str(coef)
    if coef == 1:
        return "*".join(_atom(a, only and len(term) == 1) for a in term)
    sign = "-" if coef < 0 else ""
    number = [str(abs(coef))] if abs(coef) != 1 else []
    return sign + "*".join([*(_atom(a) for a in term), *number])
