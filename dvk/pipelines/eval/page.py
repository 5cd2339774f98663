"""`report.html` of an evaluation: one page, without external resources."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dvk.pipelines.eval.request import Over
from dvk.pipelines.eval.rows import EvalRow, best_of, outcome
from dvk.pipelines.eval.tables import measured_notes, mixed, of_roofline
from dvk.pipelines.report.curves import Curves, Series
from dvk.pipelines.report.templates import render as render_page
from dvk.pipelines.report.units import many, show_s, show_share
from dvk.records import show_ratio
from dvk.runs import MANIFEST, RunFolder
from dvk.stats import fast_p

GRID = [round(0.5 + 0.05 * n, 2) for n in range(51)]
"""Values of p that the curve of fast_p is drawn at: 0.5 to 3."""
Summary = Mapping[str, Any]


def write(run: RunFolder, rows: Sequence[EvalRow], summary: Summary) -> None:
    """Write the page into the run's folder."""
    manifest = json.loads((run.path / MANIFEST).read_text(encoding="utf-8"))
    run.write_text("report.html", render(rows, summary, manifest))


def render(rows: Sequence[EvalRow], summary: Summary, manifest: Mapping[str, Any]) -> str:
    """The whole document."""
    share = summary["fast_p"]["1"]
    heading = (
        f"{100 * share:.1f} % of {many(summary['num_tasks'], 'task')} right and faster than eager"
    )
    best = sorted(best_of(rows), key=lambda pair: (-(pair[1].speedup or 0.0), pair[0].task))
    return render_page(
        "evaluation",
        manifest,
        title=f"{summary['policy']}: {heading}",
        heading=heading,
        summary=summary,
        lead=_lead(summary),
        thresholds=fast_p.THRESHOLDS,
        scores=_scores(summary),
        charts=_curves(rows, summary),
        tasks=[{"row": row, "end": end, "roofline": of_roofline(row, end)} for row, end in best],
        cost=_cost(summary),
    )


def _lead(summary: Summary) -> list[str]:
    shares, ends = summary["fast_p_interval"]["1"], summary["geomean_kept_interval"]
    over_tasks = (
        f", 95 % interval over tasks {show_share(shares[0])} to {show_share(shares[1])}"
        if shares
        else ""
    )
    told = [f"fast_1 {show_share(summary['fast_p']['1'])}{over_tasks}"]
    if summary["geomean_kept"]:
        told.append(
            f"{show_ratio(summary['geomean_kept'])} in the geometric mean, the original kept where nothing is faster"
            + (f" [{show_ratio(ends[0])}, {show_ratio(ends[1])}]" if ends else "")
        )
    if note := mixed(summary):
        told.append(note[0].upper() + note[1:] + ".")
    return told + [f"{line[0].upper()}{line[1:]}." for line in measured_notes(summary)]


def _scores(summary: Summary) -> list[tuple[str, Summary]]:
    """Named rows of the table of scores."""
    named: list[tuple[str, Summary | None]] = [
        ("all", summary),
        ("best sample" if summary["samples"] > 1 else "", summary["best_of"]),
        ("first turn" if len(summary["by_turn"]) > 1 else "", summary["first_turn"]),
        ("over torch.compile", summary.get("compile")),
        ("over max-autotune", summary.get("max-autotune")),
        ("without flagged tasks", summary["hygiene"]["clean"]),
    ]
    return [(name, found) for name, found in named if name and found]


def _curves(rows: Sequence[EvalRow], summary: Summary) -> list[Curves]:
    finals = [(row, row.final) for row in rows]
    lines = [Series("eager", profile([outcome(row, end) for row, end in finals]))]
    others: tuple[Over, ...] = ("compile", "max-autotune")
    lines += [
        Series(over, profile([outcome(row, end, over) for row, end in finals]))
        for over in others
        if over in summary
    ]
    if summary["samples"] > 1:
        lines.append(
            Series("best sample", profile([outcome(row, end) for row, end in best_of(rows)]))
        )
    charts = [
        Curves(
            "fast_p", "Share of tasks right and more than p times as fast, by p.", lines, share=True
        )
    ]
    if len(summary["by_turn"]) > 1:
        charts.append(
            Curves(
                "Best by turn",
                "Share of tasks, best candidate until each turn; first times.",
                _by_turn(summary["by_turn"]),
                share=True,
            )
        )
        charts.append(
            Curves(
                "Each turn alone",
                "Share of tasks, that turn’s own candidate.",
                _by_turn(summary["per_turn"]),
                share=True,
            )
        )
    reached = sorted(
        (
            share
            for row, end in finals
            if end.correct and (share := of_roofline(row, end)) is not None
        ),
        reverse=True,
    )
    if len(reached) > 1:
        points = [(100 * (n + 1) / len(reached), share) for n, share in enumerate(reached)]
        said = (
            "Right candidates from the best to the worst, in per cent of them: the least time that bytes or FLOPs take at this "
            "machine’s measured ceilings, over the time taken."
        )
        charts.append(
            Curves("Share of the roofline", said, [Series("reached", points)], share=True)
        )
    return charts


def profile(outcomes: Sequence[fast_p.TaskOutcome]) -> list[tuple[float, float]]:
    """(p, fast_p) over the grid."""
    return [
        (p, fast_p.mean(fast_p.by_task(outcomes, lambda o, p=p: float(fast_p.is_fast(o, p)))))  # type: ignore[misc]
        for p in GRID
    ]


def _by_turn(shares: Mapping[str, Mapping[str, float]]) -> list[Series]:
    labels = {"0": "right", "1": "over 1×", "1.2": "over 1.2×", "1.5": "over 1.5×"}
    return [
        Series(label, [(float(turn), found[t]) for turn, found in shares.items()])
        for t, label in labels.items()
    ]


def _cost(summary: Summary) -> list[tuple[str, str]]:
    spent, reached = summary["cost"], summary["roofline"]
    rows = [
        ("Wall clock", show_s(spent["wall_s"])),
        ("Judging", show_s(spent["judge_s"])),
        ("Candidates", f"{spent['num_candidates']:,}"),
    ]
    if spent["model_s"] is not None:
        rows += [
            ("Model", show_s(spent["model_s"])),
            ("Tokens read", f"{spent['prompt_tokens']:,}"),
            ("Tokens written", f"{spent['completion_tokens']:,}"),
        ]
    if spent["usd"] is not None:
        rows.append(("Price", f"${spent['usd']:.2f}"))
    if reached["num_tasks"]:
        rows.append(
            (
                "Roofline reached",
                f"{show_share(reached['mean'])} on average over {many(reached['num_tasks'], 'task')}",
            )
        )
    return rows
