"""Trials that a coding agent made in a workspace, ended as a search is: the best confirmed by claim, report, episode, examples, skills.

    trials → claims → (a backbone) skills from the summary agent → best.py, report, episode, examples.jsonl, skills/

A verdict of the trials only ranks: what `best.py` is follows from new verdicts at the claim tier. A killed run resumes with the claims that
it has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvk import backends
from dvk.agents import TaskContext, dialects, policy, rollout
from dvk.agents import summary as summary_agent
from dvk.agents.dialects.examples import TITLES
from dvk.agents.turns import speedup
from dvk.backbone import open_backbone
from dvk.backbone.recorded import RecordedBackbone
from dvk.composer import CannotCompose, CapturedGraph, capture
from dvk.composer.codegen.base import takes_time_loops
from dvk.config import Config
from dvk.errors import ModelError, UsageError
from dvk.harness.placement import open_session
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.learn.examples import Example, ExampleTask
from dvk.pipelines.live import SearchView
from dvk.pipelines.optimize import clock, summary
from dvk.pipelines.optimize.confirming import TURNS
from dvk.pipelines.optimize.ending import finish
from dvk.pipelines.optimize.session import SearchSession
from dvk.records import BackendName, Candidate, Skill, Status, Task, Trace, Turn
from dvk.runs import RunFolder
from dvk.skills import markdown

COMMAND = "workspace"
TASKS = "task.jsonl"
EXAMPLES = "examples.jsonl"
SKILLS = "skills"
STRATEGY = "agent"


@dataclass(frozen=True, kw_only=True)
class CollectRequest:
    """What is collected, and how."""

    task: str
    """Its id."""
    backend: BackendName
    num_trials: int
    baselines: tuple[str, ...] = ()
    require_kernels: bool = False
    backbone: str | None = None
    out: Path | None = None
    resume: bool = False
    argv: tuple[str, ...] = ()


def collect(
    request: CollectRequest,
    config: Config,
    task: Task,
    trials: Sequence[Turn],
    skills: Sequence[Skill],
) -> dict[str, Any]:
    """End the trials as `dvk optimize` ends a search; returns its summary, with `examples`, `proposed_skills` and `no_skills` besides.

    Args:
        task: the judge's copy.
        trials: the judge's log.
        skills: those that the agent was given.

    Raises:
        UsageError: there are no trials.
        DvkError: the user can fix it.
    """
    trials = [_plain(turn) for turn in trials if not _claimed(turn)]  # claims are made here alone
    if not trials:
        raise UsageError("no trials to collect", "let the agent call ./check and ./bench first")
    backends.add(request.backend)
    model = None
    if request.backbone is not None:
        model = open_backbone(request.backbone, config)
    with RunFolder.open(
        request.out,
        command=COMMAND,
        name=task.name,
        argv=request.argv,
        config=config,
        resume=request.resume,
    ) as run:
        if run.answered(request, config):
            return dict(run.read("summary.jsonl")[-1])
        run.write_text(TASKS, task.model_dump_json() + "\n")
        session = _session(run, request, config, task, trials, model)
        session.captured = _graph(task, config, request.backend)
        session.skills = tuple(skills)
        with session.court, SearchView(0.0, name=task.name) as live:
            live.resumed(session.turns)
            live.stage("confirming the best trials")
            winner = session.confirm(live)
        subject = TaskContext(task, session.captured, request.backend)
        given = tuple(skills)[: config.agents.num_chosen]
        spoken = conversation(subject, trials, given, config)
        proposed, why = _proposed(session, subject, spoken, given)
        data = write_data(run, subject, spoken, given, proposed)
        groups: list[str] = summary.groups(subject, winner)
        more = {**data, "no_skills": why}
        return finish([session], [winner], [groups], STRATEGY, request.backbone, None, more)


def _session(
    run: RunFolder,
    request: CollectRequest,
    config: Config,
    task: Task,
    trials: Sequence[Turn],
    model: Any,
) -> SearchSession:
    """A search whose proposals were the trials, before its confirmation."""
    began = time.monotonic()
    known = [Turn.model_validate(row) for row in run.read(TURNS)]
    # A killed run has the first trials of the log, and perhaps claims.
    for turn in trials[sum(not _claimed(turn) for turn in known) :]:
        run.append(TURNS, turn)
        known.append(turn)
    session = SearchSession(
        run,
        task,
        request.backend,
        config,
        known,
        RecordedBackbone(model, run, config.optimize) if model is not None else None,
        baselines=request.baselines,
    )
    session.court = open_session(
        task,
        config,
        JudgeSpec(brief=True, contract="short", require_kernels=request.require_kernels),
    )
    session.expected = clock.at_start(
        max(1.0, time.monotonic() - began),
        config.optimize.budget_s,
        config.judge,
        len(session.baselines),
    )
    return session


def _plain(turn: Turn) -> Turn:
    """The trial with an agent's text for a candidate, and nothing that the judge or the composer trusts."""
    assert turn.candidate is not None, "a trial has a candidate"
    given = turn.candidate
    candidate = Candidate(
        source=given.source, backend=given.backend, proposer=STRATEGY, title=given.title
    )
    return turn.model_copy(update={"candidate": candidate})


