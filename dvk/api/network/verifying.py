"""A patched model compared with itself: outputs against a float64 truth with the judge's tolerances, time in interleaved pairs."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from dvk.harness.checking.compare import ExpectedLeaf, errors, scales, values
from dvk.harness.checking.tolerance import Errors, Sums, class_of
from dvk.stats.intervals import is_settled, median_ratio, ratio_interval
from dvk.tasks.state import seeded
from dvk.tasks.trees import map_tensors

Call = tuple[list[Any], dict[str, Any]]
WARM = 3
HALF = (torch.float16, torch.bfloat16)
DEEPEST = 5
"""Objects within objects in which an output's tensors are looked for."""
MOST_TIMES_OWN = 2.0
"""A patched model may err as many times as much as the original does: discrete choices inside, as of experts, amplify rounding."""
VARIATIONS = 4
"""Perturbed copies that show how far rounding moves the outputs, where a half-precision model differs by more than the original errs."""


@dataclass(frozen=True)
class Checked:
    """Outputs of one call; `error` and `own` are typical errors against the truth, relative to the outputs' scale."""

    wrong: str
    error: float
    own: float
    admitted: float
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
    model: nn.Module, patch: ModuleType, calls: Sequence[Call], only: Sequence[str] | None = None
) -> list[Checked]:
    """Compare the patched model with the original on several inputs."""
    truths = Truths(model)
    differences = []
    with torch.no_grad():
        for number, call in enumerate(calls):
            truth = truths.outputs(call, number)
            patch.remove(model)
            same = _called(model, call, number)
            patch.apply(model, quiet=True, only=only)
            try:
                got = _called(model, call, number)
            except Exception as error:  # noqa: BLE001 - reported as what is wrong
                differences.append(
                    Checked(f"the patched model raised {error}"[:300], 0.0, 0.0, 0.0)
                )
                continue
            finally:
                patch.remove(model)
            one = _compared(got, same, truth, _dtypes(model))
            if one.wrong and truth is not None:
                # One token that goes to another expert is an error of rounding that the original may not show on these inputs.
                one = _compared(got, same, truth, _dtypes(model), truths.varied(call, number))
            differences.append(replace(one, untrue=truths.why))
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
    ready: Callable[[], None] = lambda: None,
) -> Timed:
    """Time both in turns, in random order, with the original once more as a control; `with_compile`: with torch.compile's, too.

    `ready` is called when all are compiled and warm, and may wait.
    """
    args, kwargs = call
    kinds = _kinds(model, patch, only)
    wait: Callable[[], None] = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None

    called: Any = model

    def timed(arm: int) -> float:
        for part, was, new in kinds:
            part.__class__ = new if arm == 1 else was
        wait()
        began = time.perf_counter()
        (called if arm == 3 else model)(*args, **kwargs)
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


def in_use(model: nn.Module, patch: ModuleType, call: Call, only: Sequence[str]) -> dict[str, bool]:
    """Return, by path, whether the kernels of each patched module ran in one call of the model."""
    with torch.no_grad():
        patch.apply(model, quiet=True, only=only)
        _called(model, call, 0)
    used = {
        path: bool(vars(part).get("_dvk_ready"))
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


def leaves(value: Any, name: str = "", depth: int = 0) -> list[tuple[str, torch.Tensor]]:
    """Return every tensor in a result with its path, whatever holds it."""
    if isinstance(value, torch.Tensor):
        return [(name or "output", value)]
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, (list, tuple)):
        inside = list(enumerate(value))
    elif (
        depth < DEEPEST and hasattr(value, "__dict__") and not isinstance(value, (type, nn.Module))
    ):
        inside = list(vars(value).items())
    else:
        inside = []
    return [
        one for key, held in inside for one in leaves(held, f"{name}.{key}".lstrip("."), depth + 1)
    ]


def _called(model: Callable[..., Any], call: Call, seed: int) -> list[tuple[str, torch.Tensor]]:
    args, kwargs = map_tensors(lambda t: t.clone(), call)
    with seeded(seed):
        return leaves(model(*args, **kwargs))


