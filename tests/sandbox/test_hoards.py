"""Memory and disk that limits must see wherever they lie: one clear end, and everything is given back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dvk.config import Limits
from dvk.sandbox import Death, Message, SandboxSession
from tests.python_path import python_path
from tests.sandbox.process_tree import ROOT, gone

LIMITS = Limits(wall_s=60, memory_bytes=1 << 30, num_processes=60, output_bytes=4096)
MEMORY = (
    "memory_files",
    "memory_files_closed",
    "shared_unmapped",
    "grandchildren",
    "a_thread_alone",
    "descriptors_of_a_thread",
)
SLOWER = ("sockets", "page_tables", "many_files")
DISK = ("deleted_files", "deleted_files_closed", "hidden_folder", "deep_folder")


@pytest.fixture(autouse=True)
def children_find_the_tests(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", python_path())


def end_of(name: str) -> Death | Message:
    with SandboxSession(f"tests.sandbox.hoards:{name}", LIMITS, isolate="cpu") as session:
        child, home = session.pid, Path(session.home)
        answer = session.receive(40)
    assert gone(child) and not home.exists()
    return answer


def in_memory() -> int:
    text = Path("/proc/meminfo").read_text()
    return int(text.split("Shmem:")[1].split()[0]) >> 10


@pytest.mark.parametrize("name", ["memory_files", "shared_unmapped", "a_thread_alone"])
@pytest.mark.slow
def test_memory_in_no_process_is_counted(name):
    before = in_memory()
    answer = end_of(name)
    assert isinstance(answer, Death) and answer.reason == "memory", answer
    time.sleep(0.2)
    assert in_memory() < before + 900  # of the three gigabytes; others are at work here, too


@pytest.mark.parametrize("name", ["deleted_files", "hidden_folder"])
@pytest.mark.slow
def test_disk_in_no_folder_is_counted(name):
    answer = end_of(name)
    assert isinstance(answer, Death) and answer.reason == "disk", answer


@pytest.mark.parametrize("name", ["disk_at_a_stroke", "disk_by_ioctl"])
def test_no_disk_at_a_stroke(name):
    answer = end_of(name)
    assert (
        isinstance(answer, Message)
        and answer.value["blocks"] == 0
        and set(answer.value["done"]) == {-1}
    )


def test_what_programs_hold_is_no_hoard():
    assert end_of("honest") == Message({"lives": 16})


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MEMORY, *SLOWER, *DISK])
def test_every_hoard_ends(name):
    answer = end_of(name)
    reason = "disk" if name in (*DISK, "many_files") else "memory"
    assert isinstance(answer, Death) and answer.reason == reason, answer


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become an ordinary user")
def test_an_ordinary_users_hoards_end_too(tmp_path):
    """Without control groups and without the sizes of mappings."""
    tmp_path.chmod(0o777)
    program = (
        "import sys\nfrom tests.sandbox.test_hoards import *\n"
        "for name in sys.argv[1:]: print(name, getattr(end_of(name), 'reason', 'lives'))"
    )
    names = [
        *(name for name in MEMORY if name != "memory_files_closed"),
        "sockets",
        *DISK,
        "honest",
    ]
    env = {
        **os.environ,
        "PYTHONPATH": python_path(),
        "TMPDIR": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "tests.sandbox.ordinary", "-c", program, *names]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=200)
    found = dict(line.split() for line in done.stdout.splitlines())
    expected = {
        name: "disk" if name in DISK else "lives" if name == "honest" else "memory"
        for name in names
    }
    assert found == expected, done.stderr[-2000:]
