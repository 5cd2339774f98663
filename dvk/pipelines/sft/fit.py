"""The last stage: examples → tokens → packed batches → a checkpoint, from any model or from random weights.

    make or load the model → tokenise once → for each step: packs, one update → now and then: held-out loss, quality, checkpoint

A killed fit resumes with the step after its last checkpoint, with the same packs and the same
optimizer state. The data order is a function of seed and epoch.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.progress import TextColumn

from dvk.backbone import Dialect, Trainable, open_backbone
from dvk.backbone.decoding.forward import ARCHITECTURES, unwrapped
from dvk.backbone.hf import HfBackbone
from dvk.config import Config
from dvk.distributed import ProcessGroup
from dvk.errors import UsageError
from dvk.learn.packs import Packs
from dvk.learn.sources import Source
from dvk.pipelines.metrics import FILE, Metrics, rewind
from dvk.pipelines.report.counted import WordCount
from dvk.pipelines.sft.course import Course, held_out
from dvk.pipelines.sft.from_table import TABLE
from dvk.pipelines.sft.tokens import tokenise
from dvk.runs import RunFolder

if TYPE_CHECKING:
    from dvk.learn.learner import Learner

LOG_EVERY = 20
"""Steps between two lines of metrics.jsonl."""

FRESH = "nano-from-zero"
"""`--from` this makes a nano with a new tokenizer."""
SAMPLE = 5_000
"""Examples that a fresh tokenizer is trained on: about 5 MB. Four times as many change no token."""


class Watcher(Protocol):
    """Measures checkpoints alongside the training."""

    def begin(self, step: int, checkpoint: Path) -> None:
        """Start on a checkpoint; returns at once."""

    def ready(self, *, wait: bool) -> list[dict[str, Any]]:
        """Rows for metrics.jsonl about earlier checkpoints; `wait` for the one in progress, as long as it may take."""


def fit(
    run: RunFolder,
    source: Source,
    start: str,
    config: Config,
    *,
    origin: str = "",
    quality: Watcher | None = None,
    processes: ProcessGroup | None = None,
) -> dict[str, Any]:
    """Train, and leave `checkpoints/step_*/` and `metrics.jsonl` in the run.

    Args:
        run: the run's folder.
        source: the examples, in a fixed order.
        start: `nano-from-zero`, or a backbone's spec.
        config: `fit`, `learning`, `backbone`.
        origin: the examples' origin, for the model's card; tokens are created again when it changes.
        quality: receives every checkpoint; its findings are logged when they are ready.
        processes: the process group; the main process makes tokens and checkpoints, the others read them.

    Returns:
        Figures of the whole fit; `checkpoint` is the last one's path.
    """
    from dvk.learn.learner import Learner, opened

    processes = processes or ProcessGroup()
    folder = run.path / "fit"
    folder.mkdir(exist_ok=True)
    began = time.monotonic()
    say = Console(file=sys.stderr, quiet=not processes.is_main).print
    kept = processes.broadcast(newest(run.path / "checkpoints"))
    with processes.main_first():  # its files are found by the others
        opening = opened(config, processes)
        backbone = (
            model(run, source, start, opening) if kept is None else trainable(f"hf:{kept}", opening)
        )
        extend_positions(backbone, config.learning.pack_tokens)
        say(f"tokenising for {backbone.name}")
        train, held = tokenise(folder, source, backbone.chat, config, origin)
    tokenised_s = time.monotonic() - began
    course = Course.plan(train, config)
    learner = Learner(
        backbone.model,
        config.learning,
        course.num_steps,
        compiled=compiled(backbone, course.num_steps),
    )
    say(
        f"{len(train):,} rows of {train.info['num_tokens']:,} tokens after {tokenised_s:.0f} s; the first step compiles on a GPU"
    )
    if kept is not None:
        learner.restore(kept)
        rewind(run, learner.step_number, None)
    tokens_before = sum(
        row.get("tokens", 0) for row in run.read(FILE) if row["step"] <= learner.step_number
    )
    steps = _Steps(run, backbone, learner, course, config, processes, quality, began, kept)
    seconds = steps.play(held_out(held, config))
    return {
        "steps": course.num_steps,
        "epochs": config.fit.epochs,
        "rows": len(train),
        "held_out_rows": len(held),
        "targets": int(steps.fitted + tokens_before),
        "tokens_in_data": int(train.info["num_tokens"]),
        "tokenised_s": round(tokenised_s, 1),
        "fitted_s": round(seconds, 1),
        "targets_per_s": round(steps.fitted / seconds) if seconds else None,
        "by_kind": train.info.get("by_kind"),
        "too_long": train.info.get("too_long"),
        "checkpoint": str(steps.last),
        **rounded(steps.figures),
    }


@dataclass
class _Steps:
    """The steps of a fit, each one update; now and then the held-out loss, a checkpoint and rows of metrics."""

    run: RunFolder
    backbone: Trainable
    learner: Learner
    course: Course
    config: Config
    processes: ProcessGroup
    quality: Watcher | None
    began: float
    """`time.monotonic()` at the begin of the whole fit."""
    last: Path | None = None
    """The newest checkpoint."""
    fitted: float = 0.0
    """Tokens learned by this process group since it started."""
    figures: dict[str, Any] = field(default_factory=dict)
    """The newest held-out loss and quality."""
    pending: list[dict[str, Any]] = field(default_factory=list)
    """Rows of metrics that are not yet on disk."""

    def play(self, held_packs: Sequence[Packs]) -> float:
        """Run the remaining steps; return the seconds they took."""
        learner, course, chief = self.learner, self.course, self.processes.is_main
        spent = time.monotonic()
        metrics = Metrics(self.run, learner.step_number + 1)
        with metrics, progress(chief) as bar, ThreadPoolExecutor(1) as ahead:
            next_packs = ahead.submit(course.packs_of, learner.step_number, self.processes)
            shown = bar.add_task(
                "fit",
                total=course.num_steps,
                completed=learner.step_number,
                loss=math.nan,
                rate=0.0,
            )
            while learner.step_number < course.num_steps:
                epoch = course.epoch_at(learner.step_number)
                packs = next_packs.result()
                next_packs = ahead.submit(course.packs_of, learner.step_number + 1, self.processes)
                figures = learner.step(packs)
                self.fitted += figures["tokens"]
                rate = self.fitted / (time.monotonic() - spent)
                bar.update(shown, completed=learner.step_number, loss=figures["loss"], rate=rate)
                self._after_step(epoch, figures, metrics, held_packs)
        seconds = time.monotonic() - spent
        if chief and self.quality is not None:
            rows = self.quality.ready(wait=True)
            with metrics:
                metrics.write(rows)
            self.figures.update({k: v for row in rows[-1:] for k, v in row.items() if k != "step"})
        return seconds

    def _after_step(
        self, epoch: float, found: dict[str, float], metrics: Metrics, held_packs: Sequence[Packs]
    ) -> None:
        """Keep a row of metrics; at some steps make a checkpoint and write the rows."""
        step, chief = self.learner.step_number, self.processes.is_main
        if chief:
            elapsed_s = round(time.monotonic() - self.began, 1)
            self.pending.append(
                {"step": step, "epoch": round(epoch, 4), "elapsed_s": elapsed_s, **rounded(found)}
            )
        saved = step % self.config.fit.save_every == 0 or step == self.course.num_steps
        if saved:
            if held_packs:
                self.figures["held_out_loss"] = self.learner.evaluate(held_packs)
            self.last = save(self.run, self.backbone, self.learner, step, self.processes)
        if not chief:
            return
        if saved:
            self.pending[-1].update(rounded(self.figures))
        if self.quality is not None:
            if saved and self.last is not None:
                self.quality.begin(step, self.last)
            metrics.write(self.quality.ready(wait=False))
        if saved or len(self.pending) >= LOG_EVERY:
            metrics.write(self.pending)
            self.pending = []


# ------------------------------------------------------------------ the model and its data


def trainable(spec: str, config: Config) -> Trainable:
    """A backbone with weights.

    Raises:
        UsageError: it has no local weights.
    """
    backbone = open_backbone(spec, config)
    if not isinstance(backbone, Trainable):
        raise UsageError(
            f"`{spec}` cannot be trained: it has no local weights",
            "start from nano-from-zero, nano or hf:PATH",
        )
    return backbone


def model(run: RunFolder, source: Source, start: str, config: Config) -> Trainable:
    """The fit's initial model; a fresh one is kept in the run, so that a resumed fit has the same tokenizer."""
    dialect = dialect_of(source)
    if start != FRESH:
        given = trainable(start, config)
        if isinstance(given, HfBackbone) and dialect == "plan":
            given.dialect, given.card = dialect, {**given.card, "dialect": dialect}
        return given
    from dvk.backbone import nano

    base = run.path / "fit" / "base"
    if not base.exists():
        nano.make(
            base,
            texts(source),
            size=config.fit.size,
            positions=config.learning.pack_tokens,
            seed=config.seed,
            dialect=dialect,
            provenance={"made_by": "dvk sft fit"},
        )
    return trainable(f"nano:{base}", config)


