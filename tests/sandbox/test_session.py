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
from dvk.sandbox import Death, Message, SandboxSession, call, launcher, wire
from dvk.sandbox.zygote import GRACE_S
from tests.python_path import python_path
from tests.sandbox.process_tree import ROOT, below, gone, parent_of

LIMITS = Limits(wall_s=20, memory_bytes=1 << 29, num_processes=60, output_bytes=4096)


@pytest.fixture(autouse=True)
def children_find_the_tests(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", python_path())


def target(name: str) -> str:
    return f"tests.sandbox.targets:{name}"


def test_requests_and_answers():
    with SandboxSession(target("echo"), LIMITS) as session:
        for number in (1, 2):
            session.send({"number": number})
            answer = session.receive(10)
            assert isinstance(answer, Message) and answer.value["echo"] == {"number": number}
        child, home = answer.value["pid"], Path(answer.value["cwd"])
        assert child != os.getpid() and home.is_dir()
        assert answer.value["threads"] == 1
    assert gone(child) and not home.exists()
    assert session.receive(1) == Death("closed", "")


def test_what_a_child_says_can_be_written_down():
    frames = wire.Frames()
    raw = b'{"raw": "\xed\xa0\xbd"}'
    frames.feed(
        wire.encode({"half": ["a \ud83d", {"\udc00": 1}], "whole": "\U0001f600"})
        + len(raw).to_bytes(4, "little")
        + raw
    )
    assert frames.next() == {"half": ["a ?", {"?": 1}], "whole": "\U0001f600"}
    with pytest.raises(wire.Garbled):
        frames.next()


def test_a_child_can_compute_although_it_was_forked():
    answer = call(target("tensor"), {}, LIMITS)
    assert isinstance(answer, Message)
    assert answer.value == {"sum": 1.0, "threads": answer.value["threads"], "cuda": False}


def test_starting_is_cheap_once_warm():
    call(target("tensor"), {}, LIMITS)
    start = time.perf_counter()
    for _ in range(5):
        SandboxSession(target("echo"), LIMITS).close()
    assert (
        time.perf_counter() - start
    ) / 5 < 0.5  # a fresh interpreter with torch needs more than one second


@pytest.mark.slow
def test_environment_is_the_parents_with_overrides(monkeypatch):
    monkeypatch.setenv("DVK_TEST_LATE", "set after the zygote started")
    answer = call(
        target("environment"),
        {"names": ["DVK_TEST_LATE", "DVK_TEST_OWN"]},
        LIMITS,
        env={"DVK_TEST_OWN": "1"},
    )
    assert answer == Message({"DVK_TEST_LATE": "set after the zygote started", "DVK_TEST_OWN": "1"})


def test_late_environment_costs_no_zygote():
    call(target("tensor"), {}, LIMITS)
    before = len(launcher._launchers)
    answer = call(
        target("environment"), {"names": ["DVK_TEST_OWN"]}, LIMITS, late_env={"DVK_TEST_OWN": "2"}
    )
    assert answer == Message({"DVK_TEST_OWN": "2"})
    assert len(launcher._launchers) == before


def test_descriptors_arrive_in_order():
    files = []
    for number in range(102):
        files.append(os.memfd_create(f"file{number}"))
        os.write(files[-1], str(number).encode())
    open_before = len(os.listdir("/proc/self/fd"))
    with SandboxSession(target("descriptors"), LIMITS, descriptors=files[:2]) as session:
        expected = ["0", "1"]
        for start, stop, bulk in ((2, 3, ""), (3, 3, ""), (3, 102, "x" * 3_000_000)):
            session.send({"bulk": bulk}, files[start:stop])
            expected += map(str, range(start, stop))
            answer = session.receive(10)
            assert answer == Message({"texts": expected, "inherited": [False] * stop})
    assert len(os.listdir("/proc/self/fd")) == open_before
    for file in files:
        os.close(file)
    with pytest.raises(OSError):
        SandboxSession(target("descriptors"), LIMITS, descriptors=files[:1])


def test_given_working_folder_stays(tmp_path):
    with SandboxSession(target("echo"), LIMITS, cwd=tmp_path) as session:
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
        ("memory_after_a_rest", "memory", ""),
        ("memory_of_an_orphan_alone", "memory", ""),
        ("memory_of_a_grandchild", "memory", ""),
        ("fork_bomb", "processes", ""),
        ("threads", "processes", ""),
        ("garbage", "garbled", ""),
    ],
)
@pytest.mark.slow
def test_death_has_a_reason(name, reason, log):
    start = time.monotonic()
    with SandboxSession(target(name), LIMITS) as session:
        child = session.pid
        death = session.receive(15)
    assert isinstance(death, Death) and death.reason == reason
    assert log in death.log
    assert gone(child) and time.monotonic() - start < 14


