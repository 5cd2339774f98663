"""A patched model beside itself: outputs against the original in double precision by the judge's tolerances, time in interleaved pairs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from types import ModuleType
from typing import Any

import torch
from torch import nn

from dvk.api.network import rounding, steps
from dvk.api.network.truths import HALF, Call, Truths, called
from dvk.harness.checking.compare import ExpectedLeaf, errors, scales, values
from dvk.harness.checking.tolerance import Errors, Sums, class_of
from dvk.stats.intervals import is_settled, median_ratio, ratio_interval

WARM = 3
MOST_TIMES_OWN = 2.0
"""A patched model may err as many times as much as the original does: discrete choices inside, as of experts, amplify rounding."""

VANISHING = 1e-6
"""A gradient whose truth is so much smaller than the largest one is zero but for rounding, as of a bias of attention's keys: its error is
relative to the largest."""

TIMES_NOISE = 8.0
"""An element of a gradient may be off by so many times the original's error, root mean square over the whole gradient: sums over all
tokens cancel in some rows, whose rounding is that of the others."""


@dataclass(frozen=True)
class Checked:
    """Outputs of one call; `error` and `own` are typical errors against the truth, relative to the outputs' scale."""

    wrong: str
    error: float
    own: float
    admitted: float
    truth: str = "float64"
    """The precision of the truth."""
    untrue: str = ""
    """Why there is no truth in float64: the outputs are compared with the original's."""


@dataclass(frozen=True)
class Timed:
    """One process: milliseconds of both, their median ratio, and the original over itself."""

    original_ms: float
    patched_ms: float
    speedup: float
    lo: float
    hi: float
    control: float
    compile_ms: float | None = None
    over_compile: float | None = None


def check(
    model: nn.Module,
    patch: ModuleType,
    calls: Sequence[Call],
    only: Sequence[str] | None = None,
    *,
    train: bool = False,
) -> list[Checked]:
    """Compare the patched model with the original on several inputs; with `train` gradients and buffers, too."""
    run = steps.stepped if train else called
    truths = Truths(model, run)
    differences = []
    with torch.no_grad():
        for number, call in enumerate(calls):
            truth = truths.outputs(call, number)
            patch.remove(model)
            same = run(model, call, number)
            patch.apply(model, quiet=True, only=only)
            try:
                got = run(model, call, number)
            except Exception as error:  # noqa: BLE001 - reported as what is wrong
                differences.append(
                    Checked(f"the patched model raised {error}"[:300], 0.0, 0.0, 0.0)
                )
                continue
            finally:
                patch.remove(model)
            one = _compared(got, same, truth, _dtypes(model), partial(truths.varied, call, number))
            differences.append(replace(one, truth=truths.dtype, untrue="" if truth else truths.why))
    return differences


def measure(
    model: nn.Module,
    patch: ModuleType,
    call: Call,
    *,
    seconds: float,
    pairs: int,
    settled: float,
    only: Sequence[str] | None = None,
    with_compile: bool = False,
    train: bool = False,
    ready: Callable[[], None] = lambda: None,
) -> Timed:
    """Time both in turns, in random order, with the original once more as a control; `with_compile`: with torch.compile's, too;
    `train`: calls are forward and backward, and gradients are forgotten between them, not on the clock.

    `ready` is called when all are compiled and warm, and may wait.
    """
    once = steps.timed_call(model, call, train=train)
    kinds = _kinds(model, patch, only)
    wait: Callable[[], None] = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None

    called: Any = model

    def timed(arm: int) -> float:
        for part, was, new in kinds:
            part.__class__ = new if arm == 1 else was
        if train:
            steps.clear(model, call)
        wait()
        began = time.perf_counter()
        once(called if arm == 3 else model)
        wait()
        return 1e3 * (time.perf_counter() - began)

    def warm() -> None:
        for arm in WARM * sorted(set(order) - {2}):
            timed(arm)

    order = [0, 1, 2, 3] if with_compile else [0, 1, 2]
    samples: list[list[float]] = [[] for _ in order]
    if with_compile:
        called = torch.compile(model)
    dice = random.Random(0)
    try:
        with torch.no_grad():
            warm()
            ready()
            warm()
            end = time.perf_counter() + seconds
            while len(samples[0]) < pairs and (time.perf_counter() < end or len(samples[0]) < 5):
                dice.shuffle(order)
                for arm in order:
                    samples[arm].append(timed(arm))
                if len(samples[0]) >= 10 and is_settled(samples[0], samples[1], settled):
                    break
    finally:
        for part, _, new in kinds:
            part.__class__ = new
        patch.remove(model)
    return _timed(*samples)


