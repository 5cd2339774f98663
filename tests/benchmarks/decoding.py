"""How fast a backbone writes: tokens a second with so many sequences decoded at once, on the tasks of a folder.

    python -m tests.benchmarks.decoding nano data/tasks/heldout --slots 512,1024,2048
    CUDA_VISIBLE_DEVICES= python -m tests.benchmarks.decoding nano data/tasks/heldout --slots 1 --rounds 8 --backend cpp

Each row: sampled answers for `rounds` times as many conversations as there are slots, reading the prompts and the last answers' ends
included. The first run of a size captures graphs and is left out. `last` is without rounds to refill from: as many conversations as
slots, so that the longest answers are written by few.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from dvk.agents import TaskContext, dialects
from dvk.backbone import Backbone, Conversation, Sampling, hf, open_backbone
from dvk.composer.capture.batch import CannotCompose, capture_many
from dvk.config import AgentsConfig, load
from dvk.records import Task
from dvk.tasks.sourcetext import read_source


def conversations(folder: Path, backend: str) -> list[Conversation]:
    """The policy's question about each task, without skills."""
    dialect = dialects.get("compact")
    tasks = [
        Task(
            id=path.stem,
            name=path.stem,
            path=str(path),
            source=read_source(path),
            entry="Model",
            kind="module",
        )
        for path in sorted(folder.rglob("[!_]*.py"))
    ]
    found = [
        dialect.policy(TaskContext(tasks[index], captured, backend), (), AgentsConfig())  # type: ignore[arg-type]
        for index, captured in capture_many(tasks)
        if not isinstance(captured, CannotCompose)
    ]
    return sorted(found, key=lambda one: str(one.messages))


def rate(backbone: Backbone, asking: Sequence[Conversation], count: int, seed: int) -> float:
    """Tokens a second while so many conversations are answered."""
    chosen = [asking[number % len(asking)] for number in range(count)]
    began, before = time.monotonic(), backbone.usage.completion_tokens
    backbone.generate(chosen, Sampling(temperature=1.0, max_tokens=1024, seed=seed))
    return (backbone.usage.completion_tokens - before) / (time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backbone", help="e.g. nano:PATH")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--slots", default="512", help="one or several, with commas")
    parser.add_argument("--rounds", type=int, default=8, help="conversations for each slot")
    parser.add_argument("--backend", default="triton", choices=("triton", "cpp"))
    asked = parser.parse_args()
    asking = conversations(asked.folder, asked.backend)
    for slots in map(int, asked.slots.split(",")):
        hf.SLOTS = slots
        backbone = open_backbone(asked.backbone, load())

        rate(backbone, asking, slots, 0)
        row: dict[str, float] = {"slots": slots}
        for name, count in (("refilled", slots * asked.rounds), ("last", slots)):
            rates = sorted(rate(backbone, asking, count, seed) for seed in (1, 2, 3))
            row |= {
                f"{name}_tokens_s": round(rates[1]),
                f"{name}_least": round(rates[0]),
                f"{name}_most": round(rates[2]),
            }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
