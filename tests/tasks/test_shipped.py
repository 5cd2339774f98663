"""The 52 shipped modules, at small sizes: each loads, runs, and gives answers that depend on what goes in."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from dvk.records import Task
from dvk.tasks import load
from dvk.tasks.build import BuiltTask, build
from dvk.tasks.state import restore, seeded, snapshot
from dvk.tasks.trees import named_inputs, named_tensors
from tests.tasks.shrink import TASKS, shipped, shrink, shrunken

STEMS = {path.stem: path for path in shipped()}


def outputs(built: BuiltTask, args: list, kwargs: dict) -> list[torch.Tensor]:
    with torch.no_grad(), seeded(0):
        return [tensor for _, tensor in named_tensors(built.model(*args, **kwargs))]


def distance(first: list[torch.Tensor], second: list[torch.Tensor]) -> float:
    """Largest rms difference of an output over its rms."""
    pairs = [(a.double(), b.double()) for a, b in zip(first, second, strict=True)]
    return max(
        float(((a - b).square().mean() / a.square().mean().clamp(min=1e-30)).sqrt())
        for a, b in pairs
    )


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.slow
def test_loads_and_is_not_degenerate(tmp_path: Path, stem: str) -> None:
    task = load(str(shrunken(STEMS[stem], tmp_path)))
    assert (task.name, task.entry, task.stochastic) == (stem, "Model", False)
    assert task.num_shape_variants >= 3
    built = build(Task.model_validate(task.model_dump(mode="json")))
    args, kwargs = built.inputs(1)
    native = outputs(built, args, kwargs)
    assert all(tensor.numel() == 1 or float(tensor.double().std()) > 1e-4 for tensor in native)
    other, _ = built.inputs(2)
    for index in range(len(args)):
        swapped = [*args[:index], other[index], *args[index + 1 :]]
        assert distance(native, outputs(built, swapped, kwargs)) > 1e-3, (
            f"input {index} does not matter"
        )
    state = snapshot(built.model)
    for name, tensor in [*built.model.named_parameters(), *built.model.named_buffers()]:
        if tensor.is_floating_point():
            with torch.no_grad():
                tensor.mul_(1.5).add_(0.1)
            assert distance(native, outputs(built, args, kwargs)) > 1e-5, f"{name} does not matter"
            restore(built.model, state)
    assert distance(native, outputs(built, args, kwargs)) == 0.0
    for variant in built.variants:
        call = built.inputs(3, variant)
        assert not any(bool(t.isnan().any()) for t in outputs(built, *call))
        changed = {
            name for v in task.shape_variants if v.name == variant for name, _, _ in v.changes
        }
        shapes = dict(named_inputs(*call, built.input_names(call[0])))
        assert {s.name for s in task.inputs if tuple(shapes[s.name].shape) != s.shape} == changed


def test_the_sets_are_complete() -> None:
    kinds = [path.stem.partition("_")[0] for path in (TASKS / "spine").glob("*.py")]
    assert {kind: kinds.count(kind) for kind in sorted(set(kinds))} == {
        "chain": 24,
        "pair": 5,
        "single": 11,
    }
    assert len(list((TASKS / "examples").glob("*.py"))) == 12
    index = (TASKS / "README.md").read_text()
    for path in shipped():
        tree = ast.parse(path.read_text())
        assert f"| `{path.name}` | {(ast.get_docstring(tree) or '').splitlines()[0]} |" in index


def test_shrinking_changes_nothing_but_sizes() -> None:
    for path in shipped():
        full, small = path.read_text().splitlines(), shrink(path.read_text()).splitlines()
        changed = [(a, b) for a, b in zip(full, small, strict=True) if a != b]
        assert changed
        assert all(
            a.split(" = ")[0] == b.split(" = ")[0] and int(b.split(" = ")[1]) > 0
            for a, b in changed
        )
    with pytest.raises(ValueError, match="small sizes"):
        shrink("ROWS = 3\n")
