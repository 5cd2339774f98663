"""What a candidate's process needs for torch.compile: time, a cache of what was compiled, a compiler. Parent side.

A line of PyTorch (`Candidate.line`) is the reference and dvk's own text, so its process is as trusted as one that holds the reference: it
shares the baselines' cache, and a task is compiled once and not once a process.
"""

from __future__ import annotations

import os

from dvk import machine
from dvk.config import Config, Limits
from dvk.records import Candidate, Device, Task
from dvk.sandbox import Death, SandboxSession
from dvk.sandbox.isolate import Kind

COMPILER = "dvk.harness.processes.compiler:serve"


def cache(limits: Limits) -> dict[str, str]:
    """Environment of trusted processes: the folder of compiled code that they share; empty if references are untrusted."""
    if not limits.trust_references:
        return {}
    folder = os.path.join(os.path.expanduser("~"), ".cache", "dvk", "inductor")
    return {"TORCHINDUCTOR_CACHE_DIR": folder}


def threads(sharers: int) -> dict[str, str]:
    """Environment of processes that compile at the same time: each has its share of the cores. Alone, one has PyTorch's usual pool.

    A pool has a worker for every core and imports torch again: for a graph of a few kernels that takes longer than compiling it.
    """
    if sharers <= 1:
        return {}
    return {"TORCHINDUCTOR_COMPILE_THREADS": str(max(1, machine.num_cores() // sharers))}


def env(candidate: Candidate, limits: Limits, require_kernels: bool) -> dict[str, str]:
    """Environment of a candidate's process. Under `--require-kernels` a kernel that torch.compile writes is not the candidate's own."""
    if candidate.line:
        return cache(limits)
    return {"TORCHDYNAMO_DISABLE": "1"} if require_kernels else {}


def isolation(candidate: Candidate, limits: Limits, device: Device) -> Kind:
    """The isolation of a candidate's process."""
    return limits.reference_isolation(device) if candidate.line else device


def with_time(candidate: Candidate, config: Config) -> Config:
    """The settings with the time that torch.compile may take besides."""
    if "torch.compile" not in candidate.source:
        return config
    judge = config.judge
    longer = judge.model_copy(update={"candidate_s": judge.candidate_s + judge.compile_s})
    return config.model_copy(update={"judge": longer})


class Precompilation:
    """A line that is compiled into the shared cache, in another process than the search.

    Raises:
        MachineError: no sandbox can be started.
    """

    def __init__(self, task: Task, candidate: Candidate, limits: Limits):
        self.candidate = candidate
        self.failed: str | None = None
        """Why it cannot be compiled."""
        self._process = SandboxSession(
            COMPILER,
            limits.model_copy(update={"wall_s": 24 * 3600.0}),
            late_env=cache(limits),
            isolate=limits.reference_isolation(task.device),
        )
        self._process.send({"task": task.model_dump(mode="json"), "source": candidate.source})

    def is_done(self) -> bool:
        """Whether it has ended, compiled or not."""
        answer = self._process.wait(0.0)
        if answer is None:
            return False
        if isinstance(answer, Death):
            self.failed = self.failed or f"the process that compiled it ended: {answer.reason}"
        else:
            self.failed = answer.value.get("failed")
        self.close()
        return True

    def close(self) -> None:
        """End it."""
        self._process.close()
