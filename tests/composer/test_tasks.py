"""Every shipped task, at its small sizes: composed for the C++ back end, it computes what PyTorch computes."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from dvk.composer.codegen import cpp
from tests.composer.programs import (
    Program,
    compiled,
    differences,
    drop_in,
    out_of_bounds,
    run_source,
)
from tests.tasks.shrink import shipped, shrink

FILES = {path.stem: path for path in shipped()}
KEPT = {
    "linear",
    "matmul",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose2d",
    "cat",
    "gather",
    "diagonal",
    "mm",
    "bmm",
}
"""Operators that may stay PyTorch calls in the shipped tasks."""


class Case:
    """A task's module, its arguments and a program of it."""

    def __init__(self, path: Path, varied: bool):
        namespace = run_source(shrink(path.read_text()), path.stem)
        torch.manual_seed(0)
        self.module = namespace.Model(*namespace.get_init_inputs())
        self.args = namespace.get_inputs()
        self.program = Program(
            self.module,
            *self.args,
            choose=(lambda k: cpp.schedules(k)[-1]) if varied else cpp.default_schedule,
        )


@pytest.fixture(scope="module")
def tasks() -> dict[str, Case]:
    made = {
        name: Case(path, varied=number % 2 == 1)
        for number, (name, path) in enumerate(FILES.items())
    }
    compiled(case.program for case in made.values())
    return made


@pytest.mark.parametrize("name", FILES)
def test_shipped_task(tasks: dict[str, Case], name: str) -> None:
    case = tasks[name]
    reference = copy.deepcopy(case.module)
    assert [text for k in case.program.kernels for text in out_of_bounds(k)] == []
    for seed in range(2):
        torch.manual_seed(seed)
        got = case.program.run()
        torch.manual_seed(seed)
        with torch.no_grad():
            want = reference(*case.args)
        assert differences(got, want, scale=3) == []
    for path, tensor in reference.state_dict().items():
        assert torch.equal(tensor, case.module.state_dict()[path]), f"{path} was left different"
    assert {op.split(".")[1] for op in case.program.externs} <= KEPT
    assert case.program.kernels


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_shipped_task_as_a_drop_in(name: str) -> None:
    source = shrink(FILES[name].read_text())
    namespace = run_source(source, name)
    torch.manual_seed(0)
    args, init = namespace.get_inputs(), namespace.get_init_inputs()
    made, model, _ = drop_in(source, *args, init=init, training=None)
    new = made.ModelNew(*init)
    new.load_state_dict(model.state_dict())
    with torch.no_grad():
        torch.manual_seed(1)
        got = new(*args)
        torch.manual_seed(1)
        want = model(*args)
    assert new._dvk_ready is True
    assert differences(got, want, scale=3) == []
