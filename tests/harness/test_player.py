"""The player's life over plans and tasks: what stays mapped, what is forgotten, and what it says before it ends. No GPU needed."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import pytest
import torch

from dvk.harness.launch_plans.cuda_graph import GraphedCall
from dvk.harness.processes import player as players
from dvk.harness.processes.runner import serve_orders
from dvk.harness.session import recording
from dvk.harness.session.verdicts import ProcessFindings
from dvk.harness.transport import call_template
from dvk.harness.transport.link import Link
from tests.harness.conftest import task
from tests.harness.launch_plans.recording import HEADER, MODULE
from tests.harness.launch_plans.replays import replay


class Lent:
    """A board whose memory is known by a name, as device memory is by its number."""

    mapped: dict[str, int] = {}
    """Name → how often it is mapped now."""

    def __init__(self, name: str, shape: list[int]):
        self.name = name
        self.tensors = [torch.zeros(shape)]
        Lent.mapped[name] = Lent.mapped.get(name, 0) + 1

    @classmethod
    def borrow(cls, offered: dict[str, Any], descriptors: list[int]) -> Lent:
        os.close(descriptors.pop(0))
        return cls(offered["board"], offered["shape"])

    def close(self) -> None:
        assert Lent.mapped[self.name] == 1, "it is closed twice"
        Lent.mapped[self.name] = 0


def offer(name: str, rows: int = 4) -> dict[str, Any]:
    call = call_template.empty([torch.zeros(rows, 8)], {})
    return {"offer": {"board": name, "shape": [rows, 8], "layouts": []}, "call": call}


class Desk:
    """The referee's side of a player in a thread of this process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.player = players.Player(Link(theirs.detach()))
        self.link = Link(ours.detach())
        self.thread = threading.Thread(target=serve_orders, args=(self.player,), daemon=True)
        self.thread.start()

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        offered = "offer" in order or "inputs" in order
        descriptors = (os.open(os.devnull, os.O_RDONLY),) if offered else ()
        self.link.send({"do": do, **order}, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        return self.link.receive()

    def build(self, name: str, rows: int = 4) -> dict[str, Any]:
        affine = task("affine").model_dump(mode="json")
        return self.ask(
            "build",
            task=affine,
            role="player",
            source="",
            inputs=offer(name, rows),
            on_device=False,
            training=False,
        )


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(players, "Board", Lent)
    monkeypatch.setattr(
        players.Player, "_map_control", lambda self: setattr(self, "control", [0] * 512)
    )
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *a: None)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda *a: 0)
    Lent.mapped = {}
    made = Desk()
    yield made
    made.link.close()
    made.thread.join(10)
    assert not made.thread.is_alive()


def test_boards_keep_their_addresses_while_their_task_lasts(desk: Desk) -> None:
    # The reference is captured once a task, on the addresses of that moment.
    assert desk.build("native") == {"built": True}
    address = desk.player.args[0].data_ptr()
    for name, rows in (("batch+3", 7), ("native", 4), ("batch+3", 7), ("native", 4)):
        assert desk.ask("inputs", variant=name, **offer(name, rows)) == {"inputs": True}
    assert desk.player.args[0].data_ptr() == address
    assert Lent.mapped == {"native": 1, "batch+3": 1}, "each is mapped once and stays so"


def test_another_task_gives_back_what_was_lent_for_the_last(desk: Desk) -> None:
    desk.build("native")
    desk.ask("inputs", variant="batch+3", **offer("batch+3", 7))
    desk.player._reference = lambda: None
    assert desk.build("other native", 6) == {"built": True}
    assert Lent.mapped == {"native": 0, "batch+3": 0, "other native": 1}
    assert (
        desk.player._reference is None
        and desk.player.args[0].shape == (6, 8)
        and desk.player.variant == "native"
    )


def test_a_plan_begins_on_the_native_inputs_wherever_the_last_one_failed(desk: Desk) -> None:
    desk.build("native")
    desk.ask("inputs", variant="batch+3", **offer("batch+3", 7))
    said = desk.ask("plan", plan={"version": 0})
    assert (
        said["failed"]["status"] == "launch_error"
        and "cannot be replayed" in said["failed"]["error"]
    )
    assert desk.player.variant == "native" and desk.player.args[0].shape == (4, 8)
    assert desk.ask("inputs", variant="native", **offer("native")) == {"inputs": True}, (
        "a bad plan is no reason to end"
    )


