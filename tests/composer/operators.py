"""PyTorch's own samples of its operators (`op_db`) as modules: composed for C++, run without guards, compared with eager.

Every operator is called as a function, as a method, in place and with `out=`, if possible. Compared are values, types, shapes, kinds of
strides, the inputs after the call, the state of the random generator, and that nothing is raised. Run the sweep:

    python -m tests.composer.operators --dtype float32 --dtype bool --only remainder
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_structure, tree_unflatten

from dvk.composer.capture.export import CannotCompose
from tests.composer.programs import Program, compiled, differences

DTYPES = ("float32", "bfloat16", "complex64", "bool")
STATUSES = ("ok", "left", "cannot", "differing", "crashing", "skipped")
UNDEFINED = (
    "empty",
    "empty_like",
    "new_empty",
    "empty_strided",
    "new_empty_strided",
    "empty_permuted",
)
"""Operators whose results are uninitialised memory."""
BATCH = 60
"""Programs that are compiled at once."""
LIMIT_S = 60


@dataclass(frozen=True)
class Case:
    """One way of calling an operator on one sample."""

    operator: str
    dtype: str
    way: str
    """`function`, `method`, `inplace` or `out`."""
    number: int
    module: nn.Module
    args: tuple[torch.Tensor, ...]

    def __str__(self) -> str:
        return f"{self.operator} {self.dtype} {self.way} #{self.number}"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case."""

    case: str
    status: str
    """One of STATUSES: `ok` is fused, `left` is a program of PyTorch calls."""
    reason: str = ""


class Called(nn.Module):
    """An operator on tensors that forward gets; its other arguments are fixed."""

    def __init__(
        self, function: Callable[..., Any], leaves: Sequence[Any], spec: Any, out: bool = False
    ):
        super().__init__()
        self.function, self.leaves, self.spec, self.out = function, list(leaves), spec, out

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.spec)
        if self.out:
            rest = tuple(given)
            return self.function(*args, **kwargs, out=rest if len(rest) > 1 else rest[0])
        return self.function(*args, **kwargs)


def cases(operator: Any, dtype: torch.dtype, samples: int) -> Iterator[Case]:
    """The ways of calling an operator; later ways than the function take the first two samples."""
    name = operator.name + (f".{operator.variant_test_name}" if operator.variant_test_name else "")
    kind = str(dtype).removeprefix("torch.")
    torch.manual_seed(0)
    for number, sample in enumerate(operator.sample_inputs("cpu", dtype, requires_grad=False)):
        if number >= samples:
            return
        leaves, spec = tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
        tensors = tuple(leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor))
        if any(t.layout is not torch.strided or t.device.type != "cpu" for t in tensors):
            continue
        yield Case(name, kind, "function", number, Called(operator.op, leaves, spec), tensors)
        if number > 1:
            continue
        for way, function in (
            ("method", operator.method_variant),
            ("inplace", operator.inplace_variant),
        ):
            if function is not None and isinstance(sample.input, torch.Tensor):
                yield Case(name, kind, way, number, Called(function, leaves, spec), tensors)
        if operator.supports_out and (outs := _outs(operator, leaves, spec, tensors)):
            yield Case(
                name,
                kind,
                "out",
                number,
                Called(operator.op, leaves, spec, out=True),
                (*tensors, *outs),
            )


