"""Plans as text: a line for the recipes, then a line for each group of kernels that does not run by default.

    plan +own_matmul +cuda_graph -inplace_epilogue
    k0 k3 = flat block 256 warps 4
    k1 = online block 4096 programs 264 warps 8

A plan is written as the difference from another, the composer's default: `+` adds a recipe, `-` takes one away. A schedule is its tag, if
it has one, then its keys and values. So every plan that the composer can execute has words, in every back end, and what is read is
correct by construction: `compose` refuses nothing that was read here but a schedule for a kernel of another family.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from dvk.composer.codegen.base import codegen
from dvk.composer.compose import Plan
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.base import PrintedSchedule, Schedule, ScheduleValue
from dvk.composer.recipes import RECIPES
from dvk.errors import UsageError
from dvk.records import BackendName

PLAN = "plan"
_KERNEL = re.compile(r"k\d+")
Fused = Callable[[tuple[str, ...]], Sequence[Kernel]]
"""The kernels under some recipes, in launch order."""


class PlanError(ValueError):
    """A text that is no plan; the message names the line and the choices.

    Args:
        shown: characters of the text up to and with the word that is wrong: other words there might have been right.
    """

    def __init__(self, problem: str, shown: int):
        super().__init__(problem)
        self.shown = shown


class _Word(NamedTuple):
    """A word of a plan and where it ends in the text."""

    text: str
    end: int


def write_plan(plan: Plan, default: Plan) -> str:
    """The text of a plan: lines that `read_plan` reads.

    Args:
        plan: recipes, and the schedules that matter; those of the default are left out.
        default: what is not worth a word.
    """
    added = [f"+{name}" for name in plan.recipes if name not in default.recipes]
    taken = [f"-{name}" for name in default.recipes if name not in plan.recipes]
    groups: dict[Schedule, list[str]] = {}
    for kernel, schedule in plan.schedules.items():
        if default.schedules.get(kernel) != schedule:
            groups.setdefault(schedule, []).append(kernel)
    lines = [
        f"{' '.join(kernels)} = {write_schedule(schedule)}" for schedule, kernels in groups.items()
    ]
    return "\n".join([" ".join([PLAN, *added, *taken]), *lines])


def read_plan(
    text: str,
    default: Plan,
    order: Sequence[str],
    fused: Fused,
    backend: BackendName,
    left_out: list[str] | None = None,
) -> Plan:
    """The plan that a text asks for.

    Args:
        text: the answer of a model; what follows the plan's lines is not read.
        default: what the text differs from.
        order: recipes that apply to the graph, in the order of their application.
        fused: kernels under some recipes.
        backend: whose schedules they are.
        left_out: receives the problem of every word that cannot be read; the plan is then what the others say. Every text has a plan so,
            the default's at least. None: the first problem is raised.

    Raises:
        PlanError: no plan line, a recipe that does not apply, no such kernel, no such schedule.
    """

    def problem(message: str, shown: int) -> None:
        if left_out is None:
            raise PlanError(message, shown) from None
        left_out.append(message)

    (first, *others) = list(_lines(text)) or [[]]
    if not first or first[0].text != PLAN:
        problem(f"the first line is not `{PLAN}` and recipes", first[0].end if first else 0)
        return Plan(tuple(default.recipes))
    recipes = _recipes(first[1:], default.recipes, order, problem)
    kernels = {kernel.name: kernel for kernel in fused(recipes)}
    schedules: dict[str, Schedule] = {}
    for number, words in enumerate(others, start=2):
        texts = [word.text for word in words]
        if "=" not in texts[1:] or not all(_KERNEL.fullmatch(w) for w in texts[: texts.index("=")]):
            break
        equals = texts.index("=")
        for name in words[:equals]:
            if name.text not in kernels:
                known = ", ".join(kernels) or "none"
                said = f"no kernel `{name.text}`; under these recipes: {known}"
                problem(f"line {number}: {said}", name.end)
                continue
            try:
                said_of = texts[equals + 1 :]
                schedules[name.text] = _schedule(said_of, kernels[name.text], backend)
            except ValueError as error:
                problem(f"line {number}: {error}", words[-1].end)
    return Plan(recipes, schedules)


def _lines(text: str) -> Iterator[list[_Word]]:
    """The words of each line that has any."""
    begin = 0
    for line in text.splitlines(keepends=True):
        words = [_Word(m.group(), begin + m.end()) for m in re.finditer(r"\S+", line)]
        begin += len(line)
        if words:
            yield words


def _recipes(
    words: Iterable[_Word],
    default: tuple[str, ...],
    order: Sequence[str],
    problem: Callable[[str, int], None],
) -> tuple[str, ...]:
    chosen = set(default)
    for word, end in words:
        sign, name = word[0], word[1:]
        if sign not in "+-" or name not in RECIPES:
            problem(f"line 1: `{word}` is no recipe; write +NAME or -NAME", end)
            continue
        if name not in order:
            known = ", ".join(order)
            problem(f"line 1: `{name}` does not apply; those that do: {known}", end)
            continue
        chosen = chosen | {name} if sign == "+" else chosen - {name}
    return tuple(name for name in dict.fromkeys([*default, *order]) if name in chosen)


def write_schedule(schedule: Schedule) -> str:
    """A schedule in words: its tag, then keys and values."""
    printed = schedule.printed()
    tag = printed.pop(schedule.tag, None)
    words = [] if tag is None else [str(tag)]
    for key, value in printed.items():
        words += [key, _word(value)]
    return " ".join(words)


def _word(value: ScheduleValue) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _value(word: str) -> ScheduleValue:
    if word in ("yes", "no"):
        return word == "yes"
    return int(word) if word.isdecimal() and len(word) < 10 else word


def _schedule(words: Sequence[str], kernel: Kernel, backend: BackendName) -> Schedule:
    """The schedule in words.

    Raises:
        ValueError: there is none.
    """
    writer = codegen(backend)
    tag = writer.schedule_types[0].tag
    odd = len(words) % 2
    printed: PrintedSchedule = {tag: words[0]} if odd else {}
    for key, value in zip(words[odd::2], words[odd + 1 :: 2], strict=True):
        printed[key] = _value(value)
    try:
        schedule = writer.parse(printed, kernel.name)
    except UsageError as error:
        hint = f"; {error.hint}" if error.hint else ""
        raise ValueError(f"{error.message}{hint}") from None
    if schedule.families and kernel.family not in schedule.families:
        runs = " and ".join(schedule.families)
        raise ValueError(f"that schedule runs {runs} kernels, not {kernel.family}")
    return schedule
