"""Check that a task file gives another process the caller's module: compare the outputs of one call with the example inputs.

A text says nothing of what was patched into an imported library, or set in its globals. What is judged must be the module in hand.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dvk.api.written import Written
from dvk.config import Limits
from dvk.errors import DvkError, UsageError
from dvk.sandbox import Death, RequestChannel, call
from dvk.tasks import of_text
from dvk.tasks.build import build, run_file
from dvk.tasks.entry import find
from dvk.tasks.sourcefile import blame
from dvk.tasks.state import restore, seeded, snapshot
from dvk.tasks.trees import Named, map_tensors, named_tensors

SEED = 0
LOOSE = 1e-3
"""Tolerance as a share of an output's scale: rounding, e.g. with another number of threads; another computation differs by more."""


def differs(
    written: Written, inputs: Sequence[Any], kwargs: Mapping[str, Any], limits: Limits
) -> str | None:
    """Return how the file's outputs differ from the live object's; None if they do not.

    Raises:
        UsageError: the live object cannot be called with these inputs.
    """
    subject = written.subject
    args, given = map_tensors(lambda tensor: tensor.detach().clone(), (list(inputs), dict(kwargs)))
    state = snapshot(subject) if isinstance(subject, nn.Module) else {}
    try:
        # The other process has no autocast on, which would round more coarsely than the comparison bears.
        off = torch.autocast(written.device, enabled=False)
        with torch.no_grad(), off, seeded(SEED):
            expected = [
                (name, tensor.cpu()) for name, tensor in named_tensors(subject(*args, **given))
            ]
    except DvkError:
        raise
    except Exception as error:  # the user's code may raise anything
        what = getattr(subject, "__name__", type(subject).__name__)
        raise UsageError(
            f"`{what}` failed on the example inputs: {blame(error)}",
            "give inputs that it can be called with",
        ) from error
    finally:
        if state:
            restore(subject, state)
    with tempfile.TemporaryDirectory(prefix="dvk-expected-") as folder:
        file = Path(folder) / "expected.pt"
        torch.save(expected, file)
        path, _, entry = written.spec.rpartition(":")
        answer = call(
            "dvk.api.checked:child",
            {"path": path, "entry": entry, "device": written.device, "expected": str(file)},
            limits,
        )
    return (
        f"its process ended ({answer.reason})"
        if isinstance(answer, Death)
        else answer.value["differs"]
    )


def child(channel: RequestChannel) -> None:
    """Sandbox target: build the file's module, call it, report how its outputs differ."""
    request = channel.receive()
    if request is None:
        return
    try:
        found = _difference(request)
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        found = error.message if isinstance(error, DvkError) else blame(error)
    channel.send({"differs": found})


def _difference(request: dict[str, Any]) -> str | None:
    text = Path(request["path"]).read_text(encoding="utf-8")
    task = of_text(text, request["entry"], request["entry"]).model_copy(
        update={"path": request["path"], "device": request["device"]}
    )
    task = task.model_copy(
        update={"kind": find(run_file(task), request["entry"], request["path"])[1]}
    )
    built = build(task)
    built.namespace["get_inputs"]()  # it reads the file once
    held = map_tensors(
        lambda tensor: tensor.to(request["device"]), built.namespace["_dvk_held"]["inputs"]
    )
    args, kwargs = ([], held) if isinstance(held, dict) else (held, {})
    with torch.no_grad(), seeded(SEED):
        ours = [
            (name, tensor.cpu()) for name, tensor in named_tensors(built.model(*args, **kwargs))
        ]
    return compared(ours, torch.load(request["expected"], weights_only=False))


def compared(ours: Named, theirs: Named) -> str | None:
    """Describe how outputs differ by more than rounding."""
    if [(name, one.shape, one.dtype) for name, one in ours] != [
        (name, one.shape, one.dtype) for name, one in theirs
    ]:
        return "its outputs have another structure"
    for (name, a), (_, b) in zip(ours, theirs, strict=True):
        wide = (b.is_floating_point() or b.is_complex()) and b.numel() > 0
        finite = b[b.isfinite()].abs() if wide else b
        scale = LOOSE * float(finite.max()) if wide and finite.numel() else 0.0
        if not (
            torch.allclose(a, b, rtol=LOOSE, atol=scale, equal_nan=True)
            if wide
            else torch.equal(a, b)
        ):
            return f"`{name}` has other values"
    return None
