"""The second stage: keeps only right and fast examples of tasks in no evaluation suite.

    collect/ → filter/kept.jsonl, rejected.jsonl (every row with its reason), report.json

The composer's texts are right if their family passed the gate; all others if they were executed themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from dvk.config import Config
from dvk.learn import diversity
from dvk.learn.diversity.contamination import CONTAMINATED, CONTAMINATED_OPERATORS, files, source_of
from dvk.learn.diversity.sift import Fate
from dvk.learn.examples import Example
from dvk.pipelines.sft.collect import DEVICES
from dvk.pipelines.sft.families import family_of
from dvk.pipelines.sft.gate import FAMILIES, admitted
from dvk.records import Task, content_hash
from dvk.runs import RunFolder

SIGNATURES = "filter/signatures.jsonl"


def filter_examples(
    run: RunFolder, paths: Sequence[Path], config: Config, workers: int
) -> dict[str, Any]:
    """Run the stage; returns counts by reason.

    Args:
        paths: the collected files.
        config: `diversity`; its `suites` are the folders to keep out.

    Raises:
        UsageError: a suite is missing, or the gate was not run.
    """
    settings = config.diversity
    signatures, unknown = suite_signatures(run, settings.suites, workers)
    suites = diversity.Suites(settings.suites, CONTAMINATED, signatures, CONTAMINATED_OPERATORS)
    rendered = (run.path / "collect" / "renderings").is_dir()
    families = admitted(run.path) if rendered and config.collect.executed else None
    depends = content_hash(
        json.dumps(sorted(map(list, signatures))),
        (run.path / FAMILIES).read_text() if families is not None else "off",
    )
    report = diversity.sift(
        paths,
        run.path / "filter",
        config,
        suites,
        vouch=Voucher(families) if rendered else None,
        source=reference,
        depends=depends,
        workers=workers,
    )
    told = {
        "rows": report["num_rows"],
        "kept": report["num_kept"],
        **{f"rejected_{k}": v for k, v in report["reasons"].items()},
    }
    if settings.suites:
        told |= {
            "suite_files": report["suite_files"],
            "suite_signatures": report["suite_signatures"],
            "suite_files_not_captured": unknown,
        }
    return told


@dataclass(frozen=True)
class Voucher:
    """The gate's result for a text that was not executed itself."""

    families: dict[str, str | None] | None
    """Why a family is left out, if it is; None: the gate was switched off, and all are admitted."""

    def __call__(self, example: Example) -> Fate | Literal[False]:
        if example.origin != "composer" or "family" not in example.quality:
            return False
        if self.families is None:
            return None
        about = {**example.__dict__, "task": example.task.__dict__}
        why = self.families.get(str(family_of(about)), "its family is not known to the gate")
        return None if why is None else ("family", why)


def reference(example: Example) -> str | None:
    """The reference module that an example is about: from the example, or generated again."""
    seed = example.quality.get("seed")
    if (
        example.task.source is None
        and isinstance(seed, int)
        and example.task.level is not None
        and example.backend
    ):
        return _generated(seed, example.task.level, DEVICES[example.backend])
    return source_of(example)


@lru_cache(maxsize=64)
def _generated(seed: int, level: str, profile: str) -> str | None:
    from dvk.taskgen import make

    made = make(seed, level, profile)  # type: ignore[arg-type]  # a level is what the generator wrote
    return made.source if made is not None else None


def suite_signatures(
    run: RunFolder, folders: Sequence[str], workers: int
) -> tuple[dict[tuple[str, ...], str], int]:
    """Operator sequence → a file that has it, and the number of files that could not be captured; captured once a run and file.

    Raises:
        UsageError: a folder is missing or holds no Python file.
    """
    from dvk.composer.capture.batch import CannotCompose, capture_many

    known = {row["file"]: row for row in run.read(SIGNATURES)}
    wanted = list(_files(folders))
    new = [(name, task) for name, task in wanted if name not in known]
    for index, captured in capture_many((task for _, task in new), num_workers=workers):
        name = new[index][0]
        signature = (
            None if isinstance(captured, CannotCompose) else list(captured.graph.signature())
        )
        run.append(SIGNATURES, {"file": name, "signature": signature})
        known[name] = {"signature": signature}
    rows = {name: known[name]["signature"] for name, _ in wanted}
    return {tuple(s): name.rpartition(" ")[0] for name, s in rows.items() if s is not None}, sum(
        s is None for s in rows.values()
    )


def _files(folders: Sequence[str]) -> Iterator[tuple[str, Task]]:
    """Name with a hash of the contents, and a task for capture, of every file that defines a `Model`."""
    for name, path, source in files(folders):
        if "class Model" in source:
            id_ = content_hash(source)
            yield (
                f"{name} {id_}",
                Task(
                    id=id_,
                    name=path.stem,
                    path=str(path),
                    source=source,
                    entry="Model",
                    kind="module",
                ),
            )
