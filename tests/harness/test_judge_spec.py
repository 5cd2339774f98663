"""Specifications of a judge: which one session serves, and which verdicts are the same."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from dvk.config import Config
from dvk.harness import JudgeSpec
from dvk.harness.session.verdict_cache import key
from dvk.interop.kernelgym import JudgeOptions
from dvk.records import Candidate, Task

TASK = Task(id="t", name="t", source="", entry="Model", kind="module")
CANDIDATE = Candidate(source="class ModelNew: pass", backend="cpp")


def asked(spec: JudgeSpec) -> str:
    return key(TASK, CANDIDATE, spec.tier, spec.baselines, Config(), spec.flags)


def test_a_session_serves_every_tier_and_baseline_and_nothing_else() -> None:
    first = JudgeSpec(tier="smoke", contract="auto")
    assert (
        first.of_session
        == JudgeSpec(tier="claim", baselines=("compile",), contract="auto").of_session
    )
    others = [
        JudgeSpec(contract="auto", **{name: True})
        for name in ("backward", "brief", "require_kernels", "profile")
    ]  # type: ignore[arg-type]
    assert first.of_session not in [other.of_session for other in [*others, JudgeSpec()]]


def test_each_question_has_its_own_key() -> None:
    specs = [
        JudgeSpec(),
        JudgeSpec(tier="smoke"),
        JudgeSpec(baselines=("compile",)),
        JudgeSpec(backward=True),
        JudgeSpec(brief=True),
        JudgeSpec(require_kernels=True),
        JudgeSpec(contract="plan"),
        JudgeSpec(profile=True),
        JudgeSpec(profile="times"),
    ]
    assert len({asked(spec) for spec in specs}) == len(specs)
    assert JudgeSpec().flags == {
        "backward": False,
        "require_kernels": False,
        "contract": "module",
    }, "keys of earlier verdicts stay"


def test_a_server_is_asked_for_all_of_it() -> None:
    spec = JudgeSpec(
        tier="claim",
        baselines=("graph",),
        backward=True,
        brief=True,
        require_kernels=True,
        contract="plan",
        profile=True,
    )
    told = JudgeOptions.model_validate(spec.model_dump())
    assert {name: getattr(told, name) for name in JudgeSpec.model_fields} == spec.model_dump()


def test_a_word_that_is_none_is_refused() -> None:
    for wrong in (
        {"tier": "fast"},
        {"contract": "both"},
        {"profile": "counters"},
        {"baseline": ("compile",)},
    ):
        with pytest.raises(ValidationError):
            JudgeSpec(**wrong)  # type: ignore[arg-type]
