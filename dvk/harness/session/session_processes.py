"""The processes of a judge session: one task's referee and its arms, started when needed and kept. Parent side: no torch."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from dvk import machine
from dvk.config import Config, Limits
from dvk.harness.seeds import secret
from dvk.harness.session import compiling
from dvk.harness.session.attempt import RUNNER, RefereeDied, arm, passed
from dvk.harness.session.claim_sets import CONTROL
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.harness.session.referee_client import RefereeClient
from dvk.harness.session.verdicts import broken_reference
from dvk.harness.timing import roofline
from dvk.records import Task, Tier
from dvk.sandbox import Death, Message, SandboxSession

PLAYER = "dvk.harness.processes.player:serve"


class SessionProcesses:
    """The referee and the arms of one task at a time.

    Args:
        task: the reference.
        config: limits and judge settings.
        spec: settings for every candidate.
        gpu: the GPU to use, in the form of CUDA_VISIBLE_DEVICES; None: what this process sees.

    Attributes:
        sharers, gpus: concurrent judge sessions, this one included, and their GPUs. A referee keeps its share of a GPU's memory, and of the
        cores while nothing is timed: more threads than cores spin, for half of the time that preparing a task took.
        decide_by: on time.monotonic's clock: a claim that has had its first look by then is not measured further, an
        unsteady one when as much time again has passed.
        make_room: called if a GPU's memory is full: makes idle judge sessions free what they hold.

    Raises (all methods):
        MachineError: no sandbox can be started.
    """

    def __init__(
        self,
        task: Task,
        config: Config,
        spec: JudgeSpec = JudgeSpec(),  # noqa: B008
        *,
        gpu: str | None = None,
    ):
        self.task, self.config = task, config
        self.sharers, self.gpus = 1, len(machine.gpu_names())
        self.baselines: tuple[str, ...] = ()
        self.tier: Tier = "search"
        self.spec = spec
        self._recorded: dict[str, Any] | None = None
        self._env = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
        # Each step has a separate clock; the session's is only a backstop against a parent that hangs.
        self._limits = Limits.model_validate({**config.limits.model_dump(), "wall_s": 24 * 3600.0})
        self._referee = RefereeClient(self._limits, self._env, self._limits.encloses(task.device))
        self._open = False
        """Whether the referee holds this task."""
        self._arms: dict[str, SandboxSession] = {}
        self._arm_env: dict[str, str] = {}
        """Their variables, which depend on the candidate."""
        self._fresh = False
        """Whether the player has not been used yet."""
        self._captured: dict[str, str | None] = {}
        """Baselines that the player was asked to capture, with the reason if it cannot."""
        self._captured_by: SandboxSession | None = None
        self._left_out: dict[str, str] = {}
        self._why_host_code: str | None = None
        """Why the candidate is timed from end to end where a launch plan would do."""
        self._why_unrecorded: str | None = None
        """The same of all candidates of the task."""
        self._alone_ms: float | None = None
        self._short: bool | None = None
        """Whether the task's calls are too short to be timed from end to end; one answer for all of its candidates."""
        self._line_arm: str | None = None
        """The baseline that the judged line of PyTorch is, if it is timed by the device."""
        self._longer = 1
        """Factor on the pairs and seconds of a claim's next set of processes."""
        self.broken: str | None = None
        """The reason why the reference cannot be judged against; every verdict then has it."""
        self.make_room: Callable[[], None] = lambda: None
        self.decide_by: float | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        while self._arms:
            self._arms.popitem()[1].close()
        self._referee.close()
        self._open = False

    def switch_task(self, task: Task) -> None:
        """Switch to another task; processes that hold no state of the old one are kept."""
        if task.device != self.task.device or self.broken is not None:
            self.close()
        self.task, self.broken, self._open, self._referee.shut = (
            task,
            None,
            False,
            self._limits.encloses(task.device),
        )
        self._left_out, self._captured = {}, {}
        self._alone_ms, self._short, self._why_unrecorded = None, None, None

    def _start(self, deadline: float | None) -> None:
        if self._open or self.broken is not None:
            return
        self._referee.open(self.task.device)
        self._referee.send(
            {
                "task": self.task.model_dump(mode="json"),
                "judge": self.config.judge.model_dump(),
                "seed": secret(),
                "backward": self.spec.backward,
                "brief": self.spec.brief,
                "threads": max(1, machine.num_cores() // self.sharers),
                "sharers": -(-self.sharers // max(1, self.gpus)),
                "memory_bytes": self.config.limits.memory_bytes,
                "roofline": roofline.load(self.task.device) is not None,
            }
        )
        answer = self._referee.wait("ready", self.config.limits.wall_s, deadline)
        if not isinstance(answer, Message):
            if not passed(deadline):
                self.broken = broken_reference(answer or Death("timeout", ""), self.config)
            raise RefereeDied("before it was ready", answer)
        if "broken" in answer.value:
            self.broken = str(answer.value["broken"])
        self._recorded, self._open = answer.value.get("recorded"), True
        for name in self._arms.keys() - set(answer.value.get("arms", ())):
            self._arms.pop(name).close()
        self._referee.session.log()

    def _add_arms(self, names: Sequence[str], deadline: float | None) -> None:
        """Start trusted runners and let the referee prepare them, all at once: each takes seconds."""
        env = {**self._env, **self._arm_env, **compiling.threads(self.sharers)}
        with ExitStack() as sockets:
            ends = [
                [sockets.enter_context(end).fileno() for end in socket.socketpair()] for _ in names
            ]
            for name, (_, theirs) in zip(names, ends, strict=True):
                self._arms[name] = arm(
                    PLAYER if name == "player" else RUNNER,
                    self.task.device,
                    self._limits,
                    theirs,
                    env,
                )
            self._referee.send(
                {"runners": {name: self._arms[name].pid for name in names}},
                [ours for ours, _ in ends],
            )
        answer = self._referee.wait("arms", len(names) * self.config.limits.wall_s, deadline)
        if not isinstance(answer, Message):
            raise RefereeDied(f"while it prepared {', '.join(names)}", answer)
        for name, error in answer.value["failed"].items():
            self._arms.pop(name).close()
            if name.startswith("reference"):
                self.broken = f"the reference failed: {error}"
                raise RefereeDied(self.broken)
            self._left_out[name] = error.strip().partition("\n")[0]

    def _uncaptured(self, deadline: float | None) -> str | None:
        """Let the player capture the baselines that it lacks, of a claim the control, too; return why one cannot be captured."""
        if (player := self._arms.get("player")) is None or self.tier == "smoke":
            return None
        if player is not self._captured_by:
            self._captured_by, self._captured = player, {}
        control = (CONTROL,) if self.tier == "claim" else ()
        line = (self._line_arm,) if self._line_arm is not None else ()
        names = tuple(dict.fromkeys((*control, *line, *self.baselines)))
        if missing := [name for name in names if name not in self._captured]:
            self._referee.send({"capture": missing})
            answer = self._referee.wait(
                "captured", len(missing) * self.config.limits.wall_s, deadline
            )
            if not isinstance(answer, Message):
                raise RefereeDied(f"while it captured {', '.join(missing)}", answer)
            failed = answer.value["captured"]
            self._captured |= {name: failed.get(name) for name in missing}
            if failed:
                self._fresh = False  # what ends it next may be their doing
            if self.spec.contract == "plan":
                self._left_out |= failed
        failures = [(name, self._captured[name]) for name in names]
        return next((f"{name} cannot be replayed: {why}" for name, why in failures if why), None)

    def _is_captured(self, name: str) -> bool:
        """Whether the player that runs now replays a baseline."""
        player = self._arms.get("player")
        return player is self._captured_by and self._captured.get(name, "") is None

    def _end_arms(self) -> None:
        for name in self._arms.keys() - {"player"}:
            self._arms.pop(name).close()

    def _end_player(self) -> None:
        if "player" in self._arms:
            self._arms.pop("player").close()

    def _alone(self, deadline: float | None) -> float | None:
        self._referee.send({"alone": True})
        answer = self._referee.wait("alone", self.config.limits.wall_s, deadline)
        if not isinstance(answer, Message):
            raise RefereeDied("while it timed the reference", answer)
        return float(answer.value["alone"])
