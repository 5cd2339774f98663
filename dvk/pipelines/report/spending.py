"""Each proposer's results, and the search's cost: from the summary's `proposers` and `cost`, as text and rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dvk.pipelines.report.units import many, show_ms, show_s
from dvk.records import show_ratio
from dvk.speedups import interval, shown


@dataclass(frozen=True)
class Proposer:
    """One row: a proposer's candidates in the search."""

    name: str
    candidates: str
    correct: str
    best: str
    """Highest speedup measured in the search; a dash if nothing was timed."""
    judged: str
    """Time the judge spent on them."""
    won: bool
    """Whether it found the winner."""


def proposers(summary: Mapping[str, Any]) -> list[Proposer]:
    """The rows, in the order of the summary."""
    winner = summary.get("proposer") if summary.get("status") == "faster" else None
    return [
        Proposer(
            str(row["name"]),
            f"{row['candidates']:,}",
            f"{row['correct']:,}",
            show_ratio(row["best"]) if row.get("best") else "–",
            show_s(row.get("judge_s") or 0.0),
            row["name"] == winner,
        )
        for row in summary.get("proposers") or []
    ]


def cost(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(item, amount) pairs; empty if the summary has none."""
    spent = summary.get("cost") or {}
    rows = []
    if spent.get("judge_s") is not None:
        confirmed = (
            f", and {show_s(spent['confirm_s'])} to confirm the best"
            if spent.get("confirm_s")
            else ""
        )
        rows.append(
            ("Judging", f"{show_s(spent['judge_s'])} to compile, check and time{confirmed}")
        )
    if spent.get("model_s") is not None:
        malformed = f", {spent['malformed']:,} of them malformed" if spent.get("malformed") else ""
        answers = f"{many(spent['answers'], 'answer')}{malformed}"
        rows.append(
            ("Model", f"{summary.get('backbone')}: {answers}, in {show_s(spent['model_s'])}")
        )
        rows.append(
            ("Tokens", f"{spent['prompt_tokens']:,} read, {spent['completion_tokens']:,} written")
        )
        price = (
            f"{spent['usd']:.4f} US dollars"
            if spent.get("usd") is not None
            else "no price is known"
        )
        rows.append(("Price", price))
    return rows


def credit(summary: Mapping[str, Any]) -> list[str]:
    """The winner's proposer, if more than one proposed or a model was asked."""
    others = [
        row["name"]
        for row in summary.get("proposers") or []
        if row["name"] != summary.get("proposer")
    ]
    if (
        summary.get("status") != "faster"
        or not summary.get("proposer")
        or not (others or summary.get("backbone"))
    ):
        return []
    beside = f"; {' and '.join(map(str, others))} proposed as well" if others else ""
    return [f"{summary['proposer']} found it{beside}."]


def proposer_lines(summary: Mapping[str, Any]) -> list[str]:
    """Each proposer's results, a line each: its verdicts, its fastest candidate, why candidates were refused."""
    told = []
    for row in summary.get("arms") or []:
        counts = ", ".join(
            f"{count} {status.replace('_', ' ')}" for status, count in row["verdicts"].items()
        )
        line = f"{row['name']}: {many(sum(row['verdicts'].values()), 'candidate')} ({counts})"
        if (best := interval(row)) is not None:
            line += f"; the fastest, {row['title'] or 'without a title'}, measured {shown(best)}"
        told.append(
            line + (f"; refused most often for {row['refused'][:200]}" if row["refused"] else "")
        )
    return told


def ended(summary: Mapping[str, Any]) -> list[str]:
    """Why the search ended before its budget, unless the reason of the result or a warning says so."""
    why = summary.get("ended")
    said = (summary.get("reason") or "", *summary.get("warnings", ()))
    return [f"ended early: {why}"] if why and not any(why in one for one in said) else []


WAYS = ("way", "median call", "over eager", "")
"""Heads of the table of PyTorch's own lines next to the best of dvk's kernels."""


REGIMES = {"device": "the GPU's time alone", "end_to_end": "from end to end"}
"""How a way was timed; figures of two regimes do not compare."""


def way_cells(row: Mapping[str, Any]) -> list[str]:
    """The cells of one way, of `optimize.portfolio`: a note says why it was not timed."""
    if row["name"] == "eager":
        return [str(row["name"]), show_ms(row["ms"]), "", ""]
    note = row.get("title") or row.get("reason") or REGIMES.get(row.get("regime") or "", "")
    if row["status"] not in ("ok", "left_out"):
        note = f"{row['status'].replace('_', ' ')}: {note}"
    return [str(row["name"]), show_ms(row["ms"]), shown(interval(row)), str(note)]
