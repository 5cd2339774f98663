"""Share of a model's first answers that equal the usual text, the composer's default.

    python -m tests.benchmarks.usual nano data/tasks/heldout --backend triton --every 4

Greedy answers, no notes, no GPU and nothing executed, so that a model can be looked at where it cannot be judged. `usual` is the
composer's text word for word; `other numbers` differs from it in whole numbers alone, as blocks, warps and pieces are; `other
structure` is another of the composer's plans with its usual schedules; `unreadable` is no program. What is left computes in another
way, rightly or not.
Prints one JSON object of shares with 95 % intervals; `--keep` leaves every question, answer and usual text.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from dvk import nanolang, tasks
from dvk.agents import TaskContext, dialects, policy
from dvk.backbone import Sampling, open_backbone
from dvk.composer import CannotCompose, Plan
from dvk.composer.capture.batch import trace_quickly
from dvk.config import AgentsConfig, Config
from dvk.errors import DvkError
from dvk.nanolang.text.variants import described
from dvk.pipelines.sft.collect import DEVICES
from dvk.records import BackendName
from dvk.stats.fast_p import interval

KINDS = ("usual", "other numbers", "other structure", "other", "unreadable")


def subjects(
    folder: Path, every: int, backend: BackendName, config: Config
) -> Iterator[TaskContext]:
    """Every so many-th task of a folder, listed as for the back end's device."""
    for path in sorted(folder.rglob("[!_]*.py"))[::every]:
        try:
            task = tasks.load(str(path), device="cpu", limits=config.limits)
            yield TaskContext(task, trace_quickly(task, kernels=DEVICES[backend]), backend)
        except (CannotCompose, DvkError) as error:
            print(f"{path.stem}: {error}", file=sys.stderr)


def kind(answer: str, usual: str, others: frozenset[str]) -> str:
    """One of `KINDS` but the last."""
    if answer == usual:
        return "usual"
    if numberless(answer) == numberless(usual):
        return "other numbers"
    return "other structure" if answer in others else "other"


def numberless(text: str) -> str:
    """Without its whole numbers: names and fractions keep theirs."""
    return re.sub(r"(?<![\w.])\d+(?![\w.])", "#", text)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("policy", help="a backbone, e.g. nano:PATH")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backend", default="triton", choices=("triton", "cpp"))
    parser.add_argument("--every", type=int, default=1, help="take every so many-th task")
    parser.add_argument(
        "--keep",
        type=Path,
        help="a file for every question, answer and usual text, one JSON object a line",
    )
    asked = parser.parse_args()
    config, dialect = Config(), dialects.get("compact")
    cases = list(subjects(asked.folder, asked.every, asked.backend, config))
    questions = [dialect.policy(subject, (), AgentsConfig()) for subject in cases]
    answers = open_backbone(asked.policy, config).generate(
        questions, Sampling(temperature=0.0, max_tokens=config.rollout.policy_tokens)
    )
    found, rows = [], []
    for subject, question, answer in zip(cases, questions, answers, strict=True):
        assert subject.captured is not None
        plans = nanolang.structures(subject.captured, subject.backend)
        usual, *others = [
            described(subject.captured, Plan(names), subject.backend).text.strip()
            for names in plans
        ]
        readable = not policy.has_no_candidate(policy.parse_reply(dialect, subject, answer))
        found.append(
            kind(answer.text.strip(), usual, frozenset(others)) if readable else "unreadable"
        )
        rows.append(
            {
                "task": subject.task.name,
                "kind": found[-1],
                "question": question.messages,
                "answer": answer.text,
                "usual": usual,
            }
        )
    if asked.keep is not None:
        asked.keep.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hits = {name: [float(one == name) for one in found] for name in KINDS}
    print(
        json.dumps(
            {
                "answers": len(found),
                **{
                    name: {"share": round(sum(h) / len(h), 4), "interval": interval(h)}
                    for name, h in hits.items()
                },
            }
        )
    )


if __name__ == "__main__":
    main()
