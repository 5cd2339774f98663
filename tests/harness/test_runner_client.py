"""One real runner under a referee's hand: outputs read from its memory, stamps bounded, late work seen or charged."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import pytest
import torch

from dvk.harness.supervision import runner_client as peers
from dvk.harness.supervision.retained_outputs import on_board
from dvk.harness.supervision.runner_client import CandidateFailed, Interfered, RunnerClient
from dvk.harness.transport import call_template, process_memory
from dvk.harness.transport.lent_tensors import Board, layout_of
from dvk.harness.transport.link import Gone
from dvk.sandbox import SandboxSession
from tests.harness.conftest import QUICK, task

SHAPE = (64, 301)

HONEST = "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"


@contextmanager
def runner(source: str, written: Sequence[int] = ()) -> Iterator[tuple[RunnerClient, Board]]:
    """A candidate of the task `affine`, with a board of ones."""
    board = Board([layout_of(torch.ones(SHAPE))], "cpu")
    board.put([torch.ones(SHAPE)])
    ours, theirs = socket.socketpair()
    session = SandboxSession(
        "dvk.harness.processes.runner:serve",
        QUICK.limits,
        descriptors=[theirs.fileno()],
        isolate="cpu",
    )
    theirs.close()
    peer = RunnerClient("candidate", ours.detach(), session.pid, "cpu")
    try:
        built = {"on_device": False, "training": True, "written": list(written)}
        peer.build(
            task("affine"),
            "import torch, time, threading\n" + source,
            board,
            call_template.empty([torch.ones(1)], {}),
            **built,
        )
        peer.answer()
        yield peer, board
    finally:
        peer.close()
        session.close()
        board.close()


def test_outputs_are_read_from_its_memory():
    with runner(HONEST) as (peer, board):
        answer = peer.ask("call", seed=1)
        (output,) = peer.fetch(answer["leaves"], most_bytes=1 << 20)
        assert torch.equal(output, torch.full(SHAPE, 2.0))
        board.put([torch.full(SHAPE, 3.0)])
        peer.enter([layout_of(output)])
        call, (timed,) = peer.time_call(1, True, lambda: None)
        peer.leave()
        assert torch.equal(timed, torch.full(SHAPE, 6.0))
        assert 0 < call.inner_ms < 1000 and call.gap_ms >= 0


KEEPS = """
class ModelNew(torch.nn.Module):
    y = torch.zeros(64, 301)
    def forward(self, x):
        return torch.mul(x, 2, out=self.y)
"""


@pytest.mark.parametrize(("source", "changed"), [(HONEST, set()), (KEEPS, {0})])
@pytest.mark.parametrize("copied", [False, True])
def test_what_it_holds_is_read_again_after_later_calls(monkeypatch, source, changed, copied):
    """In its memory, as on a CPU, and by copies on a board, as on a GPU."""
    with runner(source) as (peer, board):
        answer = peer.call(1)
        (output,) = peer.fetch(answer["leaves"], most_bytes=1 << 20)
        peer._place([layout_of(output)])
        peer.enter([layout_of(output)])
        if copied:

            def later(*_):
                peer._held.wake()
                return on_board(peer._export_timed(), peer._export_earlier, 1)

            monkeypatch.setattr(peer, "_later", later)
        seen = set()
        for number in range(12):
            seen |= peer.overwritten()
            peer.time_call(
                1, True, lambda number=number: board.put([torch.full(SHAPE, float(number))])
            )
        peer.leave()
        assert seen == changed


WRITES = """
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x * 2
        work = threading.Thread(target=lambda: (time.sleep({pause}), x.add_(1)))
        work.start()
        {wait}
        return y
