"""`dvk optimize`: from a user's module to a verified, faster drop-in.

examine the task → capture its graph → search the library for skills → a strategy proposes (the
composer, a model, or both), the judge decides → confirm the best in a fresh process → best.py, report, episode

checkpoint.py  a daVinci-kernel checkpoint by one flag
clock.py       the estimate of its time
session.py     one search, fed with verdicts until something ends it
confirming.py  its candidates judged, the best confirmed
seeds.py       the user's candidates
reference_bounds.py  the roofline, the profile and the opponent in a model's prompt
limits.py      what ends it early
sets.py        several sets of inputs: a search each, one drop-in
ending.py      best.py, episodes, report, summary
blocks.py      a network by its blocks
credit.py      the skills and proposers behind the result
portfolio.py   own kernels beside PyTorch's own lines
summary.py     the summary, the cost
episode.py     the search as an episode

Every verdict and every answer of a model is on disk before the next is requested, so a killed run resumes by
replaying the strategy on the record. Ctrl-C ends the search and keeps the best so far.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dvk import backends, registry, search, tasks
from dvk.agents import TaskContext
from dvk.backbone import open_backbone
from dvk.backbone.recorded import RecordedBackbone
from dvk.config import Config
from dvk.errors import UsageError
from dvk.interop.kernelgym import remote
from dvk.pipelines.live import SearchView
from dvk.pipelines.optimize import clock, ranges, seeds, sets, summary
from dvk.pipelines.optimize.checkpoint import with_checkpoint
from dvk.pipelines.optimize.confirming import TURNS
from dvk.pipelines.optimize.ending import finish
from dvk.pipelines.optimize.ranges import SizeRange
from dvk.pipelines.optimize.request import OptimizeRequest
from dvk.pipelines.optimize.session import SearchSession
from dvk.records import Device, Task, Turn
from dvk.runs import RunFolder
from dvk.skills import Library

TASKS = "task.jsonl"


def optimize(request: OptimizeRequest, config: Config) -> dict[str, Any]:
    """Run the command; `--json` prints the returned summary.

    Raises:
        DvkError: the user can fix it.
    """
    if request.davinci is not None:
        request = with_checkpoint(request, request.davinci)
    device, backend = backends.timed(request.backend, request.device)  # type: ignore[arg-type]  # checked by the command
    strategy = registry.resolve(request.strategy, search.STRATEGIES, "strategy")
    # Loading a module takes seconds: errors that need no module are reported before.
    check(request)
    _check_judge(request, config)
    given = seeds.read(request.seeds)
    RunFolder.refuse_used(request.out, resume=request.resume)
    Library.open(request.library).close()
    name = request.spec.rpartition("/")[2].replace(".py", "").replace(":", "-")
    every, expected, span = _load(request, config, device, backend)
    task = every[0]
    # A model that cannot be opened should not leave a used folder; a model that is no longer needed is not opened.
    model = (
        None
        if request.backbone is None or request.resume
        else open_backbone(request.backbone, config)
    )
    with RunFolder.open(
        request.out,
        command="optimize",
        name=name,
        argv=request.argv,
        config=config,
        resume=request.resume,
    ) as run:
        known = _known_tasks(run, every, request.spec)
        started = seeds.of_run(run, given)
        ids = tuple(Path(candidate.id) for candidate in started)
        asked = replace(request, spec=task.id, device=device, backend=backend, seeds=ids)
        if run.answered(asked, config, ("optimize.budget_s",)):
            return dict(run.read("summary.jsonl")[-1])
        if not known:
            run.write_text(TASKS, "".join(one.model_dump_json() + "\n" for one in every))
        if model is None and request.backbone is not None:
            model = open_backbone(request.backbone, config)
        if len(every) > 1 or span is not None:
            return _for_sets(run, every, request, config, backend, strategy, expected, span)
        session = SearchSession(
            run,
            task,
            backend,
            config,
            [Turn.model_validate(t) for t in run.read(TURNS)],
            RecordedBackbone(model, run, config.optimize) if model is not None else None,
            library=request.library,
            baselines=request.baselines,
            seeds=started,
        )
        session.expected = expected
        winner = _searched(session, strategy, request, several=model is not None)
        groups = summary.groups(TaskContext(task, session.captured, backend), winner)
        return finish([session], [winner], [groups], request.strategy, request.backbone)


def _for_sets(
    run: RunFolder,
    every: Sequence[Task],
    request: OptimizeRequest,
    config: Config,
    backend: str,
    strategy: search.Strategy,
    expected: clock.TimeEstimate,
    span: SizeRange | None,
) -> dict[str, Any]:
    """The summary of a search for each of several sets of inputs, or for each measured point of a range."""
    sessions = sets.sessions(run, every, backend, config, request.library, request.baselines)
    sessions[0].expected = expected
    result = sets.run(sessions, strategy, request.quiet, span)
    found = span.summary(result.winners) if span is not None else None
    return finish(sessions, result.winners, result.groups, request.strategy, None, found)


def _load(
    request: OptimizeRequest, config: Config, device: Device, backend: str
) -> tuple[list[Task], clock.TimeEstimate, SizeRange | None]:
    """The tasks, one for each set of inputs or measured point of a range, and the estimate of the command's time."""
    began = time.monotonic()
    if request.dynamic:
        span = ranges.load(request, config, device, backend)
        return (
            list(span.tasks),
            _expected(time.monotonic() - began, request, config, len(span.tasks)),
            span,
        )
    task = tasks.load(
        request.spec,
        inputs=request.inputs,
        init=request.init,
        eval_mode=request.eval_mode,
        train=request.train,
        dtype=request.dtype,
        autocast=request.autocast,
        device=device,
        limits=config.limits,
    )
    load_s = time.monotonic() - began
    every = sets.load(request.also, task, request.spec, config)
    return every, _expected(load_s, request, config, len(every)), None


