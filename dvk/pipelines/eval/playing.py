"""Plays the problems: with a strategy of the composer, with the agents on a model, or from a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dvk import backends, crashes, registry, search, target
from dvk.agents import TaskContext, dialects, run_episodes, writers
from dvk.agents.preparing import prepare
from dvk.backbone import Backbone, TokenUsage
from dvk.backbone.shared import SharedBackbone
from dvk.config import Config
from dvk.errors import DvkError
from dvk.harness.placement import num_workers
from dvk.harness.queue import JudgeQueue, default_contract
from dvk.harness.remote.table import require_plans
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.harness.timing.roofline import Ceilings, flop_ms
from dvk.pipelines.eval import recorded
from dvk.pipelines.eval.measured import MeasuredSuite
from dvk.pipelines.eval.progress import Progress
from dvk.pipelines.eval.request import EvalRequest, Unplayed
from dvk.pipelines.eval.suites import SuiteTask
from dvk.records import BackendName, Device, Episode, Trace, Turn, Verdict
from dvk.search.play import play
from dvk.skills import Library
from dvk.skills.graphs import NUM_RANKED, QUERY_TERMS

OnFacts = Callable[[dict[str, Any]], None]
"""Called with the facts about a task before it is played."""


class ReportingJudgeQueue(JudgeQueue[Any]):
    """A judge queue that reports its progress."""

    def __init__(self, progress: Progress, *given: Any, **named: Any):
        super().__init__(*given, **named)
        self._progress = progress

    def results(self, *, wait: bool) -> list[tuple[Any, Verdict]]:
        """See `JudgeQueue.results`."""
        result = super().results(wait=wait)
        self._progress.judged(len(result))
        return result


def workers_for(request: EvalRequest, config: Config, device: Device) -> int:
    """Candidates in flight: those of this machine, or of the cluster.

    Raises:
        UsageError, MachineError: see `num_workers`.
    """
    return request.workers or num_workers(config, device)


@dataclass(frozen=True)
class EvalTable:
    """The fixed parts of every game."""

    request: EvalRequest
    config: Config
    device: Device
    backend: BackendName
    ceilings: Ceilings | None
    """This machine's ceilings, if measured."""
    progress: Progress
    judging: JudgeQueue[Any]
    """The judges of all stages: their processes take seconds to start, and serve one after another."""
    held: MeasuredSuite | None = None
    """The tasks of the table that judges, if one does."""

    @property
    def model_device(self) -> Device:
        """Where a model writes: a table's tasks may be of a device that this machine lacks."""
        return self.device if self.held is None else backends.default_device()


def open_judges(
    request: EvalRequest, config: Config, device: Device, progress: Progress
) -> ReportingJudgeQueue:
    """The judge queue of an evaluation; winners alone are timed against baselines.

    Raises:
        UsageError, MachineError: see `num_workers`.
    """
    spec = JudgeSpec(contract=default_contract(device))
    judging = ReportingJudgeQueue(progress, workers_for(request, config, device), config, spec=spec)
    if device == "cuda" and config.remote.judge is None and config.remote.engine is None:
        judging.warm()  # while the first tasks are examined
    return judging


def play_all(
    problems: Sequence[SuiteTask],
    table: EvalTable,
    *,
    on_facts: OnFacts,
    on_usage: Callable[[TokenUsage], None],
) -> Iterator[Episode | Unplayed]:
    """Yield every problem's episode as it ends.

    Args:
        problems: with their files in place.
        on_facts: see `OnFacts`.
        on_usage: called once with a model's counters, before its first question.
    """
    progress = table.progress
    bad = [Unplayed(name=p.name, error=p.error) for p in problems if p.error is not None]
    problems = [p for p in problems if p.error is None]

    def good() -> Iterator[TaskContext]:
        for problem, subject in subjects(
            problems, table.request, table.config, table.device, table.backend, table.held
        ):
            progress.prepared()
            if isinstance(subject, DvkError):
                bad.append(
                    Unplayed(
                        name=problem.name,
                        error=subject.message,
                        traceback=getattr(subject, "traceback", ""),
                        known=table.held is None,
                    )
                )
                continue
            on_facts({"name": problem.name, **facts(subject, table.ceilings)})
            yield subject

    if problems:
        yield from _played(good(), problems, table, on_usage)
    yield from bad


def _played(
    good: Iterator[TaskContext],
    problems: Sequence[SuiteTask],
    table: EvalTable,
    on_usage: Callable[[TokenUsage], None],
) -> Iterator[Episode | Unplayed]:
    """The episodes of loaded tasks, by the request's policy."""
    request, config, progress = table.request, table.config, table.progress
    judging = table.judging
    if recorded.is_record(request.policy):
        progress.stage("judging what was recorded")
        yield from recorded.replay_records(good, problems, request.policy, judging)
        return
    if not request.model:
        progress.stage(f"playing {request.policy}")
        yield from play_strategy(good, request, config, judging)
        return
    progress.stage(f"loading {request.model}")
    with writers.opened(request.model, config, table.model_device) as backbone:
        if request.strategy is None:
            require_plans(config.remote.judge, request.model, backbone.dialect)
        on_usage(backbone.usage)
        judging.spec = with_profiles(judging.spec, backbone.dialect)
        progress.stage(f"playing {request.policy}")
        if request.strategy is not None:
            yield from play_strategy(good, request, config, judging, backbone)
            return
        without = request.no_skills or request.library is None
        library = None if without else Library.open(request.library)
        given = writers.widened(eval_config(request, config), backbone)
        yield from run_episodes(good, backbone, library, given, judging=judging)