def dialect_of(source: Source) -> Dialect:
    """What the examples' answers are: plans if they are from tables of measured plans, else kernels.

    Raises:
        UsageError: some are plans and some are not: a model speaks one dialect.
    """
    plans = [example.origin.startswith(TABLE) for example in source.sample(SAMPLE)]
    if any(plans) and not all(plans):
        raise UsageError(
            "some examples are plans and others kernels", "fit them to two models, in two runs"
        )
    return "plan" if any(plans) else "compact"


def extend_positions(backbone: Trainable, tokens: int) -> None:
    """Extend rotary positions, which have no limit, to the row length that the model learns from."""
    settings = unwrapped(backbone.model).config
    if settings.model_type not in ARCHITECTURES:
        return
    settings.max_position_embeddings = max(settings.max_position_embeddings, tokens)
    backbone.tokenizer.model_max_length = max(backbone.tokenizer.model_max_length, tokens)


def texts(source: Source) -> Iterator[str]:
    """Texts to train the tokenizer on: a sample of the whole source, since back ends follow one another."""
    for example in source.sample(SAMPLE):
        for message in example.messages:
            if message.get("content"):
                yield str(message["content"])


def compiled(backbone: Trainable, num_steps: int) -> bool:
    """Whether torch.compile pays: on a GPU from a few hundred steps on."""
    return next(backbone.parameters()).is_cuda and num_steps >= 200


