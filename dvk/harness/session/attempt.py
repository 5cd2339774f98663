"""One attempt: a candidate in a fresh process, from start to the referee's findings. Parent side: no torch, no candidate code."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from dvk.config import Config, Limits
from dvk.harness.session import compiling
from dvk.harness.session.environment import RunnerEnvironment
from dvk.harness.session.referee_client import RefereeClient
from dvk.harness.session.verdicts import ProcessFindings, findings_of_death
from dvk.records import Device
from dvk.sandbox import Death, Message, SandboxSession
from dvk.sandbox.isolate import Kind

RUNNER = "dvk.harness.processes.runner:serve"
HANG_UP_S = 30.0
"""Time within which a referee reports that its runner has ended."""
GONE_S = 5.0
"""Time within which a process ends once its line is closed."""
RAISED = re.compile(r"[\w.]+(Error|Exception|Interrupt)\b")
"""Start of the last line of a traceback."""


class RefereeDied(Exception):
    """The judging process has ended; the message says how."""

    def __init__(self, message: str, answer: object = None):
        super().__init__(message)
        self.last_words = _last_words(answer.log) if isinstance(answer, Death) else ""
        """Return the last line of its output with an exception, or else the last line."""


def _last_words(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next(
        (line for line in reversed(lines) if RAISED.match(line)), lines[-1] if lines else ""
    )[:300]


def trial(
    referee: RefereeClient,
    order: Mapping[str, Any],
    environment: RunnerEnvironment,
    *,
    device: Device,
    isolate: Kind,
    limits: Limits,
    config: Config,
    env: Mapping[str, str],
    deadline: float | None,
    lost: Callable[[], None],
    programs: bool = True,
    folders: Sequence[str] = (),
) -> ProcessFindings | None:
    """Return the referee's findings; None if the deadline came first.

    Args:
        referee: client of the referee that holds the task.
        order: the referee's order for the candidate.
        given: resources of the process; closed here.
        device: the candidate's device.
        isolate: the isolation of its process.
        limits: limits of the process; each step has a separate clock.
        config: seconds for the candidate.
        env: environment of the process, applied after `given`'s.
        deadline: on time.monotonic's clock.
        lost: called if the referee no longer answers.
        programs: the candidate may execute programs.
        folders: folders that it may import from, too.

    Raises:
        RefereeDied: before it had findings.
        MachineError: no sandbox can be started.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs, closing(environment):
        runner = SandboxSession(
            RUNNER,
            limits,
            env=environment.env,
            late_env={**environment.late, **env},
            descriptors=[theirs.fileno(), *environment.descriptors],
            isolate=isolate,
            programs=programs,
            folders=folders,
            shut=limits.encloses(device),
        )
        environment.furnish(runner.home)
        referee.send({**order, "pid": runner.pid, "home": runner.home}, [ours.fileno()])
    try:
        return _findings(referee, runner, config, deadline, lost)
    finally:
        runner.close()


def _findings(
    referee: RefereeClient,
    runner: SandboxSession,
    config: Config,
    deadline: float | None,
    lost: Callable[[], None],
) -> ProcessFindings | None:
    """What the referee finds, and how the runner's process ended."""
    isolation = runner.isolation  # confirmed while the process can still be inspected
    answer = referee.wait("findings", config.judge.candidate_s, deadline, runner)
    if answer is None:
        log = runner.close()
        found = findings_of_death(Death("timeout", log), referee.stage, config)
        if not isinstance(referee.wait("findings", HANG_UP_S, None), Message):
            lost()  # a referee that does not notice is unusable
        return None if passed(deadline) else ProcessFindings(found, log, isolation)
    if isinstance(answer, Death):
        raise RefereeDied(answer.reason, answer)
    findings = dict(answer.value["findings"])
    log = ""
    if findings.pop("gone", False):
        death = runner.receive(GONE_S)
        if isinstance(death, Death) and death.reason == "timeout":
            findings, log = (
                {**findings, "error": "it hung up on the judge, and its process went on"},
                death.log,
            )
        elif isinstance(death, Death):
            findings, log = (
                {**findings, **findings_of_death(death, referee.stage, config)},
                death.log,
            )
    else:
        log = runner.close()  # it may have ended already, since its line is closed
    return ProcessFindings(findings, log, isolation, findings.pop("samples", {}))


def arm(
    target: str, device: Device, limits: Limits, line: int, env: Mapping[str, str]
) -> SandboxSession:
    """Start a process that holds the reference, to be timed against; `line` is the descriptor of its line.

    It shares torch.compile's cache across sessions, since each compiles the same reference; an untrusted reference has no cache of dvk.

    Raises:
        MachineError: no sandbox can be started.
    """
    late = {**compiling.cache(limits), **env}
    # A player reads memory for the judging process, and is enclosed with it.
    isolate = (
        "none" if device == "cuda" and target != RUNNER else limits.reference_isolation(device)
    )
    return SandboxSession(
        target,
        limits,
        descriptors=[line],
        late_env=late,
        isolate=isolate,
        shut=limits.encloses(device),
    )


def passed(deadline: float | None) -> bool:
    """Whether the time is over, on time.monotonic's clock; None never is."""
    return deadline is not None and time.monotonic() >= deadline
