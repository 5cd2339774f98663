"""The winner of a finished `dvk optimize` run: its drop-in, the verdict that proved it, the task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvk.errors import UsageError
from dvk.records import Candidate, Interval, Task, Timing, Turn, Verdict
from dvk.run_places import MANIFEST, read_manifest

BEST = "best.py"


@dataclass(frozen=True)
class ProvenRun:
    """What an export is made of."""

    source: str
    """Text of best.py."""
    candidate: Candidate
    verdict: Verdict
    """Of the claim tier; its claim holds."""
    tasks: tuple[Task, ...]
    """One for each set of inputs, the first one's first."""
    manifest: dict[str, Any]

    @property
    def task(self) -> Task:
        """The task of the first set of inputs."""
        return self.tasks[0]

    @property
    def timing(self) -> Timing:
        """The claim's times."""
        assert self.verdict.timing is not None
        return self.verdict.timing

    @property
    def speedup(self) -> Interval:
        """The claimed speedup over eager PyTorch."""
        claim = self.timing.claim
        return claim.speedup if claim is not None else self.timing.speedup

    @property
    def verdict_text(self) -> str:
        """The verdict as JSON, as exports keep it in `verdict.json`."""
        return self.verdict.model_dump_json(indent=2) + "\n"

    @property
    def digest(self) -> str:
        """SHA-256 of `verdict_text`."""
        return hashlib.sha256(self.verdict_text.encode()).hexdigest()


def read(folder: Path) -> ProvenRun:
    """Read a run's winner.

    Raises:
        UsageError: the folder is no finished run of `dvk optimize`, it proved nothing faster, or best.py was edited since.
        RunFolderError: the folder is damaged.
    """
    manifest = read_manifest(folder) if folder.is_dir() else None
    if manifest is None:
        raise UsageError(
            f"no run: `{folder}` has no {MANIFEST}",
            "name the run folder of a `dvk optimize`, as its last lines print it",
        )
    if manifest["command"] not in ("optimize", "workspace"):
        raise UsageError(
            f"`{folder}` is a run of `dvk {manifest['command']}`",
            "only runs of `dvk optimize` and `dvk workspace collect` have a drop-in to export",
        )
    if not (folder / BEST).is_file():
        raise UsageError(
            f"`{folder}` has no proven winner: there is no {BEST}",
            f"search longer: dvk optimize … --out {folder} --resume --budget-s 600",
        )
    source = (folder / BEST).read_text(encoding="utf-8")
    tasks = tuple(map(Task.model_validate, _rows(folder / "task.jsonl")))
    if not tasks:
        raise UsageError(f"`{folder}` has no task.jsonl", "search again in another --out")
    candidate, verdict = _claim(folder, source)
    return ProvenRun(source, candidate, verdict, tasks, manifest)


def _claim(folder: Path, source: str) -> tuple[Candidate, Verdict]:
    """The candidate and the last claim that holds for exactly this text."""
    for path in (folder / "turns.jsonl", *sorted(folder.glob("*/turns.jsonl"))):
        turns = [
            turn
            for turn in map(Turn.model_validate, _rows(path))
            if turn.candidate is not None and turn.candidate.source == source
        ]
        for turn in reversed(turns):
            assert turn.candidate is not None
            if turn.verdict is not None and turn.verdict.tier == "claim":
                if turn.verdict.faster and turn.verdict.timing is not None:
                    return turn.candidate, turn.verdict
                break
    raise UsageError(
        f"`{folder / BEST}` is not what the run proved",
        "it was edited, or its verdict is lost: search again, or prove it with `dvk verify --tier claim`",
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Records of a file of the run."""
    for line in path.read_bytes().split(b"\n")[:-1] if path.is_file() else ():
        try:
            yield json.loads(line)
        except ValueError:
            raise UsageError(
                f"damaged record in `{path}`", "search again in another --out"
            ) from None
