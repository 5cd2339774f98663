"""`dvk sft`: collect → filter → diversify → fit, each alone or all in turn, in one run folder.

Every stage first reads the results of an earlier, perhaps killed, call, and resumes from there.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from dvk import machine
from dvk.backends import default_device
from dvk.config import Config
from dvk.distributed import ProcessGroup
from dvk.errors import UsageError
from dvk.interop.davinci import formats
from dvk.learn import diversity
from dvk.learn.sources import InMemory, OnDisk, Source
from dvk.pipelines import tracebacks
from dvk.pipelines.report.units import many
from dvk.pipelines.sft import from_table, selecting
from dvk.pipelines.sft.collect import renderings
from dvk.pipelines.sft.episodes import episodes
from dvk.pipelines.sft.filtering import filter_examples
from dvk.pipelines.sft.fit import FRESH, fit
from dvk.pipelines.sft.gate import admitted, gate
from dvk.pipelines.sft.quality import Quality
from dvk.pipelines.sft.taught import taught
from dvk.records import BackendName
from dvk.records.measured import is_table
from dvk.runs import RunFolder

STAGES = ("collect", "filter", "diversify", "fit")
BACKENDS: tuple[BackendName, ...] = ("triton", "cpp")


@dataclass(frozen=True, kw_only=True)
class SftRequest:
    """The command line's request."""

    stages: tuple[str, ...] = STAGES
    data: tuple[Path, ...] = ()
    """Further examples: files in dvk's own or a published format."""
    teacher: str | None = None
    """The language model that plays tasks; None: the composer teaches."""
    start: str = FRESH
    backends: tuple[BackendName, ...] = BACKENDS
    diverse: bool = True
    best_steps: bool = False
    """Fit only on examples that improved on a measured predecessor."""
    workers: int | None = None
    out: Path | None = None
    resume: bool = False
    argv: tuple[str, ...] = ()


def sft(request: SftRequest, config: Config) -> dict[str, Any]:
    """Run the requested stages; returns figures by stage. Several processes can fit together.

    Raises:
        DvkError: the user can fix it.
    """
    opening = {"command": "sft", "name": "sft", "argv": request.argv, "config": config}
    with (
        ProcessGroup.join(config.learning.barrier_timeout_s) as processes,
        processes.folder(request.out, resume=request.resume, **opening) as run,
    ):
        told: dict[str, Any] = {"run": str(run.path)}
        if run.answered(request, config):
            return dict(run.read("summary.jsonl")[-1])
        if processes.size > 1 and request.stages != ("fit",):
            raise UsageError(
                "several processes can only fit",
                "run the other stages alone first, then `torchrun -m dvk sft fit`",
            )
        if "collect" in request.stages:
            told["collect"] = collect(run, request, config)
        if "filter" in request.stages:
            told["filter"] = filter_examples(
                run, sources(run), config, request.workers or machine.num_cores()
            )
        if not {"filter", "collect"} & set(request.stages):
            refuse_ungated(run, config)
        if "diversify" in request.stages:
            workers = request.workers or machine.num_cores()
            told["diversify"] = (
                diversify(run, config, workers) if request.diverse else {"skipped": "asked not to"}
            )
        if "fit" in request.stages:
            source, what = (
                (best(examples(run)), f"best steps of {origin(run)}")
                if request.best_steps
                else (examples(run), origin(run))
            )
            with Quality(run, config, request.backends) as quality:
                told["fit"] = fit(
                    run,
                    source,
                    request.start,
                    config,
                    origin=what,
                    quality=quality,
                    processes=processes,
                )
        run.append("summary.jsonl", told)
        if "fit" in request.stages:
            run.finish("done")
    return told


