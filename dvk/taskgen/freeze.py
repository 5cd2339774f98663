"""Choose the held-out tasks that ship: `python -m dvk.taskgen.freeze FOLDER`.

Draws held-out tasks at sizes that suit any device, keeps those that are hygienic both small and natively and whose calls take a time within
bounds, and balances: no signature of a chain or network twice, signatures of single operators in turn, categories in turn. Every task can
be drawn again from its line in the index: `make(seed, level, profile)`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from dvk.taskgen import Generated, Level, generate
from dvk.tasks.hygiene import hygiene

SEED = 20260
WANTED: dict[Level, int] = {"single": 50, "fusion": 110, "network": 40}
DRAWN = 12
"""Candidates drawn per kept task."""
FASTEST_S, SLOWEST_S = 30e-6, 0.08
"""Limit of a native call on one CPU core; the shipped tasks promise 100 ms on two cores."""
SHORT = 30
"""Maximum number of chains with fewer than three operators."""


def candidates(level: Level) -> list[Generated]:
    """Held-out tasks of a level, ordered so that categories and signatures take turns."""
    drawn = list(
        generate(
            SEED, WANTED[level] * DRAWN, split="heldout", device="neutral", levels={level: 1.0}
        )
    )
    seen: Counter[tuple[str, ...]] = Counter()
    kinds: Counter[str] = Counter()
    ranked = []
    for position, made in enumerate(drawn):
        again = seen[made.signature]
        seen[made.signature] += 1
        if again and level != "single":
            continue
        # Single operators are few and take turns by signature, other tasks by category.
        turn = again if level == "single" else kinds[made.category]
        kinds[made.category] += 1
        ranked.append((turn, position, made))
    return [made for _, _, made in sorted(ranked, key=lambda r: r[:2])]


def kept(level: Level) -> Iterator[Generated]:
    """The first that pass, up to the requested number."""
    tasks: list[Generated] = []
    short = 0
    rest = candidates(level)
    while len(tasks) < WANTED[level] and rest:
        block, rest = rest[: WANTED[level]], rest[WANTED[level] :]
        sources = [made.source for made in block]
        for made, small, native in zip(
            block, hygiene(sources), hygiene(sources, native=True, per_child=40), strict=True
        ):
            brief = level == "fusion" and len(made.signature) < 3
            if not (
                small.clean
                and native.clean
                and native.call_s
                and FASTEST_S < native.call_s < SLOWEST_S
            ) or (brief and short >= SHORT):
                continue
            short += brief
            tasks.append(made)
    yield from tasks[: WANTED[level]]


def main(folder: Path) -> None:
    """Write the files and the index."""
    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for level in WANTED:
        for made in kept(level):
            (folder / f"{made.name}.py").write_text(made.source, encoding="utf-8")
            index.append(
                made.model_dump(
                    mode="json",
                    include={"name", "level", "category", "signature", "seed", "profile", "dtype"},
                )
            )
    index.sort(key=lambda entry: str(entry["name"]))
    lines = ",\n".join(f"  {json.dumps(entry)}" for entry in index)
    (folder / "index.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{len(index)} tasks in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
