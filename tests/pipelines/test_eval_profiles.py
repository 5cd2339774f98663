"""Where the time of a model's right candidate goes is part of its next question in an evaluation."""

from __future__ import annotations

import shutil

import pytest

from dvk import resources
from dvk.agents import feedback
from dvk.agents.dialects.examples import worked
from dvk.harness.queue import JudgeQueue
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.pipelines.eval.playing import with_profiles
from dvk.records import Candidate
from dvk.tasks import load
from tests.agents.conftest import QUICK


def test_only_models_that_read_prose_are_given_profiles() -> None:
    spec = JudgeSpec(contract="auto")
    assert with_profiles(spec, "chat").profile == "written"
    assert with_profiles(spec, "compact") == spec


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_models_candidate_is_profiled_and_the_composers_is_not() -> None:
    one = next(w for w in worked("cpp") if w.name == "row_scale")
    task = load(str(resources.resource("data", "worked", one.name) / "reference.py"))
    written = [
        Candidate(source=f"{one.candidate}\n# {proposer}", backend="cpp", proposer=proposer)
        for proposer in ("said", "composer")
    ]
    spec = with_profiles(JudgeSpec(), "chat")
    with JudgeQueue[int](1, QUICK, spec=spec) as queue:
        verdicts = dict(queue.map([(task, candidate) for candidate in written]))
    told = feedback.describe(verdicts[0], 600)
    assert "Where the time goes:" in told and "own code" in told and "%" in told
    assert verdicts[1].timing is not None and verdicts[1].profile is None
