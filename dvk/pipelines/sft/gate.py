"""Gate of the composer's texts: a stratified sample of them is executed; families with a wrong one are left out.

    renderings → families → a sample that covers each → executed, task by task → gate/families.json → `filter`

Millions of tokens cannot be executed one by one. Each text's result is on disk before the next task counts as done, so that
a killed gate executes only the remaining ones.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dvk import machine
from dvk.backends import default_device
from dvk.config import Config, Limits
from dvk.errors import UsageError
from dvk.pipelines.report.counted import WordCount
from dvk.pipelines.sft.collect import DEVICES
from dvk.pipelines.sft.families import FamilyText, sample, texts
from dvk.records import BackendName, Device
from dvk.runs import RunFolder
from dvk.sandbox import Death
from dvk.taskgen import make
from dvk.tasks.batch import each

EXECUTED = "gate/executed.jsonl"
FAMILIES = "gate/families.json"
TASK_S = 120.0
"""Timeout for all texts of a task: half a minute of compiling at most, and the rest for a busy machine."""
CHILD_BYTES = 3 << 29
"""Memory of a GPU that a child takes at most: its context, and a task's inputs, weights and outputs, also in float64. All children use
the first GPU, where nothing is timed: memory alone limits their number."""
PER_CHILD = 24
"""Tasks a child: its start, some seconds of imports, is shared by about a hundred texts."""


def gate(run: RunFolder, config: Config, workers: int) -> dict[str, Any]:
    """Execute the sample, and decide about every family; returns counts.

    Args:
        run: with `collect/renderings`.
        config: `seed`, `collect.executed`, `limits`.
        workers: children at a time, at most.
    """
    workers = (
        min(workers, max(1, free[0] // CHILD_BYTES))
        if (free := machine.gpu_free_bytes())
        else workers
    )
    programs = list(texts(sorted((run.path / "collect" / "renderings").glob("*.jsonl"))))
    chosen = (
        sample(programs, config.collect.executed, config.seed) if config.collect.executed else []
    )
    known = {row["id"]: row for row in run.read(EXECUTED)}
    usable = [t for t in chosen if device_of(t.backend) is not None]
    with WordCount("texts") as shown:
        line = shown.add_task(
            "execute", total=len(usable), completed=sum(t.id in known for t in usable)
        )
        for text, wrong in outcomes([t for t in usable if t.id not in known], config, workers):
            row = {
                "id": text.id,
                "family": text.family,
                "task": text.task,
                "seed": text.seed,
                "wrong": wrong,
            }
            if wrong is not None:
                row |= {"level": text.level, "backend": text.backend, "code": text.code}
            run.append(EXECUTED, row)
            known[text.id] = row
            shown.advance(line)
    families = decided(programs, [known[t.id] for t in usable if t.id in known])
    run.write_text(FAMILIES, json.dumps(families, indent=1, ensure_ascii=False))
    # Timeouts, unusable tasks, and tasks listed otherwise here: if they are many, little was examined.
    return {**summary(programs, families), "not_executed": sum(t.id not in known for t in usable)}


def device_of(backend: BackendName) -> Device | None:
    """The device that executes a back end's texts; None if this machine has none."""
    device = DEVICES[backend]
    return device if device == "cpu" or default_device() == "cuda" else None


def outcomes(
    wanted: Sequence[FamilyText], config: Config, workers: int
) -> Iterator[tuple[FamilyText, str | None]]:
    """(text, error) of each; texts whose task cannot be used, or is listed otherwise here, are left out.

    A text that ends its process would take those of the same task with it: they are executed again, each alone.
    """
    limits = config.limits.model_copy(update={"wall_s": min(TASK_S, config.limits.wall_s)})
    groups: dict[Any, list[FamilyText]] = defaultdict(list)
    for text in wanted:
        groups[text.task, text.backend, text.offsets, text.layouts].append(text)
    alone: list[list[FamilyText]] = []
    for group, answer in _answers(list(groups.values()), config, limits, workers):
        if isinstance(answer, Death) and len(group) > 1:
            alone += [[text] for text in group]
        else:
            yield from _read(group, answer)
    for group, answer in _answers(alone, config, limits, workers):
        yield from _read(group, answer)


def _answers(
    groups: Sequence[list[FamilyText]], config: Config, limits: Limits, workers: int
) -> Iterator[tuple[list[FamilyText], dict[str, Any] | Death]]:
    def request(group: list[FamilyText]) -> dict[str, Any]:
        first = group[0]
        device = device_of(first.backend)
        assert first.seed is not None, "mutants are not chosen"
        made = make(first.seed, first.level, DEVICES[first.backend])  # type: ignore[arg-type]  # a level is what the generator wrote
        assert made is not None and device is not None, (
            "it was made before, and chosen because it can be executed"
        )
        return {
            "task": made.task(device).model_dump(mode="json"),
            "backend": first.backend,
            "texts": [t.code for t in group],
            "offsets": dict(first.offsets),
            "laid": first.layouts,
        }

    target = "dvk.pipelines.sft.executing:child"
    per_child = max(1, min(PER_CHILD, len(groups) // (2 * workers)))
    for index, answer in each(
        target, map(request, groups), limits, per_child=per_child, num_workers=workers
    ):
        yield groups[index], answer


def _read(
    group: Sequence[FamilyText], answer: dict[str, Any] | Death
) -> Iterator[tuple[FamilyText, str | None]]:
    if isinstance(answer, Death) and answer.reason == "timeout":
        return  # slow is not wrong
    if isinstance(answer, Death):
        yield from ((text, f"it ended its process: {answer.reason}") for text in group)
    elif "wrong" in answer:
        yield from zip(group, answer["wrong"], strict=True)


def decided(
    found: Sequence[FamilyText], rows: Sequence[dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Family → `texts`, `executed`, `wrong`, and `refused`: the reason to leave its texts out, or None."""
    families: dict[str, dict[str, Any]] = {}
    for text in found:
        entry = families.setdefault(
            text.family,
            {"texts": 0, "executed": 0, "wrong": 0, "refused": "none of its texts was executed"},
        )
        entry["texts"] += 1
    for row in rows:
        entry = families[row["family"]]
        entry["executed"] += 1
        entry["wrong"] += row["wrong"] is not None
        if row["wrong"] is not None:
            entry["refused"] = (
                entry.get("first") or f"an executed text of it is wrong: {row['wrong']}"
            )
            entry["first"] = entry["refused"]
        elif not entry["wrong"]:
            entry["refused"] = None
    for entry in families.values():
        entry.pop("first", None)
    return dict(sorted(families.items()))


def summary(found: Sequence[FamilyText], families: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The reported counts."""
    passed = [f for f in families.values() if f["refused"] is None]
    failed = sum(f["wrong"] > 0 for f in families.values())
    counts = Counter(
        executed=sum(f["executed"] for f in families.values()),
        wrong=sum(f["wrong"] for f in families.values()),
    )
    return {
        "texts": len(found),
        **counts,
        "families_passed": len(passed),
        "families_failed": failed,
        "families_not_executed": len(families) - len(passed) - failed,
        "texts_admitted": sum(f["texts"] for f in passed),
    }


def admitted(folder: Path) -> dict[str, str | None]:
    """Family → the reason why it is refused, or None; of a run's folder.

    Raises:
        UsageError: no gate was run.
    """
    try:
        families = json.loads((folder / FAMILIES).read_text())
    except OSError:
        raise UsageError(
            f"the texts in `{folder}` were never put to the gate",
            "run `dvk sft collect` to its end, or learn from them all the same with --set collect.executed=0",
        ) from None
    return {name: found["refused"] for name, found in families.items()}
