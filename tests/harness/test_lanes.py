"""Who may use a device: turns at all cores, beside shared work."""

from __future__ import annotations

import threading
from pathlib import Path

from dvk.harness.lanes import Lane


def test_turns_are_taken_one_after_another_and_who_waits_says_so(tmp_path: Path) -> None:
    one, other = Lane("cpu", str(tmp_path)), Lane("cpu", str(tmp_path))
    order: list[str] = []
    waits, done = threading.Event(), threading.Event()

    def second() -> None:
        with other.shared(), other.turn(waits.set):
            order.append("second")
        done.set()

    with one.shared(), one.turn(lambda: order.append("nobody is there")):
        threading.Thread(target=second, daemon=True).start()
        assert waits.wait(5) and not done.wait(0.05)
        order.append("first")
    assert done.wait(5) and order == ["first", "second"]
    with one.turn(lambda: order.append("given back")):
        assert len(order) == 2
