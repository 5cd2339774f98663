"""Inputs that share memory: judged as separate tensors where no call writes what they share, else refused."""

from __future__ import annotations

import pytest
import torch

from dvk import tasks
from dvk.errors import TaskError
from dvk.harness import judge
from dvk.records import Candidate, Status
from dvk.tasks.shared_memory import overlap
from tests.harness.conftest import QUICK

FILE = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x, y):
        {body}
def get_inputs():
    base = torch.randn(64, 64)
    return [{inputs}]
def get_init_inputs():
    return []
"""


def test_which_tensors_have_bytes_in_common():
    x = torch.randn(8, 64)
    assert (
        overlap(x, x)
        and overlap(x, x[3])
        and overlap(x.t()[:5], x[:, 4:6])
        and overlap(x[:1].expand(8, 64), x)
    )
    assert (
        not overlap(x[:, :32], x[:, 32:])
        and not overlap(x[0::2], x[1::2])
        and not overlap(x, x.clone())
    )
    assert overlap(x.view(torch.int16)[:, 3:], x[:, 1:2]) and not overlap(
        x.view(torch.int16)[:, :2], x[:, 1:]
    )
    assert not overlap(x[:0], x)


@pytest.mark.parametrize("inputs", ["base, base", "base, base.t()", "base[:32], base[16:48]"])
@pytest.mark.slow
def test_what_is_only_read_is_a_task_and_what_is_written_is_refused(tmp_path, inputs):
    path = tmp_path / "file.py"
    path.write_text(FILE.format(body="return x * 2 + y", inputs=inputs))
    task = tasks.load(str(path))
    source = path.read_text().replace("class Model(", "class ModelNew(")
    (found,) = judge(task, [Candidate(source=source, backend="cpp")], tier="smoke", config=QUICK)
    assert found.status is Status.OK, found.error
    path.write_text(FILE.format(body="x.add_(1)\n        return x * 2 + y", inputs=inputs))
    with pytest.raises(
        TaskError, match="Model writes its input `x`, which shares memory with its input `y`"
    ):
        tasks.load(str(path))


def test_parts_of_one_buffer_that_do_not_overlap_may_be_written(tmp_path):
    path = tmp_path / "file.py"
    path.write_text(
        FILE.format(body="x.add_(y)\n        return x * 2", inputs="base[:, :32], base[:, 32:]")
    )
    assert "x" in tasks.load(str(path)).written_inputs
