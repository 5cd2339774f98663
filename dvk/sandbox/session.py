"""The parent's view of one sandboxed child."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from dvk.config import Limits
from dvk.errors import MachineError
from dvk.sandbox import launcher, wire

GRACE_S = 15.0
"""How long a warden may take to kill a tree and report before it is itself killed."""


@dataclass(frozen=True)
class Message:
    """Something the child sent."""

    value: dict[str, Any]


@dataclass(frozen=True)
class Death:
    """The child is gone."""

    reason: str
    """`timeout`, `memory`, `processes`, `signal SIGSEGV`, `exit 3`, `garbled` (not our protocol) or `closed`."""
    log: str
    """The kept tail of what it printed."""


class Session:
    """One child process with its whole tree.

    Args:
        target: `package.module:function`, called in the child as `function(channel)`.
        limits: wall clock of the whole session, memory, processes, kept output.
        env: environment variables on top of this process's.
        cwd: the child's working folder; a temporary one, removed at the end, if None.

    Raises:
        MachineError: no sandbox process can be started here.
    """

    def __init__(self, target: str, limits: Limits, *, env: Mapping[str, str] | None = None, cwd: Path | None = None):
        self._death: Death | None = None
        self._frames, self._events = wire.Frames(), wire.Frames()
        self._home = tempfile.mkdtemp(prefix="dvk-")
        self._warden = 0
        overrides = dict(env or {})
        request = {
            "target": target,
            "environ": {**os.environ, **overrides},
            "home": self._home,
            "cwd": str(cwd.resolve()) if cwd else self._home,
            "wall_s": limits.wall_s,
            "memory_bytes": min(limits.memory_bytes, int(0.9 * _total_memory_bytes())),
            "num_processes": limits.num_processes,
            "output_bytes": limits.output_bytes,
        }
        try:
            self._open(request, overrides)
        except BaseException:
            shutil.rmtree(self._home, ignore_errors=True)
            raise

    def _open(self, request: dict[str, Any], overrides: dict[str, str]) -> None:
        for attempt in range(3):
            zygote = launcher.launcher(overrides)
            self._protocol, theirs = socket.socketpair()
            self._control, wardens = socket.socketpair()
            try:
                zygote.spawn(request, wardens, theirs)
                theirs.close()
                wardens.close()
                started = self._event(time.monotonic() + 60)
                if started and started.get("event") == "started":
                    self.pid: int = started["pid"]
                    self._warden = int(started["warden"])
                    return
            except OSError:
                pass
            except MachineError:
                launcher.discard(overrides, zygote)
                if attempt == 2:
                    raise
            # The zygote was killed, or never came up under load: one more, fresh.
            for end in (self._protocol, self._control, theirs, wardens):
                end.close()
            launcher.discard(overrides, zygote)
        raise MachineError("cannot start a sandbox process", "free memory or processes on this machine and try again")

    def send(self, request: dict[str, Any]) -> None:
        """Send one JSON object; nothing happens when the child is gone (`receive` says so)."""
        if self._death is not None:
            return
        try:
            self._protocol.settimeout(60)
            self._protocol.sendall(wire.encode(request))
        except OSError:
            pass
        finally:
            self._protocol.settimeout(None)

    def receive(self, timeout_s: float) -> Message | Death:
        """The child's next message; after `timeout_s` seconds the child is killed and Death("timeout") returned."""
        if self._death is not None:
            return self._death
        deadline = time.monotonic() + timeout_s
        protocol_open = True
        while True:
            try:
                if (value := self._frames.next()) is not None:
                    return Message(value)
                if (event := self._events.next()) is not None and event.get("event") == "death":
                    if protocol_open and (late := self._last_words()) is not None:
                        self._events.feed(wire.encode(event))
                        return Message(late)
                    return self._die(event["reason"], event["log"])
            except wire.Garbled:
                return self._kill("garbled")
            ends = [self._control] + ([self._protocol] if protocol_open else [])
            ready, _, _ = select.select(ends, [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return self._kill("timeout")
            if self._protocol in ready:
                protocol_open = _pull(self._protocol, self._frames)
            if self._control in ready and not _pull(self._control, self._events):
                return self._die("closed", "")

    def log(self) -> str:
        """What the child printed since the last call (its kept tail); empty when it is gone."""
        if self._death is not None:
            return ""
        try:
            self._control.sendall(wire.encode({"order": "log"}))
        except OSError:
            return ""
        event = self._event(time.monotonic() + GRACE_S)
        if event is None or event.get("event") == "log":
            return str(event["log"]) if event else ""
        self._events.feed(wire.encode(event))  # it died meanwhile; `receive` says so
        return ""

    def close(self) -> str:
        """Kill the whole tree, reap it, and return the log; may be called again."""
        death = self._death or self._kill("closed")
        return death.log

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _last_words(self) -> dict[str, Any] | None:
        self._protocol.setblocking(False)
        try:
            while _pull(self._protocol, self._frames):
                pass
        except BlockingIOError:
            pass
        finally:
            self._protocol.setblocking(True)
        return self._frames.next()

    def _kill(self, reason: str) -> Death:
        try:
            self._control.sendall(wire.encode({"order": "kill", "reason": reason}))
        except OSError:
            pass
        deadline = time.monotonic() + GRACE_S
        while (event := self._event(deadline)) is not None:
            if event.get("event") == "death":
                # The child may have ended by itself just before; a caller who closed wants to know how.
                return self._die(event["reason"] if reason == "closed" else reason, event["log"])
        try:
            os.kill(self._warden, signal.SIGKILL)  # stopped or killed by the child; the zygote ends what is below it
        except OSError:
            pass
        return self._die(reason, "")

    def _die(self, reason: str, log: str) -> Death:
        self._death = Death(reason, log)
        self._protocol.close()
        self._control.close()
        shutil.rmtree(self._home, ignore_errors=True)
        return self._death

    def _event(self, deadline: float) -> dict[str, Any] | None:
        """The warden's next event; None when it is gone or too slow."""
        while True:
            try:
                if (event := self._events.next()) is not None:
                    return event
            except wire.Garbled:
                return None
            ready, _, _ = select.select([self._control], [], [], max(0.0, deadline - time.monotonic()))
            if not ready or not _pull(self._control, self._events):
                return None


def _pull(end: socket.socket, frames: wire.Frames) -> bool:
    """Read what is there; False when the other end is closed."""
    try:
        data = end.recv(1 << 16)
    except ConnectionError:
        return False
    frames.feed(data)
    return bool(data)


def _total_memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def call(
    target: str,
    request: dict[str, Any],
    limits: Limits,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Message | Death:
    """One request, one answer, closed; waits at most `limits.wall_s`."""
    with Session(target, limits, env=env, cwd=cwd) as session:
        session.send(request)
        return session.receive(limits.wall_s)
