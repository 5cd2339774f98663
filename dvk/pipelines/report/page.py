"""The report as one self-contained HTML page: no script, no external resource, light and dark."""

from __future__ import annotations

import json

from dvk.pipelines.report import chart
from dvk.pipelines.report.attempts import ReportAttempt
from dvk.pipelines.report.code import kernels_first
from dvk.pipelines.report.graph import Operator
from dvk.pipelines.report.markup import Markup, el
from dvk.pipelines.report.pieces import (
    bar,
    document,
    facts,
    folded,
    footer,
    headers,
    region,
    source,
    table,
)
from dvk.pipelines.report.story import BLOCKS, ReportData, timed
from dvk.pipelines.report.units import show_bytes, show_ms, show_s, show_share
from dvk.speedups import shown


def render(story: ReportData) -> str:
    """The whole document."""
    sections = [
        _slow(story),
        _tried(story),
        _won(story),
        _search(story),
        _cost(story),
        _code(story),
        _reproduce(story),
    ]
    return document(
        f"{story.task.name}: {story.headline}",
        _header(story),
        sections,
        el("footer", footer(story.manifest)),
    )


# ---------------------------------------------------------------- the sections, in the order of the page


def _header(story: ReportData) -> Markup:
    task = story.task
    device = "GPU" if task.device == "cuda" else "CPU"
    return el(
        "header",
        el("p", el("code", task.name), f" · {task.entry} · {device}", class_="over"),
        el("h1", story.headline),
        [el("p", text, class_="interval") for text in story.numbers],
        [el("p", text) for text in story.lead],
        _arms(story),
        _sets(story),
        facts(story.measured),
    )


def _arms(story: ReportData) -> Markup | None:
    longest = max((arm.ms for arm in story.arms if arm.ms), default=0.0)
    if not longest:
        return None
    rows = [
        el(
            "tr",
            el("th", arm.label, scope="row"),
            el("td", show_ms(arm.ms), class_="num"),
            bar(arm.ms, longest, "bar ours" if arm.ours else "bar"),
            el("td", [el("div", text) for text in story.ratios(arm)], class_="num"),
            class_="won" if arm.ours else None,
        )
        for arm in story.arms
    ]
    heads = headers("Version", "Median call ", None, "Speedup ")
    return el("div", table(heads, rows, "Times of one call"), class_="arms")


def _sets(story: ReportData) -> Markup | None:
    if not story.sets:
        return None
    names = list(dict.fromkeys(name for one in story.sets for name in one.over))
    rows = [
        el(
            "tr",
            el(
                "th",
                el("code", one.inputs),
                el("small", one.note) if one.note else None,
                scope="row",
            ),
            el("td", show_ms(one.eager_ms), class_="num"),
            el("td", show_ms(one.ms), class_="num"),
            *(el("td", shown(one.over.get(name)), class_="num") for name in names),
        )
        for one in story.sets
    ]
    return table(
        headers("Inputs", "Eager ", "best.py ", *(f"Over {name} " for name in names)),
        rows,
        "Every set of inputs",
    )


def _slow(story: ReportData) -> Markup:
    parts: list[Markup] = []
    if story.profile:
        parts += _profile(story)
    if story.blocks:
        rows = [
            el(
                "tr",
                el("th", el("code", row[0]), scope="row"),
                [el("td", cell, class_="num") for cell in row[1:4]],
                [el("td", cell) for cell in row[4:]],
            )
            for row in story.blocks
        ]
        heads = headers(
            *(
                f"{label.capitalize()} " if 0 < n < 4 else label.capitalize()
                for n, label in enumerate(BLOCKS)
            )
        )
        parts.append(table(heads, rows, "The network’s blocks"))
    if story.operators:
        longest = max(operator.moved_bytes or 0 for operator in story.operators) or 1
        rows = [
            _operator_row(number, operator, longest)
            for number, operator in enumerate(story.operators, start=1)
        ]
        heads = headers("# ", "Operator", "Result", "Moves ", None)
        moves = [el("p", story.traffic), table(heads, rows, "The reference’s operators")]
        # Bytes stand in for time if that was not measured.
        parts += (
            [el("details", el("summary", "The operators by the bytes that they move"), moves)]
            if timed(story)
            else moves
        )
    if story.listing:
        parts.append(folded("The captured graph", story.listing))
    return el(
        "section",
        el("h2", "What was slow"),
        parts or el("p", "The reference’s operators were not captured."),
    )


def _profile(story: ReportData) -> list[Markup]:
    rows = [
        el(
            "tr",
            el("th", el("code", str(row.get("name", ""))), scope="row", class_="cut"),
            el("td", show_share(row.get("share")), class_="num"),
            bar(row.get("share"), 1.0),
            el("td", show_ms(row.get("ms")), class_="num"),
        )
        for row in story.profile
    ]
    return [
        table(
            headers("Operator", "Share of time ", None, "Time "), rows, "Profile of the reference"
        )
    ]


def _operator_row(number: int, operator: Operator, longest: int) -> Markup:
    moved = operator.moved_bytes
    text = "unknown" if moved is None else show_bytes(moved) if moved else "view"
    return el(
        "tr",
        el("td", number, class_="num"),
        el("th", el("code", operator.name), scope="row"),
        el("td", el("code", operator.result), class_="fixed"),
        el("td", text, class_="num" if moved else "num soft"),
        bar(moved, longest),
    )


