"""The command line as real processes that need not import everything first.

One process, started once a test session, imports what the commands import, torch not among it, and starts the process that
sandboxes are forked from; each call is forked from it with separate arguments, folder, environment and files, and ends as
any Python process does. What is about starting up (lazy imports, terminals, signals, the installed entry point) calls `python -m dvk`
instead.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from dvk.sandbox import launcher
from tests.python_path import python_path

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = (
    "dvk.cli",
    "dvk.pipelines.optimize",
    "dvk.pipelines.verify",
    "dvk.skills.exchange",
    "dvk.cli.skills.event_words",
    "dvk.pipelines.doctor",
    "rich.table",
    "rich.markdown",
)
SANDBOXED = {"doctor", "explain", "optimize", "verify", "workspace"}


def dvk(
    *args: object, cwd: Path, exits: int | None = 0, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`dvk ARGS` in `cwd`, with `env` over this process's environment; the exit code is checked unless `exits` is None."""
    command = ["dvk", *map(str, args)]
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        order = {
            "argv": command,
            "cwd": str(cwd),
            "env": {**os.environ, "PYTHONPATH": python_path(), **(env or {})},
            "out": str(out),
            "err": str(err),
        }
        server = _server()
        assert server.stdin and server.stdout
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        done = subprocess.CompletedProcess(
            command, int(server.stdout.readline()), out.read_text(), err.read_text()
        )
    assert "Traceback" not in done.stderr, done.stderr
    if exits is not None:
        assert done.returncode == exits, done.stdout + done.stderr
    return done


@cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-c", "from tests.cli import warm; warm.serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    atexit.register(server.kill)
    return server


def serve() -> None:
    """Fork a process for every line of stdin, answer with its exit code; in the forked one, run the command."""
    for name in IMPORTED:
        importlib.import_module(name)
    assert "torch" not in sys.modules, (
        "torch has threads, and processes with threads are not to be forked"
    )
    assert len(os.listdir("/proc/self/task")) == 1
    gc.freeze()  # the collector would touch, and so copy, every page in every child
    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        if order["argv"][1] in SANDBOXED:
            _zygote()
        if not (child := os.fork()):
            return _become(order)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


@cache
def _zygote() -> None:
    """Start what sandboxes are forked from, three seconds of imports, once for all calls, which run one after another."""
    launcher.launcher({})._await()


def _become(order: dict) -> None:
    from dvk.cli import main

    launcher._launchers = OrderedDict(
        {(os.getpid(), *key): one for (_, *key), one in launcher._launchers.items()}
    )
    for descriptor, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, order["out"], os.O_WRONLY | os.O_CREAT),
        (2, order["err"], os.O_WRONLY | os.O_CREAT),
    ):
        os.dup2(opened := os.open(path, flags), descriptor)
        os.close(opened)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv[:] = order["argv"]
    main()
