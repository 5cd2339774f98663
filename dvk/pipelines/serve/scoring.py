"""`POST /v1/score`: the reward of a model's answer, for trainers whose machines have no judge.

    TaskAnswer → Evaluation → the queue → EvaluationResult → Scored → {reward, terms, feedback, malformed, verdict}

Equal requests are one evaluation: a client whose connection broke sends its request again.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from dvk import backends, tasks
from dvk.agents.scored import Scored, candidate, scored
from dvk.errors import MachineError, TaskError
from dvk.harness.queue import default_contract
from dvk.interop.kernelgym import Evaluation, EvaluationResult, JudgeOptions
from dvk.interop.kernelgym.readings import NoVerdict, verdict_of
from dvk.pipelines.serve.judging import JudgeService
from dvk.records import Status, Tier, content_hash

TIER: Tier = "search"
MOST_CHARACTERS = 4 << 20


class TaskAnswer(BaseModel):
    """A task and a model's answer to it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str = Field(
        max_length=MOST_CHARACTERS,
        description="Text of the task file, in KernelBench's format: the class `entry_point`, get_inputs(), get_init_inputs().",
    )
    text: str = Field(
        max_length=MOST_CHARACTERS,
        description="The model's whole answer, thinking included; its code defines `ModelNew`.",
    )
    entry_point: str = Field(
        "Model", pattern=r"^[A-Za-z_]\w*$", description="The reference's class."
    )


def evaluation(request: TaskAnswer, judging: JudgeService) -> Evaluation | Scored:
    """The request to the judge, or the score of an answer without readable code."""
    backend = backends.default(judging.device)
    task = tasks.of_text(request.task, request.entry_point, "scored")
    found = candidate(task, backend, request.text)
    if isinstance(found, str):
        return scored(judging.config, request.text, None, found)
    required = judging.config.rollout.require_kernels
    key = content_hash(request.task, request.entry_point, found.source, str(required))
    # Named, or C++ code would be timed against the reference on the CPU of a server with a GPU.
    options = JudgeOptions(
        tier=TIER,
        contract=default_contract(judging.device),
        device=judging.device,
        require_kernels=required,
    )
    return Evaluation(
        task_id=f"score-{key}",
        reference_code=request.task,
        kernel_code=found.source,
        entry_point=request.entry_point,
        backend="auto",
        dvk=options,
    )


def scored_result(request: TaskAnswer, result: EvaluationResult, judging: JudgeService) -> Scored:
    """The score of an answer that was judged.

    Raises:
        TaskError: the task cannot be judged.
        MachineError: this machine cannot judge.
    """
    try:
        verdict = verdict_of(result, TIER, 0.0, ours=True)
    except NoVerdict as error:
        if result.error_code == "VALIDATION_ERROR":
            raise TaskError(str(error), "correct the request") from None
        raise MachineError(str(error), "look at the server's log") from None
    if verdict.status is Status.BROKEN_TASK:
        raise TaskError(f"the task cannot be judged: {verdict.error}", "correct the task")
    return scored(judging.config, request.text, verdict)


def response(found: Scored) -> dict[str, Any]:
    """The body of the answer."""
    verdict = None if found.verdict is None else found.verdict.model_dump(mode="json")
    return {
        "reward": found.reward,
        "terms": dict(found.terms),
        "feedback": found.feedback,
        "malformed": found.malformed,
        "verdict": verdict,
    }
