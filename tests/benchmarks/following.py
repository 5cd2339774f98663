"""Does a policy follow a skill? Two notes that contradict each other on one kernel, given in turn on tasks never trained on.

    python -m tests.benchmarks.following nano:runs/sft/checkpoints/step_002000 data/tasks/heldout --backend triton

For each task one kernel that several algorithms can compute, two of them, and one condition that holds for it: the notes differ in
the algorithm alone. An answer follows a note when it can be read, and of all algorithms that can compute that kernel the one that the
note names is nearest to what was written, by lines in their order, whatever numbers and registers stand in them; what it does besides
is not asked here, nor whether it is right. The share that computes the kernel in the composer's very words for one of its schedules is
`in its words`; whose whole text is one of the composer's, `exact`.
Counted apart: wordings in the training data and new wordings, taught pairs of condition and algorithm and
new pairs. Unparsable answers are repaired first, as everywhere in dvk. Prints one JSON object; `without` is
how often the same algorithms come when no note is given.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from dvk import nanolang
from dvk.agents import TaskContext, dialects, policy, repair
from dvk.agents.preparing import prepare
from dvk.agents.teacher.advice import Advice, advice_for, algorithm_kind, format_note
from dvk.agents.teacher.lessons import skill
from dvk.backbone import Conversation, Sampling, open_backbone
from dvk.backends import default_device
from dvk.composer import CannotCompose, Plan
from dvk.composer.ir.schedules.base import Schedule
from dvk.config import AgentsConfig, Config
from dvk.nanolang.text.variants import full
from dvk.nanolang.text.write import fused, write
from dvk.stats.fast_p import interval


@dataclass(frozen=True)
class Right:
    """Answers that follow an advice, and that follow others on the same kernel."""

    kernel: str
    way: str
    texts: Mapping[str, frozenset[str]]
    """Way → whole answers that differ from the composer's unadvised text in nothing else."""

    def follows(self, answer: str) -> bool:
        """Whether this way is nearest to how the kernel is computed, and no other is as near."""
        lines = shape(part(answer, self.kernel))
        near = {
            way: max(
                (likeness(lines, shape(part(text, self.kernel))) for text in known), default=0.0
            )
            for way, known in self.texts.items()
        }
        return bool(lines) and all(
            near[self.way] > far for way, far in near.items() if way != self.way
        )

    def in_its_words(self, answer: str) -> bool:
        """The kernel is computed as in one of the texts."""
        return part(answer, self.kernel) in {
            part(text, self.kernel) for text in self.texts[self.way]
        }


def shape(kernel: str) -> list[str]:
    """A kernel's lines without numbers and registers."""
    return [
        re.sub(r"\b(?:e[xpc]?|a)\d+(_\d+)?\b", "r", re.sub(r"(?<![\w.])\d+\b", "#", line))
        for line in kernel.splitlines()
    ]


def likeness(one: Sequence[str], other: Sequence[str]) -> float:
    """Share of lines in common, in their order: 0 to 1."""
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def part(text: str, kernel: str) -> str:
    """The lines of an answer that are one kernel; buffers between its launches are renumbered, since other kernels number them too."""
    kept, inside = [], False
    for line in text.splitlines():
        inside = (
            line.startswith(" ") and inside or re.match(rf"{kernel}(_\d+)?[\[ :]", line) is not None
        )
        kept += [line] * inside
    numbers: dict[str, str] = {}
    return re.sub(
        r"\bz\d+\b", lambda found: numbers.setdefault(found[0], f"z{len(numbers)}"), "\n".join(kept)
    )


def texts(subject: TaskContext, base: Plan, kernel: str, option: list[Schedule]) -> frozenset[str]:
    """The composer's text when that kernel is computed so."""
    assert subject.captured is not None
    found = set()
    for schedule in option:
        try:
            found.add(
                write(
                    subject.captured,
                    Plan(base.recipes, {**base.schedules, kernel: schedule}),
                    subject.backend,
                ).strip()
            )
        except (CannotCompose, nanolang.ParseError):
            continue
    return frozenset(found)


