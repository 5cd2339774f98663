"""Which tasks a step plays: a function of seed and step, so that a resumed run sees what the uninterrupted one would have.

Without a folder they are generated, a stream of their own a step; the split keeps every held-out composition out. From a
folder they are taken in an order shuffled anew each time through.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dvk import machine, tasks
from dvk.agents import Subject
from dvk.composer import CannotCompose, capture
from dvk.config import Config
from dvk.errors import DvkError, UsageError
from dvk.records import Backend, Device, content_hash
from dvk.tasks.generate import Split, generate


class Draw:
    """Draws subjects.

    Args:
        config: `seed`, `train`, `limits`.
        backend: what they are to be written in.
        device: where they run.
        home: a folder for the text of generated tasks.
        folder: task files to draw from instead.
        validation: task files to validate on; None: generated ones.

    Raises:
        UsageError: a folder holds no task that can be captured.
    """

    def __init__(
        self, config: Config, backend: Backend, device: Device, home: Path, folder: Path | None = None, validation: Path | None = None
    ):
        self.config, self.backend, self.device, self.home = config, backend, device, home
        self.pool = self._read(folder) if folder is not None else None
        self._validation: list[Subject] | None = None
        if validation is not None:
            self._validation = self.pool if validation == folder else self._read(validation)

    def step(self, step: int) -> list[Subject]:
        """The subjects of a step, `train.tasks_per_step` of them where so many can be played."""
        count = self.config.train.tasks_per_step
        if self.pool is not None:
            return [self._of_pool(step * count + number) for number in range(count)]
        return list(self._generated("train", int(content_hash(str(self.config.seed), "train", str(step)), 16) % 2**48, count))

    def validation(self) -> list[Subject]:
        """Tasks whose compositions are never trained on, the same in every run; those frozen for the final measurement are not
        among them."""
        if self._validation is None:
            seed = int(content_hash("validation"), 16) % 2**48  # not the run's: runs are compared on the same tasks
            self._validation = list(self._generated("heldout", seed, self.config.train.validation_tasks))
        return self._validation

    # ------------------------------------------------------------ inside

    def _of_pool(self, number: int) -> Subject:
        assert self.pool is not None
        through, place = divmod(number, len(self.pool))
        order = list(range(len(self.pool)))
        random.Random(content_hash(str(self.config.seed), str(through))).shuffle(order)
        return self.pool[order[place]]

    def _generated(self, split: Split, seed: int, count: int) -> Iterator[Subject]:
        self.home.mkdir(parents=True, exist_ok=True)
        paths = []
        for made in generate(seed, math.ceil(count * self.config.train.drawn), split=split, device=self.device):
            path = self.home / f"{made.name}.py"
            path.write_text(made.source)
            paths.append(path)
        found = (subject for subject in self._prepared(paths) if subject is not None)
        for subject, _ in zip(found, range(count), strict=False):
            yield subject

    def _prepared(self, paths: Sequence[Path]) -> Iterator[Subject | None]:
        def prepare(path: Path) -> Subject | None:
            try:
                task = tasks.load(str(path), device=self.device, limits=self.config.limits)
                return Subject(task, capture(task, self.config.limits), self.backend)
            except (DvkError, CannotCompose):
                return None

        with ThreadPoolExecutor(machine.num_cores()) as threads:
            yield from threads.map(prepare, paths)

    def _read(self, folder: Path) -> list[Subject]:
        paths = sorted(p for p in folder.rglob("*.py") if not p.name.startswith("_")) if folder.is_dir() else []
        found = [subject for subject in self._prepared(paths) if subject is not None]
        if not found:
            raise UsageError(f"no task in `{folder}` can be played", "give a folder of files in KernelBench's format")
        return found
