"""Recording of a candidate's launches by a process without a GPU. Parent side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dvk.config import Config, Limits
from dvk.errors import DvkError
from dvk.harness.session.verdicts import ProcessFindings, findings_of_death
from dvk.records import Candidate, Task
from dvk.sandbox import Death, SandboxSession

RECORDER = "dvk.harness.processes.recorder:serve"
ENV = {"DVK_RECORDS": "1"}
"""Environment of the process that recorders are forked from: a separate one, since its imports take seconds, and it compiles."""
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
MISTAKEN = "PlanMismatch"
"""Start of the error of a replay that differs from the recording: see `launch_plans.plan`, which imports torch."""
UNCAPTURED = "NotCapturable"
"""Start of the error of a call that no CUDA graph can hold; followed by the arm."""


def warm(limits: Limits) -> None:
    """Start that process and wait until it is ready; takes seconds."""
    try:
        SandboxSession(RECORDER, limits, env=ENV, late_env=NO_GPU, isolate="cpu").close()
    except DvkError:
        pass  # the first recording will report it


def launch_plan(
    candidate: Candidate, task: Task, calls: dict[str, Any], limits: Limits, config: Config
) -> ProcessFindings | tuple[dict[str, Any] | None, str, str]:
    """Return findings if the candidate failed; else its plan as wire JSON, or None with the reason, and the isolation.

    Args:
        candidate: the candidate to record.
        task: the task that it competes for.
        calls: the referee's facts about them (calls, state, gpu).
        limits: limits of the recorder's process.
        config: time limits.
    """
    with SandboxSession(
        RECORDER, limits, env=ENV, late_env=NO_GPU, isolate="cpu", folders=task.folders
    ) as recorder:
        recorder.send({"source": candidate.source, "task": task.model_dump(mode="json"), **calls})
        answer = recorder.receive(config.judge.candidate_s)
        isolation = recorder.isolation
    if isinstance(answer, Death):
        return ProcessFindings(
            {**findings_of_death(answer, "compile", config), "contract": "plan"},
            answer.log,
            isolation,
        )
    if "failed" in answer.value:
        return ProcessFindings({**answer.value["failed"], "contract": "plan"}, "", isolation)
    return answer.value.get("plan"), str(answer.value.get("refused")), isolation


def needs_host_code(played: ProcessFindings | None) -> bool:
    """Whether the candidate is to be judged with its host code: some of PyTorch's operators return other strides on a GPU than their fake
    versions, and a CUDA graph cannot hold a call that copies from the host."""
    return played is not None and _error(played).startswith((MISTAKEN, UNCAPTURED))


def cannot_be_captured(baselines: Sequence[str]) -> ProcessFindings:
    """Findings on a candidate that must be timed from end to end, since what it is timed against cannot be replayed."""
    arms = " or ".join(["the reference", *baselines])
    error = f"{UNCAPTURED}: {arms} cannot be captured in a CUDA graph"
    return ProcessFindings({"status": "rejected", "stage": "time", "error": error})


def reference_is_uncaptured(played: ProcessFindings | None) -> bool:
    """Whether no launch plan can be timed against the task's reference."""
    return played is not None and _error(played).startswith(f"{UNCAPTURED}: the reference")


def _error(played: ProcessFindings) -> str:
    return str(played.findings.get("error"))
