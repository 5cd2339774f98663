"""A search as an episode: its judged turns, and each conversation with the model, whole. Only reads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dvk.agents import TaskContext, dialects, policy, tools
from dvk.backbone.recorded import RecordedBackbone
from dvk.records import Candidate, Episode, Role, Skill, Trace, Turn, content_hash


def episode(
    subject: TaskContext,
    turns: Sequence[Turn],
    skills: Sequence[Skill],
    kept: Sequence[Trace],
    backbone: RecordedBackbone | None,
) -> Episode:
    """The whole record: first verdicts outside conversations, confirmations last; then each conversation, whole.

    Args:
        turns: judged turns, in time order.
        skills: skills that retrieval ranked.
        kept: conversations that the strategy handed over.
        backbone: for answers outside those conversations.
    """
    judged = {
        t.candidate.id: t for t in turns if t.candidate and t.verdict and t.verdict.tier != "claim"
    }
    times = (
        {}
        if backbone is None
        else {
            _said(conversation.messages, completion.text): call.elapsed_s
            for call in reversed(backbone.calls)
            for conversation, completion in zip(call.conversations, call.completions)
        }
    )
    talks = [
        trace.model_copy(update={"turns": tuple(_dated(t, judged, times) for t in trace.turns)})
        for trace in kept
    ]
    if backbone is not None:
        given = Counter(_said(t.messages, t.completion) for trace in talks for t in trace.turns)
        talks += rebuilt(subject, backbone, given, judged)
    inside = {t.candidate.id for trace in talks for t in trace.turns if t.candidate}
    outside = [
        t
        for t in turns
        if not (
            t.candidate
            and t.candidate.id in inside
            and backbone is not None
            and t.candidate.proposer == backbone.name
            and t.verdict
            and t.verdict.tier != "claim"
        )
    ]
    first = Trace(role="policy", skills=tuple(s.name for s in skills), turns=tuple(outside))
    return Episode(task=subject.task, traces=(first, *talks))


def rebuilt(
    subject: TaskContext,
    backbone: RecordedBackbone,
    given: Counter[str],
    judged: Mapping[str, Turn],
) -> Iterator[Trace]:
    """Answers that no kept conversation has, each as a conversation of one turn: code is parsed as the policy's is.

    Args:
        given: questions and answers of the turns that are kept already.
        judged: verdicts by candidate.
    """
    dialect = dialects.get(backbone.dialect)
    number = 0
    for call in backbone.calls:
        for conversation, answer in zip(call.conversations, call.completions):
            if conversation.begun:  # a try of an answer, which is kept itself
                continue
            if given[said := _said(conversation.messages, answer.text)]:
                given[said] -= 1
                continue
            turn = Turn(
                messages=conversation.messages,
                completion=answer.text,
                tokens=answer.tokens,
                finish=answer.finish,
                elapsed_s=call.elapsed_s,
            )
            role = _role(conversation.tools)
            if answer.finish == "error":
                turn = turn.model_copy(update={"malformed": f"the backbone failed: {answer.error}"})
            elif role == "policy" and (subject.captured is not None or not dialect.reads_graph):
                read_again = policy.read(dialect, subject, answer, backbone.name, (), "")
                if (
                    isinstance(read_again, Candidate)
                    and (known := judged.get(read_again.id)) is not None
                ):
                    turn = turn.model_copy(
                        update={
                            "candidate": known.candidate,
                            "verdict": known.verdict,
                            "elapsed_s": known.elapsed_s,
                        }
                    )
                elif isinstance(read_again, Candidate):
                    turn = turn.model_copy(update={"candidate": read_again})
            yield Trace(
                role=role,
                rollout=number,
                skills=turn.candidate.skills if turn.candidate else (),
                turns=(turn,),
            )
            number += 1


def _dated(turn: Turn, judged: Mapping[str, Turn], times: Mapping[str, float]) -> Turn:
    """The turn with the search's own clock, and with the verdict if it came too late for the conversation."""
    known = judged.get(turn.candidate.id) if turn.candidate else None
    if known is not None:
        return turn.model_copy(
            update={"verdict": turn.verdict or known.verdict, "elapsed_s": known.elapsed_s}
        )
    return turn.model_copy(
        update={"elapsed_s": times.get(_said(turn.messages, turn.completion), turn.elapsed_s)}
    )


def _said(messages: Sequence[Mapping[str, Any]], text: str) -> str:
    return content_hash(json.dumps(messages, sort_keys=True, default=str), text)


def _role(schemas: Sequence[Mapping[str, Any]]) -> Role:
    named = {schema.get("function", {}).get("name") for schema in schemas}
    return "summary" if tools.UPDATE in named else "selection" if named else "policy"
