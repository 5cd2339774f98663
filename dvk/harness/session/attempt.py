"""One candidate in one fresh process, from its start to what the referee found. Parent side: no torch, nothing foreign."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from dvk.config import Config, Limits
from dvk.harness.session.environment import RunnerEnvironment
from dvk.harness.session.referee_client import RefereeClient
from dvk.harness.session.verdicts import ProcessFindings, of_death
from dvk.records import Device
from dvk.sandbox import Death, Message, SandboxSession

RUNNER = "dvk.harness.processes.runner:serve"
HANG_UP_S = 30.0
"""A referee whose runner has ended says so within this."""
GONE_S = 5.0
"""A process that ends has ended within this, once its line is closed."""
RAISED = re.compile(r"[\w.]+(Error|Exception|Interrupt)\b")
"""How the last line of a traceback begins."""


class RefereeDied(Exception):
    """The process that judges has ended; the message says how."""

    def __init__(self, message: str, answer: object = None):
        super().__init__(message)
        self.last_words = _last_words(answer.log) if isinstance(answer, Death) else ""
        """Of what it printed: what was raised last, or else the last line."""


def _last_words(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if RAISED.match(line)), lines[-1] if lines else "")[:300]


def trial(
    referee: RefereeClient, order: Mapping[str, Any], given: RunnerEnvironment, *, device: Device, limits: Limits, config: Config,
    env: Mapping[str, str], deadline: float | None, lost: Callable[[], None], programs: bool = True,
    folders: Sequence[str] = (),
) -> ProcessFindings | None:
    """What the referee found; None when the deadline came first.

    Args:
        referee: it holds the task.
        order: what to do with the candidate, for the referee.
        given: what the process gets; closed here.
        device: where it works.
        limits: the process's; each step has a separate clock.
        config: seconds for the candidate.
        env: of the process, after `given`'s.
        deadline: on time.monotonic's clock.
        lost: called when the referee does not answer any more.
        programs: the candidate may execute programs.
        folders: that it may import from, too.

    Raises:
        RefereeDied: before it had found anything.
        MachineError: no sandbox can be started.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs, closing(given):
        runner = SandboxSession(
            RUNNER, limits, env=given.env, late_env={**given.late, **env}, descriptors=[theirs.fileno(), *given.descriptors],
            isolate=device, programs=programs, folders=folders,
            shut=limits.encloses(device),
        )
        given.furnish(runner.home)
        referee.send({**order, "pid": runner.pid, "home": runner.home}, [ours.fileno()])
    isolation = runner.isolation  # confirmed while it is there to be looked at
    try:
        answer = referee.wait("findings", config.judge.candidate_s, deadline, runner)
        if answer is None:
            log = runner.close()
            found = of_death(Death("timeout", log), referee.stage, config)
            if not isinstance(referee.wait("findings", HANG_UP_S, None), Message):
                lost()  # a referee that does not notice is of no more use
            return None if passed(deadline) else ProcessFindings(found, log, isolation)
        if isinstance(answer, Death):
            raise RefereeDied(answer.reason, answer)
        findings = dict(answer.value["findings"])
        log = ""
        if findings.pop("gone", False):
            death = runner.receive(GONE_S)
            if isinstance(death, Death) and death.reason == "timeout":
                findings, log = {**findings, "error": "it hung up on the judge, and its process went on"}, death.log
            elif isinstance(death, Death):
                findings, log = {**findings, **of_death(death, referee.stage, config)}, death.log
        else:
            log = runner.close()  # which it may have done by itself, its line being closed
        return ProcessFindings(findings, log, isolation, findings.pop("samples", {}))
    finally:
        runner.close()


def arm(target: str, device: Device, limits: Limits, line: int, env: Mapping[str, str]) -> SandboxSession:
    """A process that holds the reference, to be timed against; `line` is the descriptor that it is spoken to on.

    torch.compile's own cache pays across sessions, for the same one is compiled in each; a stranger's reference has none of ours.

    Raises:
        MachineError: no sandbox can be started.
    """
    cache = {"TORCHINDUCTOR_CACHE_DIR": os.path.join(os.path.expanduser("~"), ".cache", "dvk", "inductor")}
    trusted = limits.trust_references
    late = {**(cache if trusted else {}), **env}
    # What replays launches reads memory for the process that judges, and is shut in with it.
    isolate = "none" if device == "cuda" and target != RUNNER else limits.reference_isolation(device)
    return SandboxSession(target, limits, descriptors=[line], late_env=late, isolate=isolate, shut=limits.encloses(device))


def passed(deadline: float | None) -> bool:
    """It is on time.monotonic's clock; None never comes."""
    return deadline is not None and time.monotonic() >= deadline