def _timed(
    eager: list[float], ours: list[float], again: list[float], compiled: list[float] | None = None
) -> Timed:
    """What these milliseconds of the arms say."""
    whole = ratio_interval(eager, ours)
    return Timed(
        median(eager),
        median(ours),
        whole.value,
        whole.lo,
        whole.hi,
        median_ratio(eager, again),
        median(compiled) if compiled else None,
        median_ratio(compiled, ours) if compiled else None,
    )


def in_use(
    model: nn.Module, patch: ModuleType, call: Call, only: Sequence[str], *, train: bool = False
) -> dict[str, bool]:
    """Return, by path, whether the kernels of each patched module ran in one call of the model; with `train` in one step."""
    with torch.no_grad():
        patch.apply(model, quiet=True, only=only)
        (steps.stepped if train else called)(model, call, 0)
    used = {
        path: bool(vars(part).get("_dvk_ready"))
        and (not train or vars(part)["_dvk_counts"]["kernels"] > 0)
        for path, part in model.named_modules()
        if getattr(type(part), "_dvk_was", None)
    }
    patch.remove(model)
    return used


def _kinds(
    model: nn.Module, patch: ModuleType, only: Sequence[str] | None
) -> list[tuple[nn.Module, type, type]]:
    """Each patched module with both of its classes; changing them costs nanoseconds, and the kernels stay loaded."""
    were = {id(part): type(part) for part in model.modules()}
    patch.apply(model, quiet=True, only=only)
    return [
        (part, were[id(part)], type(part))
        for part in model.modules()
        if type(part) is not were[id(part)]
    ]


def _dtypes(model: nn.Module) -> set[str]:
    return {str(p.dtype).removeprefix("torch.") for p in model.parameters()}


def _compared(
    got: list[tuple[str, torch.Tensor]],
    same: list[tuple[str, torch.Tensor]],
    truth: list[tuple[str, torch.Tensor]] | None,
    dtypes: set[str],
    varied: Callable[[], list[dict[str, torch.Tensor]]] = list,
) -> Checked:
    if [name for name, _ in got] != [name for name, _ in same]:
        return Checked("the outputs have another structure", 0.0, 0.0, 0.0)
    known = dict(truth or [])
    largest = max(
        (_rms(t) for name, t in known.items() if name.startswith(steps.GRADIENT)), default=0
    )
    wrong, found = "", Errors(0.0, 0.0)
    worst_own = admitted = 0.0
    for (name, mine), (_, theirs) in zip(got, same, strict=True):
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            return Checked(f"`{name}` has another shape or dtype", 0.0, 0.0, 0.0)
        exact = known[name].to(theirs.device) if name in known else None
        want = _leaf(name, theirs, exact, dtypes, largest)
        error, difference = values(mine, want)
        if difference is not None and exact is not None and want.scale is not None:
            others = [one[name].to(theirs.device) for one in varied()]
            difference = rounding.unexplained(mine, want, others, difference)
        if difference is not None and not wrong:
            wrong = difference.text
        if want.scale is not None:
            found = found.at_least(error)
            worst_own = max(worst_own, want.own.typical if want.truth is not None else 0.0)
            admitted = max(admitted, want.admitted.typical)
    return Checked(wrong, found.typical, worst_own, admitted)


def _rms(tensor: torch.Tensor) -> float:
    return float(tensor.abs().double().pow(2).mean().sqrt()) if tensor.numel() else 0.0


def _leaf(
    name: str,
    same: torch.Tensor,
    truth: torch.Tensor | None,
    dtypes: set[str],
    largest: float = 0.0,
) -> ExpectedLeaf:
    """What is expected of a tensor; `largest` is the root mean square of the largest gradient."""
    if not (same.is_floating_point() or same.is_complex()):
        return ExpectedLeaf(name, same)
    scale, rms, finite = scales(same)
    if truth is not None and truth.shape != same.shape:
        truth = None
    if truth is not None and name.startswith(steps.GRADIENT) and _rms(truth) < VANISHING * largest:
        scale = torch.full_like(scale, largest)
    leaf = ExpectedLeaf(name, same, truth, scale, rms, finite=finite, wide=False)
    half = same.dtype in HALF
    kind = class_of("half" if half else "fp64" if same.dtype == torch.float64 else "fp32", dtypes)
    unknown = Errors(float("nan"), float("nan"))
    own = errors(same, truth, leaf) if truth is not None else unknown
    given = kind.tolerance(own, unknown, Sums(elements=same.numel()))
    if truth is not None:
        given = given.at_least(Errors(MOST_TIMES_OWN * own.typical, MOST_TIMES_OWN * own.worst))
        if name.startswith(steps.GRADIENT):
            least = TIMES_NOISE * _rms(same.double() - truth) / given.worst
            leaf.scale = scale.clamp(min=least)
    leaf.own, leaf.admitted = own, given
    return leaf