def _outs(
    operator: Any, leaves: Sequence[Any], spec: Any, tensors: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Tensors that `out=` may be given: those that the operator returns, full of another value."""
    try:
        with torch.no_grad():
            made = tree_leaves(Called(operator.op, leaves, spec)(*map(copied, tensors)))
    except Exception:  # noqa: BLE001 - a sample that PyTorch refuses is no case
        return ()
    if not all(isinstance(m, torch.Tensor) and m.layout is torch.strided for m in made):
        return ()
    return tuple(torch.full_like(m, 1) for m in made)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same strides in separate memory."""
    if not tensor.numel() or tensor.is_conj() or tensor.is_neg():
        return tensor.clone()
    span = 1 + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return tensor.as_strided((span,), (1,)).clone().as_strided(tensor.shape, tensor.stride())


def swept(found: Sequence[Case]) -> list[Outcome]:
    """Outcomes of all cases; programs are compiled many at once."""
    outcomes: list[Outcome] = []
    waiting: list[tuple[Case, Any, Program]] = []
    for case in found:
        made = _prepared(case)
        if isinstance(made, Outcome):
            outcomes.append(made)
        else:
            waiting.append((case, *made))
        if len(waiting) >= BATCH:
            outcomes += _compared(waiting)
            waiting = []
    return outcomes + _compared(waiting)


def _prepared(case: Case) -> Outcome | tuple[Any, Program]:
    try:
        with _limited():
            want = called(case, case.module)
    except Exception as error:  # noqa: BLE001 - a sample that PyTorch refuses is no case
        return Outcome(str(case), "skipped", f"eager raises: {_first(error)}")
    try:
        with _limited():
            torch.manual_seed(1)
            return want, Program(case.module, *map(copied, case.args))
    except CannotCompose as error:
        return Outcome(str(case), "cannot", _first(error))
    except Exception as error:  # noqa: BLE001 - this is what the sweep looks for
        return Outcome(str(case), "crashing", f"composer: {type(error).__name__}: {_first(error)}")


def _compared(waiting: Sequence[tuple[Case, Any, Program]]) -> list[Outcome]:
    outcomes = []
    try:
        compiled([program for _, _, program in waiting])
    except Exception as error:  # noqa: BLE001 - one text that no compiler takes spoils the batch
        if len(waiting) == 1:
            return [Outcome(str(waiting[0][0]), "crashing", f"compiler: {_first(error)}")]
        half = len(waiting) // 2
        return _compared(waiting[:half]) + _compared(waiting[half:])
    for case, want, program in waiting:
        try:
            with _limited():
                got = called(case, lambda *args, run=program.run: run(*args))
        except Exception as error:  # noqa: BLE001 - this is what the sweep looks for
            outcomes.append(
                Outcome(str(case), "crashing", f"program: {type(error).__name__}: {_first(error)}")
            )
            continue
        wrong = unlike(case, got, want)
        if wrong and case.dtype in ("bfloat16", "float16") and nearer(case, got, want):
            wrong = []
        status = "differing" if wrong else "ok" if program.functions else "left"
        outcomes.append(
            Outcome(str(case), status, "; ".join(wrong)[:300] or ", ".join(program.externs))
        )
    return outcomes


def nearer(case: Case, got: Any, want: Any) -> bool:
    """Every value that differs is nearer to double precision's than eager's, which rounds between the operators of a composite."""
    wide = replace(case, args=tuple(a.double() if a.is_floating_point() else a for a in case.args))
    try:
        with _limited():
            truth = called(wide, case.module)
    except Exception:  # noqa: BLE001 - what double precision cannot say decides nothing
        return False
    values = [tree_leaves(each[:2]) for each in (got, want, truth)]
    if unlike(case, (*want[:2], *got[2:]), want) or len({len(v) for v in values}) > 1:
        return False
    return all(
        _no_further(*leaf)
        for leaf in zip(*values, strict=True)
        if isinstance(leaf[0], torch.Tensor)
    )


def _no_further(mine: torch.Tensor, theirs: torch.Tensor, truth: torch.Tensor) -> bool:
    if (
        not mine.is_floating_point()
        or (mine.shape, mine.stride()) != (theirs.shape, theirs.stride())
        or mine.shape != truth.shape
    ):
        return torch.equal(mine, theirs)
    ours, eager = ((v.double() - truth.double()).abs() for v in (mine, theirs))
    return bool(((ours <= eager) | (mine == theirs) | (mine.isnan() & theirs.isnan())).all())


def called(
    case: Case, function: Callable[..., Any]
) -> tuple[Any, tuple[torch.Tensor, ...], torch.Tensor, list[int | None]]:
    """A result, the arguments afterwards, the generator's state, and which arguments' memory each result lies in."""
    args = tuple(map(copied, case.args))
    torch.manual_seed(7)
    with torch.no_grad():
        result = function(*args)
    memory = {a.untyped_storage().data_ptr(): n for n, a in enumerate(args) if a.numel()}
    shared = [
        memory.get(leaf.untyped_storage().data_ptr())
        for leaf in tree_leaves(result)
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.numel()
    ]
    return result, args, torch.get_rng_state(), shared


def unlike(case: Case, got: Any, want: Any) -> list[str]:
    """How two calls differ, in words."""
    found = []
    if tree_structure(got[0]) != tree_structure(want[0]) or type(got[0]) is not type(want[0]):
        mine, theirs = (
            f"{type(value[0]).__name__} of {len(tree_leaves(value[0]))}" for value in (got, want)
        )
        return [f"structure: {mine} instead of {theirs}"]
    for what, mine, theirs in (("result", got[0], want[0]), ("input", got[1], want[1])):
        for number, (x, y) in enumerate(zip(tree_leaves(mine), tree_leaves(theirs), strict=True)):
            values = case.operator not in UNDEFINED
            found += [f"{what} {number}: {text}" for text in _apart(x, y, values)]
    if not torch.equal(got[2], want[2]):
        found.append("the random generator's state")
    if got[3] != want[3]:
        found.append(f"results in the memory of arguments {got[3]} instead of {want[3]}")
    return found


def _apart(x: Any, y: Any, values: bool) -> list[str]:
    if not isinstance(y, torch.Tensor):
        same = type(x) is type(y) and (
            x == y or (x != x and y != y) or (isinstance(y, float) and abs(x - y) <= 1e-5 * abs(y))
        )
        return [] if same else [f"{x!r} instead of {y!r}"]
    if not isinstance(x, torch.Tensor) or (x.shape, x.dtype, x.layout) != (
        y.shape,
        y.dtype,
        y.layout,
    ):
        return [
            f"{x.dtype}{list(x.shape)} instead of {y.dtype}{list(y.shape)}"
            if isinstance(x, torch.Tensor)
            else f"{x!r}"
        ]
    if (x.is_conj(), x.is_neg()) != (y.is_conj(), y.is_neg()):
        return ["conjugate or negative bit"]
    if y.layout is not torch.strided:
        return _apart(x.to_dense(), y.to_dense(), values)
    if any(a != b for a, b, size in zip(x.stride(), y.stride(), y.shape, strict=True) if size > 1):
        return [f"strides {x.stride()} instead of {y.stride()} of {list(y.shape)}"]
    if not values:
        return []
    if y.is_complex():
        x, y = (torch.view_as_real(v.resolve_conj().contiguous()) for v in (x, y))
        return differences(x, y, layout=False)
    if y.is_quantized:
        return differences(x.dequantize(), y.dequantize(), layout=False)
    return differences(x.resolve_neg(), y.resolve_neg(), layout=False)


class TookTooLong(Exception):
    """A case ran past LIMIT_S."""


@contextmanager
def _limited() -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TookTooLong(f"longer than {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def operators(only: Sequence[str] = ()) -> list[Any]:
    """PyTorch's operators with samples, by their names there."""
    from torch.testing._internal.common_methods_invocations import op_db

    for module in [
        m for name, m in sys.modules.items() if name.startswith("torch.testing._internal.")
    ]:
        if hasattr(module, "wrapper_set_seed"):  # forward draws from its caller's generator state
            vars(module)["wrapper_set_seed"] = lambda function, *args, **kwargs: function(
                *args, **kwargs
            )
    return [
        op
        for op in op_db
        if not only
        or any(o == op.name or (o.endswith("*") and op.name.startswith(o[:-1])) for o in only)
    ]


def one(operator: Any, dtypes: Sequence[str], samples: int) -> list[Outcome]:
    """Outcomes of one operator in each type that it takes."""
    found = []
    for name in dtypes:
        dtype = getattr(torch, name)
        if operator.supports_dtype(dtype, "cpu"):
            try:
                found += list(cases(operator, dtype, samples))
            except Exception as error:  # noqa: BLE001 - some samples need what is not installed
                print(f"{operator.name} {name}: no samples: {_first(error)}", file=sys.stderr)
    return swept(found)


def sweep(
    only: Sequence[str], dtypes: Sequence[str], samples: int, at_once: int = 12
) -> Iterator[list[Outcome]]:
    """Outcomes, a few operators at a time, each batch in a separate process: an operator that ends it is a crash of that batch."""
    torch.set_num_threads(1)
    chosen = operators(only)
    for start in range(0, len(chosen), at_once):
        yield from _lot(chosen[start : start + at_once], dtypes, samples)


def _lot(lot: Sequence[Any], dtypes: Sequence[str], samples: int) -> Iterator[list[Outcome]]:
    here, there = multiprocessing.get_context("fork").Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=_child, args=(there, lot, dtypes, samples)
    )
    child.start()
    there.close()
    done = 0
    try:
        while True:
            yield here.recv()
            done += 1
    except EOFError:
        child.join()
    if done < len(lot):
        yield [Outcome(lot[done].name, "crashing", f"the process ended with {child.exitcode}")]
        yield from _lot(lot[done + 1 :], dtypes, samples) if lot[done + 1 :] else ()


def _child(there: Any, lot: Sequence[Any], dtypes: Sequence[str], samples: int) -> None:
    warnings.simplefilter("ignore")
    for operator in lot:
        there.send(one(operator, dtypes, samples))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="an operator's name in op_db; `fft*` for all that begin so",
    )
    parser.add_argument("--dtype", action="append", help=f"default: {', '.join(DTYPES)}")
    parser.add_argument("--samples", type=int, default=4, help="samples of an operator in one type")
    parser.add_argument(
        "--show",
        nargs="*",
        default=["differing", "crashing"],
        help=f"outcomes that are printed: {', '.join(STATUSES)}",
    )
    parser.add_argument("--json", metavar="FILE", help="all outcomes, one a line")
    given = parser.parse_args()
    began, counts = time.monotonic(), Counter[str]()
    with open(given.json or "/dev/null", "w", encoding="utf-8") as lines:
        for outcomes in sweep(given.only, given.dtype or DTYPES, given.samples):
            for outcome in outcomes:
                counts[outcome.status] += 1
                lines.write(json.dumps(vars(outcome)) + "\n")
                if outcome.status in given.show:
                    print(f"{outcome.status}: {outcome.case}: {outcome.reason}", flush=True)
    print(
        ", ".join(f"{counts[status]} {status}" for status in STATUSES),
        f"in {time.monotonic() - began:.0f} s",
    )
    return int(bool(counts["differing"] or counts["crashing"]))


if __name__ == "__main__":
    sys.exit(main())