"""


@pytest.mark.parametrize(("pause", "wait"), [(0, "work.join()"), (0.02, "")])
def test_an_input_written_after_the_call_is_seen_by_a_judge_that_comes_late(
    monkeypatch, pause, wait
):
    """On a busy machine the judge reads it milliseconds after the call, when a thread has written it."""
    with runner(WRITES.format(pause=pause, wait=wait), written=[0]) as (peer, board):
        rest = peer._rest
        monkeypatch.setattr(peer, "_rest", lambda: (rest(), time.sleep(0.2))[0])
        peer.enter([layout_of(torch.ones(SHAPE))], tells=True, written=[board.tensors[0]])
        with nullcontext() if wait else pytest.raises(Interfered, match="wrote to its inputs"):
            peer.time_call(1, True, lambda: board.put([torch.full(SHAPE, 3.0)]))
            assert torch.equal(peer.left[0], torch.full(SHAPE, 4.0))
        peer.leave()


def test_lent_tensors_lie_between_addresses_without_memory():
    sizes = [100, 5000]
    descriptor = process_memory.shared(sizes)
    mapping = process_memory.Mapping(descriptor, sizes)
    first, second = mapping.addresses
    assert second - first > process_memory.GUARD_BYTES >= 1 << 26
    mapping.close()
    os.close(descriptor)


@pytest.mark.parametrize("where", [1 << 24, -(1 << 24)])
def test_a_write_far_outside_its_input_ends_it(where):
    """Not only in the page next to it: what lies further away would depend on the machine."""
    source = f"""import ctypes
class ModelNew(torch.nn.Module):
    def forward(self, x):
        ctypes.memset(x.data_ptr() + {where}, 0, 4)
        return x * 2