class Truths:
    """The original in float64: on its device, or where an operator has no such kernel there, on the CPU.

    A half-precision model with an operator that knows no float64, such as a grouped product, has its truth in float32.

    Attributes:
        why: why neither computes; empty if one does.
    """

    def __init__(self, model: nn.Module):
        self.model, self.why = model, ""
        self.made: dict[tuple[str, torch.dtype], nn.Module] = {}
        self.halves = {n: p.dtype for n, p in model.named_parameters() if p.dtype in HALF}

    def outputs(self, call: Call, seed: int) -> list[tuple[str, torch.Tensor]] | None:
        """The outputs of a call, on the CPU if they were computed there; None if they cannot be: the original itself is then the truth."""
        reasons = []
        wide = (torch.float64, torch.float32) if self.halves else (torch.float64,)
        for dtype in wide:
            for where in dict.fromkeys((_device(self.model), "cpu")):
                try:
                    if (where, dtype) not in self.made:
                        self.made[where, dtype] = copied(self.model).to(where).to(dtype)
                    result = _called(self.made[where, dtype], _widened(call, where, dtype), seed)
                except Exception as error:  # noqa: BLE001 - a model of any kind may raise anything where it was not made for
                    self.made.pop((where, dtype), None)
                    reasons.append(f"{dtype} on {where}: {error}".partition("\n")[0][:200])
                else:
                    return result
        self.why = "; ".join(reasons)
        return None

    def varied(self, call: Call, seed: int) -> list[list[tuple[str, torch.Tensor]]]:
        """The truth's outputs for `VARIATIONS` copies whose half-precision parameters are off by up to half a unit in the last place.

        Empty for a model without such parameters. A model whose discrete choices, as of experts, depend on rounding shows it here.
        """
        if not self.halves or not self.made:
            return []
        (where, dtype), exact = next(iter(self.made.items()))
        epsilons = {name: torch.finfo(half).eps for name, half in self.halves.items()}
        parameters = {name: p for name, p in exact.named_parameters() if name in epsilons}
        dice = torch.Generator(where).manual_seed(seed)

        def moved(name: str, value: torch.Tensor) -> torch.Tensor:
            units = torch.rand(value.shape, generator=dice, device=where, dtype=value.dtype) - 0.5
            return value * (1 + epsilons[name] * units)

        outputs = []
        for _ in range(VARIATIONS):
            off = {name: moved(name, value) for name, value in parameters.items()}

            def called(*args: Any, off: dict[str, torch.Tensor] = off, **kwargs: Any) -> Any:
                return functional_call(exact, off, args, kwargs)

            outputs.append(_called(called, _widened(call, where, dtype), seed))
        return outputs


def copied(model: nn.Module) -> nn.Module:
    """A copy of the model without what drop-ins prepared in its modules: CUDA graphs and kernels cannot be copied.

    Raises:
        Exception: the model's own.
    """
    for part in model.modules():
        for key in [key for key in vars(part) if key.startswith("_dvk_")]:
            del vars(part)[key]
    return copy.deepcopy(model)


def _device(model: nn.Module) -> str:
    return next((str(p.device) for p in model.parameters()), "cpu")


def _widened(call: Call, where: str, dtype: torch.dtype) -> Call:
    return map_tensors(lambda t: t.to(where, dtype if t.is_floating_point() else None), call)


def _dtypes(model: nn.Module) -> set[str]:
    return {str(p.dtype).removeprefix("torch.") for p in model.parameters()}


def _compared(
    got: list[tuple[str, torch.Tensor]],
    same: list[tuple[str, torch.Tensor]],
    truth: list[tuple[str, torch.Tensor]] | None,
    dtypes: set[str],
    varied: Sequence[list[tuple[str, torch.Tensor]]] = (),
) -> Checked:
    if [name for name, _ in got] != [name for name, _ in same]:
        return Checked("the outputs have another structure", 0.0, 0.0, 0.0)
    known = dict(truth or [])
    wrong, found = "", Errors(0.0, 0.0)
    worst_own = admitted = 0.0
    for (name, mine), (_, theirs) in zip(got, same, strict=True):
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            return Checked(f"`{name}` has another shape or dtype", 0.0, 0.0, 0.0)
        exact = known[name].to(theirs.device) if name in known else None
        others = [dict(one)[name].to(theirs.device) for one in varied]
        want = _leaf(name, theirs, exact, dtypes, others)
        error, difference = values(mine, want)
        if difference is not None and not wrong:
            wrong = difference.text
        if want.scale is not None:
            found = found.at_least(error)
            worst_own = max(worst_own, want.own.typical if want.truth is not None else 0.0)
            admitted = max(admitted, want.admitted.typical)
    return Checked(wrong, found.typical, worst_own, admitted)


def _leaf(
    name: str,
    same: torch.Tensor,
    truth: torch.Tensor | None,
    dtypes: set[str],
    varied: Sequence[torch.Tensor] = (),
) -> ExpectedLeaf:
    if not (same.is_floating_point() or same.is_complex()):
        return ExpectedLeaf(name, same)
    scale, rms, finite = scales(same)
    if truth is not None and truth.shape != same.shape:
        truth = None
    leaf = ExpectedLeaf(name, same, truth, scale, rms, finite=finite, wide=False)
    half = same.dtype in HALF
    kind = class_of("half" if half else "fp64" if same.dtype == torch.float64 else "fp32", dtypes)
    unknown = Errors(float("nan"), float("nan"))
    own = errors(same, truth, leaf) if truth is not None else unknown
    given = kind.tolerance(own, unknown, Sums(elements=same.numel()))
    if truth is not None:
        amplified = own
        for one in varied:
            amplified = amplified.at_least(errors(one, truth, leaf))
        most = (MOST_TIMES_OWN * amplified.typical, MOST_TIMES_OWN * amplified.worst)
        given = given.at_least(Errors(*most))
    leaf.own, leaf.admitted = own, given
    return leaf
