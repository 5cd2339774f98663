"""Enclosed sessions, those of `dvk serve`, whose zygotes share one domain: what they reach in each other, and what a kill leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dvk.config import Limits
from dvk.sandbox import Message, SandboxSession, enclosure
from tests.python_path import python_path
from tests.sandbox.process_tree import gone, parent_of

LIMITS = Limits(wall_s=60, memory_bytes=1 << 30, num_processes=60, output_bytes=4096)
PARENT = """
import time
from dvk.config import Limits
from dvk.sandbox import SandboxSession
sessions = [SandboxSession("tests.sandbox.enclosed:waits", Limits(), shut=True, env=env, isolate=kind)
            for env, kind in (({}, "none"), ({"OTHER": "1"}, "cpu"))]
print(*(session.pid for session in sessions), *(session.home for session in sessions), flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def children_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", python_path())


@pytest.mark.skipif(not enclosure.works(), reason="this kernel has no Landlock")
@pytest.mark.slow
def test_one_that_judges_reads_a_candidate_whose_environment_differs() -> None:
    """And no process outside, whose memory and settings neither of them reaches."""
    with (
        SandboxSession("tests.sandbox.enclosed:judges", LIMITS, shut=True) as judge,
        SandboxSession(
            "tests.sandbox.enclosed:holds", LIMITS, shut=True, env={"OTHER": "1"}, isolate="cpu"
        ) as candidate,
    ):
        held = candidate.receive(30)
        assert isinstance(held, Message)
        judge.send({"pid": candidate.pid, "address": held.value["address"], "outside": os.getpid()})
        found = judge.receive(30)
    assert isinstance(found, Message)
    assert found.value["read"] == "what the candidate holds"
    assert found.value["reached"] == []
    if (
        os.geteuid() == 0
    ):  # others cannot mount a /proc; a GPU's driver needs this one to name its threads
        assert found.value["named"] and not found.value["sees_outside"]


@pytest.mark.skipif(not enclosure.works(), reason="this kernel has no Landlock")
@pytest.mark.skipif(not os.path.exists("/dev/tty0"), reason="this machine has no terminals")
def test_devices_are_found_where_their_folder_cannot_be_listed() -> None:
    """So a candidate within the enclosure may use the GPU that its judge uses."""
    with SandboxSession("tests.sandbox.enclosed:finds_devices", LIMITS, shut=True) as session:
        found = session.receive(30)
    assert isinstance(found, Message)
    assert "/dev/tty0" in found.value["found"]


@pytest.mark.slow
def test_a_killed_server_leaves_no_process_and_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    line = parent.stdout.readline().split()
    pids, homes = [int(pid) for pid in line[:2]], [Path(home) for home in line[2:]]
    above = {ancestor for pid in pids for ancestor in _ancestors(pid, parent.pid)}
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert all(gone(pid, within_s=20) for pid in [*pids, *above]), "a process outlived its server"
    assert not any(home.exists() for home in homes)
    monkeypatch.setattr(enclosure, "_folders", {})  # as the next server of this machine has none
    enclosure.folder()
    assert not homes[0].parent.exists()


def _ancestors(pid: int, until: int) -> list[int]:
    """Wardens and zygotes between a child and its server."""
    found = []
    while (pid := parent_of(pid)) not in (until, 0, 1):
        found.append(pid)
    assert pid == until
    return found
