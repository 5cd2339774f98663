"""Trials of proposed skills: a small experiment with and without the skill, on its task and on siblings, decides on admission.

    proposals of a step ─ not new: refused, untried
         └─ control: the skills that its conversation had  ┐  on its own task and on `trials.siblings` like it,
            treatment: the same, and the new one last      ┘  `trials.samples` first turns each, judged
                 └─ paired gain with bounds (`effect_size`) ─ admitted, one a task at most, or refused with the reason

Where a table of measured plans judges, a skill with a change of plan is tried on all tasks of the table that its condition covers
(`evidence.table_trials`).

If the conversation had as many skills as may be given, the last of them is left out of both arms. A summary's reward is
the expected gain given the trial, less 1: a skill without effect earns nothing, however lucky its one good run was.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from dvk.agents import dialects
from dvk.agents.evidence import table_trials
from dvk.agents.proposing import KnownSkill, Proposal, proposals, why_not_new
from dvk.agents.similar_tasks import most_similar
from dvk.agents.task_context import TaskContext
from dvk.agents.trial_arms import TrialArm, sample_arms
from dvk.backbone import Backbone
from dvk.config import Config
from dvk.config import TrialsConfig as Settings
from dvk.distributed import ProcessGroup
from dvk.harness.queue import JudgeQueue
from dvk.records import Skill, Turn
from dvk.skills import Library
from dvk.skills.events import Event
from dvk.stats.effect_size import Bounded, Gain, Pair, effect_size
from dvk.stats.student_t import student_quantile

MIN_SIMILARITY = 0.25
"""Share of operator families in common that makes a task a sibling: results on a softmax do not carry over to a convolution."""
KNOWN_SIMILARITY = 0.7
"""Similarity from which a proposed skill is known already. Above `library.merge_similarity`: a wrong refusal loses a skill for good;
shipped skills reach 0.53, different notes of the teacher 0.64."""
FAILED = 0.5
"""Speedup that a wrong answer counts as: a wrong answer costs more than no gain."""
LEAST_PAIRS = 4
"""Pairs that a gain must come from."""
MANY = 1000
"""Degrees of freedom of a normal quantile: with fewer tasks a t-bound is wider, and the error that it gives larger."""
HARM = 0.95
"""A skill is refused where a task's gain is surely below this; a search's timing is good to some per cent."""
CAP = 2.0
"""Largest credit of a skill to its summary."""
PRIOR_SD = 0.1
"""Standard deviation of the logarithm of a skill's true gain before its trial: most gain nothing, few more than 20 %."""

__all__ = [
    "Proposal",
    "Trial",
    "admit",
    "proposals",
    "trial_outcome",
    "try_skills",
    "summary_rewards",
]

ArmKey = tuple[str, tuple[str, ...]]
"""Task id, names of skills in order."""


@dataclass(frozen=True)
class Trial:
    """The outcome of a proposal.

    Attributes:
        proposal: the proposal.
        skill: its skill, with the evidence once it was tried.
        admitted: whether it enters the library.
        why: the deciding reason, as text.
        worth: reward of its summary; None if unknown, because the trial was skipped for lack of room.
        gain: the trial's result; None if there was no trial.
    """

    proposal: Proposal
    skill: Skill
    admitted: bool
    why: str
    worth: float | None = 0.0
    gain: Gain | None = None

    @property
    def lo(self) -> float | None:
        """The gain's lower bound, a ratio; None if there is none."""
        return self.gain.total.lo if self.gain is not None and self.gain.total is not None else None