def _expected(
    load_s: float, request: OptimizeRequest, config: Config, number: int
) -> clock.TimeEstimate:
    """The estimate of the command's time for so many sets of inputs."""
    return clock.at_start(
        load_s,
        sets.budget_s(config, number),
        config.judge,
        len(set(request.baselines) - {"eager"}),
        number,
    )


def _known_tasks(run: RunFolder, every: Sequence[Task], spec: str) -> list[str]:
    """The tasks that the run's folder already holds, by id; none of a new one.

    Raises:
        UsageError: it holds others.
    """
    known = [str(one["id"]) for one in run.read(TASKS)]
    if known and known[0] != every[0].id:
        raise UsageError(
            f"`{run.path}` holds a search of another version of `{spec}`", "choose another --out"
        )
    if known and known != [one.id for one in every]:
        raise UsageError(
            f"`{run.path}` holds a search for other sets of inputs",
            "give the same --extra-input, or choose another --out",
        )
    return known


def _searched(
    session: SearchSession, strategy: search.Strategy, request: OptimizeRequest, *, several: bool
) -> Turn | None:
    """The winner of a search for one set of inputs, confirmed.

    Args:
        several: a model proposes, too.
    """
    view = SearchView(
        session.config.optimize.budget_s,
        name=session.task.name,
        quiet=request.quiet,
        elapsed_s=session.elapsed_before,
        several=several,
    )
    with session.court, view as live:
        live.note(f"expected: {session.expected}")
        session.search(strategy, live)
        return session.confirm(live)


def _check_judge(request: OptimizeRequest, config: Config) -> None:
    """Refuse a server that cannot judge what is asked.

    Raises:
        UsageError: say why.
    """
    if config.remote.judge is not None:
        remote.require_ours(config, "the best candidate has to be confirmed at the claim tier")
        if request.train:
            raise UsageError("a server judges forward alone", "drop --train or the server")
        if request.autocast:
            raise UsageError("a server judges without autocast", "drop --autocast or the server")


def check(request: OptimizeRequest) -> None:
    """Refuse choices that do not go together, before anything is begun.

    Raises:
        UsageError: say which.
    """
    if request.backbone is None and request.strategy in search.ASK_A_MODEL:
        problem = f"`--strategy {request.strategy}` asks a language model"
        raise UsageError(
            problem, "add --backbone, e.g. --backbone nano, or choose --strategy composer"
        )
    if request.train and (request.backbone is not None or request.davinci is not None):
        raise UsageError(
            "`--train` composes kernels, and no language model writes a backward",
            "drop the language model",
        )
    if request.autocast and (request.backbone is not None or request.davinci is not None):
        raise UsageError(
            "`--autocast` composes kernels, and no prompt tells a language model of autocast",
            "drop the language model",
        )
    if request.dynamic and (request.also or request.backbone is not None or request.train):
        other = "--train" if request.train else "--extra-input"
        other = "a language model" if request.backbone is not None else other
        raise UsageError(
            f"`--dynamic` does not go with {other}",
            "make a drop-in for the range, and another with the rest",
        )
    if request.seeds and (request.also or request.dynamic):
        other = "--dynamic" if request.dynamic else "--extra-input"
        raise UsageError(
            f"`--seed-candidate` does not go with {other}, whose drop-in only the composer can write",
            "drop one of them",
        )
    if request.also and request.backbone is not None:
        problem = "`--extra-input` joins kernels in one drop-in, which only the composer's can be"
        raise UsageError(
            problem, "drop the language model, or make a drop-in for each set of inputs"
        )
    if request.backbone is not None and request.strategy in search.ASK_NONE:
        problem = f"`--strategy {request.strategy}` asks no language model"
        raise UsageError(
            problem, "drop --backbone, or choose --strategy auto, in which both propose"
        )
