"""State machine of one task's episode: its conversations, their next questions, and the outcomes of their answers.

    k selections ─┬─ n policy conversations of T turns each, under the skills chosen ─┐
                  └─ (malformed: see `_unselected`; the learner sees why)            ├─ best improvement → s summaries
    null scheme ──── n policy conversations without skills ─────────────────────────┘

It does no I/O: `rollout` carries the questions to a backbone and the candidates to the judge.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dvk import crashes
from dvk.agents import policy, selection, summary
from dvk.agents.dialects import Dialect, ProseDialect
from dvk.agents.task_context import TaskContext, bounded
from dvk.agents.turns import best_window
from dvk.backbone import Completion, Conversation
from dvk.config import Config
from dvk.crashes import Crashed
from dvk.records import Candidate, Episode, Role, Skill, Status, Trace, Turn, Verdict, content_hash

ROLES: tuple[Role, ...] = ("selection", "policy", "summary")


class ConversationKey(NamedTuple):
    """Key of a conversation and its task: explicit, never parsed."""

    position: int
    """Position of the task among those played together."""
    role: Role
    scheme: int | None
    """Position of the scheme; null: without skills."""
    rollout: int
    """Position among conversations under equal conditions; for a summary, the sample."""


@dataclass
class ConversationState:
    """One conversation in progress."""

    key: ConversationKey
    skills: tuple[Skill, ...] = ()
    given: tuple[Skill, ...] | None = None
    """What an explored selection chooses; None if a model is asked."""
    turns: list[Turn] = field(default_factory=list)
    asked: Conversation | None = None
    """The question that waits for an answer or its verdict."""
    iteration: int = 1
    """How often it has been full, this time included."""
    window: tuple[int, ...] = ()
    """Positions of the turns that this iteration continues from."""
    since: int = 0
    """Position of this iteration's first turn."""
    start: tuple[Turn, ...] = ()
    """Judged candidates of others that it improves on, shown before its own turns."""
    ended: bool = False
    """Nothing more will be added to it."""

    @property
    def context(self) -> list[Turn]:
        """The turns that the next question follows on."""
        return [*(self.turns[position] for position in self.window), *self.turns[self.since :]]

    def trace(self, peer_group: str) -> Trace:
        """As a record."""
        return Trace(
            role=self.key.role,
            scheme=self.key.scheme,
            rollout=self.key.rollout,
            peer_group=peer_group,
            skills=tuple(skill.name for skill in self.skills),
            turns=tuple(self.turns),
        )


