"""Files of modules under autocast: captured, composed and compared with the original against double precision.

    python -m tests.composer.autocast_files data/tasks/examples data/tasks/train [--train] [--device cuda --backend triton]

A line per file: `ok`; `wrong`, with the results that err more than twice as much as the original's; `no kernels`; or why it is not
captured.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dvk.composer import CannotCompose, Plan, applicable_to, compose
from dvk.composer.capture import export
from dvk.composer.recipes import OWN_FAMILIES, inexact
from dvk.harness.transport.calls import call, describe, leaf_names
from dvk.tasks import of_text
from dvk.tasks.build import build, construct_candidate
from tests.tasks.shrink import shrink

ROUNDING = 2**-8
"""Of bfloat16; a result may differ by one more."""


def outcome(
    path: Path, *, train: bool, device: Any = "cpu", backend: Any = "cpp", dtype: Any = "bfloat16"
) -> str:
    """What became of one file, at its small sizes."""
    changed = {"autocast": dtype, "train": train, "device": device}
    task = of_text(shrink(path.read_text()), "Model", path.stem).model_copy(update=changed)
    try:
        captured = export.trace(task)
    except CannotCompose as error:
        return f"not captured: {error}"
    built = build(task)
    args, kwargs = built.inputs(0)
    every = applicable_to(captured, device, backend)
    names = tuple(n for n in every if n not in OWN_FAMILIES and n not in inexact(every))
    new = construct_candidate(
        compose(task, captured, Plan(names), backend).source,
        task,
        built.module,
        (args, kwargs),
        on_device=built.constructed_on_device,
        training=built.model.training,
    )
    new.load_state_dict(built.model.state_dict())
    along: list[torch.Tensor] = []

    def results(model: nn.Module, given: list[Any]) -> Any:
        return call(model, list(given), kwargs, 1, backward=train, along=along if train else None)

    # Double precision is none of autocast's concern.
    wide = [
        t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in args
    ]
    runs = [results(copy.deepcopy(built.model), args), results(new, args)]
    runs.append(results(copy.deepcopy(built.model).double(), wide))
    if not new.dvk_calls.get("kernels"):
        return "no kernels: " + new.dvk_why(*args, **kwargs)
    own, mine, truth = (describe(run)[0] for run in runs)
    rows = zip(leaf_names(runs[0]), own, mine, truth, strict=True)
    wrong = [name for name, a, b, exact in rows if not _as_good(a, b, exact)]
    return f"wrong: {', '.join(wrong)}" if wrong else "ok"


def _as_good(own: Any, mine: Any, exact: Any) -> bool:
    if not isinstance(own, torch.Tensor) or not own.is_floating_point() or not own.numel():
        return bool(torch.equal(own, mine)) if isinstance(own, torch.Tensor) else own == mine
    if (own.shape, own.dtype) != (mine.shape, mine.dtype):
        return False
    scale = float(exact.abs().max()) or 1.0
    theirs, ours = (float((t.double() - exact).abs().max()) / scale for t in (own, mine))
    return ours <= 2 * theirs + ROUNDING


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="cpp")
    parser.add_argument("--dtype", default="bfloat16")
    given = parser.parse_args()
    how = {"device": given.device, "backend": given.backend, "dtype": given.dtype}
    found: list[str] = []
    for path in sorted(path for folder in given.folders for path in folder.rglob("*.py")):
        try:
            found.append(outcome(path, train=given.train, **how))
        except Exception as error:  # noqa: BLE001 - the other files count
            found.append(f"{type(error).__name__}: {error}"[:300])
        print(f"{path.stem}: {found[-1]}", flush=True)
    print(f"{found.count('ok')} of {len(found)}")


if __name__ == "__main__":
    main()
