"""Have a candidate's launches written down by a process without a GPU. Parent side."""

from __future__ import annotations

from typing import Any

from dvk.config import Config, Limits
from dvk.errors import DvkError
from dvk.harness.session.verdicts import ProcessFindings, of_death
from dvk.records import Candidate, Task
from dvk.sandbox import Death, SandboxSession

RECORDER = "dvk.harness.processes.recorder:serve"
ENV = {"DVK_RECORDS": "1"}
"""Of the process that recorders are forked from: one of their own, since what recording imports takes seconds, and compiles."""
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
MISTAKEN = "PlanMismatch"
"""How the error begins where a replay did something else than what was recorded: see `launch_plans.plan`, which imports torch."""


def warm(limits: Limits) -> None:
    """Have that process started and ready; takes seconds."""
    try:
        SandboxSession(RECORDER, limits, env=ENV, late_env=NO_GPU, isolate="cpu").close()
    except DvkError:
        pass  # the first recording will say so


def launch_plan(
    candidate: Candidate, task: Task, calls: dict[str, Any], limits: Limits, config: Config
) -> ProcessFindings | tuple[dict[str, Any] | None, str, str]:
    """Findings where the candidate failed; else its plan as wire JSON, or None and why there is none, and the isolation.

    Args:
        candidate: what to record.
        task: what it competes for.
        calls: what the referee says of them (calls, state, gpu).
        limits: of the recorder's process.
        config: how long it may take.
    """
    with SandboxSession(RECORDER, limits, env=ENV, late_env=NO_GPU, isolate="cpu", folders=task.folders) as recorder:
        recorder.send({"source": candidate.source, "task": task.model_dump(mode="json"), **calls})
        answer = recorder.receive(config.judge.candidate_s)
        isolation = recorder.isolation
    if isinstance(answer, Death):
        return ProcessFindings({**of_death(answer, "compile", config), "contract": "plan"}, answer.log, isolation)
    if "failed" in answer.value:
        return ProcessFindings({**answer.value["failed"], "contract": "plan"}, "", isolation)
    return answer.value.get("plan"), str(answer.value.get("refused")), isolation


def needs_host_code(played: ProcessFindings | None) -> bool:
    """What was recorded is not what the GPU does: some of PyTorch's operators return other strides than their stand-ins without one."""
    return played is not None and str(played.findings.get("error")).startswith(MISTAKEN)
