"""Supervisor of a server that dvk starts: `python -m dvk.backbone.served.keeper LOG COMMAND…`.

It adopts every orphan of the server (subreaper), so that none outlives it: vLLM's engine and workers survive a killed API server. All
end when the server has ended, when standard input is closed, or when the parent has ended, kill -9 included. The server dies with the
keeper.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

from dvk.sandbox import proctree

GLANCE_S = 0.5
"""Interval of looks at the server and the parent."""


def main(arguments: list[str]) -> int:
    """Run a server; returns its exit status.

    Args:
        arguments: the log's file, then the command.
    """
    parent = os.getppid()
    proctree.prctl(proctree.PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is the parent's, which ends the server itself
    log, *command = arguments
    try:
        with open(log, "ab") as output:
            server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=_leash
            )
        while server.poll() is None and os.getppid() == parent:
            ready, _, _ = select.select([sys.stdin], [], [], GLANCE_S)
            if ready and not os.read(sys.stdin.fileno(), 1):
                return 0
        return server.returncode or 0
    finally:
        proctree.kill_descendants(os.getpid())


def _leash() -> None:
    proctree.prctl(proctree.PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