def _tried(story: ReportData) -> Markup:
    parts = [
        el("h2", "What was tried"),
        el("p", story.tally) if story.attempts else None,
        _attempts(story, story.attempts),
    ]
    for name, attempts in story.elsewhere.items():
        parts += [el("h3", "For ", el("code", name)), _attempts(story, attempts)]
    return el("section", parts)


def _attempts(story: ReportData, attempts: list[ReportAttempt]) -> Markup:
    if not attempts:
        return el("p", "No candidate was judged.")
    heads = headers("# ", "After ", "Candidate", "Schedule", "Verdict", "Speedup ")
    rows = [_attempt_row(attempt, attempt is story.winner, story.several) for attempt in attempts]
    return table(heads, rows, "Every judged candidate")


def _attempt_row(attempt: ReportAttempt, won: bool, several: bool) -> Markup:
    schedule = [el("div", f"{kernel} {text}".strip()) for kernel, text in attempt.schedule]
    return el(
        "tr",
        el("td", attempt.number, class_="num"),
        el("td", show_s(attempt.seconds), class_="num"),
        el(
            "th",
            attempt.title,
            el("small", f"by {attempt.proposer}") if several else None,
            el("small", ", ".join(attempt.recipes)) if attempt.recipes else None,
            el("small", "became best.py") if won else None,
            scope="row",
            class_="cut",
        ),
        el("td", el("code", schedule) if schedule else None, class_="cut" if schedule else None),
        el(
            "td",
            el("span", attempt.outcome, class_=None if attempt.ok else "wrong"),
            el("small", attempt.reason) if attempt.reason else None,
            class_="cut" if attempt.reason else "fixed",
        ),
        el("td", attempt.figures, class_="num"),
        class_="won" if won else None,
    )


def _won(story: ReportData) -> Markup | None:
    winner = story.winner
    if winner is None or winner.candidate is None:
        return None
    parts = [
        el(
            "p",
            el("strong", winner.title),
            f", proposed by {winner.candidate.proposer}. ",
            " ".join(story.why),
        )
    ]
    if winner.recipes:
        named = [part for recipe in winner.recipes for part in (", ", el("code", recipe))][1:]
        parts += [el("h3", "Recipes"), el("p", named)]
        parts += [el("p", text) for text in winner.inexact]
    if story.skills:
        parts += [
            el("h3", "Skills behind it"),
            facts([(el("code", name), text) for name, text in story.skills]),
        ]
    if story.groups:
        fused = [el("li", el("code", group)) for group in story.groups]
        parts += [el("h3", "What was fused"), el("ul", fused, class_="plain")]
    if winner.schedule:
        chosen = [
            (el("code", kernel or "all kernels"), el("code", text))
            for kernel, text in winner.schedule
        ]
        parts += [el("h3", "Schedule"), facts(chosen)]
    return el("section", el("h2", "What won, and why"), parts)


def _search(story: ReportData) -> Markup | None:
    if not story.attempts:
        return None
    drawing = chart.draw(story.attempts, story.compile_speedup, story.winner)
    figure = el(
        "figure",
        el("div", drawing, class_="scroll", **region("Chart of the search")),
        el("figcaption", chart.caption(story.attempts)),
    )
    return el("section", el("h2", "The search"), figure)


def _cost(story: ReportData) -> Markup | None:
    if not story.cost:
        return None
    parts = [facts(story.cost)]
    if story.proposers:
        rows = [
            el(
                "tr",
                el(
                    "th",
                    row.name,
                    el("small", "found best.py") if row.won else None,
                    scope="row",
                    class_="cut",
                ),
                *(
                    el("td", text, class_="num")
                    for text in (row.candidates, row.correct, row.best, row.judged)
                ),
                class_="won" if row.won else None,
            )
            for row in story.proposers
        ]
        heads = headers("Proposer", "Candidates ", "Correct ", "Best in search ", "Judging ")
        parts.append(table(heads, rows, "Candidates by proposer"))
    return el("section", el("h2", "What it cost"), parts)


def _code(story: ReportData) -> Markup:
    columns = [el("section", el("h3", "Original"), source(story.task.source, "Original source"))]
    if story.generated is not None:
        columns.append(
            el(
                "section",
                el("h3", "best.py"),
                source(kernels_first(story.generated), "Generated source"),
            )
        )
    return el(
        "section",
        el("h2", "The code"),
        el("div", columns, class_="pair" if len(columns) == 2 else "pair one"),
    )


def _reproduce(story: ReportData) -> Markup:
    parts: list[Markup] = []
    if story.command_line:
        parts += [
            el("h3", "Command"),
            el("pre", el("code", story.command_line), **region("Command line")),
        ]
    if story.usage:
        parts += [el("h3", "Use"), source(story.usage, "How to use best.py")]
    config = story.manifest.get("config")
    if config:
        seed = el(
            "p", f"Seed {config.get('seed', 'unknown')}, task ", el("code", story.task.id), "."
        )
        parts += [el("h3", "Settings"), seed, folded("All settings", json.dumps(config, indent=2))]
    return el(
        "section", el("h2", "Reproduce"), parts or el("p", "The command line was not recorded.")
    )
