"""The first steps of a sandboxed child: limits, descriptors, environment, then the target function.

Address space is not limited (CUDA reserves terabytes of it); the warden watches resident memory.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import resource
import signal
import socket
import sys
import tempfile
import traceback
from typing import Any, NamedTuple

from dvk.sandbox import enclosure, isolate, proctree
from dvk.sandbox.channel import RequestChannel

USER_WIDE_FACTOR = 16
"""RLIMIT_NPROC counts all of a user's tasks, other sessions' too, so it can only be a coarse backstop for bombs."""


class ChildSetup(NamedTuple):
    """The resources that a child inherits."""

    warden: int
    """Process id of its parent."""
    protocol: int
    """Descriptor for the channel."""
    log: int
    """Descriptor for stdout and stderr."""
    go: int
    """Descriptor whose other end the warden closes when everything is ready for untrusted code."""
    descriptors: list[int]
    """The caller's descriptors, for the channel."""
    layers: tuple[str, ...]
    """Namespaces that the child is already in."""


def main(request: dict[str, Any], given: ChildSetup) -> int:
    """Run the session's target as `request` says (see `launcher.Launcher.spawn`); return the exit code."""
    os.setsid()
    proctree.prctl(proctree.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != (
        0 if "pid" in given.layers else given.warden
    ):  # 0: a parent outside the namespace
        return 1
    _connect(given.log)
    _limit(request)
    for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.environ["TMPDIR"] = request["home"]
    tempfile.tempdir = None
    os.chdir(request["cwd"])
    faulthandler.enable()
    channel = RequestChannel(socket.socket(fileno=given.protocol), given.descriptors)
    if request["isolate"] != "none":
        reached = isolate.enter(
            request["isolate"],
            request["home"],
            request["cwd"],
            request["environ"],
            given.layers,
            request["programs"],
            request["folders"],
        )
        sys.path += [folder for folder in request["folders"] if folder not in sys.path]
        channel.send({"isolation": reached})
    elif request["shut"]:
        enclosure.enter()
    os.read(given.go, 1)
    os.close(given.go)
    module, _, name = request["target"].partition(":")
    code = 1
    try:
        getattr(importlib.import_module(module), name)(channel)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # noqa: BLE001 - whatever it was, the parent hears of it as an exit code and a log
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    return code & 0xFF


def _connect(log: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(null)
    os.close(log)
    # Lines must be in the pipe, not in a buffer, when the child is killed.
    sys.stdout = open(
        1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    sys.stderr = open(
        2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


def _limit(request: dict[str, Any]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, request["memory_bytes"])
    _lower(resource.RLIMIT_NPROC, request["num_processes"] * USER_WIDE_FACTOR)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # the kernel's first victim
    except OSError:
        pass


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard == resource.RLIM_INFINITY or value < hard:
        resource.setrlimit(which, (value, value))
