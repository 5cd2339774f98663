"""From records to the report's content: every number and sentence, no layout.

The page and the Markdown both read a `ReportData`; neither looks at the summary. Missing numbers stay
missing, and a search that found nothing says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dvk import speedups
from dvk.composer.dropin import replacing
from dvk.graph_costs import Operator, least_bytes, operators
from dvk.pipelines.report import measurement, spending
from dvk.pipelines.report.attempts import ReportAttempt, fastest, gather
from dvk.pipelines.report.code import without_original
from dvk.pipelines.report.units import many, show_bytes, show_ms, show_s, show_share
from dvk.records import Episode, Graph, Interval, Skill, Task, show_ratio
from dvk.search.repeats import program

ENDED = {
    "no_speedup": "Nothing faster was found",
    "too_noisy": "Too noisy to tell whether anything is faster",
    "no_verdict": "The search ended before its first verdict",
}
"""Headlines of searches that found nothing, by their status; others failed."""

BLOCKS = ("block", "eager time", "share", "operators", "became", "moves")
"""Columns of the table of blocks."""


@dataclass(frozen=True)
class TimedVersion:
    """One version in the table of times."""

    label: str
    ms: float | None
    ratio: Interval | None
    """How much faster our candidate is than this version; None for the candidate itself or when unknown."""
    ours: bool = False


@dataclass(frozen=True)
class Set:
    """One row: a set of inputs, and the version of it in best.py."""

    inputs: str
    eager_ms: float | None
    ms: float | None
    """Speedup of best.py; None if it runs the original."""
    over: dict[str, Interval | None]
    """Speedups, by `eager` and further baselines."""
    note: str
    """Why the original is run, or the set whose kernels these are; empty otherwise."""


@dataclass(frozen=True)
class ReportData:
    """The report's content, in reading order."""

    task: Task
    status: str
    """See `ENDED`; `faster` besides."""
    headline: str
    numbers: list[str]
    """The intervals beneath the headline."""
    lead: list[str]
    """Sentences."""
    arms: list[TimedVersion]
    ways: list[Mapping[str, Any]]
    """A row for each line of PyTorch and for the best own kernels, see `optimize.portfolio`."""
    measured: list[tuple[str, str]]
    """The measurement's description: (aspect, text)."""

    operators: list[Operator]
    traffic: str
    """Sum of the operators' bytes."""
    listing: str
    profile: list[Mapping[str, Any]]
    blocks: list[list[str]]
    """A row for each kind of block of a network, under `BLOCKS`."""

    attempts: list[ReportAttempt]
    tally: str
    """Counts by status."""
    elsewhere: dict[str, list[ReportAttempt]]
    """Attempts at other sets of inputs, by set."""
    sets: list[Set]
    """Result of each set of inputs; empty if there is only one."""

    winner: ReportAttempt | None
    why: list[str]
    """Sentences."""
    skills: list[tuple[str, str]]
    """(name, description) of the winner's skills."""
    groups: list[str]
    """The fusions, a line a kernel."""
    proposers: list[spending.Proposer]
    cost: list[tuple[str, str]]
    """(what, how much); empty when it was not recorded."""

    compile_speedup: float | None
    """torch.compile over eager."""
    generated: str | None
    """best.py without the copy of the original; None when there is no best.py."""
    usage: str
    """Python that uses best.py."""
    command_line: str
    manifest: dict[str, Any]
    """run.json, or empty."""

    def ratios(self, arm: TimedVersion) -> list[str]:
        """The last cell of an arm's row in the table of times: for ours, how much faster it is than each other."""
        return [
            f"{speedups.shown(other.ratio)} over {other.label}"
            for other in self.arms
            if arm.ours and other.ratio
        ]

    @property
    def several(self) -> bool:
        """Whether there are several proposers, so that each attempt names its own."""
        return len(self.proposers) > 1


def timed(story: ReportData) -> bool:
    """Whether the reference's time was measured by operator."""
    return bool(story.profile) or any(row[1].strip("–- ") for row in story.blocks)


