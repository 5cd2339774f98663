"""`dvk sft choose`: from a table of measured plans to a model that chooses plans, with figures.

    table → questions and known answers → start (the composer's own plan) → weighted fit → expected reward → a checkpoint each

Tasks of `heldout` are never learned: their tables are the oracle that says how fast a chosen plan is. A choice is among the plans that
the table holds, so nothing is unknown. `unaided` is the choice from the composer's own list, as the model is played where there is no
table; plans of that list that the table does not hold are counted as unknown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvk import machine
from dvk.backbone.hf import HfBackbone
from dvk.config import Config
from dvk.errors import UsageError
from dvk.pipelines.sft.choice_course import STAGES, Course, known_plans
from dvk.pipelines.sft.fit import FRESH, trainable
from dvk.pipelines.wording import all_worded
from dvk.records.measured import MeasuredTask, read_table
from dvk.runs import RunFolder

ROWS = "figures.jsonl"


@dataclass(frozen=True, kw_only=True)
class ChooseRequest:
    """The command line's request."""

    tables: tuple[Path, ...]
    heldout: tuple[Path, ...] = ()
    start: str = "nano"
    backend: str | None = None
    out: Path | None = None
    resume: bool = False
    argv: tuple[str, ...] = ()


def choose(request: ChooseRequest, config: Config) -> dict[str, Any]:
    """Run the stages; returns the figures of each on the held-out tasks.

    Raises:
        UsageError: the tables hold nothing to learn from.
    """
    with RunFolder.open(
        request.out,
        command="sft",
        name="choose",
        argv=request.argv,
        config=config,
        resume=request.resume,
    ) as run:
        if run.answered(request, config):
            return dict(run.read("summary.jsonl")[-1])
        rows, held = of_tables(request)
        say = f"{len(rows)} tasks to learn from, {len(held)} held out; a line at the end of each of {len(STAGES)} stages"
        print(say, file=sys.stderr, flush=True)
        backbone = model(run, rows, request.start, config)
        course = Course(run, backbone, rows, held, config)
        told: dict[str, Any] = {"run": str(run.path), "tasks": len(rows), "heldout": len(held)}
        done = {row["stage"]: row for row in run.read(ROWS)}
        for stage in STAGES:
            if stage in done:
                checkpoint = model(run, rows, f"nano:{done[stage]['checkpoint']}", config)
                course.resumed(stage, checkpoint, done[stage])
            else:
                done[stage] = course.play(stage)
                run.append(ROWS, {"stage": stage, **done[stage]})
            told[stage] = done[stage]
        run.append("summary.jsonl", told)
        run.finish("done")
    return told


def of_tables(request: ChooseRequest) -> tuple[list[MeasuredTask], list[MeasuredTask]]:
    """The tasks to learn, and those held out.

    Raises:
        UsageError: there is nothing to learn.
    """
    held = _usable(request.heldout, request.backend)
    never = {row.task.id for row in held}
    usable = _usable(request.tables, request.backend)
    rows = [
        row for row in usable if row.task.id not in never and row.groups.get("suite") != "heldout"
    ]
    if not rows:
        of = f" of {request.backend}" if request.backend is not None else ""
        why = (
            f"all {len(usable)} tasks are held out"
            if usable
            else f"no task{of} has a default plan and another one with verdicts"
        )
        raise UsageError(
            f"the tables hold no task to learn from: {why}",
            "measure some of the generator's: `dvk measure --generated 100`",
        )
    return rows, held


def _usable(paths: Sequence[Path], backend: str | None) -> list[MeasuredTask]:
    rows = [row for path in paths for row in read_table(path)]
    rows = [row for row in rows if backend in (None, row.backend)]
    asked = all(row.question for row in rows)
    worded = rows if asked else all_worded(rows, machine.num_cores())
    return [row for row in worded if row.question and len(known_plans(row)) > 1 and row.default]


def model(run: RunFolder, rows: Sequence[MeasuredTask], start: str, config: Config) -> HfBackbone:
    """The model to begin with, in the dialect of plans; `nano-from-zero` gets a tokenizer for these texts."""
    if start == FRESH:
        from dvk.backbone import nano

        base = run.path / "fit" / "base"
        if not base.exists():
            words = [text for row in rows for text in (row.question, *(p.text for p in row.plans))]
            provenance = {"made_by": "dvk sft choose"}
            nano.make(
                base,
                words,
                size=config.fit.size,
                positions=config.learning.pack_tokens,
                seed=config.seed,
                dialect="plan",
                provenance=provenance,
            )
        start = f"nano:{base}"
    backbone = trainable(start, config.model_copy(deep=True))
    if not isinstance(backbone, HfBackbone):
        raise UsageError(f"`{start}` has no local weights", "start from nano or hf:PATH")
    backbone.dialect = "plan"
    backbone.card = {**backbone.card, "dialect": "plan"}
    backbone.model.float()
    return backbone


def table_lines(told: dict[str, Any]) -> Iterator[str]:
    """The figures as a table for people."""
    yield "| stage | tasks | right | fast_1 | fast_1.2 | fast_1.5 | fast_2 | geometric mean | closed | unknown |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for stage in STAGES:
        for kind in ("training", "heldout", "unaided"):
            if stage in told and kind in told[stage]:
                found = told[stage][kind]
                if not found["fast"]:
                    yield f"| {stage}, {kind} | {found['tasks']} | {'- | ' * 7}{found['unknown']} |"
                    continue
                fast = " | ".join(f"{found['fast'][p]:.1%}" for p in ("1", "1.2", "1.5", "2"))
                lo, hi = found["closed_interval"]
                yield (
                    f"| {stage}, {kind} | {found['tasks']} | {found['right']:.1%} | {fast} | {found['geomean']:.3f} "
                    f"| {found['closed']:.0%} [{lo:.0%}, {hi:.0%}] | {found['unknown']} |"
                )
