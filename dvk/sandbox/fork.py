"""Start of a session in the zygote: fork the child, then become the child's warden."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from dvk.sandbox import cgroup, child, isolate, proctree, wire

WARDEN = """
import sys
for name, folder in (("dvk", sys.argv[1]), ("dvk.sandbox", sys.argv[1] + "/sandbox")):
    sys.modules[name] = package = type(sys)(name)
    package.__path__ = [folder]
from dvk.sandbox import sparing
sparing.install_stand_ins()
from dvk.sandbox import warden
warden.main(sys.argv[2])
"""
"""Bare packages: the real `dvk.sandbox` imports pydantic, which a warden does not need."""


def become_warden(
    request: dict[str, Any], control: int, protocol: int, descriptors: list[int]
) -> NoReturn:
    """Start the child as `request` says (see `launcher.Launcher.spawn`), then guard it; never returns.

    Args:
        request: what to run under which limits.
        control: descriptor of the warden's end of the control socket.
        protocol: descriptor of the child's end of the protocol socket.
        descriptors: the caller's descriptors, for the child.
    """
    os.setsid()
    proctree.prctl(proctree.PR_SET_CHILD_SUBREAPER, 1)
    log_read, log_write = os.pipe()
    go_read, go_write = os.pipe()
    own = os.getpid()
    groups = cgroup.create(request["num_processes"], request["memory_bytes"])
    around = isolate.prepare_warden(request["isolate"])
    private = [control, log_read] if around.leash is None else [control, log_read, around.leash]
    pid = os.fork()
    if pid == 0:
        given = child.ChildSetup(own, protocol, log_write, go_read, descriptors, around.layers)
        _become_child(request, given, [*private, go_write])
    for descriptor in (protocol, log_write, go_read, *descriptors):
        os.close(descriptor)
    with socket.socket(fileno=os.dup(control)) as end:
        end.sendall(wire.encode({"event": "started", "pid": pid, "warden": own}))
    cgroup.move(groups, pid)
    os.close(go_write)
    order = {
        name: request[name]
        for name in ("home", "wall_s", "memory_bytes", "num_processes", "output_bytes")
    }
    order |= {
        "pid": pid,
        "control": control,
        "log": log_read,
        "groups": groups,
        "first": around.first,
        "leash": around.leash,
    }
    order["inherited_bytes"] = proctree.own_bytes(own)
    for descriptor in private:
        os.set_inheritable(descriptor, True)
    package = str(Path(__file__).resolve().parent.parent)
    os.execv(sys.executable, [sys.executable, "-ISc", WARDEN, package, json.dumps(order)])


def _become_child(request: dict[str, Any], given: child.ChildSetup, private: list[int]) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in private:
            os.close(descriptor)
        code = child.main(request, given)
    finally:
        os._exit(code)