def gather_story(
    episode: Episode,
    summary: Mapping[str, Any],
    *,
    best_source: str | None,
    graph: Graph | None,
    skills: Mapping[str, Skill],
    command_line: str,
    machine: str,
    manifest: dict[str, Any],
    others: Mapping[str, Episode],
) -> ReportData:
    """Gather the report's content; arguments as in `report.write`, `manifest` is run.json or empty."""
    task, attempts = episode.task, gather(episode)
    elsewhere = {name: gather(other) for name, other in others.items()}
    status = str(summary.get("status", "failed"))
    winner = None
    if status == "faster":
        winner = fastest([a for a in attempts if a.source == best_source]) or fastest(attempts)
    shown = winner or fastest(attempts)
    arms = _arms(summary, shown, "best.py" if winner else "the closest candidate")
    listed = operators(graph) if graph else []
    groups = [str(group) for group in summary.get("groups") or []]
    return ReportData(
        task=task,
        status=status,
        headline=_headline(status, summary),
        numbers=_numbers(summary, arms) if status == "faster" else [],
        lead=_lead(
            status,
            summary,
            [*attempts, *(one for found in elsewhere.values() for one in found)],
            shown,
        ),
        arms=arms,
        measured=measurement.facts(
            task, shown, machine or str(manifest.get("machine") or ""), summary
        ),
        ways=list(summary.get("portfolio") or []),
        operators=listed,
        traffic=_traffic(listed, graph) if graph else "",
        listing=graph.listing() if graph else "",
        profile=list(summary.get("profile") or []),
        blocks=[_block(row) for row in summary.get("blocks") or []],
        attempts=attempts,
        tally=_tally(attempts),
        elsewhere=elsewhere,
        sets=_sets(summary),
        winner=winner,
        why=_why(winner, attempts, listed, groups),
        skills=_skills(winner, summary, skills),
        groups=groups,
        proposers=spending.proposers(summary),
        cost=spending.cost(summary),
        compile_speedup=_compile_speedup(summary),
        generated=None if best_source is None else without_original(best_source, task.source)[0],
        usage=replacing.used(task, best_source)[1] if best_source is not None else "",
        command_line=command_line or str(manifest.get("argv") or ""),
        manifest=manifest,
    )


def _skills(
    winner: ReportAttempt | None, summary: Mapping[str, Any], skills: Mapping[str, Skill]
) -> list[tuple[str, str]]:
    """Name and description of the skills behind the winner."""
    named = winner.candidate.skills if winner and winner.candidate else ()
    return [
        (name, skills[name].description if name in skills else "no longer in the library")
        for name in named
        if name in summary.get("skills", named)
    ]


# ---------------------------------------------------------------- headline


def _headline(status: str, summary: Mapping[str, Any]) -> str:
    if status == "faster" and summary.get("speedup") is not None:
        rows = summary.get("shapes") or []
        whom = (
            f", with {next(row['inputs'] for row in rows if row['status'] == 'faster')}"
            if len(rows) > 1
            else ""
        )
        step = " in forward and backward together" if summary.get("train") else ""
        speedup = speedups.interval(summary, "speedup_")
        return f"{speedups.headline(speedup) if speedup else show_ratio(summary['speedup'])} faster than eager PyTorch{step}{whom}"
    return ENDED.get(status, "The search failed")


def _numbers(summary: Mapping[str, Any], arms: list[TimedVersion]) -> list[str]:
    interval = speedups.interval(summary, "speedup_")
    compiled = next((arm.ratio for arm in arms if arm.label == "torch.compile"), None)
    told = [f"95 % interval [{str(interval).split('[')[1]}"] if interval else []
    if interval and speedups.is_wide(interval):
        told[0] += (
            f", wider than a factor of {speedups.WIDE:g}, so that its lower end is the headline"
        )
    return told + ([f"{speedups.shown(compiled)} over torch.compile"] if compiled else [])


def _lead(
    status: str,
    summary: Mapping[str, Any],
    attempts: list[ReportAttempt],
    shown: ReportAttempt | None,
) -> list[str]:
    count = summary.get("num_candidates")
    count = len({program(attempt.source) for attempt in attempts}) if count is None else count
    right = len({program(attempt.source) for attempt in attempts if attempt.ok})
    spent = f" in {show_s(summary['seconds'])}" if summary.get("seconds") is not None else ""
    tried = f"{many(count, 'candidate')} {'was' if count == 1 else 'were'} judged{spent}"
    tried += f"; {right} agreed with the reference everywhere." if count else "."
    reason = [str(summary["reason"])] if summary.get("reason") else []
    reason += map(
        _sentence,
        [
            *spending.ended(summary),
            *summary.get("warnings", ()),
            *(summary[key] for key in ("noise", "hint") if summary.get(key)),
        ],
    )
    if status == "faster":
        return [*reason, *spending.credit(summary), tried]
    if status not in ("no_speedup", "too_noisy"):
        return [*(reason or ["No reason was recorded."]), tried, *spending.proposer_lines(summary)]
    if shown and shown.speedup:
        tried += f" The closest ran at {speedups.shown(shown.speedup)} of eager’s speed; “faster” means a whole interval above 1."
    kept = (
        [
            f"The best candidate is kept in {summary['unproven']}: correct where it was checked, its speedup unproven."
        ]
        if summary.get("unproven")
        else []
    )
    return [
        *reason,
        tried,
        *spending.proposer_lines(summary),
        *kept,
        "The original file was left as it is.",
    ]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _arms(
    summary: Mapping[str, Any], shown: ReportAttempt | None, label: str
) -> list[TimedVersion]:
    arms = []
    for key, name in (("eager", "eager PyTorch"), ("compile", "torch.compile")):
        entry = (summary.get("baselines") or {}).get(key)
        if entry:
            arms.append(TimedVersion(name, entry.get("ms"), speedups.interval(entry)))
    if arms and shown and shown.verdict.timing:
        arms.append(TimedVersion(label, shown.verdict.timing.candidate_ms, None, ours=True))
    return arms


