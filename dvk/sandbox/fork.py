"""From the zygote to a running session: fork the child, then turn into the child's warden."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from dvk.sandbox import child, pidscgroup, proctree, wire

WARDEN = """
import sys, types
for name, folder in (("dvk", sys.argv[1]), ("dvk.sandbox", sys.argv[1] + "/sandbox")):
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = [folder]
from dvk.sandbox import warden
warden.main(sys.argv[2])
"""
"""Bare packages: the real `dvk.sandbox` imports pydantic, which a warden has no use for."""


def become_warden(request: dict[str, Any], control: int, protocol: int) -> NoReturn:
    """Start the child as `request` says (see `launcher.Launcher.spawn`), then guard it; never returns.

    Args:
        request: what to run under which limits.
        control: descriptor of the warden's end of the control socket.
        protocol: descriptor of the child's end of the protocol socket.
    """
    os.setsid()
    proctree.prctl(proctree.PR_SET_CHILD_SUBREAPER, 1)
    log_read, log_write = os.pipe()
    own = os.getpid()
    group = pidscgroup.create(request["num_processes"])
    pid = os.fork()
    if pid == 0:
        _become_child(request, own, protocol, log_write, [control, log_read], group)
    os.close(protocol)
    os.close(log_write)
    with socket.socket(fileno=os.dup(control)) as end:
        end.sendall(wire.encode({"event": "started", "pid": pid, "warden": own}))
    order = {name: request[name] for name in ("home", "wall_s", "memory_bytes", "num_processes", "output_bytes")}
    order |= {"pid": pid, "control": control, "log": log_read, "group": group}
    order["inherited_bytes"] = proctree.anonymous_bytes(own)
    for descriptor in (control, log_read):
        os.set_inheritable(descriptor, True)
    package = str(Path(__file__).resolve().parent.parent)
    os.execv(sys.executable, [sys.executable, "-ISc", WARDEN, package, json.dumps(order)])


def _become_child(
    request: dict[str, Any], warden: int, protocol: int, log: int, private: list[int], group: str | None
) -> NoReturn:
    code = 1
    try:
        if group is not None:
            pidscgroup.join(group)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in private:
            os.close(descriptor)
        code = child.main(request, warden, protocol, log)
    finally:
        os._exit(code)
