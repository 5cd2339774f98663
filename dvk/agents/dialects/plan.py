"""The dialect of nano with plans instead of kernels: a policy names what the composer should do, and the composer writes it.

    LISTING
    recipes +own_matmul +cuda_graph -inplace_epilogue
    k0 k3 softmax 16384 x 1024 float32 = persistent xblock 1 warps 8
    skill …
    plan
    → plan +own_matmul
      k0 k3 = looped xblock 1 rblock 2048 warps 8 evict no online yes

`recipes` lists what an answer may add or take away, each line after it kernels that do the same under the default plan, and their
schedule there. An answer is the difference from the default (`composer.plan_line`). It is right by construction.

A model with local weights answers with one plan of a list (`Conversation.choices`): the plans that `dvk measure` would time
(`composer.plan_list`), or those of a table. Other models write freely, and what cannot be read is left out.

Skills are notes in the same words: their condition and change (`records.skill_block`). A summary proposes such blocks; what cannot be
read as one is malformed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any

from dvk.agents import notes
from dvk.agents.dialects.nano import CompactDialect, ask, listing
from dvk.agents.reading import MalformedAnswer
from dvk.agents.task_context import TaskContext
from dvk.backbone import Completion, Conversation
from dvk.composer import CannotCompose
from dvk.composer.codegen.analysis.work import does
from dvk.composer.ir.loops import Kernel
from dvk.composer.plan_line import PLAN, write_schedule
from dvk.composer.plan_list import texts
from dvk.composer.plan_space import PlanSpace
from dvk.config import AgentsConfig
from dvk.records import Candidate, Role, Skill, Trace
from dvk.records.skill_block import BlockError, parse_block

CHOICES = 24
"""Plans to choose from: as many as `dvk measure` times for a task."""
MOST_SELECTED = 2
"""Skills of one selection: of twenty there are 210 sets of two or fewer, and 1,140 of three."""
SPACES = 256
"""Tasks whose plans are kept: more than a table that is trained on has at a time, a megabyte each."""
MOST_KERNELS = 24
"""Groups of kernels listed: the largest, by bytes that they move."""


class PlanDialect(CompactDialect):
    """See the module."""

    longest: Mapping[Role, int] = {"selection": 24, "policy": 256, "summary": 192}

    def policy(
        self, subject: TaskContext, skills: Sequence[Skill], settings: AgentsConfig
    ) -> Conversation:
        given = [self.note(skill).text() for skill in skills]
        asked = ask(listing(subject), *choices(space_of(subject)), *given, PLAN)
        return asked.model_copy(update={"choices": subject.answers or answers(subject)})

    def selection(
        self, subject: TaskContext, skills: Sequence[Skill], settings: AgentsConfig
    ) -> Conversation:
        """As nano's; the answer is none, one or two of the skills, as many as may be chosen."""
        asked, names = super().selection(subject, skills, settings), [s.name for s in skills]
        most = min(MOST_SELECTED, settings.num_chosen)
        sets = (some for count in range(most + 1) for some in combinations(names, count))
        choices = (self.write_selection(names, dict.fromkeys(some, ""), "") for some in sets)
        return asked.model_copy(update={"choices": tuple(choices)})

    def note(self, skill: Skill) -> notes.Note:
        """The condition and the change, in the words of plans; the prose of a skill without."""
        if skill.when is None or skill.do is None:
            return notes.note(skill)
        return notes.Note(skill.name, skill.when, skill.do)

    def read_summary(
        self, subject: TaskContext, answer: Completion, trace: Trace, settings: AgentsConfig
    ) -> list[dict[str, Any]]:
        drafts = super().read_summary(subject, answer, trace, settings)
        for draft in drafts:
            made = notes.sections(draft["body"])[notes.SECTION].splitlines()
            when, do = (line.partition(" ")[2] for line in made)
            try:
                parse_block(when, do)
            except BlockError as error:
                raise MalformedAnswer(f"{draft['name']}: {error}") from None
            draft.update(when=when, do=do)
        return drafts

    def read_policy(self, subject: TaskContext, answer: Completion) -> Candidate:
        """The candidate of every answer: words that cannot be read are left out, and a line cut at the token limit, too.

        So no answer is unreadable; one that says nothing is the composer's own plan.
        """
        space, left_out = space_of(subject), list[str]()
        text = answer.text
        if answer.finish == "length":
            text = text.rpartition("\n")[0] or PLAN
        plan = space.read(text, left_out)
        try:
            made = space.candidate(plan, space.text(plan).replace("\n", "; "))
        except CannotCompose:  # a schedule that cannot run this kernel
            made = space.candidate(space.default, PLAN)
        return made


def space_of(subject: TaskContext) -> PlanSpace:
    """The plans of a task; kept for its next questions."""
    return _space(_Known(subject))


class _Known:
    """A task context that is equal to another of the same task and back end."""

    def __init__(self, subject: TaskContext):
        self.subject, self.key = subject, (subject.task.id, subject.backend)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Known) and self.key == other.key


@lru_cache(maxsize=SPACES)
def _space(known: _Known) -> PlanSpace:
    subject = known.subject
    assert subject.captured is not None, "a plan needs a graph"
    return PlanSpace(subject.task, subject.captured, subject.backend)


def answers(subject: TaskContext) -> tuple[str, ...]:
    """The plans to choose from; one alone where the others cannot be made."""
    return _answers(_Known(subject))


@lru_cache(maxsize=SPACES)
def _answers(known: _Known) -> tuple[str, ...]:
    try:
        return texts(space_of(known.subject), CHOICES)
    except CannotCompose:
        return (PLAN,)


def choices(space: PlanSpace) -> list[str]:
    """What an answer chooses from: recipes, and groups of equal kernels with their default schedule."""
    default = space.default
    signed = [
        f"{'-' if name in default.recipes else '+'}{name}" for name in space.choosable(space.order)
    ]
    groups: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in space.fused(default.recipes).ordered:
        sizes = f"{kernel.num_rows} x {kernel.row_length}" if kernel.reduced else kernel.num_rows
        facts = f"{does(kernel)} {sizes} {_dtype(kernel)}"
        groups.setdefault((facts, write_schedule(space.first(kernel))), []).append(kernel)
    largest = sorted(groups, key=lambda key: -sum(k.num_bytes for k in groups[key]))[:MOST_KERNELS]
    return [
        " ".join(["recipes", *signed]),
        *(
            f"{' '.join(k.name for k in groups[key])} {key[0]} = {key[1]}"
            for key in groups
            if key in largest
        ),
    ]


def _dtype(kernel: Kernel) -> str:
    buffers = kernel.inputs or kernel.outputs
    return max(buffers, key=lambda buffer: buffer.num_bytes).dtype
