"""Child process of test_triton.py: `interpret` and `gpu` run every case, `compile` compiles for sm_90, `own` and `production` run parts.

    python -m tests.composer.triton_child MODE [NUMBER TOTAL]

Prints one JSON object a line: the case's key and what was wrong (a list, empty when nothing). Of TOTAL children each takes its share.
TRITON_INTERPRET is read when Triton is imported, which is why this is a separate process.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import torch

from dvk.composer.codegen import triton as renderer
from dvk.composer.codegen.analysis.tiles import NARROW
from dvk.composer.codegen.triton import split, writer
from dvk.composer.ir.schedules.triton import TritonSchedule
from tests.composer.attention_cases import ATTENTION_CASES
from tests.composer.children import share
from tests.composer.packed_cases import PACKED_CASES
from tests.composer.triton_cases import (
    CASES,
    LONG,
    SCALARS,
    SPECIALS,
    WIDE,
    Case,
    Function,
    special_rows,
)
from tests.composer.triton_own_cases import OWN_CASES
from tests.composer.triton_programs import Program, nth

DEVICE = "cuda" if sys.argv[1:2] == ["gpu"] else "cpu"
is_mine = share(sys.argv[1:])


def report(key: str, check: Callable[[], list[str]]) -> None:
    if not is_mine():
        return
    try:
        wrong = check()
    except Exception as error:  # noqa: BLE001 - any failure of generated code belongs to its case
        wrong = [f"{type(error).__name__}: {error}"]
    print(json.dumps({"key": key, "wrong": wrong}), flush=True)


def as_tuple(value: Any) -> tuple[torch.Tensor, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def widen(value: Any) -> Any:
    return (
        value.double()
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize > 1
        else value
    )


def difference(
    found: torch.Tensor, same: torch.Tensor, wide: torch.Tensor, bound: float
) -> str | None:
    """Errors of a result, given PyTorch's in the same precision (its type and shape) and in double."""
    if found.dtype != same.dtype or found.shape != same.shape or found.stride() != same.stride():
        return f"{found.dtype} {found.shape} {found.stride()}, not {same.dtype} {same.shape} {same.stride()}"
    if not same.is_floating_point():
        return None if torch.equal(found, same) else "values differ"
    wide = wide.double()
    scale = wide.abs() + wide.pow(2).mean().sqrt()
    worst = ((found.double() - wide).abs() / (scale + 1e-30)).max().item()
    return None if worst <= bound else f"error {worst:.1e} of scale, allowed {bound:.0e}"


def run_case(case: Case) -> list[str]:
    torch.manual_seed(0)
    args = [a.to(DEVICE) for a in case.args()]
    same, wide = as_tuple(case.function(*args)), as_tuple(case.function(*map(widen, args)))
    program = Program(Function(case.function), args, DEVICE)
    wrong = [
        f"operator left to PyTorch: {p.op}"
        for p in program.part.users
        if p.kind == "extern" and p.op.startswith("aten.")
    ]
    offered = {s.kind for k in program.kernels.values() for s in renderer.schedules(k)}
    wrong += [f"no schedule of kind {kind}" for kind in case.kinds - offered]
    for number in program.distinct() if DEVICE == "cpu" else range(program.options()):
        used = {nth(number)(k).kind for k in program.kernels.values()}
        if DEVICE == "cpu" and case.interpreted and not used <= case.interpreted:
            continue
        found = as_tuple(program.run(nth(number)))
        for f, s, w in zip(found, same, wide, strict=True):
            problem = difference(f, s, w, case.bound)
            if problem:
                wrong.append(
                    f"schedule {[nth(number)(k) for k in program.kernels.values()]}: {problem}"
                )
    return wrong


def run_scalar(
    function: Callable[[torch.Tensor], torch.Tensor], values: Callable[[], torch.Tensor]
) -> list[str]:
    """Relative error of one scalar function, element by element, in both precisions."""
    wrong = []
    for dtype, bound in ((torch.float32, 1e-6), (torch.float64, 1e-13)):
        x = values().to(DEVICE, dtype)
        found, same = Program(Function(function), [x], DEVICE).run(nth(0)), function(x)
        # On the CPU: PyTorch's own CUDA kernels hold some constants of double functions in single precision.
        wide = widen(function(widen(x.cpu()))).to(DEVICE)
        if not same.is_floating_point():
            wrong += (
                []
                if torch.equal(found, same)
                else [f"{dtype}: differs at {x[found != same].tolist()[:5]}"]
            )
            continue
        # An activation that subtracts (gelu at -5) loses relative accuracy as PyTorch's own formula does.
        error = (found.double() - wide).abs()
        floor = 2 * (same.double() - wide).abs() + torch.finfo(dtype).tiny
        bad = (
            ~(error <= bound * wide.abs() + floor)
            & ~(found.double() == wide)
            & ~(found.isnan() & wide.isnan())
        )
        for i in bad.nonzero()[:3].flatten().tolist():
            wrong.append(
                f"{dtype}: f({x[i].item()!r}) = {found[i].item()!r}, not {wide[i].item()!r}"
            )
    return wrong


def run_special(function: Callable[[torch.Tensor], Any], columns: int) -> list[str]:
    """NaN and infinities occur in PyTorch's elements, under every schedule."""
    x = special_rows(columns).to(DEVICE)
    expected = function(x)
    program = Program(Function(function), [x], DEVICE)
    wrong = []
    for number in program.distinct():
        found = program.run(nth(number))
        bad = ~torch.isclose(found, expected, rtol=1e-5, atol=1e-4, equal_nan=True)
        if bad.any():
            schedule = [nth(number)(k) for k in program.kernels.values()]
            wrong.append(f"{schedule}: {found[bad][:3].tolist()} not {expected[bad][:3].tolist()}")
    return wrong