@pytest.mark.parametrize("arm", ["the candidate", "the reference"])
def test_a_call_that_no_graph_can_hold_is_judged_with_its_host_code(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    """PyTorch refuses to copy a number from the host while a graph is captured."""
    copies = _raise("Cannot copy between CPU and CUDA tensors during CUDA graph capture")
    desk.build("native")
    held = replay(HEADER + MODULE + "        return x + 1\n", torch.zeros(4, 8))
    captured = copies if arm == "the candidate" else lambda *_: GraphedCall(None, [], [], [])  # type: ignore[arg-type]
    monkeypatch.setattr(held, "capture", captured)
    monkeypatch.setattr(desk.player, "_captured_reference", copies)
    desk.player.replays = {"native": held}
    found = ProcessFindings(desk.ask("prepare")["failed"])
    assert str(found.findings["error"]).startswith(f"NotCapturable: {arm} cannot be captured")
    assert recording.needs_host_code(found)
    assert recording.reference_is_uncaptured(found) is (arm == "the reference")
    assert desk.ask("inputs", variant="native", **offer("native")) == {"inputs": True}


def test_errors_in_timed_calls_are_reported(desk: Desk) -> None:
    desk.build("native")
    desk.player._reference, desk.player._candidate = (
        _raise("an illegal memory access"),
        GraphedCall(None, [], [], []),
    )  # type: ignore[arg-type]
    desk.link.send({"do": "rounds", "sync": True, "buffers": []})
    assert desk.link.wait() == b"e"
    assert desk.link.receive()["failed"]["status"] == "launch_error"
    assert desk.ask("inputs", variant="native", **offer("native")) == {"inputs": True}


def test_with_a_broken_context_it_says_so_and_ends(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.build("native")
    monkeypatch.setattr(torch.cuda, "synchronize", _raise("an illegal memory access"))
    assert desk.ask("call", seed=1)["failed"]["status"] == "launch_error"
    desk.thread.join(10)
    assert not desk.thread.is_alive()


def test_after_an_out_of_bounds_write_all_tensors_are_unknown(desk: Desk) -> None:
    desk.build("native")
    body = "        y = torch.empty_like(x)\n        y.as_strided((36,), (1,)).fill_(1)\n        return y\n"
    made = replay(HEADER + MODULE + body, torch.zeros(4, 8))
    made.load({"weight": torch.ones(64)})
    desk.player.replays = {"native": made}
    said = desk.ask("call", seed=1)
    assert (
        said["failed"]["status"] == "launch_error"
        and "outside its tensors" in said["failed"]["error"]
    )
    desk.thread.join(10)
    assert not desk.thread.is_alive(), "another takes its place"


def _raise(what: str) -> Any:
    def raises(*_: Any) -> None:
        raise RuntimeError(what)

    return raises


def test_baselines_are_captured_and_those_that_cannot_be_have_a_reason(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.build("native")
    monkeypatch.setattr(desk.player, "_captured", lambda call: call)
    monkeypatch.setitem(players.ARMS, "max-autotune", _raise("it asks the host"))
    monkeypatch.setitem(players.ARMS, "compile", lambda model, *_: torch.nn.Identity())
    said = desk.ask("capture", names=["compile", "max-autotune", "graph"])
    assert list(said["left_out"]) == ["max-autotune"]
    assert "it asks the host" in said["left_out"]["max-autotune"]
    assert set(desk.player._baselines) == {"compile", "graph"}
    assert desk.player._baselines["graph"] is desk.player.model, "a graph of the module as it is"
    assert desk.build("other native", 6) == {"built": True}
    assert not desk.player._baselines, "they belong to their task"


def test_every_arm_is_timed_in_its_place(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reference, plan, then baselines, in whatever order they are replayed."""
    desk.build("native")
    now = [0.0]

    class Event:
        def __init__(self, enable_timing: bool):
            self.at = 0.0

        def record(self) -> None:
            self.at = now[0]

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, end: Event) -> float:
            return end.at - self.at

    def takes(ms: float):
        return lambda: now.__setitem__(0, now[0] + ms)

    made = replay(HEADER + MODULE + "        return x + 1\n", torch.zeros(4, 8))
    made.load({"weight": torch.ones(64)})
    graph = type("Graph", (), {"replay": lambda self: takes(2.0)()})()
    desk.player.replays = {"native": made}
    desk.player._reference = takes(8.0)
    desk.player._candidate = GraphedCall(graph, [], [], [])
    desk.player._baselines, desk.player._beside = {"compile": takes(3.0)}, ["compile"]
    desk.player.control = [0] * 512
    facts = type("Facts", (), {"L2_cache_size": 64})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: facts)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, device=None, **k: empty(*a, **k))
    monkeypatch.setattr(desk.player, "copy_out", lambda tensors: None)
    desk.link.send({"do": "rounds", "sync": True, "buffers": []})
    assert desk.link.wait() == b"r"
    for _ in range(4):
        desk.link.ring(b"p")
        assert desk.link.wait() == b"d"
        assert [round(ns / 1e6, 3) for ns in desk.player.control[:3]] == [8.0, 2.0, 3.0]
    desk.link.ring(b"x")