# ------------------------------------------------------------------ files


def newest(folder: Path) -> Path | None:
    """The last complete checkpoint."""
    checkpoints = sorted(folder.glob("step_*"), key=lambda p: int(p.name.removeprefix("step_")))
    return checkpoints[-1] if checkpoints else None


def save(
    run: RunFolder, backbone: Trainable, learner: Learner, step: int, processes: ProcessGroup
) -> Path:
    """Save weights, tokenizer and learner; the folder appears whole. Only the last one keeps the learner's state."""
    from dvk.learn.learner import STATE, forget

    final = run.path / "checkpoints" / f"step_{step:06d}"
    aside = final.with_name(f".{final.name}")
    if processes.is_main:
        shutil.rmtree(aside, ignore_errors=True)
        final.parent.mkdir(exist_ok=True)
        backbone.save(aside)
    processes.barrier()
    learner.save(aside)
    processes.barrier()
    if processes.is_main:
        aside.rename(final)
        for older in final.parent.glob(f"step_*/{STATE}"):
            if older.parent != final:
                forget(older.parent)
    return final


def rounded(figures: dict[str, Any]) -> dict[str, Any]:
    """A number with six digits."""
    return {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in figures.items()}


def progress(chief: bool) -> WordCount:
    """Progress on stderr, of the first process only."""
    return WordCount(
        "steps",
        TextColumn("loss {task.fields[loss]:.4f} {task.fields[rate]:,.0f} targets/s"),
        quiet=not chief,
    )
