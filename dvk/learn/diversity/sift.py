"""The sift stage: tests of every row by itself, before rows are compared.

    kept.jsonl       the kept lines, unchanged
    rejected.jsonl   {"id", "reason", "detail", "example"} a line
    report.json      counts by reason and kind, and the key of the inputs; written last

Is it good enough (`filter`), near the best known for its task, and no suite's task (`contamination`)? For examples that were
never executed, `vouch` answers from executed examples like them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dvk.config import Config
from dvk.learn.diversity import filter, stream
from dvk.learn.diversity.contamination import Suites, source_of
from dvk.learn.diversity.filter import NEAR_BEST
from dvk.learn.examples import Example, files
from dvk.learn.sources import OnDisk, parsed
from dvk.learn.spread import spread

VERSION = 1
"""Raise this number when the stage decides otherwise on equal input."""
BATCH = 1024
"""Rows sent to a process at a time."""
Fate = tuple[str, str] | None
Vouch = Callable[[Example], Fate | Literal[False]]
"""Fate of a row that was never executed itself: None if a like row was executed and right, False if nothing is known."""


def sift(
    examples_paths: Sequence[Path],
    out_folder: Path,
    config: Config,
    suites: Suites,
    *,
    vouch: Vouch | None = None,
    source: Callable[[Example], str | None] = source_of,
    depends: str = "",
    workers: int = 1,
) -> dict[str, Any]:
    """Filter files of examples into a folder; finished results for equal input and settings are reused.

    Args:
        examples_paths: files, or folders of them.
        suites: evaluation suites to keep out.
        vouch: see `Vouch`.
        source: the reference module that an example is about, if known.
        depends: a hash of all that `vouch` and `suites` depend on.
        workers: processes; with more than one, `vouch` and `source` must be picklable.

    Returns:
        the report, as in `report.json`.

    Raises:
        UsageError: no examples, or a line that is not one.
    """
    paths = [path for one in examples_paths for path in files(one)]
    key = stream.key_of(paths, config, None, f"sift {VERSION} {depends}")
    if (finished := stream.finished(out_folder, key)) is not None:
        return finished
    given = OnDisk(paths)
    best: dict[tuple[str, str], float] = {}
    for example in given.having("speedup"):
        if example.speedup is not None and example.kind in filter.PLAYS:
            at = (example.task.id, example.backend)
            best[at] = max(best.get(at, 0.0), example.speedup)
    fates: list[Fate] = []
    counts: dict[str, Counter[str]] = {}
    for found in spread(_Sifting(suites, vouch, source, best), given.batches(BATCH), workers):
        for kind, fate in found:
            fates.append(fate)
            counts.setdefault(kind, Counter())[fate[0] if fate else "kept"] += 1
    out_folder.mkdir(parents=True, exist_ok=True)
    written = stream.divided(given.raw(), fates, out_folder)
    reasons = Counter(fate[0] for fate in fates if fate is not None)
    report = {
        "version": VERSION,
        "num_rows": len(fates),
        "num_kept": len(fates) - sum(reasons.values()),
        "reasons": dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        "by_kind": {kind: dict(sorted(found.items())) for kind, found in sorted(counts.items())},
        "suite_files": len(suites.names),
        "suite_signatures": suites.num_signatures,
        "key": key,
        "bytes": written,
    }
    stream.write_lines(
        out_folder / "report.json", [json.dumps(report, indent=1, ensure_ascii=False).encode()]
    )
    return report


@dataclass(frozen=True)
class _Sifting:
    """Work on every row."""

    suites: Suites
    vouch: Vouch | None
    source: Callable[[Example], str | None]
    best: dict[tuple[str, str], float]
    """(task, back end) → the best speedup known."""

    def __call__(self, batch: Sequence[Any]) -> list[tuple[str, Fate]]:
        return [(example.kind, self.fate(example)) for example in parsed(batch)]

    def fate(self, example: Example) -> Fate:
        known = self.vouch(example) if self.vouch is not None and not example.verified else False
        if isinstance(known, tuple):
            return known
        # A row that only a like row vouches for has no measurement, and needs none.
        if (fate := filter.reason(example, vouched=known is None)) is not None:
            return fate
        top = self.best.get((example.task.id, example.backend), 0.0)
        if (
            example.kind == "policy"
            and example.speedup is not None
            and example.speedup < NEAR_BEST * top
        ):
            return "below_best", f"{example.speedup:.3g}× where {top:.3g}× is known"
        if self.suites.empty:
            return None
        match = self.suites.match(self.source(example), example.signature)
        return ("contaminated", match) if match is not None else None