def run_own() -> None:
    """The kernel families that replace library calls."""
    for name, case in OWN_CASES.items():
        report(f"own:{name}", lambda case=case: run_case(case))  # type: ignore[misc]


def run_production() -> None:
    """Kernels of quantised weights and of attention."""
    if DEVICE == "cpu":
        from tests.composer.warp_products import interpret

        interpret()
    for name, case in {**PACKED_CASES, **ATTENTION_CASES}.items():
        report(f"production:{name}", lambda case=case: run_case(case))  # type: ignore[misc]


def run_all() -> None:
    if DEVICE == "cuda":
        run_own()
        run_production()
    for name, case in CASES.items():
        if DEVICE == "cuda" and not case.gpu:
            continue
        report(f"case:{name}", lambda case=case: run_case(case))  # type: ignore[misc]
    narrow = writer.needs_int64
    writer.needs_int64 = lambda kernel: True  # as for tensors too large for a test
    for name in WIDE:
        report(f"wide:{name}", lambda case=CASES[name]: run_case(case))  # type: ignore[misc]
    split.NARROW = 0  # as for rows of more elements than 32 bits count
    for name in WIDE:
        report(f"far:{name}", lambda case=CASES[name]: run_case(case))  # type: ignore[misc]
    writer.needs_int64, split.NARROW = narrow, NARROW
    for name, (function, values) in SCALARS.items():
        report(f"scalar:{name}", lambda f=function, v=values: run_scalar(f, v))  # type: ignore[misc]
    for name, special in SPECIALS.items():
        # The long rows are those that are looped over as well.
        for columns in (40, 1100) if name in LONG else (40,):
            report(f"special:{name}-{columns}", lambda f=special, c=columns: run_special(f, c))  # type: ignore[misc]


def peak() -> list[str]:
    """A row's largest element less its maximum is 0, though it is a product."""
    from tests.composer.triton_compiled import compile_sm90

    (kernel,) = Program(
        Function(lambda x: torch.softmax(x * 2.1, -1)), [torch.empty(512, 1024)]
    ).kernels.values()
    fused = [
        line
        for asm in compile_sm90(kernel, renderer.default_schedule(kernel))
        for line in re.findall(r"fma\.rn\.f32", asm["ptx"])
    ]
    return [f"{len(fused)} multiply-adds"] if fused else []


def _way(schedule: TritonSchedule) -> tuple[object, ...]:
    printed = schedule.printed()
    return printed["kind"], printed.get("dot"), printed.get("splits", 1) != 1


def ways_that_compile(case: Case) -> list[str]:
    """The compiler accepts each way to compute each kernel."""
    from tests.composer.triton_compiled import compile_sm90

    seen, wrong = set(), []
    for kernel in Program(Function(case.function), case.args()).kernels.values():
        for schedule in renderer.schedules(kernel):
            way = kernel.name, *_way(schedule)
            if way not in seen:
                seen.add(way)
                wrong += (
                    []
                    if all(asm["ptx"] for asm in compile_sm90(kernel, schedule))
                    else [f"nothing compiled of {way}"]
                )
    return wrong


def compiled() -> None:
    """One kernel of each family and kind, every case, and every scalar function at once."""
    from tests.composer.triton_compiled import VECTORIZED, compile_sm90

    for name, (function, args, wanted) in VECTORIZED.items():
        program = Program(Function(function), args())
        for kernel in program.kernels.values():
            seen: set[str] = set()
            for schedule in renderer.schedules(kernel):
                if schedule.kind in seen:
                    continue
                seen.add(schedule.kind)

                def check(
                    kernel: Any = kernel, schedule: Any = schedule, wanted: str = wanted
                ) -> list[str]:
                    texts = [asm["ptx"] for asm in compile_sm90(kernel, schedule)]
                    lines = re.findall(r"(?:ld\.global|cp\.async\.c[ag])[\w.:]*", "\n".join(texts))
                    loaded = any(
                        wanted in line for line in lines
                    ) or schedule != renderer.default_schedule(kernel)
                    return (
                        []
                        if loaded
                        else [f"no {wanted} load under {schedule}: {sorted(set(lines))}"]
                    )

                report(f"compiled:{name}-{schedule.kind}", check)
    report("compiled:peak", peak)
    on_lanes = {n: c for n, c in PACKED_CASES.items() if "lanes" in c.kinds}
    for name, case in (
        CASES | OWN_CASES | ATTENTION_CASES | on_lanes
    ).items():  # the interpreter accepts what the compiler does not
        report(f"compiled:case-{name}", lambda case=case: ways_that_compile(case))  # type: ignore[misc]
    for name, (function, values) in SCALARS.items():
        kernel = next(iter(Program(Function(function), [values()]).kernels.values()))

        def check_scalar(kernel: Any = kernel) -> list[str]:
            return (
                []
                if compile_sm90(kernel, renderer.default_schedule(kernel))
                else ["nothing compiled"]
            )

        report(f"compiled:scalar-{name}", check_scalar)


if __name__ == "__main__":
    {
        "interpret": run_all,
        "gpu": run_all,
        "compile": compiled,
        "own": run_own,
        "production": run_production,
    }[sys.argv[1]]()