def _sets(summary: Mapping[str, Any]) -> list[Set]:
    rows = summary.get("shapes") or []
    return [_set(row) for row in rows] if len(rows) > 1 else []


def _set(row: Mapping[str, Any]) -> Set:
    baselines = {name: entry for name, entry in row["baselines"].items() if entry}
    eager_ms = baselines["eager"]["ms"] if "eager" in baselines else None
    if row["status"] != "faster":
        return Set(row["inputs"], eager_ms, None, {}, f"the original: {row['reason']}")
    same = row["same_kernels_as"]
    return Set(
        row["inputs"],
        eager_ms,
        row["ms"],
        {name: speedups.interval(entry) for name, entry in baselines.items()},
        f"the kernels of {same}" if same else "",
    )


def _compile_speedup(summary: Mapping[str, Any]) -> float | None:
    baselines = summary.get("baselines") or {}
    eager, compiled = ((baselines.get(name) or {}).get("ms") for name in ("eager", "compile"))
    return eager / compiled if eager and compiled else None


# ---------------------------------------------------------------- body


def _traffic(listed: list[Operator], graph: Graph) -> str:
    moved = [operator.moved_bytes for operator in listed]
    working, least = sum(count != 0 for count in moved), least_bytes(graph)
    verbs = "reads and writes" if working == 1 else "read and write"
    told = f"The reference runs {many(working, 'operator')} that {verbs} memory."
    if None in moved or not working or least is None:
        return told
    total = sum(count for count in moved if count is not None)
    return (
        f"{told} One by one they move at least {show_bytes(total)}; to read every input and weight once and write "
        f"every output once takes {show_bytes(least)}."
    )


def _block(row: Mapping[str, Any]) -> list[str]:
    name = f"{row['name']} and {row['count'] - 1} alike" if row["count"] > 1 else str(row["name"])
    became = "" if row["kernels"] is None else many(row["kernels"], "kernel")
    if row["calls"]:
        became += (", " if became else "") + many(row["calls"], "call") + " of PyTorch"
    sizes = [
        "unknown" if row[key] is None else show_bytes(row[key]) for key in ("bytes", "bytes_after")
    ]
    moves = sizes[0] if row["kernels"] is None else " → ".join(sizes)
    return [
        name,
        show_ms(row["ms"]),
        show_share(row["share"]),
        str(row["operators"]),
        became,
        moves,
    ]


def _tally(attempts: list[ReportAttempt]) -> str:
    counts: dict[str, int] = {}
    for attempt in attempts:
        counts[attempt.outcome] = counts.get(attempt.outcome, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return f"Every verdict in time order: {', '.join(f'{count} {outcome}' for outcome, count in ordered)}."


def _why(
    winner: ReportAttempt | None,
    attempts: list[ReportAttempt],
    listed: list[Operator],
    groups: list[str],
) -> list[str]:
    if winner is None:
        return []
    told = []
    working = sum(operator.moved_bytes != 0 for operator in listed)
    if groups and working:
        told.append(f"{many(working, 'operator')} became {many(len(groups), 'step')}.")
    others = [
        a
        for a in attempts
        if a.speedup and not a.confirmation and program(a.source) != program(winner.source)
    ]
    if others:
        second = max(others, key=lambda attempt: attempt.value)
        told.append(
            f"The runner-up, “{second.title}”, reached {speedups.shown(second.speedup) if second.speedup else 'nothing'}."
        )
    return told
