"""The process that compiles a line of PyTorch into the cache of compiled code before it is judged. As trusted as the reference.

Sandbox target. One request {task, source}; one answer: {compiled: true}, or {failed: the reason}.
"""

from __future__ import annotations

import traceback

import torch

from dvk.harness.processes.runner import failure, settle
from dvk.harness.transport.calls import call
from dvk.records import Task
from dvk.sandbox import RequestChannel
from dvk.tasks.build import CandidateError, build, build_candidate


def serve(channel: RequestChannel) -> None:
    """Compile one line by a call on the task's own inputs, with its backward for a training task."""
    settle()
    request = channel.receive()
    if request is None:
        return
    try:
        built = build(Task.model_validate(request["task"]))
        model = build_candidate(request["source"], built.task, built)
        args, kwargs = built.inputs(0)
        with torch.no_grad():
            call(model, args, kwargs, 0, backward=built.task.train)
    except CandidateError as error:
        channel.send({"failed": error.message})
    except Exception as error:  # noqa: BLE001 - PyTorch and the user's code may raise anything
        traceback.print_exc(limit=20)
        channel.send({"failed": str(failure(error)["error"])})
    else:
        channel.send({"compiled": True})
