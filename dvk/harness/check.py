"""Run a candidate on the cases and find the first thing that is wrong. Child side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dvk.harness import compare
from dvk.harness.cases import Case, Reference, same_structure
from dvk.tasks.state import restore, seeded, snapshot
from dvk.tasks.trees import named_tensors


@dataclass
class Outcome:
    """What checking found."""

    error: str | None = None
    worst_error: float = 0.0
    tolerance: float = 0.0
    num_checks: int = 0
    shapes: list[str] = field(default_factory=list)


def check(model: nn.Module, reference: Reference) -> Outcome:
    """Compare on every case; stops at the first disagreement. Exceptions of the candidate pass through."""
    outcome = Outcome()
    state = snapshot(model)
    for case in reference.each():
        restore(model, state)
        args, kwargs = case.arguments()
        before = {name: values for name, (_, values) in state.items()}
        with torch.no_grad(), seeded(case.seed):
            result = model(*args, **kwargs)
        if case.args and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        outcome.error = _wrong(result, case, reference, outcome) or _mutated(args, kwargs, case) or _state(model, before, case)
        outcome.num_checks += 1
        if case.variant not in outcome.shapes:
            outcome.shapes.append(case.variant)
        if outcome.error:
            outcome.error += f" (shape {case.variant}, seed {case.seed})"
            break
    restore(model, state)
    return outcome


def _wrong(result: Any, case: Case, reference: Reference, outcome: Outcome) -> str | None:
    if not same_structure(result, case.outputs):
        return f"the output's structure differs: expected {_shape_of(case.outputs)}, got {_shape_of(result)}"
    got, want = named_tensors(result), named_tensors(case.outputs)
    if len(got) != len(want):
        return f"expected {len(want)} tensors, got {len(got)}"
    for position, ((name, y), (_, r)) in enumerate(zip(got, want, strict=True)):
        problem = compare.outside(name, y, r)
        if problem:
            return problem
        tol = case.tolerances[position]
        truth = case.truth[position]
        outcome.tolerance = max(outcome.tolerance, tol)
        quick = case.quick[position]
        if quick is not None and (worst := compare.quick_worst(y, quick)) <= tol:
            outcome.worst_error = max(outcome.worst_error, worst)
            continue
        if truth is not None and not r.is_floating_point():
            truth = None
        found, wrong = compare.compare(name, y, r, truth, tol if truth is not None else 2 * tol)
        if found.count and not _only_jumps(position, wrong, case, reference):
            outcome.worst_error = max(outcome.worst_error, found.worst)
            return found.message
        if not found.count:
            outcome.worst_error = max(outcome.worst_error, found.worst)
    return None


def _only_jumps(position: int, wrong: torch.Tensor, case: Case, reference: Reference) -> bool:
    """The elements out of tolerance are few and of the kind on which the truth itself jumps."""
    count = int(wrong.sum())
    if count > max(8, wrong.numel() // 1000):
        return False
    masks = reference.jumps(case)
    if masks is None:
        return False
    expected = int(masks[position].sum())
    return expected > 0 and count <= 2 * expected + 4


def _mutated(args: list[Any], kwargs: dict[str, Any], case: Case) -> str | None:
    after = named_tensors((args, kwargs))
    for (name, tensor), want in zip(after, case.inputs_after, strict=True):
        if not _identical(tensor, want):
            return f"input {name.removeprefix('0.')} was changed in place, which the reference does not do"
    return None


def _state(model: nn.Module, before: dict[str, torch.Tensor], case: Case) -> str | None:
    for name, parameter in model.named_parameters():
        if name in before and not _identical(parameter, before[name]):
            return f"parameter {name} was changed"
    for name, buffer in model.named_buffers():
        want = case.state_after.get(name)
        if want is None or want.shape != buffer.shape:
            continue
        if want.is_floating_point():
            error = compare.relative_error(buffer, want)
            if bool((~(error <= 1e-4)).any()):
                return f"buffer {name} differs from the reference's after the call"
        elif not _identical(buffer, want):
            return f"buffer {name} differs from the reference's after the call"
    return None


def _identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _shape_of(tree: Any) -> str:
    if isinstance(tree, torch.Tensor):
        return "tensor"
    if isinstance(tree, (list, tuple)):
        return f"{type(tree).__name__}({', '.join(_shape_of(t) for t in tree)})"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{k!r}: {_shape_of(v)}" for k, v in tree.items()) + "}"
    return type(tree).__name__