def try_skills(
    proposed: Sequence[Proposal],
    subjects: Mapping[str, TaskContext],
    backbone: Backbone,
    library: Library | None,
    config: Config,
    judging: JudgeQueue[Any] | None = None,
    step: int = 0,
    processes: ProcessGroup | None = None,
    earlier: Mapping[str, TaskContext] | None = None,
) -> list[Trial]:
    """A trial a proposal, in their order; nothing is written to the library.

    Each of several processes plays its share of the arms and receives the others' results, so that all reach the same result.

    Args:
        proposed: those of a task in the order in which they are to be tried, as `proposals` gives them.
        subjects: by task id: the step's tasks.
        backbone: the model that is to profit from the skills.
        library: their target.
        config: `trials`, `rollout`, `agents`, and the judge's settings.
        judging: see `trial_arms.sample_arms`.
        step: training step.
        processes: the process group; all processes have the same proposals and a library of the same content.
        earlier: other tasks, by id, that are siblings if the step's are too few.

    Raises:
        DvkError: a broken machine.
    """
    settings = config.trials
    reads_graph = dialects.get(backbone.dialect).reads_graph
    known_tasks = {**(earlier or {}), **subjects}
    readable, beside = (
        {
            task: subject
            for task, subject in some.items()
            if subject.captured is not None or not reads_graph
        }
        for some in (subjects, earlier or {})
    )
    trials: dict[int, Trial] = {}
    doubles: dict[int, KnownSkill] = {}
    taken: list[Proposal] = []
    room: Counter[str] = Counter()
    arms: dict[ArmKey, TrialArm] = {}
    plans: dict[int, list[tuple[ArmKey, ArmKey]]] = {}
    by_table = _on_table(proposed, readable, config)
    for position, proposal in enumerate(proposed):
        if (double := why_not_new(proposal, library, taken, KNOWN_SIMILARITY)) is not None:
            doubles[position] = double
        elif position in by_table:
            trials[position] = by_table[position]
            taken.append(proposal)
        elif proposal.task not in readable:
            trials[position] = _untried(proposal, "its task cannot be played here")
        elif room[proposal.task] == settings.per_task:
            trials[position] = _untried(
                proposal, f"{settings.per_task} of its task are tried already"
            )
        else:
            room[proposal.task] += 1
            taken.append(proposal)
            plans[position] = _planned(proposal, readable, beside, library, config, arms)
    turns = _answered(arms, backbone, config, judging, step, processes or ProcessGroup())
    for position, plan in plans.items():
        pairs = {
            control[0]: list(zip(turns[control], turns[treatment], strict=True))
            for control, treatment in plan
        }
        trials[position] = trial_outcome(proposed[position], pairs, known_tasks, settings, step)
    _one_a_task(trials)
    worth = {id(trial.proposal): trial.worth for trial in trials.values()}
    for position, double in doubles.items():
        # Its evidence was measured under the earlier one's name.
        earned = worth[id(double.earlier)] if double.earlier is not None else 0.0
        trials[position] = _untried(proposed[position], double.why, earned)
    return [trials[position] for position in range(len(proposed))]


def _on_table(
    proposed: Sequence[Proposal], subjects: Mapping[str, TaskContext], config: Config
) -> dict[int, Trial]:
    """Trials of the proposals with a change of plan where a table judges: over all of its tasks, without a sample."""
    path = table_trials.table_of(config)
    asked = {
        number: one
        for number, one in enumerate(proposed)
        if path is not None and one.skill.block is not None and one.task in subjects
    }
    result = {}
    for backend in sorted({subjects[one.task].backend for one in asked.values()}):
        mine = {n: p for n, p in asked.items() if subjects[p.task].backend == backend}
        assert path is not None, "a table judges"
        outcomes = table_trials.table_trials([p.skill for p in mine.values()], backend, path)
        for (number, proposal), outcome in zip(mine.items(), outcomes, strict=True):
            gain = outcome.gain
            low = gain.total.lo if gain is not None and gain.total is not None else 1.0
            said = outcome.why or (_said(gain) if gain is not None else "")
            worth = min(max(low - 1.0, 0.0), CAP)
            result[number] = Trial(proposal, outcome.skill, not outcome.why, said, worth, gain)
    return result


def _untried(proposal: Proposal, why: str, worth: float | None = None) -> Trial:
    return Trial(proposal, proposal.skill, False, why, worth)


