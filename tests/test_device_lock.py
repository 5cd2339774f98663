"""Device lock: turns at all cores, next to shared work; long work that yields to measurements."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dvk import device_lock
from dvk.device_lock import DeviceLock


def test_turns_are_exclusive_and_a_waiting_process_reports_it(tmp_path: Path) -> None:
    one, other = DeviceLock("cpu", str(tmp_path)), DeviceLock("cpu", str(tmp_path))
    order: list[str] = []
    waits, done = threading.Event(), threading.Event()

    def second() -> None:
        with other.shared(), other.all_cores(waits.set):
            order.append("second")
        done.set()

    with one.shared(), one.all_cores(lambda: order.append("no other process")):
        threading.Thread(target=second, daemon=True).start()
        assert waits.wait(5) and not done.wait(0.05)
        order.append("first")
    assert done.wait(5) and order == ["first", "second"]
    with one.all_cores(lambda: order.append("given back")):
        assert len(order) == 2


def test_long_work_lets_a_measurement_go_first_and_rests_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_lock, "HOLD_S", 0.05)
    order: list[str] = []
    measured = threading.Event()

    def measure() -> None:
        with DeviceLock("gpu", str(tmp_path)).exclusive():
            order.append("measured")
        measured.set()

    with DeviceLock("gpu", str(tmp_path)).shared_in_turns(lambda: order.append("rest")) as give_way:
        give_way(None)
        assert order == []  # it has only just begun
        threading.Thread(target=measure, daemon=True).start()
        assert not measured.wait(0.1)
        give_way(None)
        order.append("work")
    assert measured.wait(5) and order == ["rest", "measured", "work"]
