"""PyTorch's operators taken out of a running process: what computes ends it, what does not goes on, and they come back."""

from __future__ import annotations

import platform

import pytest

from dvk.harness.provenance import disable_ops
from dvk.sandbox import Death, Message, SandboxSession
from tests.harness.conftest import QUICK

pytestmark = pytest.mark.skipif(
    platform.machine() not in disable_ops.TRAP, reason="no trap is known for this machine"
)
TARGET = "tests.harness.disable_ops_child:serve"


def asked(session: SandboxSession, call: str) -> Message | Death:
    session.send({"call": call})
    return session.receive(30)


@pytest.mark.parametrize("call", ["softmax", "add", "packet"])
def test_what_computes_ends_in_a_trap(call: str) -> None:
    with SandboxSession(TARGET, QUICK.limits) as session:
        assert isinstance(asked(session, call), Message)
        with disable_ops.ops_disabled(session.pid) as traps:
            assert traps.done
            assert isinstance(asked(session, "plain"), Message), "what computes nothing goes on"
            death = asked(session, call)
        assert isinstance(death, Death) and death.reason == "signal SIGTRAP"


def test_cpp_that_goes_past_the_operators_ends_there_too() -> None:
    with SandboxSession(TARGET, QUICK.limits) as session, disable_ops.ops_disabled(session.pid):
        death = asked(session, "past the operators")
    assert isinstance(death, Death) and death.reason == "signal SIGTRAP"


def test_loading_a_library_can_be_taken_away() -> None:
    with SandboxSession(TARGET, QUICK.limits) as session:
        with disable_ops.ops_disabled(session.pid):
            assert isinstance(asked(session, "a new library"), Message)
        with disable_ops.ops_disabled(session.pid, "loading") as traps:
            assert traps.done
            assert isinstance(asked(session, "opened before"), Message), "nothing is loaded by that"
            death = asked(session, "a new library")
        assert isinstance(death, Death) and death.reason == "signal SIGTRAP"


def test_who_puts_them_back_is_noticed() -> None:
    with SandboxSession(TARGET, QUICK.limits) as session:
        asked(session, "plain")
        with disable_ops.ops_disabled(session.pid) as traps:
            pass
        assert not traps.lifted
        path = str((disable_ops.FOLDER / "libtorch_cpu.so").resolve())
        with (
            disable_ops.ops_disabled(session.pid) as traps,
            open(f"/proc/{session.pid}/mem", "r+b", buffering=0) as memory,
        ):
            first = disable_ops.entries(path)[0]
            code = next(
                s
                for s in disable_ops.executable(session.pid)
                if s.path == path and s.offset <= first < s.offset + s.size
            )
            memory.seek(code.start + first - code.offset)
            memory.write(b"\x90")
        assert traps.lifted


def test_operators_come_back_and_others_never_lost_them() -> None:
    with (
        SandboxSession(TARGET, QUICK.limits) as session,
        SandboxSession(TARGET, QUICK.limits) as beside,
    ):
        for one in (session, beside):
            asked(one, "plain")
        with disable_ops.ops_disabled(session.pid):
            assert isinstance(asked(beside, "softmax"), Message)
        assert isinstance(asked(session, "softmax"), Message)


def test_a_process_that_has_ended_raises_no_error() -> None:
    with SandboxSession(TARGET, QUICK.limits) as session:
        pid = session.pid
    with disable_ops.ops_disabled(pid) as traps:
        assert not traps.done