def trial_outcome(
    proposal: Proposal,
    pairs: Mapping[str, Sequence[Pair]],
    subjects: Mapping[str, TaskContext],
    settings: Settings,
    step: int,
) -> Trial:
    """The outcome of one trial, judged by its pairs alone.

    Args:
        pairs: control's and treatment's judged turns, by task id.
        subjects: by task id, those of `pairs` among them.
    """
    measured = effect_size(pairs, FAILED, settings.level)
    why = why_refused(measured, proposal.task, settings)
    skill = proposal.skill
    if measured.total is None:
        return Trial(proposal, skill, False, why, 0.0, measured)
    worth = credit_of(measured.total, settings) if measured.num_pairs >= LEAST_PAIRS else 0.0
    seen = evidence(measured, proposal, pairs, subjects, settings, step)
    skill = skill.model_copy(update={"evidence": (*skill.evidence, seen)})
    return Trial(proposal, skill, not why, why or _said(measured), worth, measured)


def credit_of(gain: Bounded, settings: Settings) -> float:
    """A summary's reward for a skill: the expected gain less 1, given the measured one and its error; capped.

    The mean of a normal posterior whose prior is no gain. A lower bound instead would be below 1 for nearly all trials of three tasks, so
    that summaries of useful and of useless skills earned the same, nothing.
    """
    if gain.lo <= 0:
        return 0.0
    error = math.log(gain.value / gain.lo) / student_quantile(settings.level, MANY)
    expected = math.log(gain.value) * PRIOR_SD**2 / (PRIOR_SD**2 + error**2)
    return max(-CAP, min(CAP, math.expm1(expected)))


def why_refused(measured: Gain, task: str, settings: Settings) -> str:
    """Why a measured gain is not enough, `task` being the one that the skill came from; empty when it is."""
    total, own = measured.total, measured.tasks.get(task)
    if total is None or measured.num_pairs < LEAST_PAIRS:
        return (
            f"{measured.num_pairs} pairs count, {LEAST_PAIRS} are needed; in {measured.num_failed} others both arms failed, "
            f"{measured.num_unmeasured} were not measured"
        )
    if own is None:
        return "no pair counts on the task it came from"
    if not isfinite(total.hi):
        return "one task and one answer an arm: nothing bounds its gain"
    if total.lo < settings.relative:
        return f"{_said(measured)}; its lower bound is to reach {settings.relative:g}×"
    if own.treatment < settings.absolute:
        return f"{own.treatment:.2f}× of eager with it on its own task, {settings.absolute:g}× is asked"
    for name, one in measured.tasks.items():
        surely = one.gain.hi if isfinite(one.gain.hi) else one.gain.value
        if surely < HARM:
            return f"it makes task {name} slower: {one.gain.value:.2f}×"
    return ""


def evidence(
    measured: Gain,
    proposal: Proposal,
    pairs: Mapping[str, Sequence[Pair]],
    subjects: Mapping[str, TaskContext],
    settings: Settings,
    step: int,
) -> dict[str, Any]:
    """A skill's record of its trial, as JSON; ratios, bounds one-sided, null if unbounded."""
    assert measured.total is not None
    turns = [turn for of_task in pairs.values() for pair in of_task for turn in pair]
    machine = next(
        (
            turn.verdict.machine
            for turn in turns
            if turn.verdict is not None and turn.verdict.machine
        ),
        "",
    )
    tasks = {
        task: {
            "name": subjects[task].task.name,
            "gain": _figure(one.gain.value),
            "control": _figure(one.control),
            "treatment": _figure(one.treatment),
            "pairs": one.num_pairs,
        }
        for task, one in measured.tasks.items()
    }
    return {
        "source": "trial",
        "step": step,
        "task": proposal.task,
        "machine": machine,
        "backend": subjects[proposal.task].backend,
        "gain": _figure(measured.total.value),
        "lo": _figure(measured.total.lo),
        "hi": _figure(measured.total.hi),
        "level": settings.level,
        "over": measured.unit,
        "pairs": measured.num_pairs,
        "both_failed": measured.num_failed,
        "unmeasured": measured.num_unmeasured,
        "given": list(proposal.given),
        "tasks": tasks,
    }


def summary_rewards(trials: Iterable[Trial]) -> dict[str, dict[int, float | None]]:
    """Task → sample of its summary → worth of the best of its skills, as `dvk.learn.assign` takes it.

    None if all of a sample's skills were left untried; samples that proposed none are absent.
    """
    result: dict[str, dict[int, float | None]] = defaultdict(dict)
    for trial in trials:
        of_task, sample = result[trial.proposal.task], trial.proposal.sample
        known = [worth for worth in (of_task.get(sample), trial.worth) if worth is not None]
        of_task[sample] = max(known, default=None)
    return dict(result)


