"""The model as a strategy uses it: jobs in, programs out that were not proposed before, every conversation kept.

Skills are chosen once a search, as one scheme of training is: by the selection agent, or as `rollout.selector` says.
Half of the openings are written with them and half without; a revised program's conversation keeps those it was given.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from dvk.agents import TaskContext, dialects, policy, repair, selection
from dvk.agents.briefs import Brief
from dvk.agents.dialects import ProseDialect
from dvk.agents.reading import MalformedAnswer
from dvk.agents.rollout import sampling
from dvk.agents.task_context import bounded
from dvk.backbone import Completion, Conversation
from dvk.errors import UsageError
from dvk.records import Candidate, Role, Skill, Trace, Turn, content_hash
from dvk.search import SearchProblem
from dvk.search.archive import ArchivedProgram, of_seeds

NUM_OPENINGS = 4
"""Programs started from the task alone, half of them with skills."""
NUM_OFFSPRING = 4
"""Programs requested at once: several cost about as much as one to write, but not to judge."""

T = TypeVar("T")


@dataclass(frozen=True)
class WriteJob:
    """One program to be written."""

    asked: Conversation
    title: str
    skills: tuple[Skill, ...] = ()
    """Those the question gives."""
    parents: tuple[ArchivedProgram, ...] = ()


class ProgramWriter:
    """See the module.

    Args:
        problem: the problem, with the backbone to ask.
        strategy: its name, for people.

    Raises:
        UsageError: there is no language model.
    """

    def __init__(self, problem: SearchProblem, strategy: str):
        if problem.backbone is None:
            raise UsageError(
                "this strategy asks a language model",
                "add --backbone, e.g. --backbone nano, or choose --strategy composer",
            )
        self.problem, self.strategy, self.backbone = problem, strategy, problem.backbone
        self.dialect = dialects.get(self.backbone.dialect)
        self.subject = self._subject()
        self.seeds = of_seeds(problem.seeds, self.dialect)
        """The user's candidates, the best first."""
        self.agents = problem.config.agents
        self.rng = random.Random(content_hash(str(problem.config.seed), problem.task.id, strategy))
        self._asked_before: Counter[str] = Counter()
        self._proposed = {program.candidate.id for program in self.seeds}
        self._num_traces = 0

    def _subject(self) -> TaskContext:
        """The task with what bounds it by now."""
        problem = self.problem
        known = problem.bounds()
        subject = TaskContext(problem.task, problem.captured, problem.backend, bounds=known)
        return (
            bounded(subject, problem.config) if isinstance(self.dialect, ProseDialect) else subject
        )

    # ------------------------------------------------------------ asking

    def prose(self, why: str) -> ProseDialect:
        """The dialect, if its models read and write prose.

        Args:
            why: what the strategy needs words for, as a clause.

        Raises:
            UsageError: they cannot.
        """
        if not isinstance(self.dialect, ProseDialect):
            speaker = f"`{self.backbone.name}`, which speaks the {self.backbone.dialect} dialect,"
            problem = f"strategy `{self.strategy}` {why}, and {speaker} has no words for it"
            raise UsageError(
                problem,
                "choose --strategy refine, best_of_n, evolve or polca; or a general model, e.g. endpoint:MODEL",
            )
        return self.dialect

    def answers(self, role: Role, questions: Sequence[Conversation]) -> list[Completion]:
        """One answer a question, drawn as `role` draws; a question that was asked before gets another sample of its answer."""
        digests = [content_hash(question.model_dump_json()) for question in questions]
        found: dict[int, Completion] = {}
        for repeated in sorted({self._asked_before[digest] for digest in digests}):
            group = [
                i for i, digest in enumerate(digests) if self._asked_before[digest] == repeated
            ]
            draws = sampling(role, self.dialect, self.problem.config, 0, repeated)
            found.update(
                zip(
                    group, self.backbone.generate([questions[i] for i in group], draws), strict=True
                )
            )
        self._asked_before.update(set(digests))
        return [found[i] for i in range(len(questions))]

    def parsed_answers(
        self, role: Role, questions: Sequence[Conversation], read: Callable[[Completion], T]
    ) -> list[T | None]:
        """`read` applied to each answer; None if it raises `MalformedAnswer`, or the model failed. All answers are kept."""
        result: list[T | None] = []
        for question, answer in zip(questions, self.answers(role, questions) if questions else ()):
            turn, one = turn_record(question, answer), None
            if turn.malformed is None:
                try:
                    one = read(answer)
                except MalformedAnswer as error:
                    turn = turn.model_copy(update={"malformed": str(error)})
            self.keep(role, turn)
            result.append(one)
        return result

    def keep(self, role: Role, turn: Turn, skills: Sequence[Skill] = ()) -> None:
        """Hand a finished turn to the episode's recorder."""
        scheme = 0 if skills or role == "selection" else None
        trace = Trace(
            role=role,
            scheme=scheme,
            rollout=self._num_traces,
            skills=tuple(s.name for s in skills),
            turns=(turn,),
        )
        self._num_traces += 1
        self.problem.keep(trace)

    # ------------------------------------------------------------ jobs

    def openings(self, number: int | None = None, title: str = "opening") -> list[WriteJob]:
        """Programs from the task alone, every second one with the chosen skills; `NUM_OPENINGS` by default."""
        jobs = []
        for one in range(NUM_OPENINGS if number is None else number):
            skills = self._chosen if one % 2 == 0 else ()
            asked = policy.build_prompt(self.dialect, self.subject, skills, (), self.agents)
            jobs.append(WriteJob(asked, f"{title} {one + 1}", skills))
        return jobs

    def revision(
        self,
        brief: Brief,
        parents: Sequence[ArchivedProgram],
        title: str,
        notes: Sequence[Skill] = (),
    ) -> WriteJob:
        """Another version after `parents`, with the skills that the last of them was given; `notes` come before them."""
        skills = parents[-1].skills[: max(0, self.agents.num_chosen - len(notes))]
        asked = policy.revise(self.dialect, self.subject, (*notes, *skills), brief, self.agents)
        return WriteJob(asked, title, skills, tuple(parents))

    @cached_property
    def _chosen(self) -> tuple[Skill, ...]:
        """The skills of this search."""
        rollout = self.problem.config.rollout
        offered = self.problem.skills[: self.agents.num_candidates]
        most = min(self.agents.num_chosen, len(offered))
        if not offered or not rollout.schemes:
            return ()
        if rollout.selector == "bm25":
            return offered[:most]
        if rollout.selector == "random":
            return tuple(self.rng.sample(offered, most))
        asked = self.dialect.selection(self.subject, offered, self.agents)
        (answer,) = self.answers("selection", [asked])
        turn = turn_record(asked, answer)
        if answer.finish == "error":
            self.keep("selection", turn)
            return ()
        selected = selection.read(self.dialect, answer, offered, self.agents)
        chosen = tuple(skill.name for skill in selected.skills)
        self.keep(
            "selection", turn.model_copy(update={"malformed": selected.malformed, "chosen": chosen})
        )
        return selected.skills

    # ------------------------------------------------------------ writing

    def write(self, jobs: Sequence[WriteJob]) -> list[ArchivedProgram | None]:
        """The model's answer to each, not yet judged, in one call; None if nothing parsed is new in this search."""
        made: list[ArchivedProgram | None] = []
        settings = self.problem.config
        most = repair.repair_attempts(settings.rollout, repair.TRIES_IN_SEARCH)
        asked = [(self.subject, job.asked) for job in jobs]
        drawn = self.answers("policy", [job.asked for job in jobs]) if jobs else []
        draws = sampling("policy", self.dialect, settings, 0)
        answers = repair.repaired_answers(self.backbone, self.dialect, asked, drawn, most, draws)
        for job, (answer, dropped) in zip(jobs, answers, strict=True):
            turn = turn_record(job.asked, answer).model_copy(update={"redrawn": dropped})
            idea = self.dialect.idea(answer) if isinstance(self.dialect, ProseDialect) else ""
            found: Candidate | str = turn.malformed or policy.read(
                self.dialect,
                self.subject,
                answer,
                self.backbone.name,
                job.skills,
                f"{job.title}: {idea}" if idea else job.title,
            )
            if isinstance(found, str):
                self.keep("policy", turn.model_copy(update={"malformed": found}), job.skills)
                made.append(None)
                continue
            turn = turn.model_copy(update={"candidate": found})
            if found.id in self._proposed:
                self.keep("policy", turn, job.skills)
                made.append(None)
                continue
            self._proposed.add(found.id)
            short = "" if isinstance(self.dialect, ProseDialect) else answer.text
            made.append(ArchivedProgram(turn, job.skills, job.parents, idea, short))
        self.subject = self._subject()
        return made


def turn_record(asked: Conversation, answer: Completion) -> Turn:
    """A turn as far as the model made it."""
    failed = (
        f"the backbone failed: {answer.error or 'it does not say why'}"
        if answer.finish == "error"
        else None
    )
    return Turn(
        messages=asked.messages,
        completion=answer.text,
        tokens=answer.tokens,
        finish=answer.finish,
        malformed=failed,
    )