def with_profiles(spec: JudgeSpec, dialect: str) -> JudgeSpec:
    """The settings with a profile of each right candidate that the model wrote, if it reads profiles: they are part of its feedback."""
    reads = isinstance(dialects.get(dialect), dialects.ProseDialect)
    return spec.model_copy(update={"profile": "written"}) if reads else spec


def facts(subject: TaskContext, ceilings: Ceilings | None) -> dict[str, Any]:
    """Facts about a task before it is played: the time its matmuls take, its mode and whether layers in train mode depend on it,
    why it has no graph, and the traceback of a dvk exception in finding that out."""
    if subject.captured is None:
        cannot = subject.cannot
        return {
            "flop_ms": None,
            "mode": subject.task.mode,
            "depends": False,
            "cannot": str(cannot or ""),
            "traceback": cannot.traceback if cannot is not None else "",
        }
    known = {
        "mode": subject.task.mode,
        "depends": bool(subject.captured.depending) and subject.task.kind == "module",
    }
    found = crashes.run_guarded(
        "counting its products", flop_ms, subject.captured.graph, subject.task, ceilings
    )
    return (
        {"flop_ms": None, **known, "traceback": found.traceback}
        if isinstance(found, crashes.Crashed)
        else {"flop_ms": found, **known}
    )


def subjects(
    problems: Sequence[SuiteTask],
    request: EvalRequest,
    config: Config,
    device: Device,
    backend: BackendName,
    held: MeasuredSuite | None = None,
) -> Iterator[tuple[SuiteTask, TaskContext | DvkError]]:
    """Tasks examined and captured, or as a table holds them, under the suite's names, a few ahead of the consumer."""
    found: Iterator[TaskContext | DvkError]
    if held is not None:
        found = held.subjects([p.name for p in problems])
    else:
        found = prepare(
            [p.path for p in problems],
            device,
            backend,
            config,
            kept=True,
            eval_mode=request.eval_mode,
            train=request.train,
        )
    for problem, subject in zip(problems, found):
        if isinstance(subject, TaskContext) and subject.task.name != problem.name:
            subject = replace(subject, task=subject.task.model_copy(update={"name": problem.name}))
        yield problem, subject


def eval_config(request: EvalRequest, config: Config) -> Config:
    """Settings of an evaluation: one selection of skills if there is a library, no summaries; one sample is greedy."""
    asked: dict[str, Any] = {
        "schemes": 1,
        "null_scheme": False,
        "rollouts": request.samples,
        "summaries": 0,
        "explored": 0,
        "iterations": request.iterations,
    }
    if request.turns is not None:
        asked["turns"] = request.turns
    if request.window is not None:
        asked["window"] = request.window
    if request.samples == 1:
        asked["temperature"] = 0.0
    rollout = config.rollout.model_copy(update=asked)
    if request.iterations == 1:
        return config.model_copy(update={"rollout": rollout})
    # The window is shown whole: an iteration continues from it.
    agents = config.agents.model_copy(
        update={"kept_attempts": max(config.agents.kept_attempts, rollout.turns)}
    )
    return config.model_copy(update={"rollout": rollout, "agents": agents})


def play_strategy(
    subjects: Iterable[TaskContext],
    request: EvalRequest,
    config: Config,
    judging: JudgeQueue[Any],
    backbone: Backbone | None = None,
) -> Iterator[Episode]:
    """A strategy on every task; `--turns` × `--samples` candidates each, with the settings of `dvk optimize`.

    Its model gets no skills unless a library was named; its composer has the usual one.

    Args:
        backbone: for strategies that need one; tasks that are played at the same time take turns.
    """
    strategy = registry.resolve(str(request.strategy), search.STRATEGIES, "policy")
    given = config
    if request.library is None:
        given = config.model_copy(
            update={"agents": config.agents.model_copy(update={"num_candidates": 0})}
        )
    empty = []

    def problems() -> Iterator[search.SearchProblem]:
        for subject in subjects:
            if subject.captured is None and (
                backbone is None or dialects.get(backbone.dialect).reads_graph
            ):
                empty.append(Episode(task=subject.task))
                continue
            skills = (
                ()
                if request.no_skills
                else crashes.run_guarded(
                    "choosing skills", retrieve, subject, request.library, config
                )
            )
            if isinstance(skills, crashes.Crashed):
                empty.append(crashed_episode(subject, skills))
                continue
            mine = SharedBackbone(backbone) if backbone is not None else None
            yield search.SearchProblem(
                subject.task,
                subject.captured,
                subject.backend,
                skills,
                given,
                mine,
                target=target.of_judge(given, subject.task.device),
                limit=request.num_candidates,
            )

    yield from play(problems(), strategy, judging, limit=request.num_candidates)
    yield from empty


def crashed_episode(subject: TaskContext, crash: crashes.Crashed) -> Episode:
    """The episode of a task that an exception ended before it was played."""
    return Episode(
        task=subject.task,
        traces=(Trace(role="policy", turns=(Turn(verdict=crashes.verdict(crash, "search")),)),),
    )


def retrieve(subject: TaskContext, path: Path | None, config: Config) -> tuple[Any, ...]:
    """Skills for a strategy's order of recipes."""
    from dvk.skills import query_from_graph

    if subject.captured is None:
        return ()
    with Library.open(path) as library:
        query = query_from_graph(subject.captured.graph, library, QUERY_TERMS)
        return tuple(hit.skill for hit in library.search(query, NUM_RANKED, snippets=False))
