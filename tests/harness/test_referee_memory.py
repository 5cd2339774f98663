"""The limit on memory is the reference's: what the judge keeps beside it does not count, whatever its size and that of earlier tasks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dvk.harness import JudgeSpec
from dvk.harness.session.judge_session import JudgeSession
from dvk.harness.transport import memory_budget
from dvk.records import Candidate, Status, Task
from tests.harness.conftest import QUICK
from tests.harness.problems import task_of

LIMIT = 128 << 20
SMALL = QUICK.model_copy(update={"limits": QUICK.limits.model_copy(update={"memory_bytes": LIMIT})})
TEXT = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * {factor}


def get_inputs():
    return [torch.randn(1024, 1024)]
"""


def scaled(factor: int) -> tuple[Task, Candidate]:
    text = TEXT.format(factor=factor)
    task = task_of(text).model_copy(update={"id": f"scaled {factor}"})
    return task, Candidate(source=text.replace("Model(", "ModelNew("), backend="cpp")


def test_kept_draws_and_the_flushed_buffer_leave_the_reference_its_memory() -> None:
    """An input and an output are 8 MB: the judge keeps more draws of them than the limit has room for, of one task after another."""
    (first, one), (second, other) = scaled(2), scaled(3)
    with JudgeSession(first, SMALL, JudgeSpec(brief=True)) as session:
        verdicts = [session.judge(one, "smoke")]
        pid = session._referee.session.pid
        session.switch_task(second)
        verdicts.append(session.judge(other, "smoke"))
        assert session._referee.session.pid == pid
    assert [(v.status, v.error) for v in verdicts if v] == [(Status.OK, None)] * 2


def test_a_reference_that_takes_more_than_its_limit_is_ended() -> None:
    task, copy = scaled(2)
    hog = task.source.replace("return", "self.held = torch.ones(1 << 28)\n        return", 1)
    with JudgeSession(task.model_copy(update={"source": hog}), SMALL) as session:
        verdict = session.judge(copy, "smoke")
    assert verdict is not None and verdict.status is Status.BROKEN_TASK
    assert "the reference ran out of memory" in str(verdict.error)


@pytest.mark.parametrize("limit", [LIMIT, 16 << 30])
def test_what_the_judge_keeps_is_in_proportion_to_the_limit(limit: int) -> None:
    beside = memory_budget.beside_the_reference("cpu", limit)
    kept = sum(memory_budget.budgets("cpu", 1, limit))
    assert kept + memory_budget.FLUSH_BYTES < beside <= 1.5 * limit + memory_budget.FLUSH_BYTES
    assert memory_budget.beside_the_reference("cuda", limit) == 0


@pytest.mark.slow
def test_the_allocator_takes_the_setting_for_large_blocks() -> None:
    text = "from dvk.harness.transport.memory_budget import keep_large_blocks_whole as keep; keep()"
    subprocess.run([sys.executable, "-W", "error", "-c", text], check=True)
