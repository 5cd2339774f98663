"""The sandbox against everything a child can do wrong: a named end, nothing left running, the parent alive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dvk.config import Limits
from dvk.sandbox import Death, Message, Session, call

LIMITS = Limits(wall_s=20, memory_bytes=1 << 30, num_processes=60, output_bytes=4096)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def children_find_the_tests(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def target(name: str) -> str:
    return f"tests.sandbox.targets:{name}"


def gone(pid: int, within_s: float = 5.0) -> bool:
    """The process has ended (a zombie counts: it runs nothing)."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_requests_and_answers():
    with Session(target("echo"), LIMITS) as session:
        for number in (1, 2):
            session.send({"number": number})
            answer = session.receive(10)
            assert isinstance(answer, Message) and answer.value["echo"] == {"number": number}
        child, home = answer.value["pid"], Path(answer.value["cwd"])
        assert child != os.getpid() and home.is_dir()
        assert answer.value["threads"] == 1
    assert gone(child) and not home.exists()
    assert session.receive(1) == Death("closed", "")


def test_a_child_can_compute_although_it_was_forked():
    answer = call(target("tensor"), {}, LIMITS)
    assert isinstance(answer, Message)
    assert answer.value == {"sum": 1.0, "threads": answer.value["threads"], "cuda": False}


def test_starting_is_cheap_once_warm():
    call(target("tensor"), {}, LIMITS)
    start = time.perf_counter()
    for _ in range(5):
        Session(target("echo"), LIMITS).close()
    assert (time.perf_counter() - start) / 5 < 0.5  # a fresh interpreter with torch needs more than one second


def test_environment_is_the_parents_with_overrides(monkeypatch):
    monkeypatch.setenv("DVK_TEST_LATE", "set after the zygote started")
    answer = call(
        target("environment"), {"names": ["DVK_TEST_LATE", "DVK_TEST_OWN"]}, LIMITS, env={"DVK_TEST_OWN": "1"}
    )
    assert answer == Message({"DVK_TEST_LATE": "set after the zygote started", "DVK_TEST_OWN": "1"})


def test_given_working_folder_stays(tmp_path):
    with Session(target("echo"), LIMITS, cwd=tmp_path) as session:
        session.send({})
        answer = session.receive(10)
        assert isinstance(answer, Message) and answer.value["cwd"] == str(tmp_path)
    assert tmp_path.is_dir()


@pytest.mark.parametrize(
    ("name", "reason", "log"),
    [
        ("segfault", "signal SIGSEGV", "about to crash"),
        ("exits", "exit 3", ""),
        ("system_exit", "exit 7", ""),
        ("raises", "exit 1", "KeyboardInterrupt: not an Exception"),
        ("memory", "memory", ""),
        ("memory_of_a_grandchild", "memory", ""),
        ("fork_bomb", "processes", ""),
        ("threads", "processes", ""),
        ("garbage", "garbled", ""),
    ],
)
def test_death_has_a_reason(name, reason, log):
    start = time.monotonic()
    with Session(target(name), LIMITS) as session:
        child = session.pid
        death = session.receive(15)
    assert isinstance(death, Death) and death.reason == reason
    assert log in death.log
    assert gone(child) and time.monotonic() - start < 14


@pytest.mark.parametrize("name", ["forever", "ignores_signals"])
def test_receive_times_out_and_kills(name):
    with Session(target(name), LIMITS) as session:
        assert session.receive(0.3) == Death("timeout", "")
        assert gone(session.pid)


def test_wall_clock_of_the_session_is_kept_by_the_warden():
    with Session(target("forever"), Limits(wall_s=0.4)) as session:
        assert session.receive(10) == Death("timeout", "")


def test_last_words_come_before_the_death():
    with Session(target("answers_and_dies"), LIMITS) as session:
        assert session.receive(10) == Message({"last": "words"})
        assert session.receive(10) == Death("signal SIGKILL", "")


def test_output_flood_keeps_the_tail_only():
    with Session(target("flood"), LIMITS) as session:
        assert session.receive(10) == Message({"done": True})
        log = session.close()
    assert len(log) == LIMITS.output_bytes and log.endswith("the end")


def test_log_is_read_while_the_child_lives():
    with Session(target("prints"), LIMITS) as session:
        for text in ("first", "second"):
            session.send({"text": text})
            session.receive(10)
            assert session.log() == text + "\n"


def test_deleted_working_folder():
    with Session(target("deletes_cwd"), LIMITS) as session:
        assert session.receive(10) == Message({"gone": True})


def test_daemons_in_their_own_session_die_too():
    with Session(target("daemon"), LIMITS) as session:
        answer = session.receive(10)
        assert isinstance(answer, Message)
        assert not gone(answer.value["daemon"], within_s=0.2)
    assert gone(answer.value["daemon"])


def test_a_fork_does_not_answer_for_its_parent():
    with Session(target("forks_and_answers_twice"), LIMITS) as session:
        assert session.receive(10) == Message({"pid": session.pid})
        assert isinstance(session.receive(10), Death)


def test_killing_the_warden_frees_nobody():
    with Session(target("kills_warden"), LIMITS) as session:
        answer = session.receive(10)
        assert isinstance(answer, Message)
        assert session.receive(10) == Death("closed", "")
    assert gone(answer.value["pid"]) and gone(answer.value["warden"])
    assert call(target("tensor"), {}, LIMITS).value["sum"] == 1.0  # type: ignore[union-attr]


def test_stopping_the_warden_does_not_stop_the_parent(monkeypatch):
    monkeypatch.setattr("dvk.sandbox.session.GRACE_S", 0.5)
    with Session(target("stops_warden"), LIMITS) as session:
        assert session.receive(0.5) == Death("timeout", "")
        assert gone(session.pid)


PARENT = """
import sys, time
from dvk.config import Limits
from dvk.sandbox import Session
if __name__ == "__main__":
    first = Session("tests.sandbox.targets:daemon", Limits())
    second = Session("tests.sandbox.targets:forever", Limits())
    daemon = first.receive(60).value["daemon"]
    print(daemon, first.pid, second.pid, first._warden, second._warden, first._home, flush=True)
    time.sleep(1000)
"""


def test_nothing_survives_kill_9_of_the_parent():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout is not None
    *pids, home = parent.stdout.readline().split()
    zygote = int(Path(f"/proc/{pids[3]}/stat").read_text().rpartition(")")[2].split()[1])
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert all(gone(int(pid)) for pid in pids), "a process outlived its parent"
    assert gone(zygote)
    assert not Path(home).exists()
