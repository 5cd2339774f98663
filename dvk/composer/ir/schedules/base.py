"""The base class of schedules, how they are printed in records, and how printed ones are parsed.

A schedule is a frozen dataclass with a field for each printed key, in the order of printing. The annotation of a field holds its legal
values: a `Literal`, `bool`, or one of `Power`, `Positive` and `Natural`. A field with a default is printed only if it differs from it,
except for the tag (`kind`, or `form` in C++), which tells the classes of a back end apart.

Heuristics construct schedules directly and are not checked; `parse` checks what comes from a file.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from dvk.composer.ir.errors import CannotCompose
from dvk.errors import UsageError

ScheduleValue = bool | int | str
PrintedSchedule = dict[str, ScheduleValue]
"""A schedule as records hold it: JSON values by key."""


class Range(NamedTuple):
    """Legal integers: from `least` on, powers of two only if `powers`."""

    least: int
    powers: bool = False

    def __contains__(self, value: object) -> bool:
        return (
            type(value) is int and value >= self.least and not (self.powers and value & (value - 1))
        )

    def __str__(self) -> str:
        return "a power of two" if self.powers else f"an integer of at least {self.least}"


Power = Annotated[int, Range(1, powers=True)]
Positive = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How one kernel runs.

    Attributes:
        tag: key whose value names the class; printed first or omitted if empty.
        families: families of kernels (`Kernel.family`) that it can run; any if empty.
    """

    tag: ClassVar[str] = "kind"
    families: ClassVar[tuple[str, ...]] = ()

    def printed(self) -> PrintedSchedule:
        """Keys and values as JSON, in the order of the fields."""
        result: PrintedSchedule = {}
        for name, default in _fields(type(self)).defaults.items():
            value = getattr(self, name)
            if value != default or (name == self.tag and value):
                result[name] = value
        return result

    def wrong(self) -> list[str]:
        """Illegal values, a sentence each."""
        found = self.printed()
        return [
            f"`{name}` is {value!r}: it must be {_spelled(hint)}"
            for name, hint in _fields(type(self)).hints.items()
            if name in found and not _is_legal(value := found[name], hint)
        ]

    def require_family(self, family: str) -> None:
        """Check that it can run kernels of a family.

        Raises:
            CannotCompose: it cannot.
        """
        if self.families and family not in self.families:
            name = type(self).__name__
            raise CannotCompose(
                f"a schedule {name} runs {' and '.join(self.families)} kernels, not {family}"
            )


S = TypeVar("S", bound=Schedule)


def expect(schedule: Schedule, kind: type[S]) -> S:
    """The schedule, known to be of that class.

    Raises:
        CannotCompose: it is of another back end or form.
    """
    if not isinstance(schedule, kind):
        raise CannotCompose(f"{schedule} is no {kind.__name__}")
    return schedule


def parse(kinds: Sequence[type[S]], printed: Mapping[str, Any], kernel: str = "") -> S:
    """The schedule that was printed like this, of one of the classes `kinds`.

    Args:
        kernel: its name, for messages.

    Raises:
        UsageError: names the choices for an unknown tag, key or value.
    """
    of = f"the schedule of {kernel}" if kernel else "a schedule"
    if not isinstance(printed, Mapping):
        raise UsageError(f"{of} is not a table of keys and values", f"found {printed!r}")
    tag = kinds[0].tag
    chosen = printed.get(tag, "")
    fitting = [kind for kind in kinds if chosen in _fields(kind).tags]
    if not fitting:
        known = dict.fromkeys(t for kind in kinds for t in _fields(kind).tags if t)
        raise UsageError(
            f"{of} has {f'an unknown `{tag}`: {chosen!r}' if tag in printed else f'no `{tag}`'}",
            f"choose {', '.join(known)}",
        )
    kind = min(fitting, key=lambda kind: sum(map(len, _misfits(kind, printed))))
    missing, unknown = _misfits(kind, printed)
    if missing or unknown:
        keys = ", ".join(f"`{key}`" for key in unknown or missing)
        raise UsageError(
            f"{of} {'has unknown keys' if unknown else 'lacks'}: {keys}",
            f"its keys are {', '.join(_fields(kind).hints)}",
        )
    schedule = kind(**printed)
    if wrong := schedule.wrong():
        raise UsageError(f"{of} is not legal", "; ".join(wrong))
    return schedule


def _misfits(kind: type[Schedule], printed: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Keys that are missing, and keys that are unknown."""
    defaults = _fields(kind).defaults
    missing = [name for name, default in defaults.items() if default is MISSING]
    return [n for n in missing if n not in printed], [k for k in printed if k not in defaults]


class _Fields(NamedTuple):
    defaults: dict[str, Any]
    """By key; MISSING if there is none."""
    hints: dict[str, Any]
    tags: tuple[Any, ...]
    """Legal values of the tag."""


_known: dict[type[Schedule], _Fields] = {}
"""By class: annotations are slow to evaluate."""


def _fields(kind: type[Schedule]) -> _Fields:
    if kind not in _known:
        defaults = {field.name: field.default for field in fields(kind)}
        hints = get_type_hints(kind, include_extras=True)
        tags = get_args(hints[kind.tag])
        _known[kind] = _Fields(defaults, {name: hints[name] for name in defaults}, tags)
    return _known[kind]


def _choices(hint: Any) -> tuple[Any, ...]:
    """The alternatives of an annotation: literal values, ranges and `bool`."""
    if get_origin(hint) is Annotated:
        return (get_args(hint)[1],)
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(choice for one in get_args(hint) for choice in _choices(one))
    return (True, False) if hint is bool else ()


def _is_legal(value: object, hint: Any) -> bool:
    return any(
        value in choice
        if isinstance(choice, Range)
        else type(value) is type(choice) and value == choice
        for choice in _choices(hint)
    )


def _spelled(hint: Any) -> str:
    words = [str(c) if isinstance(c, Range) else repr(c) for c in _choices(hint) if c != ""]
    return " or ".join(words)
