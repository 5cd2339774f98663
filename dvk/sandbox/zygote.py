"""The warm process that sessions are forked from.

It imports torch once, runs no tensor operation and opens no GPU: a child forked after a tensor
operation can hang in torch's thread pool, and a CUDA context does not survive a fork. For each
request on its control socket (with descriptors: the warden's control end, the child's protocol end,
then the caller's) it forks a warden. It is a subreaper: processes left by a killed warden become its children and die.
It ends once the parent's end of its socket is closed and its sessions have ended, or the parent has ended.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
import warnings
from typing import Any

from dvk.sandbox import enclosure, fork, hugepages, isolate, launcher, proctree, wire

PRELOADED = ("torch", "numpy", "triton", "dvk.records", "dvk.config")
"""Imported if installed; dvk's modules with a session's target follow on first use."""
GRACE_S = 15.0
"""How long wardens may take to end their sessions once the parent has ended."""


def main(descriptor: int, enclosed: str | None = None) -> None:
    """Serve spawn requests from `descriptor` until its other end closes; `enclosed`: the folder of `enclosure`."""
    control, parent = socket.socket(fileno=descriptor), os.getppid()
    proctree.prctl(proctree.PR_SET_CHILD_SUBREAPER, 1)
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError:
            if name == "torch":
                raise
    gc.collect()
    gc.freeze()  # keep the collector from touching, and so copying, shared pages in every child
    hugepages.collapse()
    if enclosed is not None:
        enclosure.close(enclosed)
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    control.sendall(b"\x01")
    wardens: set[int] = set()
    watched: list[socket.socket | int] = [control, wake]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if wake in ready:
            os.read(wake, 4096)
            _bury(wardens)
        if control in ready:
            descriptors: list[int] = []
            request = _request(control, descriptors)
            if request is None:
                break
            _spawn(request, descriptors, wardens, [control.fileno(), wake, waker])
    while (
        wardens and os.getppid() == parent
    ):  # the parent drops old zygotes: their sessions live on
        if select.select([wake], [], [], 1.0)[0]:
            os.read(wake, 4096)
        _bury(wardens)
    # The wardens saw the parent end, too, and are ending their sessions; the rest ends here.
    _bury(wardens, wait_s=GRACE_S)
    proctree.kill_descendants(os.getpid())


def _request(control: socket.socket, descriptors: list[int]) -> dict[str, Any] | None:
    """Read exactly one frame, since the next one's descriptors must arrive with it; None at the end."""
    frames = wire.Frames()
    while (value := frames.next()) is None:
        if not wire.pull(control, frames, descriptors, frames.missing()):
            return None
    return value


def _spawn(
    request: dict[str, Any], descriptors: list[int], wardens: set[int], private: list[int]
) -> None:
    if "zygote" in request:
        _start_another(request["zygote"], descriptors, wardens)
        return
    module = request["target"].partition(":")[0]
    if module.split(".")[0] == "dvk" and module not in sys.modules:
        try:
            importlib.import_module(module)  # ours: imports and definitions only, so worth sharing
        except Exception:  # noqa: BLE001 - the child imports it again and reports
            pass
    isolate.warm(request["isolate"], request["home"], request["cwd"], request["environ"])
    pid = os.fork()
    if pid:
        wardens.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        return
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in private:
            os.close(descriptor)
        fork.become_warden(request, descriptors[0], descriptors[1], descriptors[2:])
    finally:
        os._exit(1)


def _start_another(overrides: dict[str, str], descriptors: list[int], wardens: set[int]) -> None:
    """Start a zygote with other variables, which shares this one's enclosure; descriptors: its control socket, a file for its output."""
    control, errors = descriptors
    process = subprocess.Popen(
        launcher.command(control),
        pass_fds=[control],
        env={**os.environ, **overrides},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
    )
    process.returncode = 0  # it is reaped with the wardens
    wardens.add(process.pid)
    for descriptor in descriptors:
        os.close(descriptor)


def _bury(wardens: set[int], wait_s: float = 0.0) -> None:
    """Reap ended wardens; kill all other children: orphans of a killed warden."""
    deadline = time.monotonic() + wait_s
    while True:
        _reap(wardens)
        orphans = [pid for pid in proctree.children(os.getpid()) if pid not in wardens]
        proctree.signal_all(orphans, signal.SIGKILL)
        if not orphans and (not wardens or time.monotonic() >= deadline):
            return
        time.sleep(0.005)


def _reap(wardens: set[int]) -> None:
    try:
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            wardens.discard(pid)
    except ChildProcessError:
        wardens.clear()
