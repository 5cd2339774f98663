"""`dvk sft`, as a story: collect → diversify → fit, each on its own or all in turn, in one run folder.

Every stage looks first at what an earlier, perhaps killed, call has left, and goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvk import machine
from dvk.config import Config
from dvk.errors import UsageError
from dvk.harness.backends import default_device
from dvk.learn import diversity, formats
from dvk.learn.examples import Example
from dvk.pipelines.sft.collect import renderings, stream
from dvk.pipelines.sft.episodes import episodes
from dvk.pipelines.sft.fit import FRESH, fit
from dvk.records import Backend
from dvk.runs import RunFolder

STAGES = ("collect", "diversify", "fit")
BACKENDS: tuple[Backend, ...] = ("triton", "cpp")


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    stages: tuple[str, ...] = STAGES
    data: tuple[Path, ...] = ()
    """Examples brought along: files of ours or in a published format."""
    start: str = FRESH
    backends: tuple[Backend, ...] = BACKENDS
    diverse: bool = True
    workers: int | None = None
    out: Path | None = None
    resume: bool = False
    argv: tuple[str, ...] = ()


def sft(request: Request, config: Config) -> dict[str, Any]:
    """Run the stages asked for; figures by stage.

    Raises:
        DvkError: the user can fix it.
    """
    with RunFolder.open(request.out, command="sft", name="sft", argv=request.argv, config=config, resume=request.resume) as run:
        told: dict[str, Any] = {"run": str(run.path)}
        if run.finished:
            return dict(run.read("summary.jsonl")[-1])
        if "collect" in request.stages:
            told["collect"] = collect(run, request, config)
        if "diversify" in request.stages:
            told["diversify"] = diversify(run, config) if request.diverse else {"skipped": "asked not to"}
        if "fit" in request.stages:
            told["fit"] = fit(run, read(run), request.start, config, origin=origin(run))
        run.append("summary.jsonl", told)
        if "fit" in request.stages:
            run.finish("done")
    return told


def collect(run: RunFolder, request: Request, config: Config) -> dict[str, Any]:
    """Examples brought along are converted; without any, the composer teaches."""
    if not request.data:
        workers = request.workers or machine.num_cores()
        told = renderings(run, config, config.collect.tasks, request.backends, workers)
        backend: Backend = "triton" if default_device() == "cuda" else "cpp"  # what this machine can time
        if config.collect.played and backend in request.backends:
            told = {**told, **{f"played_{k}": v for k, v in episodes(run, config, config.collect.played, backend, workers).items()}}
        return told
    folder = run.path / "collect" / "imported"
    folder.mkdir(parents=True, exist_ok=True)
    counts: dict[str, Any] = {}
    for number, path in enumerate(request.data):
        target = folder / f"{number:03d}_{path.stem}.jsonl"
        problems: list[Any] = []
        if not target.exists():
            from dvk.learn.examples import write

            counts[str(path)] = write(target, imported(path, problems))
            counts["unreadable"] = counts.get("unreadable", 0) + len(problems)
    return counts


def imported(path: Path, problems: list[Any]) -> Iterator[Example]:
    """Examples of a file, ours or in a published format."""
    if path.suffix == ".jsonl":
        from dvk.learn import examples

        number, line = next(examples.lines(path), (1, b"{}"))
        if b'"messages"' in line and b'"kind"' in line:
            examples.parse(line, f"{path}:{number}")
            yield from examples.read(path)
            return
    yield from formats.read(path, problems=problems)


def diversify(run: RunFolder, config: Config) -> dict[str, Any]:
    """Filter and balance; the report without its long tables."""
    settings = config
    if (run.path / "collect" / "renderings").is_dir():
        # The composer's texts are not executed one by one, and it does not dominate by an operator: the generator draws them.
        # Compact answers are a few words, and that nothing was gained or to be chosen is worth saying, too.
        slow = config.diversity.min_speedup.model_copy(update={"selection": 0.0, "summary": 0.0})
        loose = {"require_verified": False, "require_speedup": False, "min_chars": 4, "operator_share": 1.0, "min_speedup": slow}
        settings = config.model_copy(update={"diversity": config.diversity.model_copy(update=loose)})
    report = diversity.run(sources(run), run.path / "diversify", settings)
    return {k: v for k, v in report.items() if not isinstance(v, (dict, list))}


def sources(run: RunFolder) -> list[Path]:
    """The files of what was collected: texts first, then what was executed.

    Raises:
        UsageError: nothing.
    """
    found = [path for name in ("imported", "renderings", "played") for path in sorted((run.path / "collect" / name).glob("*.jsonl"))]
    if not found:
        raise UsageError(f"nothing was collected in `{run.path}`", "run `dvk sft collect` with the same --out first")
    return found


def read(run: RunFolder) -> Any:
    """The stream that is learned from: what diversify kept, or everything where it was not run."""
    kept = run.path / "diversify" / "kept.jsonl"
    return stream([kept] if kept.is_file() else sources(run))


def origin(run: RunFolder) -> str:
    """What the tokens were made from: they are made anew when it changes."""
    kept = run.path / "diversify" / "report.json"
    if kept.is_file():
        return "diversified " + str(json.loads(kept.read_text()).get("key", kept.stat().st_size))
    return f"{len(sources(run))} files of {sum(path.stat().st_size for path in sources(run))} bytes"
