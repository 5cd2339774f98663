"""Inputs of classes that stand in the task's file, whichever process executes it under whichever name."""

from __future__ import annotations

import pytest
import torch

from dvk import tasks
from dvk.errors import TaskError
from dvk.harness import judge
from dvk.harness.transport import call_template
from dvk.records import Candidate, Status
from dvk.tasks.sourcefile import execute
from dvk.tasks.trees import named_tensors
from tests.harness.conftest import QUICK

FILE = """
from __future__ import annotations
import enum
from collections import namedtuple
from dataclasses import dataclass
from typing import NamedTuple
import torch
import torch.nn as nn
class Batch(NamedTuple):
    x: torch.Tensor
    scale: torch.Tensor
    def both(self):
        return self.x * self.scale
Pair = namedtuple("P", "a b")
class How(enum.Enum):
    relu = 1
    gelu = 2
class Nested:
    @dataclass(frozen=True)
    class State:
        h: torch.Tensor
        pair: Pair
        alpha: float = 0.5
def twice(x):
    return x * 2
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64))
    def forward(self, batch: Batch, state: Nested.State, how=How.relu, then=twice):
        assert type(batch).__name__ == "Batch"
        y = batch.both() + state.pair.a - state.pair.b + state.alpha * self.weight
        return then(torch.relu(y) if how.name == "relu" else nn.functional.gelu(y))
def get_inputs():
    state = Nested.State(torch.randn(16, 64), Pair(torch.randn(64), torch.randn(64)))
    return [Batch(torch.randn(16, 64), torch.rand(64)), state, How.gelu, twice]
def get_init_inputs():
    return []
"""
RIGHT = """
import torch
import torch.nn as nn
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64))
    def forward(self, batch, state, how, then):
        y = batch.both() + state.pair.a - state.pair.b + state.alpha * self.weight
        return then(y.clamp(min=0) if how.name == "relu" else nn.functional.gelu(y))
"""


@pytest.mark.parametrize("tier", ["smoke", pytest.param("search", marks=pytest.mark.slow)])
def test_they_reach_reference_and_candidate(tmp_path, tier):
    path = tmp_path / "file.py"
    path.write_text(FILE)
    given = [
        RIGHT,
        FILE.replace("class Model(", "class ModelNew("),
        RIGHT.replace("state.pair.b", "state.pair.a"),
    ]
    task = tasks.load(str(path))
    found = judge(
        task, [Candidate(source=source, backend="cpp") for source in given], tier=tier, config=QUICK
    )
    assert [v.status for v in found] == [Status.OK, Status.OK, Status.MISMATCH], [
        v.error for v in found
    ]


def test_another_process_s_name_of_the_file_makes_no_difference():
    mine, theirs = (execute(FILE) for _ in range(2))
    assert mine.__name__ != theirs.__name__
    args = mine.get_inputs()
    tensors = [torch.full((2,), float(n)) for n in range(len(named_tensors(args)))]
    (batch, state, how, then), _ = call_template.fill(
        call_template.empty(args, {}), tensors, theirs
    )
    assert (
        type(batch) is theirs.Batch
        and type(state) is theirs.Nested.State
        and type(state.pair) is theirs.Pair
    )
    assert how is theirs.How.gelu and then is theirs.twice and state.alpha == 0.5
    assert [t for _, t in named_tensors([batch, state])] == tensors


def test_what_cannot_be_sent_says_so():
    module = execute(
        "import collections\ndef made():\n    class Hidden:\n        pass\n    return Hidden()\n"
    )
    with pytest.raises(
        TaskError, match="`made.<locals>.Hidden` does not stand at the top level of the file"
    ):
        call_template.empty([module.made()], {})


def test_tensors_in_what_is_no_structure_are_refused():
    module = execute("class Plain:\n    def __init__(self, x):\n        self.x = x\n")
    with pytest.raises(TaskError, match="it holds a tensor and is neither a list"):
        call_template.empty([module.Plain(torch.zeros(2))], {})