@pytest.mark.parametrize("name", ["forever", "ignores_signals"])
def test_receive_times_out_and_kills(name):
    with SandboxSession(target(name), LIMITS) as session:
        assert session.receive(0.3) == Death("timeout", "")
        assert gone(session.pid)


def test_waiting_is_not_a_timeout():
    with SandboxSession(target("echo"), LIMITS) as session:
        assert session.wait(0.2) is None
        session.send({"number": 1})
        assert isinstance(session.wait(10), Message)
    assert session.wait(10) == Death("closed", "")


def test_wall_clock_of_the_session_is_kept_by_the_warden():
    with SandboxSession(target("forever"), Limits(wall_s=0.4)) as session:
        assert session.receive(10) == Death("timeout", "")


def test_last_words_come_before_the_death():
    with SandboxSession(target("answers_and_dies"), LIMITS) as session:
        assert session.receive(10) == Message({"last": "words"})
        assert session.receive(10) == Death("signal SIGKILL", "")


def test_output_flood_keeps_the_tail_only():
    with SandboxSession(target("flood"), LIMITS) as session:
        assert session.receive(10) == Message({"done": True})
        log = session.close()
    assert len(log) == LIMITS.output_bytes and log.endswith("the end")


def test_log_is_read_while_the_child_lives():
    with SandboxSession(target("prints"), LIMITS) as session:
        for text in ("first", "second"):
            session.send({"text": text})
            session.receive(10)
            assert session.log() == text + "\n"


def test_deleted_working_folder():
    with SandboxSession(target("deletes_cwd"), LIMITS) as session:
        assert session.receive(10) == Message({"gone": True})


def test_daemons_in_their_own_session_die_too():
    with SandboxSession(target("daemon"), LIMITS) as session:
        answer = session.receive(10)
        assert isinstance(answer, Message)
        assert not gone(answer.value["daemon"], within_s=0.2)
    assert gone(answer.value["daemon"])


@pytest.mark.parametrize("kind", ["none", "cpu", "cuda"])
def test_settling_leaves_the_child_alone(kind):
    with SandboxSession("tests.sandbox.isolated:does", LIMITS, isolate=kind) as session:
        assert session.settle() == 0
        for deed in ("start_process", "start_orphan", "start_threads"):
            session.send({"do": deed})
            assert "result" in session.receive(10).value
        before = {pid for pid in below(session._warden) if not ended(pid)}
        assert session.pid in before
        assert session.settle() == 2
        after = {pid for pid in below(session._warden) if not ended(pid)}
        assert len(before - after) == 2 and session.pid in after
        session.send({"do": "start_threads"})
        assert session.receive(10) == Message({"result": 3})  # its threads live on
    assert session.settle() == 0


def test_settling_ends_a_race():
    """A process that forks forever, each time in a separate session, cannot escape."""
    with SandboxSession(target("hydra"), LIMITS) as session:
        assert session.receive(10) == Message({"running": True})
        assert session.settle() > 0
        time.sleep(0.2)
        assert [pid for pid in below(session._warden) if not ended(pid)] == [session.pid]
        assert min(seconds(session.settle) for _ in range(3)) < 1.5  # not until its patience ends


