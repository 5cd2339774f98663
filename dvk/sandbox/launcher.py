"""The parent's side of the zygotes: one per set of environment variables, started when first needed.

A zygote keeps variables that are read at import (TRITON_INTERPRET, OMP_NUM_THREADS, LD_PRELOAD), so a session that overrides the
environment gets a separate zygote. All other variables are the parent's at the time of the spawn. At most `MAX_ZYGOTES` are kept; the least
recently used ends first (its sessions live on).
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dvk
from dvk.errors import MachineError
from dvk.sandbox import enclosure, variables, wire

MAX_ZYGOTES = 6
END_S = 3.0
"""Longest wait for all zygotes when this process ends; those with sessions at work end when it has ended."""
START_S = 180.0
"""A cold import of torch from a network disk takes a minute."""


class ZygoteLauncher:
    """One zygote process.

    Args:
        overrides: variables that differ from this process's.
        shut: whether it encloses itself.
        within: an enclosed zygote that starts this one, which then shares its enclosure.
    """

    def __init__(
        self, overrides: Mapping[str, str], shut: bool = False, within: ZygoteLauncher | None = None
    ):
        self._ours, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()
        self._ready = False
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        with theirs:
            if within is not None:
                within.start_another(overrides, theirs, self._errors.fileno())
                return
            self._process = subprocess.Popen(
                command(theirs.fileno(), *([enclosure.folder()] if shut else [])),
                pass_fds=[theirs.fileno()],
                env={
                    **variables.without_secrets(os.environ),
                    **_absolute(os.environ),
                    **overrides,
                },  # every child inherits its memory
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                start_new_session=True,  # the parent handles Ctrl-C in the terminal
            )

    def start_another(
        self, overrides: Mapping[str, str], control: socket.socket, errors: int
    ) -> None:
        """Start another zygote from this one, which takes over `control` and the file `errors`.

        Raises:
            MachineError: this zygote did not start.
            OSError: it has ended.
        """
        with self._lock:
            if not self._ready:
                self._await()
            wire.send(self._ours, {"zygote": dict(overrides)}, [control.fileno(), errors])

    def spawn(
        self,
        request: dict[str, Any],
        control: socket.socket,
        protocol: socket.socket,
        descriptors: Sequence[int] = (),
    ) -> None:
        """Request one session.

        Args:
            request: target, environ, cwd, home, isolate, wall_s, memory_bytes, num_processes, output_bytes.
            control: the warden's end.
            protocol: the child's end.
            descriptors: the caller's descriptors, for the child.

        Raises:
            MachineError: the zygote did not start (torch is not importable, no memory, not Linux).
            OSError: a zygote that ran before has ended.
        """
        with self._lock:
            if not self._ready:
                self._await()
            wire.send(self._ours, request, [control.fileno(), protocol.fileno(), *descriptors])

    def _await(self) -> None:
        self._ours.settimeout(START_S)
        try:
            started = self._ours.recv(1) == b"\x01"
        except OSError:
            started = False
        if not started:
            if self._process is not None:
                self._process.kill()
                self._process.wait()
            self._errors.seek(0)
            tail = self._errors.read().decode(errors="replace").strip().splitlines()[-3:]
            raise MachineError(
                "cannot start a sandbox process: "
                + (" / ".join(tail) or f"no answer in {START_S:.0f} s"),
                "check that `python -c 'import torch'` works on this Linux machine and that memory is free",
            )
        self._ours.settimeout(None)
        self._ready = True

    def hang_up(self) -> None:
        """Close the socket, which ends the zygote once its sessions have ended."""
        self._ours.close()

    def stop(self, wait_s: float) -> None:
        """Hang up, and wait for its end."""
        self.hang_up()
        try:
            if self._process is not None:
                self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            pass
        self._errors.close()


def command(descriptor: int, *arguments: str) -> list[str]:
    """Command that starts a zygote; its arguments as for `zygote.main`."""
    root = str(Path(dvk.__file__).resolve().parent.parent)
    # Not -m: that would put the caller's folder, and any torch.py in it, first on the path.
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if p]; root = sys.argv[1]\n"
        "if root not in sys.path: sys.path.append(root)\n"
        "from dvk.sandbox import zygote; zygote.main(int(sys.argv[2]), *sys.argv[3:])"
    )
    return [sys.executable, "-c", code, root, str(descriptor), *arguments]


def _absolute(environ: Mapping[str, str]) -> dict[str, str]:
    """Return this process's PYTHONPATH with absolute paths, since a zygote has another working folder."""
    path = environ.get("PYTHONPATH")
    return (
        {}
        if path is None
        else {
            "PYTHONPATH": os.pathsep.join(
                os.path.abspath(entry) for entry in path.split(os.pathsep) if entry
            )
        }
    )


_lock = threading.Lock()
_launchers: OrderedDict[tuple[int, bool, tuple[tuple[str, str], ...]], ZygoteLauncher] = (
    OrderedDict()
)


def warm(overrides: Mapping[str, str] | None = None) -> None:
    """Start the zygote for `overrides` without waiting for it."""
    launcher(overrides or {})


def launcher(overrides: Mapping[str, str], shut: bool = False) -> ZygoteLauncher:
    """Return the zygote for `overrides`, started if there is none; `shut`: see `enclosure`.

    Raises:
        MachineError: this is not Linux, or the zygote that should start another did not start.
    """
    key = (
        os.getpid(),
        shut,
        tuple(sorted(overrides.items())),
    )  # a forked parent must not share its parent's sockets
    first = (os.getpid(), True, ())
    with _lock:
        if key not in _launchers:
            if not sys.platform.startswith("linux"):
                raise MachineError(
                    "the sandbox needs Linux", "run dvk on Linux, in WSL 2 or in a container"
                )
            if shut and first not in _launchers:
                _launchers[first] = ZygoteLauncher({}, shut)
            if key != first:
                _launchers[key] = ZygoteLauncher(
                    overrides, within=_launchers[first] if shut else None
                )
        _launchers.move_to_end(key)
        others = [
            old for old in _launchers if old not in (first, key)
        ]  # enclosed zygotes share the domain of the first
        for old in others[: max(0, len(_launchers) - MAX_ZYGOTES)]:
            _launchers.pop(old).stop(wait_s=0)
        return _launchers[key]


def discard(overrides: Mapping[str, str], broken: ZygoteLauncher, shut: bool = False) -> None:
    """Forget a zygote that has ended, and those that it started; the next `launcher` starts another."""
    key = (os.getpid(), shut, tuple(sorted(overrides.items())))
    gone = [broken]
    with _lock:
        if _launchers.get(key) is broken:
            keys = (
                [one for one in _launchers if one[:2] == key[:2]]
                if shut and not overrides
                else [key]
            )
            gone = [_launchers.pop(one) for one in keys]
    for one in gone:
        one.stop(wait_s=0)


@atexit.register
def _stop_all() -> None:
    with _lock:
        mine = [launcher for (owner, _, _), launcher in _launchers.items() if owner == os.getpid()]
        _launchers.clear()
    for launcher in mine:
        launcher.hang_up()
    limit = time.monotonic() + END_S
    for launcher in mine:
        launcher.stop(max(0.0, limit - time.monotonic()))
