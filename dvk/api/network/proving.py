"""Which patches stay in a model: those with which the whole is right, and no slower.

The claim follows the judge's rule: several fresh processes, one look after five of them and one after ten. `quick_look` gives a first
figure before any search.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from dvk.api.network import fresh, patching, verifying
from dvk.api.network.building import ModelSource
from dvk.api.network.fresh import FreshProcesses, FreshTiming
from dvk.api.network.verifying import Call, Checked, Timed
from dvk.config import Config
from dvk.harness.timing.claims import FIRST_LOOK, LAST_LOOK, claim, looked_at, undecided
from dvk.records import Claim
from dvk.stats.intervals import process_interval
from dvk.tasks.trees import map_tensors

WRONG = "the whole model's outputs are wrong with it"
IDLE = "its kernels do not fit how the model calls it"
DRAWS = 3
"""Inputs on which outputs are compared."""


@dataclass(frozen=True)
class Subject:
    """The model with its inputs and its patch; `source` is None where no other process can build it.

    More than the first look's processes are started only before `by`, on time.monotonic's clock: the end of the budget.
    """

    model: nn.Module
    calls: Sequence[Call]
    package: Path
    source: ModelSource | None
    config: Config
    by: float = math.inf
    train: bool = False
    """A call is forward and backward."""
    keep: Callable[[Timed], None] = lambda _: None
    """Is given the time of each process."""


@dataclass(frozen=True)
class QuickLook:
    """The whole model with quick compositions: measured in one process, neither searched nor proved."""

    names: tuple[str, ...]
    checked: Checked
    timed: Timed | None = None
    """None where the outputs are wrong."""

    def __str__(self) -> str:
        what = f"the whole model with quick compositions of {', '.join(self.names)}"
        if self.timed is None:
            return f"{what}: {self.checked.wrong}"
        one = self.timed
        return f"{what}: {one.speedup:.2f}x [{one.lo:.2f}, {one.hi:.2f}] in one process"


@dataclass(frozen=True)
class Proved:
    """The patches that stay, why others do not, and the whole model's outputs and time."""

    kept: tuple[str, ...] = ()
    dropped: dict[str, str] = field(default_factory=dict)
    idle: dict[str, str] = field(default_factory=dict)
    """Patched modules whose kernels did not run in a call of the model, and why."""
    checked: tuple[Checked, ...] = ()
    timed: tuple[Timed, ...] = ()
    claim: dict[str, Any] | None = None
    over_compile: dict[str, float] | None = None
    why: str = ""
    """Why nothing is claimed."""


