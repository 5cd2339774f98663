"""The filter's report: counts and effective numbers before and after, as a dict for programs and Markdown for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

from dvk.learn.diversity.balance import effective_number
from dvk.learn.diversity.rows import ExampleRow

FACETS = ("kind", "level", "backend", "origin", "family", "operator", "skill", "task")
"""Attributes that are counted; `task` gives only the number of values."""
_SHOWN = 12
"""Values of a facet in the Markdown tables; the dict has all."""


def coverage(rows: Sequence[ExampleRow]) -> dict[str, Any]:
    """Rows by value of each facet, and their effective number of values."""
    counts: dict[str, Counter[str]] = {
        facet: Counter(map(attrgetter(facet), rows)) for facet in (*FACETS[:5], "task")
    }
    counts["operator"] = Counter(chain.from_iterable(row.operators for row in rows))
    counts["skill"] = Counter(chain.from_iterable(row.skills for row in rows))
    counts = {facet: counts[facet] for facet in FACETS}
    listed = {
        facet: sorted(found.items(), key=lambda item: (-item[1], item[0]))
        for facet, found in counts.items()
    }
    return {
        "num_rows": len(rows),
        "counts": {facet: dict(found) for facet, found in listed.items() if facet != "task"},
        "values": {facet: len(found) for facet, found in counts.items()},
        "effective": {
            facet: round(effective_number(found.values()), 3) for facet, found in counts.items()
        },
        "speedup": _quantiles([row.speedup for row in rows if row.speedup is not None]),
    }


def sizes(clusters: Sequence[int]) -> dict[str, Any]:
    """Number and sizes of clusters, and their effective number."""
    counts = sorted(Counter(clusters).values(), reverse=True)
    return {
        "num_clusters": len(counts),
        "effective": round(effective_number(counts), 3),
        "largest": counts[:10],
        "quantiles": _quantiles(counts),
    }


def markdown(report: dict[str, Any]) -> str:
    """The report as a page."""
    lines = [
        "# Diversity filter",
        "",
        f"{report['num_kept']:,} of {report['num_rows']:,} examples kept, method `{report['settings']['method']}`, seed {report['seed']}.",
        "",
        "## Why the others were not",
        "",
        *_table(
            ["reason", "rows"],
            [[f"`{reason}`", f"{count:,}"] for reason, count in report["reasons"].items()],
        ),
        "",
        *_coverage(report["before"], report["after"]),
        *_clusters(report["clusters"], report["shares"]),
    ]
    return "\n".join(lines)


def _coverage(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Values of each facet, and the most frequent ones of some."""
    counts = [
        [
            facet,
            *(f"{side['values'][facet]:,}" for side in (before, after)),
            *(f"{side['effective'][facet]:.1f}" for side in (before, after)),
        ]
        for facet in FACETS
    ]
    heads = ["facet", "values before", "after", "effective before", "after"]
    lines = [
        "## Coverage",
        "",
        "An effective number is exp(entropy): how many equally frequent values would be as diverse.",
        "",
        *_table(heads, counts),
    ]
    for facet in ("kind", "level", "operator", "skill"):
        first, then = before["counts"][facet], after["counts"][facet]
        rows = [
            [_cell(value), f"{count:,}", f"{then.get(value, 0):,}"]
            for value, count in list(first.items())[:_SHOWN]
        ]
        if rows:
            lines += ["", f"### By {facet}", "", *_table([facet, "before", "after"], rows)]
        if len(first) > _SHOWN:
            lines += ["", f"… and {len(first) - _SHOWN} more."]
    return lines


def _clusters(cut: dict[str, Any], shares: dict[str, float]) -> list[str]:
    rows = [
        [
            when,
            f"{cut[when]['num_clusters']:,}",
            f"{cut[when]['effective']:.1f}",
            ", ".join(map(str, cut[when]["largest"][:5])),
        ]
        for when in ("before", "after")
    ]
    return [
        "",
        "## Clusters",
        "",
        *_table(["", "clusters", "effective", "largest"], rows),
        "",
        f"At most {cut['cap']:,} rows of a cluster. Largest share of one skill {shares['skill']:.0%}, of one operator "
        f"{shares['operator']:.0%}.",
        "",
    ]


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [
        _row(head),
        _row(["---"] * len(head)),
        *map(_row, rows or [["none"] + [""] * (len(head) - 1)]),
    ]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _quantiles(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    ordered = sorted(values)
    return {
        name: ordered[min(int(share * len(ordered)), len(ordered) - 1)]
        for name, share in (
            ("min", 0.0),
            ("p25", 0.25),
            ("median", 0.5),
            ("p75", 0.75),
            ("max", 1.0),
        )
    }
