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
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import TextColumn

from dvk.backbone import Trainable, open_backbone
from dvk.backbone.decoding.forward import ARCHITECTURES, unwrapped
from dvk.config import Config
from dvk.distributed import ProcessGroup
from dvk.errors import UsageError
from dvk.learn.packs import Packs, deal_packs, from_store, plan, too_long
from dvk.learn.sources import Source
from dvk.pipelines.metrics import FILE, Metrics, rewind
from dvk.pipelines.report.counted import WordCount
from dvk.pipelines.sft.tokens import tokenise
from dvk.runs import RunFolder

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
        team: the process group; the main process makes tokens and checkpoints, the others read them.

    Returns:
        Figures of the whole fit; `checkpoint` is the last one's path.
    """
    from dvk.learn.learner import Learner, opened

    processes = processes or ProcessGroup()
    chief = processes.is_main
    folder = run.path / "fit"
    folder.mkdir(exist_ok=True)
    began = time.monotonic()
    say = Console(file=sys.stderr, quiet=not chief).print
    kept = processes.broadcast(newest(run.path / "checkpoints"))
    with processes.main_first():  # its files are found by the others
        opening = opened(config, processes)
        backbone = (
            model(run, source, start, opening) if kept is None else trainable(f"hf:{kept}", opening)
        )
        extend_positions(backbone, capacity := config.learning.pack_tokens)
        say(f"tokenising for {backbone.name}")
        train, held = tokenise(folder, source, backbone.chat, config, origin)
    tokenised_s = time.monotonic() - began
    settings = config.learning
    per_step = max(1, settings.batch_tokens // capacity)
    if too_long(train.lengths(), capacity) == len(train):
        raise UsageError(f"no example fits into {capacity} tokens", "raise learning.pack_tokens")
    epochs = [
        plan(train.lengths(), capacity, seed=config.seed + epoch)
        for epoch in range(math.ceil(config.fit.epochs))
    ]
    steps_of = [len(packs) // per_step or 1 for packs in epochs]
    num_steps = max(1, round(sum(steps_of) * config.fit.epochs / len(epochs)))
    if config.fit.max_steps is not None:
        num_steps = min(num_steps, config.fit.max_steps)
    learner = Learner(backbone.model, settings, num_steps, compiled=compiled(backbone, num_steps))
    say(
        f"{len(train):,} rows of {train.info['num_tokens']:,} tokens after {tokenised_s:.0f} s; the first step compiles on a GPU"
    )
    if kept is not None:
        learner.restore(kept)
    held_groups = plan(held.lengths(), capacity, seed=0) if len(held) else []
    held_packs = [
        from_store(held, part, capacity)
        for part in deal_packs(held_groups, 0, 1, settings.micro_packs)
    ]
    if kept is not None:
        rewind(run, learner.step_number, None)
    tokens_before = sum(
        row.get("tokens", 0) for row in run.read(FILE) if row["step"] <= learner.step_number
    )
    fitted, spent = 0.0, time.monotonic()
    figures: dict[str, Any] = {}
    last: Path | None = kept

    def packs_of(step: int) -> list[Packs]:
        epoch, within = place(step, steps_of)
        chosen = epochs[epoch][within * per_step : (within + 1) * per_step]
        return [
            from_store(train, part, capacity)
            for part in deal_packs(chosen, processes.rank, processes.size, settings.micro_packs)
        ]

    metrics = Metrics(run, learner.step_number + 1)
    with metrics, progress(chief) as bar, ThreadPoolExecutor(1) as ahead:
        next_packs = ahead.submit(packs_of, learner.step_number)
        shown = bar.add_task(
            "fit", total=num_steps, completed=learner.step_number, loss=math.nan, rate=0.0
        )
        pending: list[dict[str, Any]] = []
        while learner.step_number < num_steps:
            epoch, within = place(learner.step_number, steps_of)
            packs = next_packs.result()
            next_packs = ahead.submit(packs_of, learner.step_number + 1)
            found = learner.step(packs)
            fitted += found["tokens"]
            step = learner.step_number
            if chief:
                pending.append(
                    {
                        "step": step,
                        "epoch": round(epoch + within / steps_of[epoch], 4),
                        "elapsed_s": round(time.monotonic() - began, 1),
                        **rounded(found),
                    }
                )
                bar.update(
                    shown,
                    completed=step,
                    loss=found["loss"],
                    rate=fitted / (time.monotonic() - spent),
                )
            ending = step == num_steps
            if step % config.fit.save_every == 0 or ending:
                if held_packs:
                    figures["held_out_loss"] = learner.evaluate(held_packs)
                last = save(run, backbone, learner, step, processes)
                if chief:
                    pending[-1].update(rounded(figures))
                    if quality is not None:
                        quality.begin(step, last)
            if chief and quality is not None:
                metrics.write(quality.ready(wait=False))
            if chief and (len(pending) >= LOG_EVERY or ending or step % config.fit.save_every == 0):
                metrics.write(pending)
                pending = []
    seconds = time.monotonic() - spent
    if chief and quality is not None:
        rows = quality.ready(wait=True)
        with metrics:
            metrics.write(rows)
        figures.update({k: v for row in rows[-1:] for k, v in row.items() if k != "step"})
    return {
        "steps": num_steps,
        "epochs": config.fit.epochs,
        "rows": len(train),
        "held_out_rows": len(held),
        "targets": int(fitted + tokens_before),
        "tokens_in_data": int(train.info["num_tokens"]),
        "tokenised_s": round(tokenised_s, 1),
        "fitted_s": round(seconds, 1),
        "targets_per_s": round(fitted / seconds) if seconds else None,
        "by_kind": train.info.get("by_kind"),
        "too_long": train.info.get("too_long"),
        "checkpoint": str(last),
        **rounded(figures),
    }


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
    if start != FRESH:
        return trainable(start, config)
    from dvk.backbone import nano

    base = run.path / "fit" / "base"
    if not base.exists():
        nano.make(
            base,
            texts(source),
            size=config.fit.size,
            positions=config.learning.pack_tokens,
            seed=config.seed,
            provenance={"made_by": "dvk sft fit"},
        )
    return trainable(f"nano:{base}", config)


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


def place(step: int, steps_of: Sequence[int]) -> tuple[int, int]:
    """Epoch, and step within it."""
    for epoch, count in enumerate(steps_of):
        if step < count:
            return epoch, step
        step -= count
    return len(steps_of) - 1, step % steps_of[-1]


# ------------------------------------------------------------------ files


def newest(folder: Path) -> Path | None:
    """The last complete checkpoint."""
    found = sorted(folder.glob("step_*"), key=lambda p: int(p.name.removeprefix("step_")))
    return found[-1] if found else None


def save(
    run: RunFolder, backbone: Trainable, learner: Any, step: int, processes: ProcessGroup
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