def varied(call: Call) -> list[Call]:
    """The given call and others like it: floats scaled within the values that they have, whole numbers as they are."""

    def other(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.numel() < 2:
            return tensor
        if not bool(tensor.isfinite().all()) or torch.equal(tensor, tensor.round()):
            return tensor  # masks and the like mean what they are
        scaled = tensor * (0.8 + 0.4 * torch.rand_like(tensor))
        return scaled.clamp(tensor.min(), tensor.max())

    return [call, *(map_tensors(other, call) for _ in range(DRAWS - 1))]


def quick_look(
    subject: Subject,
    names: Sequence[str],
    alone: Callable[[], AbstractContextManager[None]],
    *,
    compiled: bool,
) -> QuickLook:
    """Check and time the whole model once."""
    patch = patching.load(subject.package)
    (checked,) = verifying.check(
        subject.model, patch, subject.calls[:1], names, train=subject.train
    )
    if checked.wrong:
        return QuickLook(tuple(names), checked)
    with alone():
        timed = _timed_here(subject, patch, names, compiled=compiled)
    return QuickLook(tuple(names), checked, timed)


def expected_s(subject: Subject, build_s: float, look_s: float) -> float:
    """Seconds that the proof will about take.

    Args:
        build_s: seconds in which this process built the model and called it.
        look_s: seconds of the quick look.
    """
    waves = 1
    if subject.source is not None:
        room = fresh.at_once(subject.model, subject.source.device, comparing=True)
        waves = -(-FIRST_LOOK // min(FIRST_LOOK, max(1, room)))
    return waves * (build_s + look_s) + 2 * FIRST_LOOK * subject.config.judge.claim_s


def prove(
    subject: Subject,
    names: Sequence[str],
    alone: Callable[[], AbstractContextManager[None]],
    note: Callable[[str], None],
    *,
    compiled: bool,
) -> Proved:
    """Check the whole model, leave out patches with which it is wrong or slower, and time what remains.

    Fresh processes build the model while its outputs are compared, where memory has room for both.
    """
    if not names:
        return Proved(why="no block was made faster")
    patch = patching.load(subject.package)
    with ExitStack() as stack:
        first = _begun(subject, stack, FIRST_LOOK, compiled=compiled, comparing=True)
        kept, dropped, checked = _right(subject, patch, names, note)
        if first is not None and kept:
            first.built()
        for name in list(kept):
            with alone():
                one = _timed_here(subject, patch, [name])
            if one.hi < 1:
                dropped[name] = f"the whole model is slower with it: {one.speedup:.2f}x"
                note(f"left out {name}: {dropped[name]}")
                kept.remove(name)
        if not kept:
            why = "no patch made the model faster"
            return Proved(dropped=dropped, checked=tuple(checked), why=why)
        used = verifying.in_use(subject.model, patch, subject.calls[0], kept, train=subject.train)
        timed = _claimed(subject, patch, kept, alone, note, first, compiled=compiled)
    claim = _claim(timed)
    over = [one.over_compile for one in timed if one.over_compile]
    return Proved(
        kept=tuple(kept),
        dropped=dropped,
        idle={path: IDLE for path, on in used.items() if not on},
        checked=tuple(checked),
        timed=tuple(timed),
        claim=claim.model_dump(mode="json"),
        over_compile=process_interval(over).model_dump(mode="json") if len(over) > 1 else None,
        why=claim.why,
    )


def _right(
    subject: Subject, patch: ModuleType, names: Sequence[str], note: Callable[[str], None]
) -> tuple[list[str], dict[str, str], list[Checked]]:
    """The patches with which the outputs are right together, why each other one is left out, and the comparison."""
    kept, dropped = list(names), {}
    what = "outputs and gradients" if subject.train else "outputs"
    note(f"comparing the whole model's {what} on {len(subject.calls)} inputs")
    checked = _checked(subject, patch, kept)
    while kept and (wrong := _wrong(checked)):
        guilty = _guilty(subject, patch, kept)
        dropped[guilty] = f"{WRONG}: {wrong}"
        note(f"left out {guilty}: {dropped[guilty]}")
        kept.remove(guilty)
        checked = _checked(subject, patch, kept)
    return kept, dropped, checked


def _checked(subject: Subject, patch: ModuleType, names: Sequence[str]) -> list[Checked]:
    return verifying.check(subject.model, patch, subject.calls, names, train=subject.train)


def _wrong(checked: Sequence[Checked]) -> str:
    return next((one.wrong for one in checked if one.wrong), "")


def _guilty(subject: Subject, patch: ModuleType, kept: Sequence[str]) -> str:
    """The patch to leave out: one that is wrong by itself, else the one with the largest error."""
    alone = {name: _checked(subject, patch, [name]) for name in kept}
    return max(
        alone, key=lambda name: (bool(_wrong(alone[name])), max(c.error for c in alone[name]))
    )


def _timed_here(
    subject: Subject, patch: ModuleType, only: Sequence[str], *, compiled: bool = False
) -> Timed:
    judge = subject.config.judge
    return verifying.measure(
        subject.model,
        patch,
        subject.calls[0],
        seconds=judge.claim_s,
        pairs=judge.claim_pairs,
        settled=judge.settled,
        only=only,
        with_compile=compiled,
        train=subject.train,
    )


def _begun(
    subject: Subject, stack: ExitStack, most: int, *, compiled: bool, comparing: bool = False
) -> FreshProcesses | None:
    """At most so many fresh processes, which begin to build; None for a live model, or without room for one during a comparison."""
    if subject.source is None:
        return None
    timing = FreshTiming(
        source=subject.source,
        package=subject.package,
        config=subject.config,
        compiled=compiled,
        train=subject.train,
    )
    count = min(most, fresh.at_once(subject.model, subject.source.device, comparing=comparing))
    return stack.enter_context(fresh.processes(timing, count)) if count else None


def _claimed(
    subject: Subject,
    patch: ModuleType,
    kept: Sequence[str],
    alone: Callable[[], AbstractContextManager[None]],
    note: Callable[[str], None],
    first: FreshProcesses | None,
    *,
    compiled: bool,
) -> list[Timed]:
    """Times in fresh processes, as many as the rule of claims asks for; of a live model, in this one."""
    timed: list[Timed] = []
    while not looked_at(len(timed)) or undecided(_claim(timed)):
        if len(timed) >= FIRST_LOOK and time.monotonic() > subject.by:
            break
        with alone(), ExitStack() as stack:
            wave, built, first = first, first is not None, None
            if wave is None:
                wave = _begun(subject, stack, _until_look(len(timed)), compiled=compiled)
            for one in (
                _wave(wave, kept, built=built)
                if wave is not None
                else [_timed_here(subject, patch, kept, compiled=compiled)]
            ):
                subject.keep(one)
                timed.append(one)
        note(_told(timed, here=subject.source is None))
    return timed


def _wave(wave: FreshProcesses, kept: Sequence[str], *, built: bool) -> Iterator[Timed]:
    """Times of these processes, one after another."""
    if not built:
        wave.built()
    wave.warmed(kept)
    while wave.sessions:
        yield wave.timed()


def _until_look(count: int) -> int:
    """How many more processes are timed until the data are looked at."""
    return next(more for more in range(1, LAST_LOOK + 1) if looked_at(count + more))


def _told(timed: Sequence[Timed], *, here: bool) -> str:
    """The speedups so far, for people."""
    count = len(timed)
    where = (
        f"{count} time{'s' * (count != 1)} in this process"
        if here
        else f"in {count} fresh process{'es' * (count != 1)}"
    )
    return f"timed {where}: {', '.join(f'{one.speedup:.2f}x' for one in timed)}"


def _claim(timed: Sequence[Timed]) -> Claim:
    return claim([one.speedup for one in timed], [one.control for one in timed])
