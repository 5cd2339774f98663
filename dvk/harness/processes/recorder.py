"""The process that records a candidate's launches: no GPU, fake tensors, no values.

Sandbox target, isolated. One request {source, task, calls, state, gpu}; one answer: {plan} as wire JSON, {refused: why} if the candidate
has no plan, or {failed} with fields of a verdict.
"""

from __future__ import annotations

from dvk.harness.launch_plans.calls import CallSpec, GpuProperties, Layout
from dvk.harness.launch_plans.plan import NotReducible
from dvk.harness.launch_plans.record import preload, record
from dvk.harness.processes.failures import failure
from dvk.harness.processes.runner import settle
from dvk.records import Task
from dvk.sandbox import RequestChannel
from dvk.tasks.build import CandidateError

preload()  # in the zygote, which imports this once for all children


def serve(channel: RequestChannel) -> None:
    """Record one candidate."""
    settle()
    request = channel.receive()
    if request is None:
        return
    task = Task.model_validate(request["task"])
    try:
        recording = record(
            request["source"],
            task,
            [CallSpec.model_validate(call) for call in request["calls"]],
            {name: Layout.model_validate(layout) for name, layout in request["state"].items()},
            GpuProperties.model_validate(request["gpu"]),
        )
        channel.send({"plan": recording.wire()})
    except NotReducible as reason:
        channel.send({"refused": str(reason)[:600]})
    except CandidateError as error:
        channel.send(
            {"failed": {"status": error.status, "stage": error.stage, "error": error.message}}
        )
    except BaseException as error:  # noqa: BLE001 - a candidate may raise anything
        channel.send({"refused": failure(error)["error"][:600]})
