"""Proposed skills before their trial: the origin of each, and whether it says anything new.

Two skills are near-duplicates when they have a name in common, or when most of the words of their notes are the same
(Jaccard similarity of name, description, when and do). The rest of a body is left out: models that write notes have it
filled in from the conversation, so that two different ideas of one conversation would share it. Candidates among a large
library are found by its own BM25 search.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dvk.agents import notes
from dvk.records import Episode, Skill
from dvk.skills import Library

CANDIDATES = 20
"""Skills of the library that a proposal is compared with: the best by BM25; one nearly the same is among the first."""
_WORD = re.compile(r"[a-z]+|\d+")


@dataclass(frozen=True)
class Proposal:
    """One skill that a summary would add.

    Attributes:
        skill: as parsed, with the given skills in its provenance.
        task: id of the task it was learned on.
        sample: the summary of that task that proposed it.
        given: names of the skills that the summarised conversation had.
    """

    skill: Skill
    task: str
    sample: int
    given: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownSkill:
    """Why a proposal is not new.

    Attributes:
        why: the reason, as text.
        earlier: the proposal of the same batch that says it; None if the library does.
    """

    why: str
    earlier: Proposal | None = None


def proposals(episodes: Iterable[Episode]) -> list[Proposal]:
    """Proposals of some episodes: for each task the first skill of every summary, then the second ones."""
    result: list[Proposal] = []
    for episode in episodes:
        given = {
            (trace.scheme, trace.rollout): trace.skills
            for trace in episode.traces
            if trace.role == "policy"
        }
        rank: dict[int, int] = {}
        of_task = []
        for skill in episode.proposed_skills:
            source = skill.provenance
            sample = int(source["summary"])
            rank[sample] = rank.get(sample, -1) + 1
            skills = given.get((source["scheme"], source["rollout"]), ())
            skill = skill.model_copy(
                update={"provenance": {**source, "given": list(skills)}}
            )  # which it may refine
            of_task.append((rank[sample], sample, Proposal(skill, episode.task.id, sample, skills)))
        result += [proposal for *_, proposal in sorted(of_task, key=lambda item: item[:2])]
    return result


def why_not_new(
    proposal: Proposal, library: Library | None, earlier: Sequence[Proposal], alike: float
) -> KnownSkill | None:
    """Why a proposal is not new; None when it is.

    Args:
        library: the known skills.
        earlier: proposals of this batch accepted as new.
        alike: similarity from which two skills say the same.
    """
    skill = proposal.skill
    if library is not None:
        if skill.name in library:
            return KnownSkill(f"the library has a skill of the name {skill.name}")
        text = " ".join(sorted(_words(skill)))
        for hit in library.search(text, CANDIDATES, snippets=False):
            if (near := similarity(skill, hit.skill)) >= alike:
                return KnownSkill(f"{near:.0%} the same as {hit.skill.name}, which the library has")
    for other in earlier:
        if skill.name == other.skill.name:
            return KnownSkill(f"{skill.name} was proposed before in this step", other)
        if (near := similarity(skill, other.skill)) >= alike:
            return KnownSkill(
                f"{near:.0%} the same as {other.skill.name}, which was proposed before in this step",
                other,
            )
    return None


def similarity(one: Skill, other: Skill) -> float:
    """Similarity of two skills' short texts, 0 to 1."""
    a, b = _words(one), _words(other)
    return len(a & b) / len(a | b) if a | b else 1.0


def _words(skill: Skill) -> frozenset[str]:
    note = notes.note(skill)
    return frozenset(
        _WORD.findall(f"{note.name} {note.when} {note.do} {skill.description}".lower())
    )
