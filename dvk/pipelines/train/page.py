"""`report.html` of a training run: its progress since the start, and its curves; one page, without external resources."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dvk.pipelines.metrics import FILE
from dvk.pipelines.report.curves import Curves, Series, figure, show
from dvk.pipelines.report.markup import Markup, el
from dvk.pipelines.report.pieces import document, folded, footer, headers, region, table
from dvk.pipelines.report.units import many, show_s
from dvk.pipelines.train import comparing, validations
from dvk.pipelines.train.comparing import PolicyOutcomes
from dvk.runs import MANIFEST, RunFolder

Row = Mapping[str, Any]
STAGES = ("draw", "play", "trials", "learn", "library", "validate", "save")
TURNS = 8
"""More turns than this share one chart's colours and would be unreadable; later turns are left out."""


def write(run: RunFolder) -> None:
    """Write the page from the run's files, at any moment. In a process group the process that writes the run does."""
    if not run.writes:
        return
    rows = run.read(FILE)
    manifest = json.loads((run.path / MANIFEST).read_text(encoding="utf-8"))
    step, after = validations.latest(run.path)
    arms = [
        PolicyOutcomes("before", validations.initial(run.path)),
        PolicyOutcomes(f"after {many(step, 'step')}", after),
    ]
    run.write_text("report.html", render(rows, arms if step > 0 else [], manifest))


def render(rows: Sequence[Row], arms: Sequence[PolicyOutcomes], manifest: Mapping[str, Any]) -> str:
    """The whole document.

    Args:
        rows: of metrics.jsonl.
        arms: the first validation and the last; empty if there are none.
        manifest: run.json.
    """
    steps = max((int(row["step"]) for row in rows), default=0)
    title = f"{many(steps, 'step')} of training"
    sections = []
    for heading, charts in curve_groups(rows):
        drawn = [drawing for one in charts if (drawing := figure(one)) is not None]
        if drawn:
            sections.append(el("section", el("h2", heading), el("div", drawn, class_="curves")))
    return document(
        f"{manifest.get('name', 'train')}: {title}",
        _header(title, rows, manifest),
        _validation(arms),
        sections,
        _figures(rows),
        _reproduce(manifest),
        el("footer", footer(manifest)),
    )


def curve_groups(rows: Sequence[Row]) -> list[tuple[str, list[Curves]]]:
    """The curves by topic."""

    def pick(*wanted: tuple[str, str], change: Callable[[float], float] = float) -> list[Series]:
        return [Series(label, series_of(rows, key, change)) for label, key in wanted]

    turns = [(f"turn {n}", f"reward_turn_{n}") for n in range(1, TURNS + 1)]
    answers = [
        (label, f"left_out_{key}")
        for label, key in (("void", "void"), ("peers alike", "alike"), ("not judged", "broken"))
    ]
    of_answers = [Series(label, ratio(rows, key, "answers")) for label, key in answers]
    return [
        (
            "What it earns",
            [
                Curves(
                    "Reward of the policy, by turn", "Mean over the step’s answers.", pick(*turns)
                ),
                Curves(
                    "Reward by role",
                    "With the skills that selections chose, and without skills: best turns’ rewards, mean over "
                    "conversations. Summaries: lower bound of their skills’ gain.",
                    pick(
                        ("selection", "reward_selection"),
                        ("no skills", "reward_null"),
                        ("summary", "reward_summary"),
                    ),
                ),
                Curves(
                    "Answers right and fast",
                    "Shares of the policy’s answers in training.",
                    pick(
                        ("right", "right"),
                        ("over 1×", "fast_1"),
                        ("over 1.2×", "fast_1.2"),
                        ("over 1.5×", "fast_1.5"),
                    ),
                    share=True,
                ),
            ],
        ),
        (
            "Validation",
            [
                Curves(
                    "fast_p",
                    "Shares of the validation tasks: greedy, one turn, right and faster than so many times eager.",
                    pick(
                        ("right", "val_fast_0"),
                        ("over 1×", "val_fast_1"),
                        ("over 1.2×", "val_fast_1.2"),
                        ("over 1.5×", "val_fast_1.5"),
                    ),
                    share=True,
                ),
                Curves(
                    "Speedup",
                    "Geometric mean over the validation tasks, the original kept where nothing is faster.",
                    pick(("speedup", "val_speedup")),
                ),
            ],
        ),
        (
            "The library",
            [
                Curves("Size", "Skills after each step.", pick(("skills", "skills"))),
                Curves(
                    "Churn",
                    "Skills in each step; retired and merged ones when the library is groomed.",
                    pick(
                        *(
                            (name, name)
                            for name in ("proposed", "tried", "admitted", "retired", "merged")
                        )
                    ),
                    zero=True,
                ),
            ],
        ),
        (
            "What is left out",
            [
                Curves(
                    "Answers not learned from",
                    "Shares of the policy’s answers: worth nothing after a good one, no better or worse than "
                    "their peers, refused by profiling (PRS).",
                    [*of_answers, Series("PRS", ratio(rows, "left_out_coverage", "answers"))],
                    share=True,
                ),
                Curves(
                    "Tasks that teach nothing",
                    "In each step: all answers were worth the same, or the judge lets no speedup count.",
                    pick(("dull", "dull"), ("degenerate", "degenerate")),
                    zero=True,
                ),
                Curves(
                    "Mismatch rejection (MRS)",
                    "Share of rows whose probability sampler and learner disagree on.",
                    pick(("rejected", "kept"), change=lambda kept: 1.0 - kept),
                    share=True,
                ),
                Curves(
                    "Unreadable answers",
                    "Shares of each role’s answers.",
                    pick(
                        ("policy", "unread_policy"),
                        ("selection", "unread_selection"),
                        ("summary", "unread_summary"),
                    ),
                    share=True,
                ),
            ],
        ),
        (
            "The update",
            [
                Curves(
                    "Entropy",
                    "Nats a token, of what is learned from.",
                    pick(("entropy", "entropy")),
                    zero=True,
                ),
                Curves(
                    "Mismatch",
                    "|Mean log-ratio| of learner and sampler a token: mean over rows, and the worst.",
                    pick(("mean", "mismatch"), ("worst", "mismatch_worst")),
                    zero=True,
                ),
                Curves(
                    "Divergence",
                    "Of the model that training began with (KL), nats a token, where the objective counts it.",
                    pick(("kl", "kl")),
                    zero=True,
                ),
                Curves("Gradient", "Norm before clipping.", pick(("norm", "grad_norm")), zero=True),
                Curves(
                    "Clipped",
                    "Share of tokens outside the clip.",
                    pick(("clipped", "clipped")),
                    share=True,
                ),
            ],
        ),
        (
            "Time",
            [
                Curves(
                    "Seconds by stage",
                    "Of each step; the model writes within play, trials and validation, while others are judged.",
                    pick(*((stage, f"{stage}_s") for stage in (*STAGES, "write"))),
                    zero=True,
                ),
                Curves(
                    "Kernels judged a second",
                    "Different candidates over the seconds of play; remembered verdicts left out of the second.",
                    [
                        Series("all", ratio(rows, "judged", "play_s")),
                        Series("uncached", ratio(rows, "judged_anew", "play_s")),
                    ],
                    zero=True,
                ),
            ],
        ),
    ]