class EpisodeRunner:
    """See the module.

    Args:
        position: of this task among those played together.
        subject: the task.
        offered: skills to select from, best first; none: everything is played without skills.
        dialect: the backbone's dialect.
        proposer: the backbone's name.
        step: training step, for the record.
        seeds: judged candidates to begin with, the best first; each conversation starts from one of them.
    """

    def __init__(
        self,
        position: int,
        subject: TaskContext,
        offered: Sequence[Skill],
        dialect: Dialect,
        config: Config,
        *,
        proposer: str,
        step: int = 0,
        seeds: Sequence[Turn] = (),
    ):
        self.position, self.subject, self.offered, self.dialect, self.config = (
            position,
            subject,
            tuple(offered),
            dialect,
            config,
        )
        self.proposer, self.step, self.seeds = proposer, step, tuple(seeds)
        if isinstance(dialect, ProseDialect):
            self.subject = bounded(subject, config)
        self.ready: list[ConversationState] = []
        """Conversations whose next question can be asked."""
        self.num_open = 0
        """Conversations that have not ended, the ready ones included."""
        self.began = time.monotonic()
        self.news: list[tuple[ConversationKey, Turn]] = []
        """Finished turns, in the order they ended; the reader empties the list."""
        self._talks: list[ConversationState] = []
        self._proposed: list[Skill] = []
        self._summarised: ConversationState | None = None
        self._failed = False
        settings = config.rollout
        if self.offered and settings.schemes:
            for scheme in range(settings.schemes):
                if settings.selector == "model":
                    given = self._unasked(scheme) if scheme < settings.explored else None
                    key = ConversationKey(position, "selection", scheme, 0)
                    self._begin(key, self.offered, given)
                else:
                    self._begin_policies(scheme, self._unasked(scheme))
            without = settings.rollouts if settings.null_scheme else 0
        else:  # the same number of conversations, so that peers remain comparable in number
            without = settings.rollouts * max(1, settings.schemes + settings.null_scheme)
        for rollout in range(without):
            self._begin(ConversationKey(position, "policy", None, rollout))

    @property
    def failed(self) -> bool:
        """See `on_crash`; later results of its conversations are dropped."""
        return self._failed

    @property
    def finished(self) -> bool:
        """All conversations have ended."""
        return self.num_open == 0

    # ------------------------------------------------------------ moves

    def next_question(self, conversation: ConversationState) -> Conversation:
        """The next question of a ready conversation, which is then no longer ready."""
        self.ready.remove(conversation)
        agents = self.config.agents
        if conversation.key.role == "selection":
            asked = self.dialect.selection(self.subject, self.offered, agents)
        elif conversation.key.role == "policy":
            asked = policy.build_prompt(
                self.dialect,
                self.subject,
                conversation.skills,
                [*conversation.start, *conversation.context],
                agents,
            )
        else:
            assert self._summarised is not None
            asked = self.dialect.summary(
                self.subject, self._summarised.trace(""), conversation.skills, agents
            )
        conversation.asked = asked
        return asked

    def on_answer(
        self, conversation: ConversationState, answer: Completion, redrawn: int = 0
    ) -> Candidate | None:
        """Take an answer: return the candidate to judge if it is one; else the conversation has continued or ended.

        Args:
            redrawn: answers to the same question that were dropped for it.
        """
        assert conversation.asked is not None, "nothing was asked"
        turn = Turn(
            messages=conversation.asked.messages,
            completion=answer.text,
            tokens=answer.tokens,
            finish=answer.finish,
            redrawn=redrawn,
            forced=conversation.given is not None,
        )
        if answer.finish == "error":
            self._add(
                conversation,
                turn.model_copy(
                    update={
                        "malformed": f"the backbone failed: {answer.error or 'it does not say why'}"
                    }
                ),
            )
            if conversation.key.role == "selection":
                self._unselected(conversation.key.scheme)
            self._end(conversation)
        elif conversation.key.role == "selection":
            self._selected(conversation, turn, answer)
        elif conversation.key.role == "summary":
            self._summary(conversation, turn, answer)
        else:
            scheme = (
                "no skills"
                if conversation.key.scheme is None
                else f"scheme {conversation.key.scheme}"
            )
            title = (
                f"{scheme}, rollout {conversation.key.rollout}, turn {len(conversation.turns) + 1}"
            )
            result = policy.read(
                self.dialect, self.subject, answer, self.proposer, conversation.skills, title
            )
            if isinstance(result, Candidate):
                conversation.turns.append(turn.model_copy(update={"candidate": result}))
                return result
            self._add(conversation, turn.model_copy(update={"malformed": result}))
            self._next(conversation)
        return None

    def given_text(self, conversation: ConversationState) -> str:
        """The answer that an explored selection is recorded with."""
        assert conversation.given is not None, "a model is asked"
        names = [skill.name for skill in self.offered]
        reasons = {skill.name: skill.description for skill in conversation.given}
        return self.dialect.write_selection(names, reasons, "")

    def on_verdict(self, conversation: ConversationState, verdict: Verdict) -> None:
        """Take the verdict on a conversation's last candidate."""
        turn = conversation.turns.pop()
        self._add(conversation, turn.model_copy(update={"verdict": verdict}))
        if verdict.status is Status.BROKEN_TASK:
            self._end(conversation)
        else:
            self._next(conversation)

    def on_crash(self, crash: Crashed) -> None:
        """End the episode after an exception: conversations that have not ended are left out, except one that records it."""
        self._failed, self.ready, self.num_open = True, [], 0
        self._talks = [conversation for conversation in self._talks if conversation.ended]
        rollout = sum(conversation.key.role == "policy" for conversation in self._talks)
        told = ConversationState(
            ConversationKey(self.position, "policy", None, rollout), ended=True
        )
        self._talks.append(told)
        self._add(told, Turn(verdict=crashes.verdict(crash, "search")))

    def episode(self) -> Episode:
        """The episode's record, conversations in the order of their keys; those of one role are peers."""
        conversations = sorted(self._talks, key=lambda one: order(one.key))
        traces = tuple(
            conversation.trace(f"{self.subject.task.id}/{self.step}/{conversation.key.role}")
            for conversation in conversations
        )
        return Episode(
            task=self.subject.task,
            step=self.step,
            traces=traces,
            proposed_skills=tuple(self._proposed),
        )

    # ------------------------------------------------------------ inside

    def _begin(
        self,
        key: ConversationKey,
        skills: tuple[Skill, ...] = (),
        given: tuple[Skill, ...] | None = None,
    ) -> None:
        conversation = ConversationState(key, skills, given)
        if key.role == "policy" and self.seeds:
            conversation.start = (self.seeds[key.rollout % len(self.seeds)],)
        self._talks.append(conversation)
        self.ready.append(conversation)
        self.num_open += 1

    def _add(self, conversation: ConversationState, turn: Turn) -> None:
        conversation.turns.append(
            turn.model_copy(update={"elapsed_s": round(time.monotonic() - self.began, 3)})
        )
        self.news.append((conversation.key, conversation.turns[-1]))
        conversation.asked = None

    def _next(self, conversation: ConversationState) -> None:
        settings = self.config.rollout
        if len(conversation.context) >= settings.turns:
            if conversation.iteration >= settings.iterations:
                self._end(conversation)
                return
            kept = min(settings.window, settings.turns - 1)
            conversation.iteration, conversation.since = (
                conversation.iteration + 1,
                len(conversation.turns),
            )
            conversation.window = (
                best_window(conversation.turns, kept, self.config.rewards) if kept else ()
            )
        self.ready.append(conversation)

    def _end(self, conversation: ConversationState) -> None:
        conversation.ended = True
        self.num_open -= 1
        if self.num_open == 0 and self._summarised is None:
            self._begin_summaries()

    def _selected(self, conversation: ConversationState, turn: Turn, answer: Completion) -> None:
        selected = selection.read(self.dialect, answer, self.offered, self.config.agents)
        self._add(
            conversation,
            turn.model_copy(
                update={
                    "malformed": selected.malformed,
                    "chosen": tuple(skill.name for skill in selected.skills),
                }
            ),
        )
        if selected.malformed is None:
            self._begin_policies(conversation.key.scheme, selected.skills)
        else:
            self._unselected(conversation.key.scheme)
        self._end(conversation)

    def _unselected(self, scheme: int | None) -> None:
        """Record that nothing was selected. With a null scheme, playing it would be a second one; else it is the only play."""
        if not self.config.rollout.null_scheme:
            self._begin_policies(scheme, ())

    def _begin_policies(self, scheme: int | None, skills: tuple[Skill, ...]) -> None:
        for rollout in range(self.config.rollout.rollouts):
            self._begin(ConversationKey(self.position, "policy", scheme, rollout), skills)

    def _unasked(self, scheme: int) -> tuple[Skill, ...]:
        """A selection without a model: the first by BM25, or as many at random."""
        most = min(self.config.agents.num_chosen, len(self.offered))
        if self.config.rollout.selector == "bm25":
            return self.offered[:most]
        rng = random.Random(
            content_hash(str(self.config.seed), str(self.step), self.subject.task.id, str(scheme))
        )
        return tuple(rng.sample(self.offered, most))

    def _begin_summaries(self) -> None:
        """When everything has been played, ask for the lesson of the best improvement, if there is one."""
        traces = {
            id(trace := conversation.trace("")): (conversation, trace)
            for conversation in self._talks
        }
        best = summary.best([trace for _, trace in traces.values()])
        if best is None or not self.config.rollout.summaries:
            return
        self._summarised = traces[id(best)][0]
        for number in range(self.config.rollout.summaries):
            self._begin(
                ConversationKey(self.position, "summary", self._summarised.key.scheme, number),
                self._summarised.skills,
            )

    def _summary(self, conversation: ConversationState, turn: Turn, answer: Completion) -> None:
        assert self._summarised is not None
        source = self._summarised.key
        provenance = {
            "source": "run",
            "task": self.subject.task.id,
            "step": self.step,
            "scheme": source.scheme,
            "rollout": source.rollout,
            "summary": conversation.key.rollout,
        }
        proposals = summary.read(
            self.dialect,
            self.subject,
            answer,
            self._summarised.trace(""),
            self.config.agents,
            provenance,
        )
        self._add(conversation, turn.model_copy(update={"malformed": proposals.malformed}))
        self._proposed += proposals.skills
        self._end(conversation)


def order(key: ConversationKey) -> tuple[int, int, int, int]:
    """Keys in order of time: selections, the null scheme, the schemes, summaries."""
    return (
        key.position,
        ROLES.index(key.role),
        -1 if key.scheme is None else key.scheme,
        key.rollout,
    )
