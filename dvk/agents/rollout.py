"""Play tasks: carry questions to a backbone and candidates to the judge, so that neither waits for the other.

All conversations of all tasks in flight that are ready are asked in one batch. While a backbone writes, the judge's
workers continue with their queue; a new batch starts when it is full, or when the judge is about to run out of work.
Twice a batch of conversations is kept in flight: one half is being written, the other judged.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, ParamSpec, TypeVar

from dvk.agents import dialects, policy, repair, selection, writers
from dvk.agents.episode_runner import (
    ROLES,
    ConversationKey,
    ConversationState,
    EpisodeRunner,
    order,
)
from dvk.agents.task_context import TaskContext
from dvk.backbone import Backbone, Completion, Conversation, Encoding, Sampling
from dvk.backends import default_device
from dvk.config import Config
from dvk.crashes import Crashed, run_guarded
from dvk.harness.placement import num_workers
from dvk.harness.queue import JudgeQueue
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.records import Candidate, Episode, Role, Tokens, Turn, content_hash
from dvk.skills import Library

SELECTION_TOKENS = 1024
"""Longest selection answer; the compact dialect needs and requests less."""
SUMMARY_TOKENS = 2048
"""Longest summary answer."""

REDRAW_TEMPERATURE = 1.0
"""Lowest temperature of resampled answers: a greedy one would repeat itself, one at 0.7 mostly makes the same mistake."""
Judging = JudgeQueue[tuple[EpisodeRunner, ConversationState]]
P = ParamSpec("P")
T = TypeVar("T")
OnTurn = Callable[[ConversationKey, Turn], None]
"""Called in the caller's thread with each finished turn; turns of a key come in their order."""


class Unparsed(NamedTuple):
    """An unparsable answer, with its conversation's state."""

    runner: EpisodeRunner
    conversation: ConversationState
    unread: repair.UnparsedAnswer
    draws: Sampling
    redrawn: int
    """Answers that were dropped before it."""


def run_episode(
    subject: TaskContext,
    backbone: Backbone,
    library: Library | None,
    config: Config,
    *,
    judging: Judging | None = None,
    step: int = 0,
    on_turn: OnTurn | None = None,
) -> Episode:
    """One task's episode; see `run_episodes`."""
    (episode,) = run_episodes(
        [subject], backbone, library, config, judging=judging, step=step, on_turn=on_turn
    )
    return episode


def run_episodes(
    subjects: Iterable[TaskContext],
    backbone: Backbone,
    library: Library | None,
    config: Config,
    *,
    judging: Judging | None = None,
    step: int = 0,
    on_turn: OnTurn | None = None,
) -> Iterator[Episode]:
    """Yield an episode a task, each as it ends, in no particular order.

    A backbone's failed answer (finish `error`) ends its conversation and no other. When it is interrupted or left, nothing
    more is judged; what `on_turn` was given is complete.

    Args:
        subjects: taken one by one as there is room, so that they may be captured lazily. One without a graph, if the
            dialect reads graphs, gives an episode without traces.
        backbone: uses the dialect it names.
        library: searched for every task, in the caller's thread; None: nothing is selected, all is played without skills.
        config: `agents`, `rollout`, and the judge's settings.
        judging: judge queue, shared by consecutive runs; a separate one by default.
        step: training step, for the record.
        on_turn: see `OnTurn`.

    Raises:
        DvkError: a broken machine: no sandbox, or a backbone that cannot work at all.
    """
    dialect = dialects.get(backbone.dialect)
    settings = config.rollout
    court = judging if judging is not None else _own_judging(config)
    runners: dict[int, EpisodeRunner] = {}
    asked_before: Counter[str] = Counter()
    waiting = iter(enumerate(subjects))
    following = next(waiting, None)
    try:
        while following is not None or runners:
            while (
                following is not None
                and sum(one.num_open for one in runners.values()) < 2 * settings.batch
            ):
                position, subject = following
                following = next(waiting, None)
                if dialect.reads_graph and subject.captured is None:
                    yield Episode(task=subject.task, step=step)
                    continue
                begun = start_episode(
                    position, subject, library, dialect, config, backbone.name, step
                )
                if begun.failed:
                    yield begun.episode()
                else:
                    runners[position] = begun
            ready = _ready(runners.values())
            full, hungry = len(ready) >= settings.batch, court.num_waiting < court.workers
            if ready and (full or hungry):
                batch = ready[: settings.batch]
                for one, conversation, candidate in _proposed(
                    batch, backbone, dialect, config, step, asked_before
                ):
                    court.submit((one, conversation), one.subject.task, candidate)
                verdicts = court.results(wait=False)
            else:
                assert court.num_pending or not runners, "a conversation neither asks nor waits"
                verdicts = court.results(wait=True)
            for (one, conversation), verdict in verdicts:
                # Others are of an earlier run, or trial, that was left.
                if isinstance(one, EpisodeRunner) and runners.get(one.position) is one:
                    guarded(one, one.on_verdict, conversation, verdict)
            for one in list(runners.values()):
                _report_turns(one, on_turn)
                if one.finished:
                    yield runners.pop(one.position).episode()
    finally:
        if judging is None:
            court.close()


