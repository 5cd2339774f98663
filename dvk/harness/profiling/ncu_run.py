"""Counters of one candidate under Nsight Compute: called a few times, in a sandbox, in a separate process that ncu starts.

    parent   counters(task, source)  →  sandboxed child `serve`  →  ncu  →  `python -m dvk.harness.profiling.ncu_run FOLDER`

ncu must start the process that it observes, so no warm one can be used: it takes some ten seconds.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from dvk.config import Limits
from dvk.harness.profiling import ncu
from dvk.harness.profiling.record import profile_of
from dvk.records import Task, Verdict
from dvk.sandbox import Message, RequestChannel, SandboxSession

CALLS = 2
"""Calls; the first compiles. The median over the launches of all calls is reported for every kernel."""
REQUEST = "request.json"


def counters(
    task: Task, source: str, kernels: Sequence[str] = (), limits: Limits | None = None
) -> ncu.NcuResult:
    """Return counters of the kernels that a candidate launches, or the reason for having none. Parent side; imports no torch.

    Args:
        task: the task.
        source: the candidate.
        kernels: names of its compiled functions; all kernels if empty.
        limits: limits of the sandbox.

    Raises:
        MachineError: no sandbox can be started.
    """
    limits = limits or Limits()
    request = {
        "task": task.model_dump(mode="json"),
        "source": source,
        "kernels": list(kernels),
        "timeout_s": 0.9 * limits.wall_s,
    }
    with SandboxSession(
        f"{__name__}:serve", limits, isolate=task.device, folders=task.folders
    ) as session:
        session.send(request)
        answer = session.receive(limits.wall_s)
    if isinstance(answer, Message):
        return _checked(answer.value)
    return ncu.NcuResult(reason=f"Nsight Compute's process ended ({answer.reason})")


def with_counters(
    verdict: Verdict,
    task: Task,
    source: str,
    limits: Limits,
    profile: bool | Literal["times"] = True,
) -> Verdict:
    """Return `verdict` with counters in its profile, or the reason; unchanged without a profile, on a CPU, or if only `times` are wanted.

    Raises:
        MachineError: no sandbox can be started.
    """
    before = profile_of(verdict)
    if before is None or before.device != "cuda" or profile == "times":
        return verdict
    own = [kernel.name for kernel in before.kernels if kernel.origin == "own"]
    result = (
        counters(task, source, own, limits)
        if ncu.find() is not None
        else ncu.NcuResult(reason="no ncu on this machine")
    )
    return verdict.model_copy(
        update={"profile": ncu.with_counters(before, result).model_dump(mode="json")}
    )


def serve(channel: RequestChannel) -> None:
    """Child side: run the program below under ncu."""
    request = channel.receive() or {}
    folder = Path.cwd()
    (folder / REQUEST).write_text(json.dumps(request))
    root = str(Path(__file__).resolve().parents[3])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), root]))
    os.environ.setdefault("TMPDIR", str(folder))  # ncu keeps a lock there
    program = [sys.executable, "-m", __name__, str(folder)]
    channel.send(
        dataclasses.asdict(ncu.measure(program, request["kernels"], timeout_s=request["timeout_s"]))
    )


def main(folder: Path) -> None:
    """Make the candidate and call it, as a child of ncu.

    Raises:
        Whatever the candidate raises.
    """
    import torch

    from dvk.harness.transport.calls import call
    from dvk.tasks.build import build, build_candidate

    request = json.loads((folder / REQUEST).read_text())
    task = Task.model_validate(request["task"])
    built = build(task)
    model = build_candidate(request["source"], task, built)
    for seed in range(CALLS):
        args, kwargs = built.inputs(seed)
        call(model, args, kwargs, seed)
    if task.device == "cuda":
        torch.cuda.synchronize()


def _checked(value: dict[str, Any]) -> ncu.NcuResult:
    """Return a validated result of a process that ran a candidate's code: short names, numbers, nothing else."""
    kernels: dict[str, ncu.Counters] = {}
    for name, found in list(dict(value.get("kernels") or {}).items())[:100]:
        pairs = found.items() if isinstance(found, dict) else ()
        kernels[str(name)[:200]] = {
            str(key)[:40]: float(number) if isinstance(number, (int, float)) else str(number)[:40]
            for key, number in list(pairs)[:20]
        }
    reason = value.get("reason")
    return ncu.NcuResult(kernels, None if reason is None else str(reason)[:400])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
