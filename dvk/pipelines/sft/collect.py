"""The first stage: collects training data.

    renderings   generated tasks, captured, and the composer's texts for them, with and without notes: many, not executed
    episodes     tasks on which the composer's variants are executed and timed: for speed, selection and lessons

Both are written block by block; a block that exists is whole, so a killed collect resumes with the next.
Renderings may be trained on if an executed sample of them passes: see `gate`.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dvk import crashes
from dvk.agents import dialects
from dvk.agents.task_context import TaskContext
from dvk.agents.teacher import Lesson, lessons
from dvk.config import AgentsConfig, Config
from dvk.learn.examples import Example, ExampleTask
from dvk.learn.spread import end_with_parent
from dvk.pipelines import tracebacks
from dvk.pipelines.report.counted import WordCount
from dvk.pipelines.sft.mutants import Mutants
from dvk.pipelines.sft.offsets import draw_offsets, shift_indices
from dvk.records import BackendName, Device
from dvk.runs import RunFolder
from dvk.taskgen import Generated

PER_TASK = 4
"""Programs per task: several algorithms and schedules, with notes and without."""
OFFSET = 0.5
"""Share of tasks whose listing starts at another index than 0, so that high indices are seen."""
PER_MUTANT = 1
"""Programs per mutant; another mutant teaches more than another program."""
WITH_SKILLS = 0.5
"""Share of programs that follow notes."""

BLOCK = 100
"""Tasks a block: about a minute of one core."""
DEVICES: dict[BackendName, Device] = {"triton": "cuda", "cuda": "cuda", "cpp": "cpu"}


@dataclass(frozen=True)
class RenderBlock:
    """Work for one process: all its inputs."""

    number: int
    num_tasks: int
    num_drawn: int
    backend: BackendName
    seed: int
    per_task: int
    mutants: int
    per_mutant: int
    with_skills: float
    offset: float
    favoured: tuple[tuple[str, float], ...]
    folder: str

    @property
    def path(self) -> Path:
        return Path(self.folder) / f"{self.backend}_{self.number:05d}.jsonl"


def renderings(
    run: RunFolder, config: Config, num_tasks: int, backends: tuple[BackendName, ...], workers: int
) -> dict[str, Any]:
    """Write `collect/renderings/*.jsonl`; returns counts over all blocks.

    Args:
        run: the run's folder.
        config: `seed` and `collect`.
        num_tasks: over all back ends.
        backends: what texts are written in, in equal parts.
        workers: processes.
    """
    folder = run.path / "collect" / "renderings"
    folder.mkdir(parents=True, exist_ok=True)
    each = -(-num_tasks // len(backends))
    how = config.collect
    blocks = [
        RenderBlock(
            number,
            size := min(BLOCK, each - number * BLOCK),
            round(size * how.oversample),
            backend,
            config.seed,
            PER_TASK,
            how.mutants,
            PER_MUTANT,
            WITH_SKILLS,
            OFFSET,
            tuple(how.favoured.items()),
            str(folder),
        )
        for number in range(-(-each // BLOCK))
        for backend in backends
    ]
    counts: Counter[str] = Counter()
    for row in run.read("collect/blocks.jsonl"):
        counts.update({k: v for k, v in row.items() if isinstance(v, int) and k != "number"})
    known = {(row["backend"], row["number"]) for row in run.read("collect/blocks.jsonl")}
    left = [b for b in blocks if (b.backend, b.number) not in known]
    spawned = multiprocessing.get_context("spawn")
    with (
        WordCount("blocks") as shown,
        ProcessPoolExecutor(workers, mp_context=spawned, initializer=_begin) as processes,
    ):
        line = shown.add_task("collect", total=len(blocks), completed=len(blocks) - len(left))
        try:
            for future in as_completed([processes.submit(render, block) for block in left]):
                row = future.result()
                for name, text in row.pop("tracebacks").items():
                    tracebacks.keep(run, name, [text])
                run.append("collect/blocks.jsonl", row)
                counts.update(
                    {k: v for k, v in row.items() if isinstance(v, int) and k != "number"}
                )
                shown.advance(line)
        except BaseException:  # Ctrl-C does not wait for a block
            processes.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
    return dict(counts)


def _begin() -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # the parent ends it; one that dies by itself counts as a failure
    end_with_parent()
    setup_worker()
    gc.freeze()  # garbage collection over all of torch took a tenth to a fifth of a block's time
    gc.set_threshold(200_000, 20, 20)


def setup_worker() -> None:
    """Set up a worker: one thread, no messages of torch's tracer, a low priority next to a judge that measures."""
    import logging
    import warnings

    import torch

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    os.nice(5)


