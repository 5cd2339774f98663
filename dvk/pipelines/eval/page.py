"""`report.html` of an evaluation: one page, without external resources."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dvk.pipelines.eval.request import Over
from dvk.pipelines.eval.rows import EvalRow, best_of, outcome
from dvk.pipelines.eval.tables import mixed, of_roofline
from dvk.pipelines.report.curves import Curves, Series, figure
from dvk.pipelines.report.markup import Child, Markup, el
from dvk.pipelines.report.pieces import bar, document, facts, folded, footer, headers, region, table
from dvk.pipelines.report.units import many, show_ms, show_s, show_share
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
    title = (
        f"{100 * share:.1f} % of {many(summary['num_tasks'], 'task')} right and faster than eager"
    )
    sections = [
        _scores(summary),
        _curves(rows, summary),
        _groups(summary),
        _tasks(rows),
        _hygiene(summary),
        _cost(summary),
    ]
    return document(
        f"{summary['policy']}: {title}",
        _header(title, summary, manifest),
        sections,
        _reproduce(manifest),
        el("footer", footer(manifest)),
    )


# ---------------------------------------------------------------- the sections, in the order of the page


def _header(title: str, summary: Summary, manifest: Mapping[str, Any]) -> Markup:
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
    over = f"{summary['suite']} · {manifest.get('machine', '')}"
    return el(
        "header",
        el("p", el("code", summary["policy"]), f" · {over}", class_="over"),
        el("h1", title),
        [el("p", text, class_="interval") for text in told],
    )


def _scores(summary: Summary) -> Markup:
    named: list[tuple[str, Summary | None]] = [
        ("all", summary),
        ("best sample" if summary["samples"] > 1 else "", summary["best_of"]),
        ("first turn" if len(summary["by_turn"]) > 1 else "", summary["first_turn"]),
        ("over torch.compile", summary.get("compile")),
        ("over max-autotune", summary.get("max-autotune")),
        ("without flagged tasks", summary["hygiene"]["clean"]),
    ]
    rows = [_score_row(name, found) for name, found in named if name and found]
    heads = headers("", *(f"fast_{t} " for t in fast_p.THRESHOLDS), "Speedup ")
    said = (
        "Shares of all tasks with a right candidate more than p times as fast as eager; a failure counts as not fast. "
        "Speedup: geometric mean, the original kept where nothing is faster."
    )
    return el("section", el("h2", "Scores"), el("p", said), table(heads, rows, "Scores"))


def _score_row(name: str, found: Summary) -> Markup:
    ends = found["fast_p_interval"]
    cells = [
        el("td", show_share(found["fast_p"][t]), el("small", _ends(ends[t])), class_="num")
        for t in fast_p.THRESHOLDS
    ]
    kept = show_ratio(found["geomean_kept"]) if found["geomean_kept"] else "–"
    return el("tr", el("th", name, scope="row"), cells, el("td", kept, class_="num"))


def _ends(ends: Sequence[float] | None) -> str:
    return f"{100 * ends[0]:.0f} to {100 * ends[1]:.0f}" if ends else ""


def _curves(rows: Sequence[EvalRow], summary: Summary) -> Markup | None:
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
    drawn = [drawing for one in charts if (drawing := figure(one)) is not None]
    return el("section", el("h2", "Curves"), el("div", drawn, class_="curves"))


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


def _groups(summary: Summary) -> Markup | None:
    parts = []
    for dimension, found in summary["groups"].items():
        if len(found) < 2:
            continue
        rows = [
            el(
                "tr",
                el("th", value, scope="row"),
                el("td", of["num_tasks"], class_="num"),
                *(
                    el("td", show_share(of["fast_p"][t]), class_="num")
                    for t in ("0", "1", "1.2", "1.5")
                ),
                el(
                    "td",
                    show_ratio(of["geomean_kept"]) if of["geomean_kept"] else "–",
                    class_="num",
                ),
                bar(of["fast_p"]["1"], 1.0),
            )
            for value, of in found.items()
        ]
        heads = headers(
            dimension.capitalize(),
            "Tasks ",
            "Right ",
            "fast_1 ",
            "fast_1.2 ",
            "fast_1.5 ",
            "Speedup ",
            None,
        )
        parts += [el("h3", f"By {dimension}"), table(heads, rows, f"Scores by {dimension}")]
    return el("section", el("h2", "Kinds of tasks"), parts) if parts else None


def _tasks(rows: Sequence[EvalRow]) -> Markup:
    best = sorted(best_of(rows), key=lambda pair: (-(pair[1].speedup or 0.0), pair[0].task))
    longest = max((end.speedup or 0.0 for _, end in best), default=0.0) or 1.0
    lines = [
        el(
            "tr",
            el(
                "th",
                el("code", row.task),
                el("small", row.error) if row.error else None,
                scope="row",
                class_="cut",
            ),
            el(
                "td",
                show_ratio(end.speedup) if end.speedup else "right" if end.correct else "–",
                class_="num",
            ),
            el(
                "td",
                show_ratio(end.over["compile"]) if "compile" in end.over else "–",
                class_="num",
            ),
            el("td", show_ms(end.candidate_ms), class_="num"),
            el("td", show_share(of_roofline(row, end)), class_="num"),
            bar(end.speedup, longest),
        )
        for row, end in best
    ]
    heads = headers("Task", "Over eager ", "Over compile ", "Call ", "Roofline ", None)
    return el(
        "section",
        el("h2", "Tasks"),
        el("p", "The best sample of each."),
        table(heads, lines, "All tasks"),
    )


def _hygiene(summary: Summary) -> Markup | None:
    found = summary["hygiene"]["flagged"]
    if not found:
        return None
    lines = [
        el("tr", el("th", el("code", name), scope="row"), el("td", "; ".join(why)))
        for name, why in found.items()
    ]
    said = "A speedup on these means nothing: their result is constant, ignores an input, or cannot be distinguished from a made-up answer."
    return el(
        "section",
        el("h2", "Flagged tasks"),
        el("p", said),
        table(headers("Task", "Why"), lines, "Flagged tasks"),
    )


def _cost(summary: Summary) -> Markup:
    spent, reached = summary["cost"], summary["roofline"]
    rows: list[tuple[Child, Child]] = [
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
    return el("section", el("h2", "What it cost"), facts(rows))


def _reproduce(manifest: Mapping[str, Any]) -> Markup:
    parts = [
        el("h3", "Command"),
        el("pre", el("code", str(manifest.get("argv", ""))), **region("Command line")),
    ]
    if manifest.get("config"):
        parts.append(folded("All settings", json.dumps(manifest["config"], indent=2)))
    return el("section", el("h2", "Reproduce"), parts)