def _own_judging(config: Config) -> Judging:
    """A judge queue for one run, on this machine's device."""
    spec = JudgeSpec(require_kernels=config.rollout.require_kernels)
    return Judging(num_workers(config, default_device()), config, spec=spec)


def _ready(runners: Iterable[EpisodeRunner]) -> list[tuple[EpisodeRunner, ConversationState]]:
    """Conversations that can be asked, in the order of their keys."""
    pairs = ((one, conversation) for one in runners for conversation in one.ready)
    return sorted(pairs, key=lambda pair: order(pair[1].key))


def _proposed(
    ready: Sequence[tuple[EpisodeRunner, ConversationState]],
    backbone: Backbone,
    dialect: dialects.Dialect,
    config: Config,
    step: int,
    asked_before: Counter[str],
) -> Iterator[tuple[EpisodeRunner, ConversationState, Candidate]]:
    """Ask one batch, and yield candidates as they are read; unparsable answers are repaired afterwards."""
    lost: list[Unparsed] = []
    yield from generate_turns(ready, backbone, dialect, config, step, asked_before, lost)
    attempts = repair.repair_attempts(config.rollout)
    yield from repair_unparsed(lost, backbone, dialect, attempts)


def _report_turns(one: EpisodeRunner, on_turn: OnTurn | None) -> None:
    news, one.news = one.news, []
    if on_turn is not None:
        for key, turn in news:
            on_turn(key, turn)


def start_episode(
    position: int,
    subject: TaskContext,
    library: Library | None,
    dialect: dialects.Dialect,
    config: Config,
    proposer: str,
    step: int,
) -> EpisodeRunner:
    """A task's episode before its first question, with the candidate skills."""
    offered = (
        run_guarded("choosing skills", selection.candidates, subject, library, config.agents)
        if library is not None
        else []
    )
    names = [] if isinstance(offered, Crashed) else offered
    one = EpisodeRunner(position, subject, names, dialect, config, proposer=proposer, step=step)
    if isinstance(offered, Crashed):
        one.on_crash(offered)
    return one