def contradicting(
    subject: TaskContext, rng: random.Random
) -> tuple[list[Advice], list[Right]] | None:
    """Two advices on one kernel and their texts; None if no kernel can be computed in two ways."""
    captured, backend = subject.captured, subject.backend
    assert captured is not None
    names = nanolang.structures(captured, backend)[0]
    base = full(captured, Plan(names), backend)
    facts = nanolang.facts(captured, base, backend)
    open_ = []
    for kernel in fused(captured, names, backend).ordered:
        ways = {
            algorithm_kind(name): option
            for name, option in nanolang.algorithms(kernel, backend).items()
            if option
        }
        if len(ways) > 1:
            open_.append((kernel.name, ways))
    if not open_:
        return None
    name, ways = rng.choice(open_)
    first, second = rng.sample(sorted(ways), 2)
    condition = advice_for(facts[name], first, (), rng).condition
    # If the condition holds for several kernels, each follows the note.
    if sum(Advice(condition).about(found) for found in facts.values()) > 1:
        return None
    known = {way: texts(subject, base, name, option) for way, option in ways.items()}
    return [Advice(condition, first), Advice(condition, second)], [
        Right(name, way, known) for way in (first, second)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("policy", help="a backbone, e.g. nano:PATH")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backend", default="triton", choices=("triton", "cpp"))
    parser.add_argument("--draws", type=int, default=2, help="pairs of notes a task")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument(
        "--keep",
        type=Path,
        help="a file for every question, answer and right text, one JSON object a line",
    )
    asked = parser.parse_args()
    config = Config()
    dialect = dialects.get("compact")
    rng = random.Random(0)
    cases: list[tuple[str, TaskContext, Conversation, Right]] = []

    def prompts(subject: TaskContext) -> Iterator[tuple[str, TaskContext, Conversation, Right]]:
        found = contradicting(subject, rng)
        if found is None or not all(
            right.follows(text) for right in found[1] for text in right.texts[right.way]
        ):
            return
        for number, (advice, right) in enumerate(zip(*found)):
            for unseen in (False, True):
                words, pair = (
                    "new words" if unseen else "known words",
                    "new pair" if advice.unseen else "known pair",
                )
                note = skill(format_note(advice, rng, unseen=unseen))
                yield (
                    f"{'first' if number == 0 else 'second'}, {words}, {pair}",
                    subject,
                    dialect.policy(subject, [note], AgentsConfig()),
                    right,
                )
            yield "without", subject, dialect.policy(subject, (), AgentsConfig()), right

    paths = sorted(asked.folder.rglob("[!_]*.py"))
    for subject in prepare(
        paths, default_device(), asked.backend, config, workers=asked.workers, kept=True
    ):
        if isinstance(subject, TaskContext) and subject.captured is not None:
            for _ in range(asked.draws):
                try:
                    cases += prompts(subject)
                except CannotCompose:
                    continue
    backbone = open_backbone(asked.policy, config)
    how = Sampling(temperature=0.0, max_tokens=1024)
    drawn = backbone.generate([question for _, _, question, _ in cases], how)
    asking = [(subject, question) for _, subject, question, _ in cases]
    settled = repair.repaired_answers(
        backbone, dialect, asking, drawn, repair.repair_attempts(config.rollout), how
    )
    answers = [answer for answer, _ in settled]
    follows: dict[str, list[float]] = defaultdict(list)
    rows = []
    for (name, _, question, right), answer in zip(cases, answers, strict=True):
        readable = not policy.has_no_candidate(answer)
        hits = {
            "": readable and right.follows(answer.text),
            "in its words: ": right.in_its_words(answer.text),
            "exact: ": answer.text.strip() in right.texts[right.way],
        }
        for group in name.split(", "):
            for how_much, hit in hits.items():
                follows[how_much + group].append(float(hit))
        rows.append(
            {
                "case": name,
                "question": question.messages,
                "answer": answer.text,
                "kernel": right.kernel,
                "way": right.way,
                "texts": {way: sorted(known) for way, known in right.texts.items()},
                "readable": readable,
                "follows": hits[""],
            }
        )
    if asked.keep is not None:
        asked.keep.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(
        json.dumps(
            {
                name: {
                    "share": round(sum(hits) / len(hits), 4),
                    "interval": interval(hits),
                    "answers": len(hits),
                }
                for name, hits in sorted(follows.items())
            }
        )
    )


if __name__ == "__main__":
    main()
