"""Isolation where a machine lacks a layer: the level does not claim it, and the other layers still hold."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from dvk.sandbox import Death, SandboxSession
from tests.sandbox.isolation_sessions import DENIED, KINDS, LIMITS, do, landlock, needs, start
from tests.sandbox.process_tree import ROOT, below, gone

pytestmark = pytest.mark.usefixtures("children_find_the_tests")


@pytest.mark.parametrize(
    "kind", ["cpu", pytest.param("cuda", marks=pytest.mark.slow)]
)  # the same guard
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("memory", "memory"),
        ("orphans_memory", "memory"),
        ("fork_bomb", "processes"),
        ("segfault", "signal SIGSEGV"),
    ],
)
@pytest.mark.slow
def test_limits_hold_inside(kind, name, reason):
    with SandboxSession(f"tests.sandbox.targets:{name}", LIMITS, isolate=kind) as session:
        death = session.receive(15)
    assert isinstance(death, Death) and death.reason == reason
    assert gone(session.pid)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_inside_outlives_its_warden(kind):
    with start(kind) as session:
        do(session, "start_orphan")
        inside = below(session._warden)
        assert len(inside) == (3 if "pid" in session.isolation else 2)
        os.kill(session._warden, signal.SIGKILL)
        assert session.receive(10) == Death("closed", "")
    assert all(gone(pid) for pid in inside)


REFUSALS = [
    ("cpu", ["landlock_create_ruleset"], "landlock"),
    ("cuda", ["landlock_create_ruleset"], "landlock"),
    ("cpu", ["seccomp"], "seccomp"),
    ("cuda", ["seccomp"], "seccomp"),
    ("cpu", ["unshare"], "net"),
    ("cuda", ["mount_setattr"], "rofs"),
    ("cuda", ["unshare", "seccomp"], "net"),
    ("cpu", ["mount_setattr", "unshare", "landlock_create_ruleset", "seccomp"], ""),
]


@pytest.mark.parametrize(("kind", "refuse", "layer"), REFUSALS)
def test_a_layer_that_is_lacking_is_not_claimed(kind, refuse, layer, tmp_path):
    with SandboxSession("tests.sandbox.isolated:enters", LIMITS) as session:
        session.send({"kind": kind, "refuse": refuse})
        level = session.receive(10).value["level"]
        if not layer:
            assert level == "rlimits"
        assert level.startswith("rlimits") or not any(
            part.startswith(layer) for part in level.split("+")
        )
        session._isolation = level
        if layer == "landlock":
            assert do(session, "read", __file__).keys() == {"result"}
            assert "result" in do(session, "listdir", "/tmp")
            needs(session, "rofs")
            assert do(session, "write", str(tmp_path / "new")) in DENIED
            assert do(session, "at_home") == {"result": []}
            needs(session, "seccomp")
            assert do(session, "kill", os.getpid(), 0) == {"error": "EPERM"}
            child = do(session, "start_process")["result"]
            assert do(session, "kill", child, 9) == {"error": "EPERM"}  # the price, on old kernels
        if layer == "seccomp":
            assert do(session, "status", ["Seccomp"])["result"] == {"Seccomp": "0"}
            needs(session, "landlock")
            assert do(session, "ptrace", os.getpid()) in DENIED
            assert do(session, "write", str(tmp_path / "new")) in DENIED
        if layer == "net" and "seccomp" in refuse:
            only_landlock_is_left(session, tmp_path)
        elif layer == "net":
            needs(session, "seccomp")
            assert do(session, "open_socket", socket.AF_INET, socket.SOCK_STREAM) in DENIED
            assert do(session, "kill", os.getpid(), 0) == {"error": "EPERM"}


def only_landlock_is_left(session, folder):
    (folder / "file").write_text("content")
    if landlock(session) >= 3:
        assert do(session, "truncate", str(folder / "file")) in DENIED
    if landlock(session) >= 4:
        with socket.create_server(("127.0.0.1", 0)) as server:
            assert do(session, "connect", server.getsockname()[1]) in DENIED
    if landlock(session) >= 6:
        assert do(session, "kill", os.getpid(), 0) == {"error": "EPERM"}
        name = f"dvk-test-{os.getpid()}"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("\0" + name)
            server.listen()
            assert do(session, "connect_abstract", name) in DENIED


ORDINARY = """
import json, os
from dvk.config import Limits
from dvk.sandbox import SandboxSession

def do(session, deed, *arguments):
    session.send({"do": deed, "with": arguments})
    return session.receive(30).value

found = {"user": os.getuid()}
with SandboxSession("tests.sandbox.isolated:does", Limits()) as judge:
    for kind in ("cpu", "cuda"):
        with SandboxSession("tests.sandbox.isolated:does", Limits(), isolate=kind) as session:
            found[kind] = session.isolation
            deeds = [("at_home",), ("compile_and_load",), ("write", "/tmp/dvk-ordinary"), ("kill", judge.pid, 0)]
            found[kind + " deeds"] = [do(session, *deed) for deed in deeds]
            found[kind + " read"] = do(judge, "read_memory", session.pid, do(session, "address")["result"])
            found[kind + " killed"] = [do(session, "start_orphan"), session.settle()][1]
            home = session.home
        found[kind + " left"] = os.path.exists(home)
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    os.getuid() != 0, reason="only root can become an ordinary user; others are tested all along"
)
def test_an_ordinary_user_is_isolated_too():
    """Through a user namespace, although root needs none; the judge, outside of it, can still read it."""
    command = [sys.executable, "-m", "tests.sandbox.ordinary", "-c", ORDINARY]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if "no mount namespace" in done.stderr:
        pytest.skip("this machine grants root no mount namespace")
    found = json.loads(done.stdout)
    assert found["user"] == 54321
    for kind in KINDS:
        assert found[f"{kind} read"] == {"result": b"in sight".hex()}
        assert found[f"{kind} deeds"][:2] == [{"result": []}, {"result": 42}]
        assert found[f"{kind} killed"] == 1 and not found[f"{kind} left"]
        if "landlock" in found[kind]:
            assert found[f"{kind} deeds"][2] in DENIED
        if "seccomp" in found[kind]:
            assert found[f"{kind} deeds"][3]["error"] in ("EPERM", "ESRCH")
    if "user" in found["cpu"]:
        assert {"user", "pid", "net", "ipc"} <= set(found["cpu"].split("+"))
    assert not {"user", "pid", "net", "ipc"} & set(found["cuda"].split("+"))