def series_of(
    rows: Sequence[Row], key: str, change: Callable[[float], float] = float
) -> list[tuple[float, float]]:
    """(step, value) of the rows that have a figure."""
    return [(float(row["step"]), change(row[key])) for row in rows if _finite(row.get(key))]


def ratio(rows: Sequence[Row], above: str, below: str) -> list[tuple[float, float]]:
    """(step, quotient) of the rows that have both figures, the lower one not 0."""
    there = [
        row for row in rows if _finite(row.get(above)) and _finite(row.get(below)) and row[below]
    ]
    return [(float(row["step"]), row[above] / row[below]) for row in there]


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _header(title: str, rows: Sequence[Row], manifest: Mapping[str, Any]) -> Markup:
    seconds = [
        sum(row.get(f"{stage}_s", 0.0) for stage in STAGES) for row in rows if "play_s" in row
    ]
    told = (
        [
            f"{show_s(sum(seconds))} in all, {show_s(sorted(seconds)[len(seconds) // 2])} a step (median)."
        ]
        if seconds
        else []
    )
    return el(
        "header",
        el(
            "p",
            el("code", str(manifest.get("name", ""))),
            f" · {manifest.get('machine', '')}",
            class_="over",
        ),
        el("h1", title),
        [el("p", text) for text in told],
    )


def _validation(arms: Sequence[PolicyOutcomes]) -> Markup | None:
    if not arms:
        return None
    head, *lines = comparing.table(comparing.compared([arm for arm in arms if arm.outcomes]))
    rows = [
        el(
            "tr",
            el("th", line[0], scope="row"),
            [el("td", cell, class_="num") for cell in line[1:]],
        )
        for line in lines
    ]
    said = "Greedy, one turn, on tasks that are never trained on. 95 % intervals over tasks; differences are paired."
    return el(
        "section",
        el("h2", "Before and after"),
        el("p", said),
        table(
            headers(head[0] or "Policy", *(f"{name} " for name in head[1:])),
            rows,
            "Validation before and after",
        ),
    )


def _figures(rows: Sequence[Row]) -> Markup | None:
    names = sorted({name for row in rows for name in row if name != "step"})
    lines = []
    for name in names:
        points = series_of(rows, name)
        if points:
            values = [value for _, value in points]
            cells = (values[0], min(values), sum(values) / len(values), max(values), values[-1])
            lines.append(
                el(
                    "tr",
                    el("th", el("code", name), scope="row"),
                    [el("td", show(cell), class_="num") for cell in cells],
                )
            )
    if not lines:
        return None
    heads = headers("Figure", "First ", "Least ", "Mean ", "Most ", "Last ")
    return el("section", el("h2", "All figures"), table(heads, lines, "All figures"))


def _reproduce(manifest: Mapping[str, Any]) -> Markup:
    parts = [
        el("h3", "Command"),
        el("pre", el("code", str(manifest.get("argv", ""))), **region("Command line")),
    ]
    if manifest.get("config"):
        parts.append(folded("All settings", json.dumps(manifest["config"], indent=2)))
    return el("section", el("h2", "Reproduce"), parts)