"""
    with runner(source) as (peer, _), pytest.raises(Gone):
        peer.call(1)


def test_it_stands_still_after_a_call_that_is_not_timed():
    with runner(HONEST) as (peer, _):
        for _ in range(2):
            answer = peer.call(1)
            limit = time.monotonic() + 5
            while not process_memory.stopped(peer.pid) and time.monotonic() < limit:
                time.sleep(0.001)
            assert process_memory.stopped(peer.pid)
            (output,) = peer.fetch(answer["leaves"], most_bytes=1 << 20)
            assert torch.equal(output, torch.full(SHAPE, 2.0))


def test_what_runs_while_it_is_stopped_is_seen_when_it_does_so_more_often_than_a_busy_host(
    monkeypatch,
):
    monkeypatch.setattr(peers, "CALLS_A_DOUBT", 20)
    with runner(HONEST) as (peer, board):
        answer = peer.ask("call", seed=1)
        (output,) = peer.fetch(answer["leaves"], most_bytes=1 << 20)
        peer.enter([layout_of(output)])

        def lay() -> None:
            os.killpg(peer.pid, signal.SIGCONT)
            before = process_memory.processor_s(peer.pid)
            while (
                process_memory.processor_s(peer.pid) < before + 0.002
            ):  # it waits for its turn, spinning
                pass
            os.killpg(peer.pid, signal.SIGSTOP)

        peer.time_call(1, False, lay)
        for _ in range(19):
            peer.time_call(2, False, lambda: None)
        peer.time_call(2, False, lay)
        with pytest.raises(Interfered, match="ran while it was stopped"):
            peer.time_call(3, False, lay)


def test_a_changed_input_is_seen():
    with runner(
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.mul_(2) * 1\n"
    ) as (peer, board):
        assert board.holds([torch.ones(SHAPE)]) == []
        peer.ask("call", seed=1)
        assert board.holds([torch.ones(SHAPE)]) == [0]


@pytest.mark.parametrize("pause", [0.0, 0.002])
def test_work_after_the_bell_is_seen_unfinished(pause):
    late = (
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        y = torch.empty(2048, 2048)\n"
        f"        def work():\n            time.sleep({pause})\n            for row in y:\n                row.fill_(x[0, 0])\n"
        "        threading.Thread(target=work).start()\n        return y\n"
    )
    with runner(late) as (peer, board):
        peer.enter([layout_of(torch.empty(2048, 2048))])
        for number in range(5):
            board.put([torch.full(SHAPE, float(number + 7))])
            try:
                _, (output,) = peer.time_call(1, True, lambda: None)
            except Interfered as error:
                assert "still changed" in str(error)
                break
            assert not (output == number + 7).all()


def test_stamps_outside_the_judges_own_are_refused_and_short_ones_show():
    forged = (
        "import dvk.harness.processes.runner as runner\nreal = time.perf_counter_ns\n"
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        time.sleep(0.02)\n"
        "        runner._now = lambda: real() {shift}\n        return x * 2\n"
    )
    with runner(forged.format(shift="+ 10**12")) as (peer, _):
        peer.enter([layout_of(torch.empty(SHAPE))])
        with pytest.raises(Interfered, match="stamps"):
            peer.time_call(1, True, lambda: None)
    hidden = (
        "import dvk.harness.processes.runner as runner\nreal = time.perf_counter_ns\nticks = [0]\n"
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        begin = real()\n        time.sleep(0.02)\n"
        "        runner._now = lambda: begin + 1000\n        return x * 2\n"
    )
    with runner(hidden) as (peer, _):
        peer.enter([layout_of(torch.empty(SHAPE))])
        call, _ = peer.time_call(1, True, lambda: None)
        assert call.inner_ms < 5 and call.gap_ms > 15


def test_an_absurd_claim_is_refused_before_anything_is_allocated():
    with runner(
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.empty(1).expand(1 << 30, 1 << 9)\n"
    ) as (peer, _):
        answer = peer.ask("call", seed=1)
        assert peer.fetch(answer["leaves"], most_bytes=1 << 20)[0].stride() == (0, 0)
    with runner(HONEST) as (peer, _):
        peer.ask("call", seed=1)
        for lie in (
            {"shape": [1 << 30, 1 << 9]},
            {"shape": [-1]},
            {"dtype": "nn"},
            {"strides": ["x"]},
            {"address": 12},
        ):
            claim = {
                "layout": "torch.strided",
                "device": "cpu",
                "dtype": "float32",
                "shape": [4],
                "strides": [1],
                "address": 1 << 20,
            }
            with pytest.raises((Interfered, CandidateFailed)):
                peer.fetch([{**claim, **lie}], most_bytes=1 << 20)


def test_an_ended_runner_and_a_failing_order_raise_different_errors():
    with runner(
        "import os\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        os._exit(0)\n"
    ) as (peer, _):
        with pytest.raises(Gone):
            peer.ask("call", seed=1)
    with runner(
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        raise ValueError('no')\n"
    ) as (peer, _):
        with pytest.raises(CandidateFailed, match="ValueError: no") as caught:
            peer.ask("call", seed=1)
        assert caught.value.status.value == "launch_error"
        peer.enter([layout_of(torch.empty(SHAPE))])
        with pytest.raises(CandidateFailed, match="ValueError: no"):
            peer.time_call(1, True, lambda: None)


def test_who_is_killed_before_its_outputs_are_read_has_not_interfered():
    for timed in (False, True):
        with runner(HONEST) as (peer, _):
            answer = peer.ask("call", seed=1)
            (output,) = peer.fetch(answer["leaves"], most_bytes=1 << 20)
            if timed:
                peer.enter([layout_of(output)])
                real = peer.link.wait

                def wait(peer: RunnerClient = peer, real: Callable[[], bytes] = real) -> bytes:
                    if (byte := real()) == b"d":
                        killed(peer)
                    return byte

                peer.link.wait = wait
            else:
                killed(peer)
            with pytest.raises(Gone):
                peer.time_call(1, True, lambda: None) if timed else peer.fetch(
                    answer["leaves"], most_bytes=1 << 20
                )


def killed(peer: RunnerClient) -> None:
    """The runner, from outside, for good."""
    os.kill(peer.pid, signal.SIGKILL)
    assert process_memory.ended(peer.pid, within_s=5)


def test_reading_beyond_an_input_faults():
    beyond = (
        "import ctypes\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
        "        ctypes.string_at(x.data_ptr() + x.numel() * 4, 64)\n        return x * 2\n"
    )
    with runner(beyond) as (peer, _):
        with pytest.raises(Gone):
            peer.ask("call", seed=1)


def test_processor_time_of_another_process():
    with runner(
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
        "        end = time.process_time() + 0.05\n        while time.process_time() < end: pass\n"
        "        return x * 2\n"
    ) as (peer, _):
        before = process_memory.processor_s(peer.pid)
        peer.ask("call", seed=1)
        assert process_memory.processor_s(peer.pid) - before >= 0.05
