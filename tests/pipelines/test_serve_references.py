"""How long `dvk serve` caches a reference's errors."""

from __future__ import annotations

import pytest

from dvk import tasks
from dvk.config import Config
from dvk.errors import Exhausted, TaskError
from dvk.interop.kernelgym import Evaluation, EvaluationResult
from dvk.pipelines.serve.judging import JudgeService


@pytest.mark.parametrize(
    ("error", "looked"),
    [(TaskError("wrong", "right it"), [1, 1, 2, 2]), (Exhausted("slow", "wait"), [1, 2, 3, 4])],
)
def test_a_failure_is_kept_unless_it_may_pass_or_is_refreshed(monkeypatch, error, looked):
    loads = []

    def load(*_, **__):
        loads.append(1)
        raise error

    monkeypatch.setattr(tasks, "load", load)
    judging, found = JudgeService(Config(), 1), []
    for refresh in (False, False, True, False):
        asked = Evaluation(
            task_id="a", reference_code="r", kernel_code="k", backend="cpp", force_refresh=refresh
        )
        answer = judging.prepare(asked)
        assert isinstance(answer, EvaluationResult)
        assert answer.status == "failed" and error.message in answer.error_message
        found.append(len(loads))
    assert found == looked
