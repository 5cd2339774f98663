"""Does a policy do what a skill says? Two notes that contradict each other on one kernel, given in turn on tasks never trained on.

    python -m tests.benchmarks.following nano:runs/sft/checkpoints/step_002000 data/tasks/heldout --backend triton

For each task one kernel that several algorithms can compute, two of them, and one condition that holds for it: the notes differ in
the algorithm alone. An answer follows a note when it computes that kernel as the composer writes it for that algorithm, whatever
the numbers; what it does besides is not asked here. The share whose whole text is one of the composer's is `exact`.
Counted apart: wordings that training used and wordings that it never saw, pairs of condition and algorithm that it taught and
pairs that it never did. Prints one JSON object; `without` is how often the same texts come when no note is given.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvk.agents import Subject, dialects
from dvk.agents.preparing import prepare
from dvk.agents.teacher.advice import Advice, given, how, say
from dvk.agents.teacher.lessons import skill
from dvk.backbone import Conversation, Sampling, open_backbone
from dvk.composer import CannotCompose, Plan, compact
from dvk.composer.compact.variants import full
from dvk.composer.compact.write import fused, write
from dvk.config import Agents, Config
from dvk.harness.backends import default_device
from dvk.rewards.scores import interval


@dataclass(frozen=True)
class Right:
    """What follows an advice."""

    kernel: str
    texts: frozenset[str]
    """Whole answers that differ in nothing else from what the composer does without advice."""

    def follows(self, answer: str) -> bool:
        """The kernel is computed as in one of the texts."""
        return part(answer, self.kernel) in {part(text, self.kernel) for text in self.texts}


def part(text: str, kernel: str) -> str:
    """The lines of an answer that are one kernel; buffers between its launches are numbered anew, since others number them too."""
    kept, inside = [], False
    for line in text.splitlines():
        inside = line.startswith(" ") and inside or re.match(rf"{kernel}(_\d+)?[\[ :]", line) is not None
        kept += [line] * inside
    numbers: dict[str, str] = {}
    return re.sub(r"\bz\d+\b", lambda found: numbers.setdefault(found[0], f"z{len(numbers)}"), "\n".join(kept))


def texts(subject: Subject, base: Plan, kernel: str, option: list[dict[str, Any]]) -> Right:
    """What the composer writes when that kernel is computed so."""
    assert subject.captured is not None
    found = set()
    for schedule in option:
        try:
            found.add(write(subject.captured, Plan(base.recipes, {**base.schedules, kernel: schedule}), subject.backend).strip())
        except (CannotCompose, compact.Unreadable):
            continue
    return Right(kernel, frozenset(found))


def contradicting(subject: Subject, rng: random.Random) -> tuple[list[Advice], list[Right]] | None:
    """Two advices on one kernel and what follows each; None where no kernel can be computed in two ways."""
    captured, backend = subject.captured, subject.backend
    assert captured is not None
    names = compact.structures(captured, backend)[0]
    base = full(captured, Plan(names), backend)
    facts = compact.facts(captured, base, backend)
    open_ = []
    for kernel in fused(captured, names, backend).ordered:
        ways = {how(name): option for name, option in compact.algorithms(kernel, backend).items() if option}
        if len(ways) > 1:
            open_.append((kernel.name, ways))
    if not open_:
        return None
    name, ways = rng.choice(open_)
    first, second = rng.sample(sorted(ways), 2)
    condition = given(facts[name], first, (), rng).condition
    # Of several kernels that the condition holds for, each does what the note says.
    if sum(Advice(condition).about(found) for found in facts.values()) > 1:
        return None
    return [Advice(condition, first), Advice(condition, second)], [texts(subject, base, name, ways[way]) for way in (first, second)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", help="a backbone, e.g. nano:PATH")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backend", default="triton", choices=("triton", "cpp"))
    parser.add_argument("--draws", type=int, default=2, help="pairs of notes a task")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--keep", type=Path, help="a file for every question, answer and right text, one JSON object a line")
    asked = parser.parse_args()
    config = Config()
    dialect = dialects.get("compact")
    rng = random.Random(0)
    cases: list[tuple[str, Conversation, Right]] = []

    def prompts(subject: Subject) -> Iterator[tuple[str, Conversation, Right]]:
        found = contradicting(subject, rng)
        if found is None or found[1][0].texts & found[1][1].texts:
            return
        for number, (advice, right) in enumerate(zip(*found)):
            for unseen in (False, True):
                words, pair = "new words" if unseen else "known words", "new pair" if advice.unseen else "known pair"
                note = skill(say(advice, rng, unseen=unseen))
                yield f"{'first' if number == 0 else 'second'}, {words}, {pair}", dialect.policy(subject, [note], Agents()), right
            yield "without", dialect.policy(subject, (), Agents()), right

    paths = sorted(asked.folder.rglob("[!_]*.py"))
    for subject in prepare(paths, default_device(), asked.backend, config, workers=asked.workers, kept=True):
        if isinstance(subject, Subject) and subject.captured is not None:
            for _ in range(asked.draws):
                try:
                    cases += prompts(subject)
                except CannotCompose:
                    continue
    backbone = open_backbone(asked.policy, config)
    answers = backbone.generate([conversation for _, conversation, _ in cases], Sampling(temperature=0.0, max_tokens=1024))
    if asked.keep is not None:
        rows = [{"case": name, "question": asking.messages, "answer": answer.text, "kernel": right.kernel, "right": sorted(right.texts),
                 "follows": right.follows(answer.text)} for (name, asking, right), answer in zip(cases, answers)]  # fmt: skip
        asked.keep.write_text("".join(json.dumps(row) + "\n" for row in rows))
    follows: dict[str, list[float]] = defaultdict(list)
    for (name, _, right), answer in zip(cases, answers):
        hits = {"": right.follows(answer.text), "exact ": answer.text.strip() in right.texts}
        for group in name.split(", "):
            for how_much, hit in hits.items():
                follows[how_much + group].append(float(hit))
    print(json.dumps({name: {"share": round(sum(hits) / len(hits), 4), "interval": interval(hits), "answers": len(hits)}
                      for name, hits in sorted(follows.items())}))


if __name__ == "__main__":
    main()
