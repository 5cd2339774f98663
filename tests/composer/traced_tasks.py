"""Drop-ins of task files inside a compiler: one graph, their operator in it, `opcheck` passed.

    python -m tests.composer.traced_tasks [--device cuda --backend triton] [--out FILE] [FOLDER or FILE …]

By default every example and the suite's development half. With `--out` each file gives a line there, and those that have one are skipped.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import json
import math
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dvk.composer import Plan, applicable, compose
from dvk.composer.capture.export import trace_module
from dvk.composer.plan_space import MEASURED
from dvk.harness.checking import compare
from dvk.harness.checking.tolerance import UNKNOWN, Sums, class_of
from dvk.records import Task
from dvk.tasks.precision import PrecisionMode, classify
from tests.composer.dropins import importable
from tests.composer.programs import Function, differences, leaves, run_source
from tests.tasks.shrink import shrink

FOLDERS = ("data/tasks/examples", "data/tasks/suite/development")


class NoOperator(Exception):
    """The drop-in has no operator; the text says why."""


def files(places: Sequence[str] = FOLDERS) -> list[Path]:
    """The task files at these places, in order."""
    return [
        path
        for place in places
        for path in ([Path(place)] if place.endswith(".py") else sorted(Path(place).rglob("*.py")))
    ]


def moved(value: Any, device: str) -> Any:
    """The value with its tensors on the device."""
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), value)


class Unchanged(Exception):
    """There is no kernel: the drop-in is the original."""


@torch.no_grad()
def check(path: Path, device: str = "cpu", backend: str = "cpp", backed: str = "aot_eager") -> None:
    """Compose a task file at its small sizes, and run its drop-in inside of torch.compile.

    Raises:
        Unchanged: there is no kernel.
        NoOperator: nothing was registered.
        AssertionError: the result differs from the direct call's, or the operator did not run once.
        Exception: of Dynamo or `opcheck`.
    """
    source = shrink(path.read_text(encoding="utf-8"))
    original = run_source(source, "reference")
    found = getattr(original, "Model", None) or next(
        v for k, v in vars(original).items() if inspect.isfunction(v) and not k.startswith("get_")
    )
    function = not isinstance(found, type)
    init = moved(getattr(original, "get_init_inputs", list)(), device)
    args = moved(original.get_inputs(), device)
    model = (Function(found) if function else found(*init)).eval().to(device)
    with PrecisionMode() as watch:  # of copies: some write their arguments or buffers
        result = copy.deepcopy(model)(*copy.deepcopy(args))
    outputs = [t for t in leaves(result) if isinstance(t, torch.Tensor)]
    task = Task(
        id="test",
        name=path.stem,
        source=source,
        entry=found.__name__,
        kind="function" if function else "module",
        device=device,
        precision=classify(watch, outputs),
    )
    names = list(inspect.signature(found if function else model.forward).parameters)
    captured = trace_module(model, list(args), names[: len(args)])
    plan = Plan(tuple(n for n in applicable(captured.graph, device, backend) if n not in MEASURED))
    made = importable(run_source(compose(task, captured, plan, backend).source))
    new = made.ModelNew(*(() if function else init)).eval().to(device)
    new.load_state_dict(model.state_dict())
    if not hasattr(new, "_dvk_traced"):
        raise Unchanged("all work is left to PyTorch")
    operator = getattr(made, "_dvk_operator_1", None)
    if operator is None:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            new._dvk_traced(*args)
        raise NoOperator(str(said[-1].message))
    # Another copy of this file may have been loaded: the first copy's operator is registered.
    operator = torch.ops._dvk_operators[operator.name]
    seen: list[Any] = []
    run = operator.run
    operator.run = lambda *tensors: seen.append(tensors) or run(*tensors)
    torch._dynamo.reset()
    call = torch.compile(new, fullgraph=True, backend=backed)
    want = new(*args)
    with torch._dynamo.config.patch(allow_rnn=True):
        wrong = differences(call(*args), want)
    assert not wrong, f"compiled, beside the direct call: {wrong[:2]}"
    assert len(seen) == 1, f"the operator ran {len(seen)} times"
    wrong = differences(want, model(*args))
    assert not wrong or not refused(want, model, args, task.precision), (
        f"against the original: {wrong[:2]}"
    )
    space, _, name = operator.name.partition("::")
    overload = getattr(getattr(torch.ops, space), name).default
    torch.library.opcheck(overload, [t.detach() for t in seen[0]])


def refused(got: Any, model: torch.nn.Module, args: list[Any], precision: str) -> list[str]:
    """What the judge's tolerance of this precision class refuses in a result; empty if it admits all of it.

    The float64 run is of the layers' own operators: on a GPU the function that PyTorch has for encoder layers in eval mode computes GELU by
    tanh, also in float64, which is 1e-4 off what the module says.
    """

    def wide(value: Any) -> Any:
        return torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, value
        )

    same = model(*args)
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        truth = leaves(copy.deepcopy(model).double()(*wide(args)))
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
    found = differences(got, same, scale=math.inf)  # of structure, strides, types and integers
    for n, (mine, theirs, true) in enumerate(zip(leaves(got), leaves(same), truth)):
        if found or not isinstance(theirs, torch.Tensor) or not theirs.is_floating_point():
            continue
        scale, rms, finite = compare.scales(theirs)
        leaf = compare.ExpectedLeaf(f"#{n}", theirs, true, scale, rms, finite=finite, wide=True)
        kind = class_of(precision, {str(theirs.dtype).removeprefix("torch.")})
        own = compare.errors(theirs, true, leaf)
        leaf = replace(leaf, admitted=kind.tolerance(own, UNKNOWN, Sums(elements=theirs.numel())))
        difference = compare.values(mine, leaf)[1]
        found += [] if difference is None else [difference.text]
    return found


def main() -> None:
    """Print a line for each file and how many passed; exit 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="*", default=FOLDERS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="cpp")
    parser.add_argument("--compiler", default="aot_eager", help="the back end of torch.compile")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    known: dict[str, str] = {}
    if asked.out and asked.out.exists():
        known = dict(map(json.loads, asked.out.read_text(encoding="utf-8").splitlines()))
    for path in files(asked.places):
        if str(path) in known:
            continue
        start = time.monotonic()
        try:
            check(path, asked.device, asked.backend, asked.compiler)
            known[str(path)] = "passed"
        except Unchanged as error:
            known[str(path)] = f"unchanged: {error}"
        except Exception as error:  # noqa: BLE001 - a sweep goes on
            at = traceback.extract_tb(error.__traceback__)[-1]
            known[str(path)] = f"{type(error).__name__} ({at.name}:{at.lineno}): {error}"[:600]
        print(f"{path} {known[str(path)]} ({time.monotonic() - start:.1f} s)", flush=True)
        if asked.out:
            with asked.out.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps([str(path), known[str(path)]]) + "\n")
    passed = sum(told == "passed" for told in known.values())
    unchanged = sum(told.startswith("unchanged") for told in known.values())
    print(f"{passed} of {len(known)} passed, {unchanged} without kernels")
    sys.exit(passed + unchanged < len(known))


if __name__ == "__main__":
    main()
