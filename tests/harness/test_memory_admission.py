"""Tasks of large tensors: how many are judged at a time."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from dvk import machine
from dvk.harness.pool import Job, _Desk, _Hand
from dvk.harness.session.concurrency import WORKER_BYTES
from dvk.harness.session.memory_admission import PLAIN_BYTES, SpareMemory, extra_bytes
from dvk.records import Candidate, Task, TensorSpec

GIB = 1 << 30


def task(name: str, *shape: int, dtype: str = "float32", device: str = "cuda") -> Task:
    spec = TensorSpec(name="x", dtype=dtype, shape=shape, strides=(1,) * len(shape))
    return Task(
        id=name,
        name=name,
        source="",
        entry="f",
        kind="function",
        device=device,
        inputs=(spec,),
        outputs=(),
    )


def jobs(*tasks: Task, each: int = 3) -> list[Job]:
    return [
        (one, Candidate(source=f"{one.id} {n}", backend="triton", proposer=""))
        for one in tasks
        for n in range(each)
    ]


@pytest.fixture
def spare(monkeypatch: pytest.MonkeyPatch) -> SpareMemory:
    """Of 60 GiB for four workers."""
    monkeypatch.setattr(machine, "gpu_free_bytes", lambda: (60 * GIB, 70 * GIB))
    found = SpareMemory(4)
    found.look()
    return found


def test_what_a_task_takes_is_several_times_its_tensors() -> None:
    assert extra_bytes(task("a", 1024, 1024)) == 0
    assert extra_bytes(task("a", 16, 4, 2048, 2048)) == 8 * GIB - PLAIN_BYTES
    assert extra_bytes(task("a", 16, 4, 2048, 2048, dtype="bfloat16")) == 4 * GIB - PLAIN_BYTES
    assert (
        extra_bytes(task("a", 16, 4, 2048, 2048, dtype="bool"))
        == 0
        == extra_bytes(task("a", 16, 4, 2048, 2048, device="cpu"))
    )


def test_as_many_as_there_is_memory_for_and_one_in_any_case(spare: SpareMemory) -> None:
    left = 60 * GIB - 4 * WORKER_BYTES
    assert (
        spare.granted("0", left // 2)
        and spare.granted("0", left // 2)
        and not spare.granted("0", 1)
    )
    assert spare.granted("0", 0) and spare.granted("1", 2 * left) and not spare.granted("1", 1)
    with spare.changed:
        spare.give_back("0", left // 2)
    assert spare.granted("0", left // 2) and not spare.granted("0", 1)


def test_workers_take_what_there_is_memory_for(spare: SpareMemory) -> None:
    huge, large, small = (
        task("huge", 64, 4, 2048, 2048),
        task("large", 24, 4, 2048, 2048),
        task("small", 8),
    )
    desk = _Desk(jobs(huge, large, small), spare)
    hands = [_Hand("0") for _ in range(4)]
    took = [found[1][0].id for hand in hands if (found := desk.take(hand)) is not None]
    assert took == ["huge", "large", "small", "small"]
    desk.leave(hands[0])
    assert [desk.take(hand)[1][0].id for hand in hands[1:]] == ["large", "small", "huge"]  # type: ignore[index]


@pytest.mark.parametrize("free", [0, 8, 80])
def test_everything_is_taken_once_and_never_too_much_at_a_time(
    monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    monkeypatch.setattr(machine, "gpu_free_bytes", lambda: (free * GIB,))
    spare = SpareMemory(8)
    spare.look()
    tasks = [task(f"t{n}", n, 4, 1024, 1024) for n in (1, 20, 64, 200, 400, 30, 50)]
    wanted = jobs(*tasks, each=6)
    desk, done, held, most = _Desk(wanted, spare), Counter[int](), Counter[str](), 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal most
        hand = _Hand(None)
        while (found := desk.take(hand)) is not None:
            with lock:
                done[found[0]] += 1
                held[found[1][0].id] += 1
                now = [extra_bytes(one) for one in tasks for _ in range(held[one.id])]
                most = max(most, sum(now) if sum(map(bool, now)) > 1 else 0)
            threading.Event().wait(0.001)
            with lock:
                held[found[1][0].id] -= 1

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert done == Counter(range(len(wanted)))
    assert most <= max(0, free * GIB - 8 * WORKER_BYTES)


def test_who_waits_goes_when_nothing_is_left(spare: SpareMemory) -> None:
    huge = task("huge", 64, 4, 2048, 2048)
    desk = _Desk(jobs(huge, each=1) + jobs(task("also", 64, 4, 2048, 2048), each=1), spare)
    first, second = _Hand("0"), _Hand("0")
    assert desk.take(first) is not None
    waiting = threading.Thread(target=desk.take, args=(second,), daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    desk.shut()
    waiting.join(10)
    assert not waiting.is_alive()
