"""The parent's view of one sandboxed child."""

from __future__ import annotations

import os
import select
import signal
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from dvk.config import Limits
from dvk.errors import MachineError
from dvk.sandbox import enclosure, launcher, scratch, variables, wire
from dvk.sandbox.isolate import Kind, confirmed_level

START_S = 60.0
GRACE_S = 15.0
"""How long a warden may take to kill a tree and report before it is killed."""


@dataclass(frozen=True)
class Message:
    """A message of the child."""

    value: dict[str, Any]


@dataclass(frozen=True)
class Death:
    """The end of the child."""

    reason: str
    """`timeout`, `memory`, `processes`, `disk`, `signal SIGSEGV`, `exit 3`, `garbled` (not the protocol) or `closed`."""
    log: str
    """The kept tail of its output."""


class SandboxSession:
    """One child process with its whole tree.

    Args:
        target: `package.module:function`, called in the child as `function(channel)`.
        limits: wall clock of the whole session, memory, processes, kept output.
        env: environment variables on top of this process's, set before torch and triton are imported: each distinct
        set costs a separate zygote (seconds, hundreds of megabytes).
        late_env: environment variables set in the child only, after `env`; no effect on what is read at import.
        descriptors: open files for the child, found in its `channel.descriptors`; they stay open here.
        isolate: "none" for trusted code; "cpu" or "cuda" blocks what a candidate could cheat or harm with, as far as this
        machine grants (see `isolation`).
        programs: an isolated child may execute programs; to refuse it needs `seccomp` in `isolation`.
        folders: further folders for imports of an isolated child: readable, and last on its `sys.path`.
        shut: run inside the enclosure of a judge session with an untrusted reference; isolated or not.
        cwd: the child's working folder; a temporary one, removed at the end, if None.

    Raises:
        MachineError: no sandbox process can be started here.
        OSError: a descriptor is not open.
    """

    pid: int
    """The child's process id as seen by this process (in a separate namespace, the child sees another)."""

    def __init__(
        self,
        target: str,
        limits: Limits,
        *,
        env: Mapping[str, str] | None = None,
        late_env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        descriptors: Sequence[int] = (),
        isolate: Kind = "none",
        programs: bool = True,
        folders: Sequence[str] = (),
        shut: bool = False,
    ):
        for descriptor in descriptors:
            os.fstat(descriptor)
        self._death: Death | None = None
        self._frames, self._events = wire.Frames(), wire.Frames()
        self.home = tempfile.mkdtemp(prefix="dvk-", dir=enclosure.folder() if shut else None)
        self._shut = shut
        self._warden = 0
        self._isolation: str | None = "none" if isolate == "none" else None
        overrides = dict(env or {})
        environ = (
            {**os.environ}
            if isolate == "none" and not shut
            else variables.isolated(os.environ, self.home)
        )
        request = {
            "target": target,
            "environ": {**environ, **overrides, **(late_env or {})},
            "isolate": isolate,
            "programs": programs,
            "shut": shut,
            "folders": list(folders),
            "home": self.home,
            "cwd": str(cwd.resolve()) if cwd else self.home,
            "wall_s": limits.wall_s,
            "memory_bytes": min(limits.memory_bytes, int(0.9 * _total_memory_bytes())),
            "num_processes": limits.num_processes,
            "output_bytes": limits.output_bytes,
        }
        try:
            self._open(request, overrides, descriptors)
        except BaseException:  # even an interrupt must leave no folder
            scratch.remove(self.home)
            raise

    def _open(
        self, request: dict[str, Any], overrides: dict[str, str], descriptors: Sequence[int]
    ) -> None:
        for attempt in range(3):
            zygote = launcher.launcher(overrides, self._shut)
            self._protocol, theirs = socket.socketpair()
            self._control, wardens = socket.socketpair()
            try:
                zygote.spawn(request, wardens, theirs, descriptors)
                theirs.close()
                wardens.close()
                started = self._event(time.monotonic() + 60)
                if started and started.get("event") == "started":
                    self.pid = started["pid"]
                    self._warden = int(started["warden"])
                    return
            except OSError:
                pass
            except MachineError:
                launcher.discard(overrides, zygote, self._shut)
                if attempt == 2:
                    raise
            # The zygote was killed, or did not start under load: try one more.
            for end in (self._protocol, self._control, theirs, wardens):
                end.close()
            launcher.discard(overrides, zygote, self._shut)
        raise MachineError(
            "cannot start a sandbox process",
            "free memory or processes on this machine and try again",
        )

    @property
    def isolation(self) -> str:
        """The child's isolation, e.g. `user+net+landlock7+seccomp`; `none`; empty if it died before it reported.

        The child reports it before any code of the target is imported. Waits until then.
        """
        deadline = time.monotonic() + START_S
        while self._isolation is None and self._death is None:
            ready, _, _ = select.select(
                [self._protocol], [], [], max(0.0, deadline - time.monotonic())
            )
            if not ready or not _pull(self._protocol, self._frames):
                break
            self._hear_isolation()
        return self._isolation or ""

    def _hear_isolation(self) -> None:
        if self._isolation is None and (value := self._frames.next()) is not None:
            self._isolation = confirmed_level(str(value.get("isolation")), self.pid)

    def send(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send one JSON object with open files; does nothing if the child has ended (`receive` reports it)."""
        if self._death is not None:
            return
        try:
            self._protocol.settimeout(60)
            wire.send(self._protocol, request, descriptors)
        except OSError:
            pass
        finally:
            self._protocol.settimeout(None)

    def receive(self, timeout_s: float) -> Message | Death:
        """Return the child's next message; after `timeout_s` seconds kill the child and return Death("timeout")."""
        return self.wait(timeout_s) or self._kill("timeout")

    def wait(self, timeout_s: float) -> Message | Death | None:
        """Return the child's next message; None if there is none within `timeout_s` seconds, and the child runs on."""
        deadline = time.monotonic() + timeout_s
        protocol_open = control_open = True
        while self._death is None:
            try:
                self._hear_isolation()
                if (value := self._frames.next()) is not None:
                    return Message(value)
                event = self._events.next()
                ending = not control_open or (event is not None and event.get("event") == "death")
                if ending and protocol_open and (late := self._last_words()) is not None:
                    if event is not None:
                        self._events.feed(wire.encode(event))
                    return Message(late)
            except wire.Garbled:
                return self._kill("garbled")
            if ending:
                return (
                    self._die(event["reason"], event["log"])
                    if event is not None
                    else self._die("closed", "")
                )
            ends = [self._control] + ([self._protocol] if protocol_open else [])
            ready, _, _ = select.select(ends, [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            if self._protocol in ready:
                protocol_open = _pull(self._protocol, self._frames)
            if self._control in ready:
                control_open = _pull(self._control, self._events)
        return self._death

    def log(self) -> str:
        """Return the child's output since the last call (its kept tail); empty if it has ended."""
        event = self._order("log")
        return str(event["log"]) if event else ""

    def settle(self) -> int:
        """Kill everything that the child has started, but not the child; return the number of processes.

        The child is stopped meanwhile, so no process escapes; its later processes are left alone. 0 if it has ended.
        """
        event = self._order("settle")
        return int(event["killed"]) if event else 0

    def _order(self, order: str) -> dict[str, Any] | None:
        """Return the warden's answer; None if it has none, because the child has ended."""
        if self._death is not None:
            return None
        try:
            self._control.sendall(wire.encode({"order": order}))
        except OSError:
            return None
        event = self._event(time.monotonic() + GRACE_S)
        if event is not None and event.get("event") == "death":
            self._events.feed(wire.encode(event))  # `receive` reports it
            return None
        return event

    def close(self) -> str:
        """Kill the whole tree, reap it, and return the log; may be called again."""
        death = self._death or self._kill("closed")
        return death.log

    def __enter__(self) -> SandboxSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
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
        self._hear_isolation()
        return self._frames.next()

    def _kill(self, reason: str) -> Death:
        try:
            self._control.sendall(wire.encode({"order": "kill", "reason": reason}))
        except OSError:
            pass
        deadline = time.monotonic() + GRACE_S
        while (event := self._event(deadline)) is not None:
            if event.get("event") == "death":
                # The child may have ended just before; a caller that closes needs the reason.
                return self._die(event["reason"] if reason == "closed" else reason, event["log"])
        try:
            os.kill(
                self._warden, signal.SIGKILL
            )  # stopped or killed by the child; the zygote kills the tree below it
        except OSError:
            pass
        return self._die(reason, "")

    def _die(self, reason: str, log: str) -> Death:
        self._death = Death(reason, log)
        self._protocol.close()
        self._control.close()
        scratch.remove(self.home)
        return self._death

    def _event(self, deadline: float) -> dict[str, Any] | None:
        """Return the warden's next event; None if it has ended or is too slow."""
        while True:
            try:
                if (event := self._events.next()) is not None:
                    return event
            except wire.Garbled:
                return None
            ready, _, _ = select.select(
                [self._control], [], [], max(0.0, deadline - time.monotonic())
            )
            if not ready or not _pull(self._control, self._events):
                return None


def _pull(end: socket.socket, frames: wire.Frames) -> bool:
    """Read available bytes; False if the other end is closed."""
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
    late_env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    isolate: Kind = "none",
) -> Message | Death:
    """Send one request, wait at most `limits.wall_s` for one answer, and close."""
    with SandboxSession(
        target, limits, env=env, late_env=late_env, cwd=cwd, isolate=isolate
    ) as session:
        session.send(request)
        return session.receive(limits.wall_s)