def collect(run: RunFolder, request: SftRequest, config: Config) -> dict[str, Any]:
    """Convert given examples; without any, collect the teacher's: a language model's, or the composer's."""
    backend: BackendName
    if request.teacher is not None:
        backend = "triton" if default_device() == "cuda" else "cpp"
        workers, number = request.workers or machine.num_cores(), config.collect.num_played
        return dict(taught(run, config, request.teacher, number, backend, workers))
    if not request.data:
        workers = request.workers or machine.num_cores()
        # A back end that this machine can time.
        backend = "triton" if default_device() == "cuda" else "cpp"
        num_tasks, num_played = (
            config.collect.tasks,
            config.collect.num_played if backend in request.backends else 0,
        )
        print(
            f"writing texts for {many(num_tasks, 'task')}, then playing {many(num_played, 'other')}",
            file=sys.stderr,
            flush=True,
        )
        told = renderings(run, config, num_tasks, request.backends, workers)
        if num_played:
            told = {
                **told,
                **{
                    f"played_{k}": v
                    for k, v in episodes(run, config, num_played, backend, workers).items()
                },
            }
        if config.collect.executed:
            told = {**told, **{f"gate_{k}": v for k, v in gate(run, config, workers).items()}}
        if (line := tracebacks.stderr_line(run)) is not None:
            print(line, file=sys.stderr)
        return told
    folder = run.path / "collect" / "imported"
    folder.mkdir(parents=True, exist_ok=True)
    counts: dict[str, Any] = {}
    for number, path in enumerate(request.data):
        target = folder / f"{number:03d}_{path.stem}.jsonl"
        problems: list[Any] = []
        if not target.exists():
            from dvk.learn.examples import write

            given = (
                chain(from_table.examples(path, problems), selecting.examples(path, None, problems))
                if is_table(path)
                else formats.any_examples(path, problems)
            )
            counts[str(path)] = write(target, given)
            counts["unreadable"] = counts.get("unreadable", 0) + len(problems)
    return counts


def diversify(run: RunFolder, config: Config, workers: int) -> dict[str, Any]:
    """Balance the filter's output, or everything if it was not run; returns the report without its long tables."""
    kept = filtered(run)
    report = diversity.run(
        [kept] if kept is not None else sources(run),
        run.path / "diversify",
        config,
        sifted=kept is not None,
        workers=workers,
    )
    return {k: v for k, v in report.items() if not isinstance(v, (dict, list))}


def refuse_ungated(run: RunFolder, config: Config) -> None:
    """Renderings that never passed the gate are not trained on by default; the filter checks for itself.

    Raises:
        UsageError: there are renderings, and neither gate nor filter was run.
    """
    if (
        filtered(run) is None
        and config.collect.executed
        and (run.path / "collect" / "renderings").is_dir()
    ):
        admitted(run.path)


def filtered(run: RunFolder) -> Path | None:
    """The filter's output, if it was run.

    Raises:
        UsageError: it was, and kept nothing.
    """
    kept = run.path / "filter" / "kept.jsonl"
    if not kept.is_file():
        return None
    if kept.stat().st_size == 0:
        reasons = json.loads((run.path / "filter" / "report.json").read_text())["reasons"]
        most = ", ".join(f"{count} {reason}" for reason, count in list(reasons.items())[:3])
        raise UsageError(
            f"the filter kept nothing of `{run.path}`: {most}",
            "see filter/rejected.jsonl for the reason of every row",
        )
    return kept


def sources(run: RunFolder) -> list[Path]:
    """The collected files: texts first, then executed attempts.

    Raises:
        UsageError: there are none.
    """
    result = [
        path
        for name in ("imported", "renderings", "played")
        for path in sorted((run.path / "collect" / name).glob("*.jsonl"))
    ]
    if not result:
        raise UsageError(
            f"nothing was collected in `{run.path}`",
            "run `dvk sft collect` with the same --out first",
        )
    return result


def examples(run: RunFolder) -> Source:
    """Training examples: the output of the last stage that was run."""
    kept = run.path / "diversify" / "kept.jsonl"
    chosen = kept if kept.is_file() else filtered(run)
    return OnDisk([chosen] if chosen is not None else sources(run))


def best(source: Source) -> Source:
    """Examples of a source that improved on their parents (`diversity.best_steps`).

    Raises:
        UsageError: there are none.
    """
    # Only measured examples can be a step or a parent; they are a small part.
    chosen = InMemory(diversity.best_steps(source.having("speedup")))
    if not chosen:
        raise UsageError(
            "no example improves on a measured predecessor",
            "play more tasks (collect.played), or fit without --best-steps",
        )
    return chosen


def origin(run: RunFolder) -> str:
    """Origin of the tokens: they are created again when it changes."""
    kept = run.path / "diversify" / "report.json"
    if kept.is_file():
        return "diversified " + str(json.loads(kept.read_text()).get("key", kept.stat().st_size))
    if (found := filtered(run)) is not None:
        return f"filtered {json.loads((found.parent / 'report.json').read_text())['key']}"
    return f"{len(sources(run))} files of {sum(path.stat().st_size for path in sources(run))} bytes"
