"""The owner of GPU memory, and the judge queue on it: a table of made-up GPUs, real threads, judges that only wait."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dvk import gpu_memory, machine, tasks
from dvk.config import Limits
from dvk.gpu_memory import GpuMemory
from dvk.harness import JudgeSpec, open_sessions
from dvk.harness.queue import JudgeQueue
from dvk.harness.session.memory_estimate import (
    ARM_BYTES,
    CONTEXT_BYTES,
    KEPT_BYTES,
    WORKER_BYTES,
    bytes_to_judge,
    runner_bytes,
)
from dvk.harness.waiting_jobs import JudgeJob, Judgement
from dvk.records import Candidate, Status, Task, TensorSpec, Verdict
from tests.harness.conftest import QUICK

GIB = 1 << 30
PYTORCH = """CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.20 GiB is free.
Process 11 has 512.00 MiB memory in use. Process 12 has 30.10 GiB memory in use. Process 13 has 9.00 GiB memory in use.
Of the allocated memory 8.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."""


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


def sized(name: str, gib: float) -> Task:
    """A task whose input has that many GiB."""
    return task(name, int(gib * 256), 1024, 1024)


def jobs(*tasks: Task, each: int = 3) -> list[tuple[Task, Candidate]]:
    return [
        (one, Candidate(source=f"{one.id} {n}", backend="cpp", proposer=""))
        for one in tasks
        for n in range(each)
    ]


def test_what_a_task_takes_is_several_times_its_tensors() -> None:
    assert bytes_to_judge(task("a", 1024, 1024)) == WORKER_BYTES
    # Without outputs: as drawn, lent, drawn again, with odd elements, and in float64, since no batch is smaller.
    always = CONTEXT_BYTES + KEPT_BYTES
    assert bytes_to_judge(task("a", 16, 4, 2048, 2048)) == 6 * GIB + always
    assert bytes_to_judge(task("a", 16, 4, 2048, 2048, dtype="bool")) == 6 * GIB // 4 + always
    assert bytes_to_judge(task("a", 16, 4, 2048, 2048, device="cpu")) == 0


def test_grants_are_spread_and_wait_for_room() -> None:
    memory = GpuMemory(lambda: (60 * GIB, 70 * GIB))
    with memory.changed:
        first, second, third = (memory.place(30 * GIB) for _ in range(3))
        assert [one and one.gpu for one in (first, second, third)] == [1, 0, 1]
        assert memory.place(31 * GIB) is None, "neither has as much left"
        assert memory.place(None) is None, "no GPU is empty"
        assert second is not None
        memory.release(second)
        huge = memory.place(500 * GIB)
        assert huge is not None and huge.gpu == 0, "more than a GPU has gets an empty one"
        assert memory.place(GIB) is not None and memory.place(20 * GIB) is None


def test_idle_holders_are_closed_for_others_and_only_then() -> None:
    memory, closed = GpuMemory(lambda: (60 * GIB,)), list[str]()
    with memory.changed:
        for name in ("old", "new"):
            assert (grant := memory.place(20 * GIB)) is not None
            memory.rest(grant, lambda name=name: closed.append(name))  # type: ignore[misc]
        assert (small := memory.place(10 * GIB)) is not None and not small.evicted
        assert (large := memory.place(25 * GIB)) is not None
    large.evict()
    assert closed == ["old"]
    memory.reclaim()
    assert closed == ["old", "new"]
    with memory.changed:
        assert memory.place(25 * GIB) is not None and memory.place(1) is None


def test_a_reservation_waits_and_a_machine_without_gpus_has_none() -> None:
    memory, got = GpuMemory(lambda: (10 * GIB,)), threading.Event()

    def reserve() -> None:
        with memory.reserve(8 * GIB) as grant:
            assert grant is not None
            got.set()

    with memory.reserve(8 * GIB):
        thread = threading.Thread(target=reserve, daemon=True)
        thread.start()
        assert not got.wait(0.2)
    assert got.wait(5)
    with GpuMemory(lambda: ()).reserve(8 * GIB) as nothing:
        assert nothing is None


def test_a_reservation_that_has_waited_for_long_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_memory, "PATIENCE_S", 0.1)
    monkeypatch.setattr(gpu_memory, "LOOK_S", 0.05)
    memory, got = GpuMemory(lambda: (10 * GIB,)), threading.Event()

    def reserve() -> None:
        with memory.reserve(8 * GIB):
            got.set()

    with memory.changed:
        small, idle = memory.place(4 * GIB), memory.place(2 * GIB)
        assert small is not None and idle is not None
        memory.rest(idle, lambda: None)
    thread = threading.Thread(target=reserve, daemon=True)
    thread.start()
    time.sleep(0.4)
    with memory.changed:
        assert memory.place(1) is None and not memory.resize(idle, 2 * GIB)
        memory.release(small)
    assert got.wait(5)
    thread.join(5)
    with memory.changed:
        assert memory.place(1) is not None


def test_a_gpu_is_kept_free_for_who_has_waited_for_long_and_the_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_memory, "PATIENCE_S", 0.0)
    memory = GpuMemory(lambda: (60 * GIB, 60 * GIB, 60 * GIB))
    with memory.changed:
        held = [memory.place(size * GIB) for size in (30, 40, 50)]
        assert memory.place(55 * GIB, who="large") is None and memory.has_priority("large")
        assert memory.place(5 * GIB, 0) is None, "the GPU with the least at work is kept free"
        other = memory.place(5 * GIB)
        assert other is not None and other.gpu == 1, "work goes on elsewhere"
        assert memory.place(None, who="empty") is None, "a second one waits for another GPU"
        assert memory.place(1, 1) is None and memory.place(1, 2) is not None
        assert held[0] is not None
        memory.release(held[0])
        assert (large := memory.place(55 * GIB, who="large")) is not None and large.gpu == 0
        assert memory.place(5 * GIB, 0) is not None, "it is not kept free any longer"
    memory.forget("empty")
    with memory.changed:
        assert memory.place(1, 1) is not None


def test_an_error_for_lack_of_memory_has_three_lines() -> None:
    text = gpu_memory.shorten(PYTORCH, 19 * GIB)
    assert text.splitlines() == [
        "CUDA out of memory: 2.00 GiB asked for, 1.20 GiB of 79.11 GiB free",
        "estimated at 19.0 GiB, and tried again alone on its GPU",
        "take smaller inputs, or a GPU with more memory",
    ]
    assert gpu_memory.was_short(text) and len(gpu_memory.shorten(PYTORCH).splitlines()) == 2
    failed = gpu_memory.shorten("Traceback\n  x\nCUBLAS_STATUS_ALLOC_FAILED when calling cublas")
    assert failed.startswith("CUBLAS_STATUS_ALLOC_FAILED")
    assert gpu_memory.shorten("off by one") == "off by one"


class Table:
    """Made-up GPUs, and judges on them that take what their task is said to take."""

    def __init__(self, *free: int, takes: dict[str, int]):
        self.memory, self.free, self.takes = GpuMemory(lambda: free), free, takes
        self.used: Counter[str] = Counter()
        self.at_once: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.crowded: list[str] = []
        """Tasks that ran out of memory."""
        self.opened: list[str] = []
        self.lock = threading.Lock()

    def open(self, task: Task, _: object, __: object, *, gpu: str | None = None) -> Any:
        self.opened.append(str(gpu))
        return Waiting(self, task, str(gpu))


class Waiting:
    """A judge that holds memory for a moment; where there is none left, it says so as PyTorch does."""

    def __init__(self, table: Table, task: Task, gpu: str):
        self.table, self.task, self.gpu, self.broken = table, task, gpu, None

    def switch_task(self, task: Task) -> None:
        self.task = task

    def close(self) -> None:
        pass

    def judge(
        self, candidate: Candidate, _: object = "search", baselines: Sequence[str] = ()
    ) -> Verdict:
        table, wanted = self.table, self.table.takes[self.task.id]
        with table.lock:
            short = table.used[self.gpu] + wanted > table.free[int(self.gpu)]
            if not short:
                table.used[self.gpu] += wanted
            table.at_once[self.gpu] += 1
            table.most[self.gpu] = max(table.most[self.gpu], table.at_once[self.gpu])
        time.sleep(0.01)
        with table.lock:
            table.at_once[self.gpu] -= 1
            if short:
                table.crowded.append(self.task.id)
            else:
                table.used[self.gpu] -= wanted
        if short and baselines:  # the candidate itself found room
            return Verdict(
                status=Status.MISMATCH,
                tier="search",
                stage="check",
                error="off by one",
                baselines_left_out=dict.fromkeys(baselines, PYTORCH),
            )
        status, error = (Status.LAUNCH_ERROR, PYTORCH) if short else (Status.MISMATCH, "off by one")
        return Verdict(status=status, tier="search", stage="check", error=error)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(machine, "gpu_names", lambda: ("a", "b"))
    monkeypatch.setattr("dvk.harness.queue.recording.warm", lambda _: None)
    yield


def judge_all(
    table: Table, wanted: list[tuple[Task, Candidate]], monkeypatch: pytest.MonkeyPatch
) -> dict[int, Verdict]:
    monkeypatch.setattr(open_sessions, "open_session", table.open)
    with JudgeQueue[int](16, QUICK, memory=table.memory) as queue:
        return dict(queue.map(wanted))


@pytest.mark.parametrize("free", [8, 80])
def test_large_and_small_tasks_share_the_gpus_and_nothing_is_lost(
    gpus: None, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    several = [sized(f"t{gib}", gib) for gib in (0.1, 0.5, 2, 6, 1, 0.2, 3, 12)]
    takes = {one.id: min(free * GIB, bytes_to_judge(one)) for one in several}
    table = Table(free * GIB, free * GIB, takes=takes)
    found = judge_all(table, jobs(*several, each=6), monkeypatch)
    assert Counter(verdict.status for verdict in found.values()) == {Status.MISMATCH: 48}
    assert not table.crowded, "nothing starts that does not fit"
    assert set(table.most) == {"0", "1"}, "both GPUs are used"
    if free == 80:
        assert min(table.most.values()) > 2


def test_a_task_that_takes_more_than_estimated_is_judged_alone_before_it_counts(
    gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, greedy, hopeless = (sized(name, 0.1) for name in ("small", "greedy", "hopeless"))
    takes = {"small": 4 * GIB, "greedy": 38 * GIB, "hopeless": 41 * GIB}
    table = Table(40 * GIB, 40 * GIB, takes=takes)
    found = judge_all(table, jobs(small, greedy, hopeless, each=4), monkeypatch)
    assert [found[n].status for n in range(8)] == [Status.MISMATCH] * 8
    assert "greedy" in table.crowded and table.crowded.count("hopeless") >= 8
    for n in range(8, 12):
        assert found[n].status is Status.LAUNCH_ERROR
        assert "tried again alone" in str(found[n].error) and "Process 11" not in str(
            found[n].error
        )


def test_a_baseline_that_found_no_memory_is_timed_again_alone(
    gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, greedy, hopeless = (sized(name, 0.1) for name in ("small", "greedy", "hopeless"))
    takes = {"small": 4 * GIB, "greedy": 38 * GIB, "hopeless": 41 * GIB}
    table = Table(40 * GIB, 40 * GIB, takes=takes)
    monkeypatch.setattr(open_sessions, "open_session", table.open)
    with JudgeQueue[int](16, QUICK, memory=table.memory) as queue:
        spec = JudgeSpec(baselines=("compile",))
        found = dict(queue.map(jobs(small, greedy, hopeless, each=4), spec))
    assert "greedy" in table.crowded, "at first"
    assert not any(found[n].baselines_left_out for n in range(8))
    assert all(found[n].baselines_left_out == {"compile": PYTORCH} for n in range(8, 12))
    assert {verdict.error for verdict in found.values()} == {"off by one"}


def test_baselines_count_when_memory_is_granted() -> None:
    """`torch.compile` ran out of memory on a GPU of 139 GB, since ten sessions held arms that no grant was for."""
    plain, timed = (bytes_to_judge(task("a", 16, 4, 2048, 2048), n) for n in (0, 2))
    assert timed - plain == 2 * ARM_BYTES
    large = task("a", 16, 4, 2048, 2048).model_copy(update={"peak_bytes": 8 * GIB})
    assert bytes_to_judge(large, 1) - bytes_to_judge(large) == ARM_BYTES + runner_bytes(large)


def test_a_large_job_starts_while_small_ones_go_on(
    gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every worker's last task has jobs all the time, as in an evaluation whose searches submit one batch after the other."""
    monkeypatch.setattr(gpu_memory, "PATIENCE_S", 0.1)
    small = [sized(f"small {n}", 2) for n in range(4)]
    large = sized("large", 6)
    free = bytes_to_judge(large)
    table = Table(free, free, takes={one.id: 0 for one in (*small, large)})
    monkeypatch.setattr(open_sessions, "open_session", table.open)
    several = {one.id: one for one in small}
    waiting = {name: iter(jobs(one, each=400)) for name, one in several.items()}
    start = [(large.id, jobs(large, each=1)[0])]
    start += [(name, next(waiting[name])) for _ in range(6) for name in several]
    with JudgeQueue[str](4, QUICK, memory=table.memory) as queue:
        for name, job in reversed(start):
            queue.submit(name, *job)
        end, started = time.monotonic() + 3, False
        while not started and time.monotonic() < end:
            for name, _ in queue.results(wait=True):
                started = started or name == large.id
                if name != large.id:
                    queue.submit(name, *next(waiting[name]))
    assert started, "it waits for as long as there are small ones"