def admit(library: Library, trials: Sequence[Trial], step: int) -> dict[str, float]:
    """Add admitted skills with their evidence to the library, and record refused ones; in one transaction.

    Returns:
        figures of the step: proposed, tried, admitted, and the best lower bound if there is one.

    Raises:
        LibraryError: a name was taken since the trial.
    """
    library.record_all(_event(trial, step) for trial in trials)
    bounds = [trial.lo for trial in trials if trial.lo is not None]
    return {
        "proposed": float(len(trials)),
        "tried": float(sum(trial.gain is not None for trial in trials)),
        "admitted": float(sum(trial.admitted for trial in trials)),
        **({"best_lower_bound": max(bounds)} if bounds else {}),
    }


def _event(trial: Trial, step: int) -> Event:
    data = {
        "why": trial.why,
        "task": trial.proposal.task,
        "summary": trial.proposal.sample,
        "worth": trial.worth,
    }
    if trial.gain is not None and trial.gain.total is not None:
        data |= {
            "gain": _figure(trial.gain.total.value),
            "lo": _figure(trial.gain.total.lo),
            "pairs": trial.gain.num_pairs,
        }
    whole = trial.skill.model_dump(mode="json")
    kind, place = ("admitted", "skill") if trial.admitted else ("refused", "proposal")
    return Event(kind, trial.skill.name, step, {**data, place: whole})


def _planned(
    proposal: Proposal,
    subjects: Mapping[str, TaskContext],
    beside: Mapping[str, TaskContext],
    library: Library | None,
    config: Config,
    arms: dict[ArmKey, TrialArm],
) -> list[tuple[ArmKey, ArmKey]]:
    """Control and treatment on each task of a trial, its own first; the arms are added to `arms`."""
    given = tuple(
        library.get(name) for name in proposal.given if library is not None and name in library
    )
    given = given[: config.agents.num_chosen - 1]
    plan = []
    for task in (
        proposal.task,
        *most_similar(proposal.task, subjects, config.trials.siblings, MIN_SIMILARITY, beside),
    ):
        pair = []
        for skills in (given, (*given, proposal.skill)):
            key = (task, tuple(skill.name for skill in skills))
            arms[key] = TrialArm(subjects.get(task) or beside[task], skills)
            pair.append(key)
        plan.append((pair[0], pair[1]))
    return plan


def _answered(
    arms: Mapping[ArmKey, TrialArm],
    backbone: Backbone,
    config: Config,
    judging: JudgeQueue[Any] | None,
    step: int,
    processes: ProcessGroup,
) -> dict[ArmKey, tuple[Turn, ...]]:
    mine = {key: arms[key] for key in processes.shard(list(arms))}
    samples = sample_arms(mine, backbone, config, judging, step) if mine else {}
    return dict(zip(arms, processes.gather([samples[key] for key in mine]), strict=True))


def _one_a_task(found: dict[int, Trial]) -> None:
    """Keep, for each task, only the admitted skill with the best lower bound, the first of equals."""
    best: dict[str, int] = {}
    for position, trial in sorted(found.items()):
        if not trial.admitted:
            continue
        held = best.setdefault(trial.proposal.task, position)
        if held == position:
            continue
        assert trial.lo is not None and (other := found[held].lo) is not None
        lost, won = (held, position) if trial.lo > other else (position, held)
        best[trial.proposal.task] = won
        found[lost] = replace(
            found[lost],
            admitted=False,
            why=f"{found[won].skill.name}, of the same task, does better",
        )


def _said(measured: Gain) -> str:
    assert measured.total is not None
    over = f"{len(measured.tasks)} tasks" if measured.unit == "tasks" else "the samples of one task"
    return f"{measured.total.value:.2f}× of without it, at least {measured.total.lo:.2f}× (over {over}, {measured.num_pairs} pairs)"


def _figure(ratio: float) -> float | None:
    return round(ratio, 4) if isfinite(ratio) and ratio > 0 else None
