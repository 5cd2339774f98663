"""Resources of a candidate's process besides its code: environment, prebuilt extensions, a line for requests. Parent side.

Extensions are compiled in a separate process that sees no input (`builder`), and their files are given to every process that judges the
same text: compiling takes longer than all else, and a claim judges in several. These files were made before there were any secrets.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dvk import backends
from dvk.config import Config, Limits
from dvk.errors import DvkError
from dvk.harness.session.verdicts import ProcessFindings, findings_of_death
from dvk.harness.toolchain import extension, headers, stubs
from dvk.harness.transport import process_memory
from dvk.records import Candidate, Device, content_hash
from dvk.sandbox import Death, SandboxSession

BUILDER = "dvk.harness.processes.builder:serve"
STOP_S = 5.0

_lock, _making = threading.Lock(), threading.Lock()
_stubs: dict[int, stubs.Stubs] = {}


@dataclass
class RunnerEnvironment:
    """Resources of one process."""

    env: dict[str, str] = field(default_factory=dict)
    """Variables set before any import."""
    late: dict[str, str] = field(default_factory=dict)
    """Variables set in the child only."""
    line: socket.socket | None = None
    build: str | None = None
    """Key of the prebuilt extensions."""
    failed: ProcessFindings | None = None
    """The error if they do not compile."""

    @property
    def descriptors(self) -> list[int]:
        """Descriptors for the child."""
        return [] if self.line is None else [self.line.fileno()]

    def furnish(self, home: str) -> None:
        """Put files into the folder of a process that has not started yet."""
        if self.build is not None:
            extension.restore(self.build, Path(home) / "torch_extensions")

    def close(self) -> None:
        """Close the descriptors of this process; the child has its own."""
        if self.line is not None:
            self.line.close()


def runner_environment(
    candidate: Candidate,
    device: Device,
    limits: Limits,
    config: Config,
    folders: Sequence[str] = (),
) -> RunnerEnvironment:
    """Return the resources of a candidate's process; compiles its extensions, if it has any and they are not yet compiled.

    It may import from `folders`.
    """
    environment = RunnerEnvironment(env=backends.get(candidate.backend).env(device))
    if device == "cuda" and candidate.backend == "triton":
        environment.late = stubs.libcuda()
        environment.line = _answering(limits).line()
    if candidate.backend != "triton" and extension.wanted(candidate.source):
        environment.late = _toolbox()
        environment.build, environment.failed = _built(
            candidate, environment, limits, config, folders
        )
    elif candidate.backend == "cpp":
        with _making:
            environment.late = headers.env(candidate.source)
    return environment


def _answering(limits: Limits) -> stubs.Stubs:
    with _lock:
        if os.getpid() not in _stubs:  # a forked parent cannot use its parent's locks and threads
            _stubs[os.getpid()] = stubs.Stubs(limits)
        return _stubs[os.getpid()]


def _toolbox() -> dict[str, str]:
    """Return the environment that makes compilers fast; empty if it is unavailable."""
    with _making:
        try:
            extension.prepare(precompiled=False)
        except (DvkError, OSError):
            return {}
    return extension.env()


def _built(
    candidate: Candidate,
    environment: RunnerEnvironment,
    limits: Limits,
    config: Config,
    folders: Sequence[str],
) -> tuple[str | None, ProcessFindings | None]:
    key = content_hash(
        candidate.source,
        str(extension.toolbox()),
        *(f"{k}={v}" for k, v in sorted({**environment.env, **environment.late}.items())),
    )
    if extension.kept(key):
        return key, None
    late = {**environment.late, "CUDA_VISIBLE_DEVICES": ""}
    with SandboxSession(
        BUILDER, limits, env=environment.env, late_env=late, isolate="cpu", folders=folders
    ) as builder:
        builder.send({"source": candidate.source})
        answer = builder.receive(config.limits.wall_s)
        isolation = builder.isolation
        if isinstance(answer, Death):
            if answer.reason == "timeout":
                error = f"its extensions took longer than {config.limits.wall_s:g} s to compile"
                return None, ProcessFindings(
                    {"status": "timeout", "stage": "compile", "error": error}, answer.log, isolation
                )
            return None, ProcessFindings(
                findings_of_death(answer, "compile", config), answer.log, isolation
            )
        if "failed" in answer.value:
            return None, ProcessFindings(dict(answer.value["failed"]), builder.close(), isolation)
        kept = _halted(builder) and extension.keep(key, Path(builder.home) / "torch_extensions")
    return (key if kept else None), None


def _halted(builder: SandboxSession) -> bool:
    """Stop everything in the session: it could change files, or turn them into links, while they are read."""
    builder.settle()
    try:
        os.killpg(builder.pid, signal.SIGSTOP)
    except OSError:
        return False
    limit = time.monotonic() + STOP_S
    while not process_memory.stopped(builder.pid):
        if time.monotonic() > limit:
            return False
        time.sleep(0.001)
    return True
