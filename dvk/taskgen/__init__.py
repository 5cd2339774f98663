"""Unlimited training tasks: seeded, varied in operators, sizes and style, split so that compositions are held out.

    for made in generate(seed=1, count=1000, split="train", device="cuda"):
        made.source                  # a file in KernelBench's format
        made.task("cuda")            # the same as a `Task`

A task's operators are drawn first, checked on samples during drawing, then written in one of many styles. `dvk.tasks.hygiene` runs the task
and decides whether it is hygienic.

    dice      random choices
    sizes     named sizes, profiles of devices
    values    abstract values during drawing
    program   statements, weights, inputs
    pointwise, binary, reductions, scans, views, moved, indexed, heads, losses    the operators
    chains, networks    compositions of operators
    split     operator families, and the held-out sequences
    write     the text
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field

from dvk.records import Device, Record, Task, content_hash
from dvk.taskgen import chains, networks
from dvk.taskgen.dice import Dice, derived
from dvk.taskgen.program import TaskProgram
from dvk.taskgen.sizes import PROFILES
from dvk.taskgen.split import Split, collapsed, signature_of, split_of
from dvk.taskgen.values import UnfitOperands
from dvk.taskgen.write import TaskWriter

Level = Literal["single", "fusion", "network"]
LEVELS: Mapping[Level, float] = {"single": 0.15, "fusion": 0.6, "network": 0.25}
"""Default share of each level."""

DRAWS = 200
"""Programs drawn for one task before it is abandoned."""

__all__ = [
    "LEVELS",
    "Generated",
    "Level",
    "Split",
    "collapsed",
    "generate",
    "make",
    "signature_of",
    "split_of",
]


class Generated(Record):
    """A generated task."""

    name: str = Field(description="Level, first operators and a few digits of its content.")
    level: Level = Field(description="single operator, chain, or small network.")
    category: str = Field(
        description="What matters most in it: loss, softmax, norm, epilogue, …, or the network's kind."
    )
    operators: tuple[str, ...] = Field(
        description="The generator's own operators in order; finer than families."
    )
    signature: tuple[str, ...] = Field(
        description="Canonical sequence of operator families: decides the split."
    )
    dtype: str = Field(description="torch dtype of floating inputs and weights.")
    seed: int = Field(description="`make(seed, level, profile)` gives this task again.")
    profile: str = Field(description="What its sizes are meant for: cpu, cuda, neutral.")
    source: str = Field(description="The whole text of the task file.")

    @property
    def split(self) -> Split:
        """train or heldout."""
        return split_of(self.signature)

    def task(self, device: Device = "cpu") -> Task:
        """A `Task` for capture, not examined: `load` adds what a judge needs."""
        return Task(
            id=content_hash(self.source, device),
            name=self.name,
            source=self.source,
            entry="Model",
            kind="module",
            device=device,
        )


def generate(
    seed: int,
    count: int,
    *,
    split: Split | Literal["any"] = "train",
    device: str = "cuda",
    levels: Mapping[Level, float] | None = None,
) -> Iterator[Generated]:
    """Generate `count` tasks, deterministic in the arguments.

    Args:
        seed: different seeds share hardly any task.
        count: number of tasks.
        split: `train`, `heldout`, or `any`.
        device: `cpu`, `cuda` or `neutral`: the profile of sizes and types.
        levels: weights of the levels.
    """
    chosen = dict(levels or LEVELS)
    found = position = 0
    while found < count:
        level = Dice(derived("level", device, seed, position)).weighted(chosen)
        made = make(derived("task", device, seed, position), level, device)
        position += 1
        if made is not None and split in ("any", made.split):
            found += 1
            yield made


def make(seed: int, level: Level, profile: str = "cuda") -> Generated | None:
    """The task of a seed; None if none could be drawn."""
    dice = Dice(seed)
    settings = PROFILES[profile]
    for _ in range(DRAWS):
        dtype = "float32"
        if dice.chance(settings.half):
            dtype = dice.pick(("bfloat16", "float16"))
        program = TaskProgram(dice, settings, dtype)
        try:
            kind = ""
            if level == "single":
                chains.single(program)
            elif level == "fusion":
                chains.fusion(program)
            else:
                kind = networks.network(program)
        except UnfitOperands:
            continue
        return _finished(program, level, kind, seed, profile)
    return None


def _finished(program: TaskProgram, level: Level, kind: str, seed: int, profile: str) -> Generated:
    category = kind or _category(program)
    operators, signature = tuple(program.operators), collapsed(program.families)
    words = [o.replace("_", " ") for o in operators]
    listed = ", ".join(words[:5]) + (f" and {len(words) - 5} more" if len(words) > 5 else "")
    title = f"{f'{kind.replace(chr(95), chr(32)).capitalize()}: {listed}' if kind else listed.capitalize()}."
    source = TaskWriter(program, title).source()
    name = "_".join([level, *(kind.split() if kind else operators[:3]), content_hash(source)[:6]])
    return Generated(
        name=name,
        level=level,
        category=category,
        operators=operators,
        signature=signature,
        dtype=program.dtype,
        seed=seed,
        profile=profile,
        source=source,
    )


_CATEGORIES = (
    ("loss", ("loss", "cross_entropy", "cosine", "distance")),
    ("attention", ("product",)),
    ("epilogue", ("linear", "matmul", "conv")),
    ("softmax", ("softmax", "logsumexp")),
    ("norm", ("layer_norm", "rms_norm", "group_norm", "instance_norm", "batch_norm", "normalize")),
    ("pool", ("pool",)),
    ("reduction", ("sum", "mean", "amax", "amin", "var", "std", "norm")),
    ("gate", ("chunk", "glu")),
)


def _category(program: TaskProgram) -> str:
    for category, words in _CATEGORIES:
        if any(
            word in operator
            if len(word) > 4
            else word == operator or operator.startswith(word + "_")
            for operator in program.operators
            for word in words
        ):
            return category
    return "pointwise"
