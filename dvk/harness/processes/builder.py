"""The process that compiles a candidate's extensions before it is judged: isolated, without a GPU, without any input.

Sandbox target. One request {source}: the file is executed, so that its builds at import go to the session's folder. One answer: {built:
true}, however the import ended (there is no GPU here), or {failed} with fields of a verdict if a compiler refused. It then waits until it
is ended, with its folder.
"""

from __future__ import annotations

import traceback

from dvk.harness.processes.failures import failure
from dvk.harness.processes.runner import settle
from dvk.records import Status
from dvk.sandbox import RequestChannel
from dvk.tasks.sourcefile import execute


def serve(channel: RequestChannel) -> None:
    """Build one candidate."""
    settle()
    request = channel.receive()
    if request is None:
        return
    try:
        execute(request["source"], role="candidate")
    except BaseException as error:  # noqa: BLE001 - a candidate may raise anything
        traceback.print_exc(limit=20)
        failed = failure(error)
        if failed["status"] == Status.COMPILE_ERROR.value:
            channel.send({"failed": failed})
            return
    channel.send({"built": True})
    channel.receive()
