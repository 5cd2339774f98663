"""Generates and judges the arms of all trials of a step: one turn, a fixed number of samples each, without barriers between tasks.

All samples of a question are asked in one call of the backbone, which seeds equal questions by their position in it, and
every call of a step has its own seed. Sample i of both arms is drawn with the same random numbers, whatever the prompts are (common
random numbers): where a skill changes no probability it changes no answer, and the difference of the arms has less noise. Local models
do so; servers draw independently. Equal questions are asked once: arms that differ only in whose control they are share their answers.
Answers that do not parse are repaired as in playing.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dvk import crashes
from dvk.agents import dialects, policy, repair, writers
from dvk.agents.rollout import sampling
from dvk.agents.task_context import TaskContext, bounded
from dvk.backbone import Backbone, Completion, Conversation, Sampling
from dvk.backends import default_device
from dvk.config import Config
from dvk.harness.placement import num_workers
from dvk.harness.queue import JudgeQueue
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.records import Skill, Turn, content_hash

K = TypeVar("K")


@dataclass(frozen=True)
class TrialArm:
    """A task, and the skills in its prompt, in the order they are shown."""

    subject: TaskContext
    skills: tuple[Skill, ...]


def sample_arms(
    arms: Mapping[K, TrialArm],
    backbone: Backbone,
    config: Config,
    judging: JudgeQueue[Any] | None = None,
    step: int = 0,
) -> dict[K, tuple[Turn, ...]]:
    """`trials.samples` judged first turns of every arm, in the order they were drawn.

    Args:
        arms: those of tasks that the backbone's dialect can read.
        judging: judge queue, shared by consecutive runs; a separate one by default.
        step: training step, which the seed follows from.

    Raises:
        DvkError: a broken machine.
    """
    dialect = dialects.get(backbone.dialect)
    court = judging if judging is not None else _own_judging(config)
    questions: _Questions[K] = _Questions({}, defaultdict(list))
    turns: dict[tuple[K, int], Turn] = {}
    for key, arm in arms.items():
        if (crash := questions.add(key, arm, dialect, config)) is not None:
            said = Turn(verdict=crashes.verdict(crash, "search"))
            turns |= {(key, sample): said for sample in range(config.trials.samples)}
    asked, askers = questions.asked, questions.askers
    run = object()
    pending: set[tuple[K, int]] = set()
    try:
        for batch in _batches(list(asked), config):
            repeated = [digest for digest in batch for _ in range(config.trials.samples)]
            whose = [arms[askers[digest][0]].subject for digest in repeated]
            questions_of = [asked[digest] for digest in repeated]
            answers = _answers(backbone, dialect, whose, questions_of, config, step)
            new = {
                (key, sample): _turn(
                    dialect, arms[key], asked[digest], answer, backbone.name, sample
                )
                for number, (digest, answer) in enumerate(zip(repeated, answers, strict=True))
                for sample in [number % config.trials.samples]
                for key in askers[digest]
            }
            turns |= new
            for place, turn in new.items():
                if turn.candidate is not None:
                    pending.add(place)
                    court.submit((run, place), arms[place[0]].subject.task, turn.candidate)
            _take(court, run, turns, pending, wait=False)
        while pending:
            _take(court, run, turns, pending, wait=True)
    finally:
        if judging is None:
            court.close()
    return {
        key: tuple(turns[key, sample] for sample in range(config.trials.samples)) for key in arms
    }


def _answers(
    backbone: Backbone,
    dialect: dialects.Dialect,
    subjects: Sequence[TaskContext],
    questions: Sequence[Conversation],
    config: Config,
    step: int,
) -> list[Completion]:
    """One answer a question, repaired where it did not parse; equal samples of different questions share their random numbers."""
    drawn = draws(dialect, config, step)
    asking = [
        question.model_copy(update={"stream": number % config.trials.samples})
        for number, question in enumerate(questions)
    ]
    answers = writers.answers(backbone, subjects, asking, drawn)
    most = repair.repair_attempts(config.rollout)
    pairs = list(zip(subjects, asking, strict=True))
    found = repair.repaired_answers(backbone, dialect, pairs, answers, most, drawn)
    return [answer for answer, _ in found]


def _own_judging(config: Config) -> JudgeQueue[Any]:
    """A judge queue for one run, on this machine's device."""
    spec = JudgeSpec(require_kernels=config.rollout.require_kernels)
    return JudgeQueue(num_workers(config, default_device()), config, spec=spec)


@dataclass(frozen=True)
class _Questions(Generic[K]):
    """The distinct questions of all arms: equal ones are asked once."""

    asked: dict[str, Conversation]
    """By digest."""
    askers: dict[str, list[K]]
    """Digest → arms that ask it."""

    def add(
        self, key: K, arm: TrialArm, dialect: dialects.Dialect, config: Config
    ) -> crashes.Crashed | None:
        """Add an arm's question; return the exception if it has none."""
        prose = isinstance(dialect, dialects.ProseDialect)
        subject = bounded(arm.subject, config) if prose else arm.subject
        question = crashes.run_guarded(
            "playing it", policy.build_prompt, dialect, subject, arm.skills, (), config.agents
        )
        if isinstance(question, crashes.Crashed):
            return question
        digest = content_hash(json.dumps(question.messages, sort_keys=True, default=str))
        self.asked[digest] = question
        self.askers[digest].append(key)
        return None


def _turn(
    dialect: dialects.Dialect,
    arm: TrialArm,
    question: Conversation,
    answer: Completion,
    proposer: str,
    sample: int,
) -> Turn:
    """An arm's turn with the candidate that the answer holds, or with what is wrong with it."""
    turn = Turn(
        messages=question.messages,
        completion=answer.text,
        tokens=answer.tokens,
        finish=answer.finish,
    )
    if answer.finish == "error":
        return turn.model_copy(update={"malformed": f"the backbone failed: {answer.error}"})
    found = policy.read(
        dialect, arm.subject, answer, proposer, arm.skills, f"trial, sample {sample}"
    )
    return turn.model_copy(update={"malformed" if isinstance(found, str) else "candidate": found})


def draws(dialect: dialects.Dialect, config: Config, step: int) -> Sampling:
    """The policy's settings with another seed: the conversations that were summarised were selected for luck, and
    a control that repeated them would share it."""
    seed = int(content_hash(str(config.seed), str(step), "trials"), 16) % 2**31
    return sampling("policy", dialect, config, step).model_copy(update={"seed": seed})


def _batches(digests: Sequence[str], config: Config) -> list[Sequence[str]]:
    """Questions of a call: with all their samples at most `rollout.batch` conversations, but one question at least."""
    size = max(1, config.rollout.batch // config.trials.samples)
    return [digests[first : first + size] for first in range(0, len(digests), size)]


def _take(
    court: JudgeQueue[Any],
    run: object,
    turns: dict[tuple[K, int], Turn],
    pending: set[tuple[K, int]],
    *,
    wait: bool,
) -> None:
    for (whose, place), verdict in court.results(wait=wait):
        if whose is run:  # else of an earlier run that was left
            turns[place] = turns[place].model_copy(update={"verdict": verdict})
            pending.remove(place)