def guarded(one: EpisodeRunner, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T | None:
    """The result of `work` on a task's episode; None if an exception, this one or an earlier one, has ended the episode."""
    if one.failed:
        return None
    result = run_guarded("playing it", work, *args, **named)
    if isinstance(result, Crashed):
        one.on_crash(result)
        return None
    return result


def generate_turns(
    batch: Sequence[tuple[EpisodeRunner, ConversationState]],
    backbone: Backbone,
    dialect: dialects.Dialect,
    config: Config,
    step: int,
    asked_before: Counter[str],
    lost: list[Unparsed],
) -> Iterator[tuple[EpisodeRunner, ConversationState, Candidate]]:
    """Ask a batch of ready conversations, one backbone call a role since their lengths differ; yields candidates as they come.

    Backbones draw equal samples for equal seeds and prompts, and different ones for equal prompts in one call. So the seed
    distinguishes calls with the same prompt and nothing else: samples hardly depend on the order of events.

    Unparsable policy answers are resampled, those of a call in one call, up to `rollout.resample_unparsed` times.

    Args:
        asked_before: prompts of earlier calls, extended by this call; empty at first.
        lost: receives the answers that stay unparsable, for `repair_unparsed`.
    """
    groups: dict[tuple[int, int], list[tuple[EpisodeRunner, ConversationState, Conversation]]] = {}
    for one, conversation in batch:
        question = guarded(one, one.next_question, conversation)
        if question is None or take_given(one, conversation, question, backbone):
            continue
        repeated = asked_before[_digest(question)]
        groups.setdefault((ROLES.index(conversation.key.role), repeated), []).append(
            (one, conversation, question)
        )
    asked_before.update(
        {_digest(question) for group in groups.values() for _, _, question in group}
    )
    for (number, repeated), group in sorted(groups.items(), key=lambda item: item[0]):
        role = ROLES[number]
        most = config.rollout.resample_unparsed if role == "policy" else 0
        for redrawn in range(most + 1):
            draws, questions = (
                sampling(role, dialect, config, step, repeated, redrawn),
                [question for _, _, question in group],
            )
            if role == "policy":
                answers = writers.answers(
                    backbone, [one.subject for one, _, _ in group], questions, draws
                )
            else:
                answers = backbone.generate(questions, draws)
            unread = []
            for asked, answer in zip(group, answers, strict=True):
                one, conversation, question = asked
                answer = (
                    policy.parse_reply(dialect, one.subject, answer) if role == "policy" else answer
                )
                if policy.has_no_candidate(answer) and redrawn < most:
                    unread.append(asked)
                elif policy.has_no_candidate(answer):
                    lost.append(
                        Unparsed(
                            one,
                            conversation,
                            repair.UnparsedAnswer(one.subject, question, answer),
                            draws,
                            redrawn,
                        )
                    )
                elif (
                    candidate := guarded(one, one.on_answer, conversation, answer, redrawn)
                ) is not None:
                    yield one, conversation, candidate
            if not unread:
                break
            group = unread


def take_given(
    one: EpisodeRunner, conversation: ConversationState, question: Conversation, backbone: Backbone
) -> bool:
    """Whether it is an explored selection, which is answered here; its tokens have no log-probabilities of a sampler."""
    if conversation.given is None:
        return False
    text, tokens = one.given_text(conversation), None
    if isinstance(backbone, Encoding):
        tokens = Tokens(prompt=backbone.encode(question), completion=backbone.encode_answer(text))
    answer = Completion(text=text, tokens=tokens, finish="stop")
    guarded(one, one.on_answer, conversation, answer)
    return True


def repair_unparsed(
    lost: Sequence[Unparsed], backbone: Backbone, dialect: dialects.Dialect, most: int
) -> Iterator[tuple[EpisodeRunner, ConversationState, Candidate]]:
    """Repair answers that `generate_turns` could not parse: yields candidates as they come; the other answers are passed on unchanged.

    Args:
        most: tries of one answer, see `repair`.
    """
    left = {id(one): one for one in lost}
    try:
        for draws in dict.fromkeys(one.draws for one in lost):
            group = [one for one in lost if one.draws == draws]
            for place, answer, tried in repair.repair(
                backbone, dialect, [one.unread for one in group], most, draws
            ):
                one = left.pop(id(group[place]))
                if (
                    candidate := guarded(
                        one.runner,
                        one.runner.on_answer,
                        one.conversation,
                        answer,
                        one.redrawn + tried,
                    )
                ) is not None:
                    yield one.runner, one.conversation, candidate
    finally:  # the time limit may strike in the middle
        for one in left.values():
            guarded(
                one.runner, one.runner.on_answer, one.conversation, one.unread.answer, one.redrawn
            )


def sampling(
    role: Role,
    dialect: dialects.Dialect,
    config: Config,
    step: int,
    repeated: int = 0,
    redrawn: int = 0,
) -> Sampling:
    """Sampling settings of a role's answers.

    Args:
        repeated: number of earlier calls with the same prompt.
        redrawn: number of earlier answers to the same turn.
    """
    settings = config.rollout
    most = {
        "selection": SELECTION_TOKENS,
        "policy": settings.policy_tokens,
        "summary": SUMMARY_TOKENS,
    }[role]
    seed = (
        int(
            content_hash(
                str(config.seed),
                str(step),
                role,
                str(repeated),
                *([f"redrawn {redrawn}"] if redrawn else []),
            ),
            16,
        )
        % 2**31
    )
    temperature = max(settings.temperature, REDRAW_TEMPERATURE) if redrawn else settings.temperature
    return Sampling(temperature=temperature, max_tokens=min(most, dialect.longest[role]), seed=seed)


def _digest(question: Conversation) -> str:
    return content_hash(json.dumps(question.messages, sort_keys=True, default=str))