def test_only_a_task_without_a_session_has_a_gpu_kept_free(
    gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_memory, "PATIENCE_S", 0.0)
    memory = GpuMemory(lambda: (20 * GIB, 20 * GIB))
    sessions = open_sessions.OpenSessions(4, memory)
    one, candidate = jobs(sized("large", 2))[0]
    job = JudgeJob(lambda _: None, Judgement(one, candidate, JudgeSpec()))
    with memory.changed:
        assert memory.place(15 * GIB) and memory.place(15 * GIB)
        assert sessions.take(job, 4, waits=False) is None and not sessions.has_priority(job)
        assert sessions.take(job, 4) is None and sessions.has_priority(job)
        assert memory.place(GIB) is not None, "on the other GPU"
    sessions.forget(job)
    assert not sessions.has_priority(job)


def test_closing_wakes_workers_that_wait_for_memory(
    gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(10 * GIB, 10 * GIB, takes={"huge": GIB})
    monkeypatch.setattr(open_sessions, "open_session", table.open)
    with table.memory.changed:
        assert table.memory.place(None) and table.memory.place(None)
    queue = JudgeQueue[int](2, QUICK, memory=table.memory)
    for number, (one, candidate) in enumerate(jobs(sized("huge", 6))):
        queue.submit(number, one, candidate)
    time.sleep(0.1)
    threads = list(queue._threads)
    assert threads and not table.opened and queue.num_waiting == 3
    queue.close()
    assert not any(thread.is_alive() for thread in threads)


LARGE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0

def get_inputs():
    return [torch.randn({rows}, 1024, 1024)]

def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.add(torch.relu(x).mul_(2.0), 1.0{wrong})
"""


@pytest.mark.gpu
def test_eight_tasks_of_up_to_6_gb_are_judged_at_once(tmp_path: Path) -> None:
    limits = Limits(wall_s=300.0, memory_bytes=64 << 30)
    config = QUICK.model_copy(update={"limits": limits})
    wanted: list[tuple[Task, Candidate]] = []
    for number, gb in enumerate((6, 2, 0.5, 6, 2, 0.5, 6, 2)):
        path = tmp_path / f"large{number}.py"
        path.write_text(LARGE.format(rows=int(gb * 256)))
        one = tasks.load(str(path), device="cuda", limits=limits)
        assert one.peak_bytes is not None and one.peak_bytes >= gb * 1e9
        wrong = " + 0.01" if number % 2 else ""
        wanted.append((one, Candidate(source=CANDIDATE.format(wrong=wrong), backend="triton")))
    with JudgeQueue[int](8, config) as queue:
        found = dict(queue.map(wanted, JudgeSpec(tier="smoke")))
    said = [f"{found[n].status.value}: {found[n].error}" for n in range(8)]
    assert [text.split(":")[0] for text in said] == ["ok", "mismatch"] * 4, said