def seconds(deed) -> float:
    start = time.monotonic()
    deed()
    return time.monotonic() - start


def ended(pid: int) -> bool:
    return gone(pid, within_s=0.001)


@pytest.mark.parametrize("kind", ["none", "cpu", pytest.param("cuda", marks=pytest.mark.slow)])
def test_twenty_sessions_leave_nothing(kind):
    call(target("echo"), {}, LIMITS)  # the zygote
    descriptors, homes, zygote = os.listdir("/proc/self/fd"), set(), 0
    file = os.memfd_create("shared")
    for number in range(20):
        session = SandboxSession(
            target("prints" if number % 2 else "daemon"), LIMITS, isolate=kind, descriptors=[file]
        )
        zygote = parent_of(session._warden)
        homes.add(session.home)
        if number % 5 == 0:
            session.send({"text": "hello"}, [file])
            assert isinstance(session.receive(10), Message)
        session.close()
    os.close(file)
    assert len(homes) == 20 and not any(map(os.path.exists, homes))
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)
    assert all(
        gone(pid) for pid in below(zygote)
    )  # the last warden says that its child is dead, then ends itself
    assert len(os.listdir(f"/proc/{zygote}/fd")) < 12


@pytest.mark.slow
def test_sessions_of_a_zygote_that_is_kept_no_longer_live_on(monkeypatch):
    monkeypatch.setattr(launcher, "MAX_ZYGOTES", 1)
    patient = LIMITS.model_copy(update={"wall_s": 90})
    with SandboxSession(target("echo"), patient, env={"DVK_TEST_OWN": "first"}) as session:
        zygote = parent_of(session._warden)
        call(target("echo"), {}, LIMITS, env={"DVK_TEST_OWN": "second"})
        time.sleep(GRACE_S + 2)
        session.send({"text": "hello"})
        answer = session.receive(10)
        assert isinstance(answer, Message) and answer.value["echo"] == {"text": "hello"}
    assert gone(zygote)


def test_a_fork_does_not_answer_for_its_parent():
    with SandboxSession(target("forks_and_answers_twice"), LIMITS) as session:
        assert session.receive(10) == Message({"pid": session.pid})
        assert isinstance(session.receive(10), Death)


def test_killing_the_warden_kills_its_children():
    with SandboxSession(target("kills_warden"), LIMITS) as session:
        answer = session.receive(10)
        assert isinstance(answer, Message)
        assert session.receive(10) == Death("closed", "")
    assert gone(answer.value["pid"]) and gone(answer.value["warden"])
    assert call(target("tensor"), {}, LIMITS).value["sum"] == 1.0  # type: ignore[union-attr]


def test_stopping_the_warden_does_not_stop_the_parent(monkeypatch):
    monkeypatch.setattr("dvk.sandbox.session.GRACE_S", 0.5)
    with SandboxSession(target("stops_warden"), LIMITS) as session:
        assert session.receive(0.5) == Death("timeout", "")
        assert gone(session.pid)


PARENT = """
import sys, time
from dvk.config import Limits
from dvk.sandbox import SandboxSession
if __name__ == "__main__":
    first = SandboxSession("tests.sandbox.targets:daemon", Limits())
    second = SandboxSession("tests.sandbox.targets:forever", Limits())
    daemon = first.receive(60).value["daemon"]
    print(daemon, first.pid, second.pid, first._warden, second._warden, first.home, flush=True)
    time.sleep(1000)
"""


@pytest.mark.slow
def test_nothing_survives_kill_9_of_the_parent():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert parent.stdout is not None
    *pids, home = parent.stdout.readline().split()
    zygote = parent_of(int(pids[3]))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert all(gone(int(pid)) for pid in pids), "a process outlived its parent"
    assert gone(zygote)
    assert not Path(home).exists()
