"""The state that a step changes: weights, optimizer, library. Saved whole after every step, so that a kill costs the current step.

    checkpoints/step_000012/    weights, tokenizer, learner.pt, skills.db, memory.json (other state of the next step),
                                row.json (the step's line of metrics.jsonl); written to a temporary folder, then renamed

Each of several processes has its own copy of the library and applies the same changes; the main process's copy is the run's.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from dvk.backbone import Trainable, open_backbone
from dvk.backbone.decoding.forward import unwrapped
from dvk.backbone.loading import has_adapters
from dvk.config import Config
from dvk.distributed import ProcessGroup
from dvk.errors import DvkError, UsageError
from dvk.learn.learner import STATE, Learner, forget, opened
from dvk.pipelines.metrics import rewind
from dvk.runs import RunFolder
from dvk.skills import Library
from dvk.skills.merging import bring

SMALL_PARAMETERS = 200_000_000
"""Models up to this size are sampled and scored in float32, at little cost, so that rounding is not taken for a mismatch."""
SMALL_RATE, LARGE_RATE = 0.03, 1e-6
"""Default learning rates: of models up to SMALL_PARAMETERS, divided by their width; of larger ones (daVinci's). A step of Adam moves every
weight by the rate and so a layer's outputs by rate × width (arXiv 2203.03466). Measured at width 96: 3e-4 rises steadily, one update at
2e-3 leaves one answer of six, 0.07 of 1.75 nats. At 1e-6 six updates change the 12 M model's answers by 0.003 nats."""

LIBRARY = "skills.db"
MEMORY = "memory.json"
"""See `Draw.memory`."""
ROW = "row.json"


class TrainState:
    """See the module; `step` counts the steps made. Use as a context manager."""

    def __init__(
        self,
        run: RunFolder,
        backbone: Trainable,
        learner: Learner,
        library: Library,
        step: int,
        processes: ProcessGroup,
        memory: dict[str, Any],
    ):
        self.run, self.backbone, self.learner, self.library, self.step, self.processes = (
            run,
            backbone,
            learner,
            library,
            step,
            processes,
        )
        self.memory = memory

    def __enter__(self) -> TrainState:
        return self

    def abandon(self) -> None:
        """Remove the library of a run that has not made a step: a refused run leaves nothing in its folder."""
        self.library.close()
        if self.step == 0:
            discard(self.library.path)

    def __exit__(self, *_: object) -> None:
        self.library.close()
        if not self.processes.is_main:
            discard(self.library.path)

    @classmethod
    def restore(
        cls,
        run: RunFolder,
        start: str,
        library: Path | None,
        num_steps: int,
        config: Config,
        processes: ProcessGroup | None = None,
    ) -> TrainState:
        """The state after the last whole step, metrics.jsonl included; without one, the beginning.

        Args:
            run: the run's folder.
            start: a backbone's spec.
            library: the initial library; None: the default one, with the seeds.
            num_steps: of the whole run.
            config: `train`, `learning`, `backbone`.
            team: the process group; all can read the run's folder.

        Raises:
            UsageError: the backbone has no local weights.
        """
        processes = processes or ProcessGroup()
        kept = processes.broadcast(newest(run.path / "checkpoints"))
        backbone = open_backbone(
            f"hf:{kept}" if kept is not None else start, opened(config, processes)
        )
        if not isinstance(backbone, Trainable):
            raise UsageError(
                f"`{start}` cannot be trained: it has no local weights",
                "start from nano or hf:PATH",
            )
        size = sum(p.numel() for p in backbone.parameters())
        precision = config.learning.precision
        if precision == "auto" and size <= SMALL_PARAMETERS:
            precision = "fp32"
        # A share of all updates, of which a longer run has more.
        warmup = config.train.warmup / num_steps
        constant = {
            "rate": config.train.rate or default_rate(size, backbone.model),
            "schedule": "constant",
            "warmup": warmup,
            "precision": precision,
        }
        settings = config.learning.model_copy(update=constant)
        learner = Learner(
            backbone.model,
            settings,
            num_steps * config.objective.passes * config.objective.mini_batches,
            start=reference_policy(start, backbone.model, config, processes),
        )
        if kept is not None:
            learner.restore(kept)
        step = int(kept.name.removeprefix("step_")) if kept is not None else 0
        memory = json.loads((kept / MEMORY).read_text()) if kept is not None else {}
        rewind(run, step, json.loads((kept / ROW).read_bytes()) if kept is not None else None)
        return cls(
            run,
            backbone,
            learner,
            own_library(run, kept, library, processes),
            step,
            processes,
            memory,
        )

    def write(self, memory: dict[str, Any]) -> None:
        """Write the current step's result to a temporary folder; `keep` makes it permanent.

        Args:
            memory: other state of the next step, as JSON.

        Raises:
            DvkError: the processes' libraries differ.
        """
        self._agreed()
        self.memory = memory
        if self.processes.is_main:
            shutil.rmtree(self._aside, ignore_errors=True)
            self._aside.parent.mkdir(exist_ok=True)
            self.backbone.save(self._aside)
        self.processes.barrier()
        self.learner.save(self._aside)
        if self.processes.is_main:
            copy_library(self.library.path, self._aside / LIBRARY)
            (self._aside / MEMORY).write_text(json.dumps(self.memory))
        self.processes.barrier()

    def keep(self, row: Mapping[str, Any], every: int, also: int = 0) -> None:
        """Make the step that `write` has written permanent: a killed run resumes after it.

        Args:
            row: the step's figures, saved with it so that a kill cannot separate the two.
            every: every n-th older checkpoint stays, for its weights.
            also: a step whose checkpoint stays, too.
        """
        if self.processes.is_main:
            (self._aside / ROW).write_bytes(to_json(dict(row), inf_nan_mode="null"))
            final = self._aside.with_name(f"step_{self.step + 1:06d}")
            self._aside.rename(final)
            thin_out(final, every, also)
        self.step += 1
        self.processes.barrier()

    @property
    def _aside(self) -> Path:
        return self.run.path / "checkpoints" / f".step_{self.step + 1:06d}"

    def _agreed(self) -> None:
        names = self.processes.gather([self.library.names()])
        if any(other != names[0] for other in names):
            problem = f"after step {self.step + 1} the processes' skill libraries differ"
            raise DvkError(
                problem, "resume with --resume; if it happens again, it is a bug worth reporting"
            )


def reference_policy(start: str, model: Any, config: Config, processes: ProcessGroup) -> Any:
    """The initial model, if the objective uses the learner's distance from it; `model` itself if its adapters began at zero.

    Args:
        start: the spec that training began with.
        model: the learner's.

    Raises:
        UsageError: it cannot be had.
    """
    if not config.objective.kl:
        return None
    if config.backbone.lora_rank and not has_adapters(start.partition(":")[2]):
        return model
    if config.learning.sharding != "none" and processes.size > 1:
        raise UsageError(
            "objective.kl needs a whole copy of the model, but the learner is sharded",
            "leave one of the two at its default",
        )
    try:
        beside = open_backbone(start, opened(config, processes))
    except DvkError as error:
        raise UsageError(
            f"objective.kl compares with `{start}`, which training began with: {error.message}",
            error.hint,
        ) from None
    assert isinstance(beside, Trainable), "training began with it"
    return beside.model


def default_rate(size: int, model: Any) -> float:
    """The learning rate of a model of `size` parameters."""
    width = getattr(unwrapped(model).config, "hidden_size", None)
    return SMALL_RATE / width if size <= SMALL_PARAMETERS and width else LARGE_RATE


def thin_out(last: Path, keep_every: int, also: int = 0) -> None:
    """Keep every n-th older checkpoint, and that of the step `also` (weights only)."""
    for older in last.parent.glob("step_*"):
        if older == last:
            continue
        step = int(older.name.removeprefix("step_"))
        if step % keep_every and step != also:
            shutil.rmtree(older)
        else:
            forget(older)


def newest(folder: Path) -> Path | None:
    """The last checkpoint from which a run can resume."""
    folders = sorted(path.parent for path in folder.glob(f"step_*/{STATE}"))
    return folders[-1] if folders else None


def own_library(
    run: RunFolder, kept: Path | None, source: Path | None, processes: ProcessGroup
) -> Library:
    """This process's library: from a checkpoint, or if there is none the run's initial one."""
    copied = run.path / LIBRARY
    if processes.is_main:
        if kept is not None:
            copy_library(kept / LIBRARY, copied)
        else:  # also after a killed first step that had written into it
            begin_library(source, copied)
    processes.barrier()
    if not processes.is_main:
        whole, copied = copied, copied.with_name(f".skills.{processes.rank}.db")
        copy_library(whole, copied)
    processes.barrier()
    return Library.open(copied)


def begin_library(source: Path | None, target: Path) -> None:
    """A run's own library: the skills of another, their results so far as evidence, and an empty journal."""
    aside = target.with_name(f".{target.name}.new")
    aside.unlink(missing_ok=True)
    with Library.open(source) as known, Library.open(aside, create=True) as own:
        bring(own, known)
    copy_library(aside, target)
    discard(aside)


def discard(library: Path) -> None:
    """Remove a library that no process has open."""
    for rest in ("", "-wal", "-shm"):
        library.with_name(library.name + rest).unlink(missing_ok=True)


def copy_library(source: Path, target: Path) -> None:
    """Copy a library as it is at this moment, even if other processes have it open; overwrites `target`.

    Raises:
        UsageError: there is none.
    """
    if not source.is_file():
        raise UsageError(
            f"no skill library at `{source}`",
            "leave --library out, or make one with `dvk skills import`",
        )
    aside = target.with_name(f".{target.name}.part")
    aside.unlink(missing_ok=True)
    with sqlite3.connect(source) as old, sqlite3.connect(aside) as new:
        old.backup(new)
    old.close()
    new.close()
    for rest in ("-wal", "-shm"):
        target.with_name(target.name + rest).unlink(missing_ok=True)
    aside.replace(target)
