"""The warden of one session: watches the child, ends its whole tree, reports how it ended.

The process forked the child and then became this program (`fork.py`), a separate interpreter without torch: a process that shares the
zygote's pages is slowed to a standstill by a fork bomb below it, whose every fork and exit holds the lock on those pages. Hence also the
few imports (`sparing`). It adopts every orphan below it (subreaper), so a descendant cannot escape by leaving its process group or session.
It watches its control socket: once the parent has ended, for any reason, it kills the tree and itself. It runs none of the candidate's
code.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time

from dvk.sandbox import cgroup, holdings, proctree, scratch, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

POLL_S = 0.05
"""Interval between counts of memory and processes: well below 1 % of a core; a fork bomb in Python makes some hundred processes
meanwhile."""
CLOSE_TO_LIMIT_POLL_S = 0.005
DISK_POLL_S = 0.25
"""Interval between looks at its folder. A separate file system would limit its size at once, but the parent adds and removes files
there."""
MACHINE_RESERVE_BYTES = 256 << 20
"""A large child is ended when the machine has less memory than this left, before the kernel picks a victim."""


def main(text: str) -> None:
    """Guard one session.

    Args:
        text: JSON with pid (the child), control and log (descriptors), home, wall_s, memory_bytes, num_processes,
            output_bytes, inherited_bytes, groups (control groups' paths), first (a process id namespace's first
            process or null), leash (the descriptor whose closing ends that or null).
    """
    request = json.loads(text)
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    os.set_blocking(request["log"], False)
    _Watch(request, socket.socket(fileno=request["control"]), wake).run()


class _Watch:
    def __init__(self, request: dict[str, Any], control: socket.socket, wake: int):
        self.control, self.wake = control, wake
        self.pid: int = request["pid"]
        self.log_descriptor: int = request["log"]
        self.home: str = request["home"]
        self.groups: list[str] = request["groups"]
        self.counts_memory = cgroup.counts_memory(self.groups)
        self.first: int | None = request["first"]
        self.leash: int | None = request["leash"]
        self.uncounted = {os.getpid(), self.first}
        self.inherited_bytes: int = request["inherited_bytes"]
        self.memory_bytes: int = request["memory_bytes"]
        self.num_processes: int = request["num_processes"]
        self.output_bytes: int = request["output_bytes"]
        self.deadline = time.monotonic() + request["wall_s"]
        self.log = bytearray()
        self.frames = wire.Frames()
        self.log_open = True
        self.parent_there = True
        self.status: int | None = None
        self.oom_kills = _oom_kills()
        self.next_look = 0.0
        self.in_memory_before = proctree.in_memory_files_bytes()
        self.free_before = _free_bytes(self.home)
        self.devices = holdings.memory_devices()
        self.hidden = holdings.HeldBytes()
        """Results that only a thorough count shows."""
        self.used: proctree.TreeUsage | None = None
        self.used_bytes = 0
        self.ran_ns: int | None = None
        """The child's processor time before `used` was counted."""

    def run(self) -> None:
        """Wait until the child, its limits or the parent end it; then clean up and report."""
        self._reap()  # the child may have ended before the signal handler was there
        if self.status is not None:
            self._end(self._ending(self.status))
            return
        reason = None
        next_count = 0.0
        while reason is None:
            now = time.monotonic()
            if now >= next_count:
                reason, pause = self._count()
                next_count = time.monotonic() + pause
                if reason:
                    break
            if now >= self.deadline:
                reason = "timeout"
                break
            watched: list[socket.socket | int] = [self.control, self.wake]
            if self.log_open:
                watched.append(self.log_descriptor)
            ready, _, _ = select.select(
                watched, [], [], max(0.0, min(next_count, self.deadline) - now)
            )
            if self.log_descriptor in ready:
                self._read_log()
            if self.control in ready:
                reason = self._obey()
            if self.wake in ready:
                self._reap()
            if reason is None and self.status is not None:
                reason = self._ending(self.status)
        self._end(reason)

    def _count(self) -> tuple[str | None, float]:
        ran_ns = proctree.processor_ns(self.pid)
        still = (
            self.used is not None
            and len(self.used.pids) == 1
            and ran_ns is not None
            and ran_ns == self.ran_ns
        )
        if (
            not still
        ):  # a child alone that has not run uses as much as before; most wait most of the time
            if (reason := self._look()) is not None:
                return reason, 0.0
            self.ran_ns = ran_ns
        assert self.used is not None
        if self.used_bytes > 1 << 30 and proctree.available_bytes() < MACHINE_RESERVE_BYTES:
            return "memory", 0.0
        close = (
            self.used_bytes > self.memory_bytes // 2
            or self.used.num_tasks > self.num_processes // 2
        )
        return None, CLOSE_TO_LIMIT_POLL_S if close else POLL_S

    def _look(self) -> str | None:
        if (
            reason := cgroup.exceeded(self.groups)
        ) is not None:  # first: counting a tree that forks all the time takes long
            return reason
        self.used = used = proctree.usage(
            os.getpid(), self.pid, self.uncounted, self.inherited_bytes, self.num_processes
        )
        if used.num_tasks > self.num_processes:
            return "processes"
        thorough = time.monotonic() >= self.next_look
        held = holdings.measure_holdings(
            used.pids, self.devices, thorough, self.memory_bytes + scratch.MOST_BYTES
        )
        if thorough:
            self.hidden = held
            if scratch.full(self.home, sum(held.disk.values())) or self._hides(held, on_disk=True):
                return "disk"
            self.next_look = time.monotonic() + DISK_POLL_S
        else:
            held.join(self.hidden)
            if sum(held.disk.values()) > scratch.MOST_BYTES:
                return "disk"
        in_files = max(used.shared_bytes, sum(held.memory.values())) + sum(held.buffers.values())
        self.used_bytes = used.own_bytes + in_files
        return (
            "memory"
            if self.used_bytes > self.memory_bytes or self._hides(held, on_disk=False)
            else None
        )

    def _hides(self, held: holdings.HeldBytes, on_disk: bool) -> bool:
        """Whether it maps a part of a file of unknown size, and the machine lost more than its limit since it began."""
        if not held.unsized[on_disk]:
            return False
        if on_disk:
            return self.free_before - _free_bytes(self.home) > scratch.MOST_BYTES
        # Twice: other processes on this machine take memory, too.
        grown = proctree.in_memory_files_bytes() - self.in_memory_before
        return not self.counts_memory and grown > 2 * self.memory_bytes

    def _obey(self) -> str | None:
        try:
            data = self.control.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.parent_there = False
            return "closed"
        self.frames.feed(data)
        while (order := self.frames.next()) is not None:
            if order["order"] == "kill":
                return str(order["reason"])
            if order["order"] == "log":
                while self._read_log():
                    pass
                self._tell({"event": "log", "log": self._text()})
                self.log.clear()
            if order["order"] == "settle":
                killed = proctree.kill_all_but(os.getpid(), self.pid, self.uncounted)
                self._tell({"event": "settled", "killed": killed})
        return None

    def _read_log(self) -> bool:
        try:
            data = os.read(self.log_descriptor, 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            self.log_open = False
            return False
        self.log += data
        if len(self.log) > 2 * self.output_bytes:
            del self.log[: -self.output_bytes]
        return True

    def _text(self) -> str:
        return bytes(self.log[-self.output_bytes :]).decode(errors="replace")

    def _reap(self) -> None:
        try:
            os.read(self.wake, 4096)
        except BlockingIOError:
            pass
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self.pid:
                    self.status = status
        except ChildProcessError:
            pass

    def _ending(self, status: int) -> str:
        if status != 0 and (reason := cgroup.exceeded(self.groups)) is not None:
            return reason
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number == signal.SIGKILL and _oom_kills() > self.oom_kills:
                return "memory"
            return f"signal {_signal_name(number)}"
        return f"exit {os.WEXITSTATUS(status)}"

    def _end(self, reason: str) -> None:
        if self.leash is not None:
            os.close(self.leash)
        proctree.kill_descendants(os.getpid(), group=self.pid)
        # All writers are dead, so what is left in the pipe is bounded by its capacity.
        while self.log_open and self._read_log():
            pass
        scratch.remove(self.home)
        cgroup.remove(self.groups)
        self._tell({"event": "death", "reason": reason, "log": self._text()})

    def _tell(self, event: dict[str, Any]) -> None:
        if self.parent_there:
            try:
                self.control.settimeout(10)
                self.control.sendall(wire.encode(event))
                self.control.settimeout(None)
            except OSError:
                self.parent_there = False


def _free_bytes(path: str) -> int:
    try:
        status = os.statvfs(path)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def _signal_name(number: int) -> str:
    names = [
        name
        for name in dir(signal)
        if name.startswith("SIG") and "_" not in name and getattr(signal, name) == number
    ]
    return names[0] if names else str(number)


def _oom_kills() -> int:
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0