def _claimed(turn: Turn) -> bool:
    return turn.verdict is not None and turn.verdict.tier == "claim"


def _graph(task: Task, config: Config, backend: str) -> CapturedGraph | None:
    try:
        return capture(task, config.limits, takes_time_loops(backend))
    except CannotCompose:
        return None


# ---------------------------------------------------------------- as a conversation


def conversation(
    subject: TaskContext, trials: Sequence[Turn], given: Sequence[Skill], config: Config
) -> list[Turn]:
    """The trials as the policy's turns in the dialect of general models: what it would have been asked, and the file as its answer."""
    if subject.backend not in TITLES:  # the dialect has no words for it
        return list(trials)
    dialect = dialects.get("chat")
    turns: list[Turn] = []
    for trial in trials:
        assert trial.candidate is not None, "a trial has a candidate"
        asked = policy.build_prompt(dialect, subject, given, turns, config.agents)
        update = {
            "messages": asked.messages,
            "completion": dialect.write_policy(trial.candidate.source),
            "finish": "stop",
        }
        turns.append(trial.model_copy(update=update))
    return turns


def examples(
    subject: TaskContext, turns: Sequence[Turn], given: Sequence[Skill]
) -> Iterator[Example]:
    """An example for each right answer that is faster than PyTorch and all before it."""
    about = ExampleTask(id=subject.task.id, name=subject.task.name, source=subject.task.source)
    best, parent = 1.0, None
    for turn in turns:
        timing = turn.verdict.timing if turn.verdict is not None else None
        if not turn.messages or timing is None or turn.candidate is None:
            continue
        if timing.speedup.lo <= 1.0 or timing.speedup.value <= best:
            continue
        made = Example.new(
            kind="policy_with_skills" if given else "policy",
            messages=(*turn.messages, {"role": "assistant", "content": turn.completion}),
            task=about,
            signature=subject.captured.graph.signature() if subject.captured else (),
            backend=turn.candidate.backend,
            skills=tuple(one.name for one in given),
            code=turn.candidate.source,
            speedup=timing.speedup.value,
            lo=timing.speedup.lo,
            parent=parent,
            origin="agent",
            verified=True,
        )
        yield made
        best, parent = timing.speedup.value, made.id


def write_data(
    run: RunFolder,
    subject: TaskContext,
    turns: Sequence[Turn],
    given: Sequence[Skill],
    proposed: Sequence[Skill],
) -> dict[str, Any]:
    """Write the examples and the skills; returns what the summary says of them."""
    made = list(examples(subject, turns, given))
    lines = "".join(one.model_dump_json(exclude_defaults=True) + "\n" for one in made)
    path = run.write_text(EXAMPLES, lines) if made else None
    for skill in proposed:
        run.write_text(f"{SKILLS}/{skill.name}.md", markdown.render(skill))
    return {
        "examples": str(path) if path is not None else None,
        "num_examples": len(made),
        "proposed_skills": [skill.name for skill in proposed],
    }


# ---------------------------------------------------------------- the summary agent


def _proposed(
    session: SearchSession, subject: TaskContext, turns: Sequence[Turn], given: Sequence[Skill]
) -> tuple[tuple[Skill, ...], str | None]:
    """Skills that the model draws from the trials, and why there are none."""
    model = session.backbone
    if model is None:
        return (), "no backbone was given"
    right = [
        turn for turn in turns if turn.verdict is not None and turn.verdict.status is Status.OK
    ]
    timed = [turn for turn in right if speedup(turn) > 0]
    trace = Trace(role="policy", skills=tuple(s.name for s in given), turns=tuple(timed))
    if not summary_agent.due(trace):
        over = summary_agent.OVER_FIRST
        return (), f"no trial was {over:g}× as fast as the first right one and as PyTorch"
    dialect, agents = dialects.get(model.dialect), session.config.agents
    asked = dialect.summary(subject, trace, given, agents)
    sampling = rollout.sampling("summary", dialect, session.config, 0)
    try:
        answer = model.generate([asked], sampling)[0]
    except ModelError as error:
        session.failure = error
        return (), error.message
    if answer.finish == "error":
        return (), f"the model failed: {answer.error}"
    origin = {"source": "workspace", "task": subject.task.id}
    proposals = summary_agent.read(dialect, subject, answer, trace, agents, origin)
    session.proposed = proposals.skills
    if proposals.skills:
        return proposals.skills, None
    return (), proposals.malformed or "the model found nothing worth keeping"