def render(block: RenderBlock) -> dict[str, Any]:
    """One block: generate, capture, teach, write."""
    from dvk.composer import CannotCompose
    from dvk.composer.capture.batch import trace_quickly
    from dvk.composer.codegen.base import takes_time_loops
    from dvk.errors import DvkError
    from dvk.taskgen import generate

    rng = random.Random(f"{block.seed} {block.backend} {block.number}")
    device = DEVICES[block.backend]
    counts: Counter[str] = Counter()
    dialect = dialects.get("compact")
    mutants = Mutants(rng)
    lines = []
    failed: dict[str, str] = {}
    seen: set[str] = set()

    def teach(subject: TaskContext, about: ExampleTask, count: int, made: dict[str, Any]) -> None:
        for lesson in lessons(subject, rng, count, with_skills=block.with_skills):
            example = as_example(lesson, subject, about, dialect, made)
            if example.id not in seen:
                seen.add(example.id)
                lines.append(example.model_dump_json(exclude_defaults=True))
                counts["examples"] += 1
                counts[f"kind_{example.kind}"] += 1

    drawn_tasks = list(generate(rng.randrange(1 << 48), block.num_drawn, device=device))
    for made in varied(drawn_tasks, block.num_tasks, rng, dict(block.favoured)):
        counts["tasks"] += 1
        task = made.task(device)
        about = ExampleTask(id=task.id, name=made.name, category=made.category, level=made.level)
        try:
            # Traced on the CPU, where weights are fake and there may be no GPU: graphs do not name devices. They do contain a GPU's
            # result layouts, and texts use those.
            rolls = takes_time_loops(block.backend)
            captured = trace_quickly(made.task("cpu"), device, rolls=rolls)
            offsets = draw_offsets(captured, rng, block.offset)
            teach(
                TaskContext(task, shift_indices(captured, offsets), block.backend),
                about,
                block.per_task,
                {"seed": made.seed, **({"offsets": offsets} if offsets else {})},
            )
        except Exception as error:  # noqa: BLE001 - the fence
            counts["not_composed"] += 1
            if not isinstance(error, (CannotCompose, DvkError)):
                failed[made.name] = crashes.traceback_text(error)
            continue
        mutants.see(captured)
        for mutant in mutants.several(captured, block.mutants):
            try:
                moved = shift_indices(mutant, draw_offsets(mutant, rng, block.offset))
                context = TaskContext(task, moved, block.backend)
                teach(context, about, block.per_mutant, {"mutant_of": made.seed})
                counts["mutants"] += 1
            except Exception:  # noqa: BLE001 - no module says this: any rule may trip over it
                counts["mutants_not_composed"] += 1
    aside = block.path.with_suffix(".part")
    aside.write_text("".join(line + "\n" for line in lines))
    aside.rename(block.path)
    return {"backend": block.backend, "number": block.number, **counts, "tracebacks": failed}


def varied(
    made: Sequence[Generated],
    count: int,
    rng: random.Random,
    favoured: Mapping[str, float] = MappingProxyType({}),
) -> list[Generated]:
    """`count` of the tasks, or all, those with the rarer operators likelier, as many of each level as there are; in their order.

    An operator of one task in two hundred is not learnt from a uniform sample.

    Args:
        favoured: additional factor for tasks with these operators.
    """
    having = Counter(family for task in made for family in set(task.signature))
    keys = {}
    for place, task in enumerate(made):
        # Efraimidis and Spirakis 2006: the largest u^(1/w) are a draw without replacement with weights w, here one over
        # the count of the rarest family, times the factor of the most favoured one.
        keys[place] = rng.random() ** (
            min(having[f] for f in task.signature)
            / max(favoured.get(one, 1.0) for one in task.operators)
        )
    levels: dict[str, list[int]] = {}
    for place, task in enumerate(made):
        levels.setdefault(task.level, []).append(place)
    seeds: list[int] = []
    seen, count = 0, min(count, len(made))
    for places in levels.values():
        seen += len(places)
        share = round(seen * count / len(made)) - len(seeds)
        seeds += sorted(places, key=keys.__getitem__)[len(places) - share :]
    return [made[place] for place in sorted(seeds)]


def as_example(
    lesson: Lesson,
    subject: TaskContext,
    about: ExampleTask,
    dialect: dialects.Dialect,
    made: dict[str, Any],
) -> Example:
    """A lesson as an example in a dialect.

    Args:
        made: the inputs that reproduce the task and its listing: the generator's `seed`, and `offsets` if there are any; of a mutant
            `mutant_of`, the seed of the task whose graph it is like.
    """
    assert subject.captured is not None
    asked = dialect.policy(subject, lesson.skills, AgentsConfig())
    text = dialect.write_policy(lesson.variant.text)
    return Example.new(
        kind="policy_with_skills" if lesson.skills else "policy",
        messages=(*asked.messages, {"role": "assistant", "content": text}),
        task=about,
        signature=subject.captured.graph.signature(),
        backend=subject.backend,
        skills=tuple(s.name for s in lesson.skills),
        code=text,
        quality={"family": lesson.family, "follows": lesson.follows, **made},
        origin="composer",
    )
