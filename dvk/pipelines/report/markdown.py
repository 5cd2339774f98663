"""The report as Markdown that reads well raw, in a terminal: padded tables, bars instead of a chart.

Foreign text is made harmless: no control characters, no table or HTML syntax, code fences
longer than any inside.
"""

from __future__ import annotations

import json
import re
from unicodedata import combining, east_asian_width

from dvk.pipelines.report.attempts import ReportAttempt, best_so_far
from dvk.pipelines.report.markup import plain
from dvk.pipelines.report.spending import WAYS, way_cells
from dvk.pipelines.report.story import BLOCKS, ReportData
from dvk.pipelines.report.units import show_bytes, show_ms, show_s, show_share
from dvk.records import show_ratio
from dvk.speedups import shown

WIDEST = 60
"""Columns of a table cell; longer text is cut, the page has it all."""
ACTIVE = re.compile(r"[\\`*|~]|\](?=[(\[:])|(?<!\w)_(?=\S.*_)|(?<=\S)_(?!\w)|^[#>+-](?= )")
"""Characters that Markdown acts on, in places where it does: a bracket alone or an underscore inside a word is text."""
BAR = 40
"""Columns of the longest bar."""


def render(story: ReportData) -> str:
    """The whole file."""
    parts = [
        f"# {line(story.task.name)}: {story.headline}",
        *map(line, [*story.numbers, *story.lead]),
        _arms(story),
        _ways(story),
        _sets(story),
        "\n".join(f"- {term}: {line(text)}" for term, text in story.measured),
        *_slow(story),
        *_tried(story),
        *_won(story),
        *_search(story),
        *_cost(story),
        *_code(story),
        *_reproduce(story),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def line(text: str) -> str:
    """Foreign text as one line that Markdown shows unchanged."""
    text = " ".join(plain(text).split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"^(\d+)([.)])(?=\s)", r"\1\\\2", ACTIVE.sub(r"\\\g<0>", text))


def table(head: list[str], rows: list[list[str]], right: frozenset[int] = frozenset()) -> str:
    """A pipe table padded to be read raw.

    Args:
        right: indices of the right-aligned columns.
    """
    cells = [[line(_cut(cell)) for cell in row] for row in [head, *rows]]
    widths = [max(3, *(_columns(row[i]) for row in cells)) for i in range(len(head))]
    rule = [
        "-" * (width - 1) + ":" if i in right else "-" * width for i, width in enumerate(widths)
    ]
    padded = [[_pad(cell, widths[i], i in right) for i, cell in enumerate(row)] for row in cells]
    return "\n".join("| " + " | ".join(row) + " |" for row in [padded[0], rule, *padded[1:]])


def fence(text: str, language: str = "") -> str:
    """A code block that `text` cannot end."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    ticks = "`" * (longest + 1)
    return f"{ticks}{language}\n{plain(text).rstrip()}\n{ticks}"


# ---------------------------------------------------------------- the sections, in the order of the page


def _arms(story: ReportData) -> str:
    if not any(arm.ms for arm in story.arms):
        return ""
    others = [arm for arm in story.arms if arm.ratio]
    rows = [
        [arm.label, show_ms(arm.ms), *(shown(other.ratio) if arm.ours else "" for other in others)]
        for arm in story.arms
    ]
    return table(
        ["version", "median call", *(f"over {arm.label}" for arm in others)],
        rows,
        frozenset(range(1, 2 + len(others))),
    )


def _ways(story: ReportData) -> str:
    if len(story.ways) < 3:
        return ""
    return table(list(WAYS), [way_cells(row) for row in story.ways], frozenset({1, 2}))


def _sets(story: ReportData) -> str:
    if not story.sets:
        return ""
    names = list(dict.fromkeys(name for one in story.sets for name in one.over))
    rows = [
        [
            one.inputs,
            show_ms(one.eager_ms),
            show_ms(one.ms),
            *(shown(one.over.get(name)) for name in names),
            one.note,
        ]
        for one in story.sets
    ]
    return table(
        ["inputs", "eager", "best.py", *(f"over {name}" for name in names), ""],
        rows,
        frozenset(range(1, 3 + len(names))),
    )


def _slow(story: ReportData) -> list[str]:
    parts = []
    if story.profile:
        rows = [
            [str(p.get("name", "")), show_share(p.get("share")), show_ms(p.get("ms"))]
            for p in story.profile
        ]
        parts.append(table(["operator", "share of time", "time"], rows, frozenset({1, 2})))
    if story.blocks:
        parts.append(table(list(BLOCKS), story.blocks, frozenset({1, 2, 3})))
    if story.operators:
        rows = []
        for number, op in enumerate(story.operators, start=1):
            moved = (
                "unknown"
                if op.moved_bytes is None
                else show_bytes(op.moved_bytes)
                if op.moved_bytes
                else "view"
            )
            rows.append([str(number), op.name, op.result, moved])
        parts += [
            story.traffic,
            table(["#", "operator", "result", "moves"], rows, frozenset({0, 3})),
        ]
    return ["## What was slow", *(parts or ["The reference’s operators were not captured."])]


def _tried(story: ReportData) -> list[str]:
    parts = [
        "## What was tried",
        *(_attempts(story, story.attempts) if story.attempts else ["No candidate was judged."]),
    ]
    if story.attempts:
        parts.insert(1, story.tally)
    for name, attempts in story.elsewhere.items():
        parts += [
            f"For {line(name)}:",
            *(_attempts(story, attempts) if attempts else ["No candidate was judged."]),
        ]
    return parts


def _attempts(story: ReportData, attempts: list[ReportAttempt]) -> list[str]:
    rows = []
    for attempt in attempts:
        title = attempt.title + (" → best.py" if attempt is story.winner else "")
        schedule = "; ".join(f"{kernel} {text}".strip() for kernel, text in attempt.schedule)
        outcome = attempt.outcome + (f": {attempt.reason}" if attempt.reason else "")
        by = [attempt.proposer] if story.several else []
        rows.append(
            [
                str(attempt.number),
                show_s(attempt.seconds),
                attempt.figures,
                title,
                *by,
                outcome,
                ", ".join(attempt.recipes),
                schedule,
            ]
        )
    head = [
        "#",
        "after",
        "speedup",
        "candidate",
        *(["by"] if story.several else []),
        "verdict",
        "recipes",
        "schedule",
    ]
    return [table(head, rows, frozenset({0, 1, 2}))]


def _won(story: ReportData) -> list[str]:
    winner = story.winner
    if winner is None or winner.candidate is None:
        return []
    told = f"**{line(winner.title)}**, proposed by {line(winner.candidate.proposer)}. {line(' '.join(story.why))}"
    facts = [f"- recipes: {line(', '.join(winner.recipes))}"] if winner.recipes else []
    facts += [f"- {line(text)}" for text in winner.inexact]
    facts += [f"- skill {line(name)}: {line(text)}" for name, text in story.skills]
    facts += [f"- fused: {line(group)}" for group in story.groups]
    facts += [
        f"- schedule of {line(kernel or 'all kernels')}: {line(text)}"
        for kernel, text in winner.schedule
    ]
    return ["## What won, and why", told.rstrip(), "\n".join(facts)]


def _search(story: ReportData) -> list[str]:
    if not story.attempts:
        return []
    steps = best_so_far(story.attempts)
    if len(steps) == 1:
        return ["## The search", "No candidate was faster than eager."]
    highest = steps[-1][1]
    bars = [
        f"{show_s(s):>12}  {show_ratio(v):>8}  {'█' * max(1, round(BAR * v / highest))}"
        for s, v in steps
    ]
    return ["## The search", "Best so far, over eager, each time it rose:", fence("\n".join(bars))]


def _cost(story: ReportData) -> list[str]:
    if not story.cost:
        return []
    parts = ["## What it cost", "\n".join(f"- {term}: {line(text)}" for term, text in story.cost)]
    if story.proposers:
        rows = [
            [p.name + (" → best.py" if p.won else ""), p.candidates, p.correct, p.best, p.judged]
            for p in story.proposers
        ]
        parts.append(
            table(
                ["proposer", "candidates", "correct", "best in search", "judging"],
                rows,
                frozenset({1, 2, 3, 4}),
            )
        )
    return parts


def _code(story: ReportData) -> list[str]:
    parts = ["## The code", "Original:", fence(story.task.source, "python")]
    return (
        parts if story.generated is None else [*parts, "best.py:", fence(story.generated, "python")]
    )


def _reproduce(story: ReportData) -> list[str]:
    parts = ["## Reproduce"]
    if story.command_line:
        parts.append(fence(story.command_line, "sh"))
    if story.usage:
        parts.append(fence(story.usage, "python"))
    config = story.manifest.get("config")
    if config:
        parts.append(
            f"Seed {config.get('seed', 'unknown')}, task {line(story.task.id)}; all settings:"
        )
        parts.append(fence(json.dumps(config), "json"))
    versions = [
        f"{name} {version}"
        for name, version in (story.manifest.get("versions") or {}).items()
        if version
    ]
    parts.append(line(", ".join(versions)))
    return parts if any(parts[1:]) else [*parts, "The command line was not recorded."]


# ---------------------------------------------------------------- columns


def _cut(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - _columns(text))
    return space + text if right else text + space


def _columns(text: str) -> int:
    """Terminal columns of a text."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
