"""The verdict cache keeps what may be kept, tells questions apart, and survives crowds, forks and damage."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dvk import records
from dvk.config import Config
from dvk.harness.session import verdict_cache
from dvk.harness.session.single_flight import SingleFlight
from dvk.harness.session.verdict_cache import Remembered, is_cacheable, key
from dvk.records import Candidate, Interval, ShapeVariant, Status, Task, Timing, Verdict

TASK = Task(id="t0", name="t", source="", entry="Model", kind="module")
CANDIDATE = Candidate(source="class ModelNew: ...", backend="cpp")


def verdict(**more: Any) -> Verdict:
    timing = Timing(
        candidate_ms=1.0,
        reference_ms=2.0,
        speedup=Interval(value=2.0, lo=1.9, hi=2.1),
        num_pairs=30,
        seconds=0.2,
    )
    return Verdict.model_validate(
        {
            "status": "ok",
            "tier": "search",
            "stage": "done",
            "timing": timing,
            "machine": "m",
            "log": "said\n",
            **more,
        }
    )


def failed(status: str, error: str = "no", **more: Any) -> Verdict:
    return verdict(status=status, error=error, timing=None, **more)


def test_what_was_judged_is_recalled_and_says_so(tmp_path: Path) -> None:
    cache = Remembered(tmp_path / "new" / "verdicts.db")
    assert cache.recall("a") is None and len(cache) == 0
    cache.remember("a", verdict(coverage=0.5, families=("native",)))
    cache.remember("b", failed("mismatch"))
    assert cache.recall("a") == verdict(coverage=0.5, families=("native",), cached=True)
    cache.close()
    again = Remembered(tmp_path / "new" / "verdicts.db")
    assert again.recall("b") == failed("mismatch", cached=True) and len(again) == 2
    again.remember("b", verdict())
    assert again.recall("b") == verdict(cached=True) and len(again) == 2


def test_by_default_it_is_in_the_users_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVK_HOME", str(tmp_path))
    Remembered().remember("a", verdict())
    assert (tmp_path / "verdicts.db").exists()
    assert stat.S_IMODE((tmp_path / "verdicts.db.lock").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "passing",
    [
        failed("broken_task"),
        failed("timeout"),
        failed("launch_error", "out of memory: it used more than 16 GiB"),
        failed(
            "launch_error",
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        ),
        verdict(tier="claim"),
        verdict(cached=True),
    ],
)
def test_what_another_day_may_not_repeat_is_not_kept(tmp_path: Path, passing: Verdict) -> None:
    cache = Remembered(tmp_path / "verdicts.db")
    cache.remember("a", passing)
    assert not is_cacheable(passing) and cache.recall("a") is None


@pytest.mark.parametrize(
    "status", ["rejected", "compile_error", "launch_error", "mismatch", "cheat"]
)
def test_honest_negatives_are_kept(status: str) -> None:
    assert is_cacheable(failed(status)) and Status(status)


def test_a_verdict_whose_baseline_found_no_memory_is_not_stored() -> None:
    whole = failed("mismatch")
    short = {"baselines_left_out": {"compile": "CUDA error: out of memory"}}
    assert is_cacheable(whole) and not is_cacheable(whole.model_copy(update=short))


def test_different_questions_have_different_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(**changes: Any) -> str:
        facts: dict[str, Any] = {
            "task": TASK,
            "candidate": CANDIDATE,
            "tier": "search",
            "baselines": ("compile", "graph"),
            "config": Config(),
            "flags": {"k": 1},
        }
        return key(**facts | changes)

    same = asked()
    assert (
        same
        == asked()
        == asked(baselines=("graph", "compile"))
        == asked(candidate=CANDIDATE.model_copy(update={"title": "other"}))
    )
    changed: list[dict[str, Any]] = [
        {"task": TASK.model_copy(update={"id": "t1"})},
        {
            "task": TASK.model_copy(
                update={"shape_variants": (ShapeVariant(name="batch=1", changes=(("x", 0, 1),)),)}
            )
        },
        {"candidate": Candidate(source="class ModelNew: pass", backend="cpp")},
        {"candidate": Candidate(source=CANDIDATE.source, backend="triton")},
        {"tier": "smoke"},
        {"baselines": ()},
        {"flags": {}},
        {"flags": {"k": 2}},
        {"flags": {"k": "1"}},
        {"config": Config.model_validate({"judge": {"num_seeds": 4}})},
        {"config": Config.model_validate({"limits": {"memory_bytes": 1}})},
    ]
    keys = [asked(**change) for change in changed]
    monkeypatch.setattr(verdict_cache, "PROTOCOL", records.PROTOCOL + 1)
    keys.append(asked())
    assert len({same, *keys}) == len(keys) + 1


def test_the_oldest_go_first_and_the_file_stays_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict_cache, "TRIM_EVERY", 2)
    cache = Remembered(tmp_path / "verdicts.db", max_bytes=1 << 20)
    for number in range(400):
        cache.remember(str(number), verdict(log="x" * 10_000))
    assert 20 < len(cache) < 110
    assert cache.recall("399") is not None and cache.recall("0") is None
    kept = [number for number in range(400) if cache.recall(str(number))]
    assert kept == list(range(kept[0], 400))
    cache.close()
    assert (tmp_path / "verdicts.db").stat().st_size < 2 << 20


def test_recalls_cost_little(tmp_path: Path) -> None:
    """Target 500 a second; held in processor seconds, since the machine may be busy."""
    cache = Remembered(tmp_path / "verdicts.db")
    for number in range(200):
        cache.remember(str(number), verdict())
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for number in range(200):
            assert cache.recall(str(number))
        best = min(best, time.process_time() - start)
    assert 200 / best > 1000


# ---------------------------------------------------------------- crowds


def hammer(path: str, start: Any, number: int, answers: Any) -> None:
    cache = Remembered(Path(path), max_bytes=1 << 22)
    start.wait()
    wrong = 0
    for round in range(150):
        name = str(round % 40)
        cache.remember(name, failed("mismatch", f"is {name}", log=f"by {number} " * 20))
        found = cache.recall(str((round * 7 + number) % 40))
        wrong += found is not None and found.error != f"is {(round * 7 + number) % 40}"
    mine = f"mine {number}"
    cache.remember(mine, verdict())
    answers.put((wrong, cache.recall(mine) is not None))


def test_eight_processes_at_once(tmp_path: Path) -> None:
    """From the very first opening on; nothing is lost, nothing is mixed up."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # so that none of the eight has to import it
    start, answers = context.Barrier(8), context.Queue()
    path = str(tmp_path / "verdicts.db")
    crowd = [
        context.Process(target=hammer, args=(path, start, number, answers)) for number in range(8)
    ]
    for process in crowd:
        process.start()
    found = [answers.get(timeout=120) for _ in crowd]
    for process in crowd:
        process.join(60)
    assert found == [(0, True)] * 8
    assert len(Remembered(Path(path))) == 48
    assert not (tmp_path / "verdicts.db.damaged").exists()


def test_threads_share_one(tmp_path: Path) -> None:
    cache = Remembered(tmp_path / "verdicts.db")
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for round in range(40):
                cache.remember(f"{number} {round}", verdict(log=str(number)))
                found = cache.recall(f"{number} {round}")
                assert found is not None and found.log == str(number)
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(cache) == 320


def test_a_forked_child_opens_its_own(tmp_path: Path) -> None:
    code = f"""
import os, sys
from pathlib import Path
from tests.harness.test_verdict_cache import Remembered, verdict
cache = Remembered(Path({str(tmp_path / "v.db")!r}))
cache.remember("parent", verdict())
child = os.fork()
if child == 0:
    cache.remember("child", verdict())
    os._exit(0 if cache.recall("parent") else 1)
assert os.waitpid(child, 0)[1] == 0
cache.remember("after", verdict())
sys.exit(len(cache) != 3)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# ---------------------------------------------------------------- damage


def rubbish(path: Path) -> None:
    path.write_bytes(b"this is no database " * 1000)


def torn_inside(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[4096:] = os.urandom(len(whole) - 4096)
    path.write_bytes(whole)


def cut_short(path: Path) -> None:
    with open(path, "r+b") as file:
        file.truncate(5000)


@pytest.mark.parametrize("damage", [rubbish, torn_inside, cut_short])
def test_a_damaged_file_is_set_aside(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    path = tmp_path / "verdicts.db"
    first = Remembered(path)
    for number in range(50):
        first.remember(str(number), verdict(log="x" * 1000))
    first.close()
    damage(path)
    cache = Remembered(path)
    for number in range(50):
        cache.recall(str(number))
        cache.remember(str(number), verdict())
    cache.remember("new", verdict())
    assert cache.recall("new") is not None
    assert (tmp_path / "verdicts.db.damaged").exists()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_deleted_file_is_created_again(tmp_path: Path) -> None:
    cache = Remembered(tmp_path / "verdicts.db")
    cache.remember("a", verdict())
    for path in tmp_path.iterdir():
        path.unlink()
    assert cache.recall("a") is None
    cache.remember("a", verdict())
    assert Remembered(tmp_path / "verdicts.db").recall("a") is not None


def test_no_place_to_write_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Remembered(tmp_path / "file" / "verdicts.db")
    cache.remember("a", verdict())
    assert cache.recall("a") is None and len(cache) == 0


def test_a_foreign_table_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "verdicts.db") as connection:
        connection.execute("CREATE TABLE verdicts (mine TEXT)")
        connection.execute("INSERT INTO verdicts VALUES ('kept')")
    cache = Remembered(tmp_path / "verdicts.db")
    cache.remember("a", verdict())
    assert cache.recall("a") is None
    with sqlite3.connect(tmp_path / "verdicts.db") as connection:
        assert connection.execute("SELECT mine FROM verdicts").fetchall() == [("kept",)]


def test_a_verdict_with_fields_we_do_not_know_counts_as_none(tmp_path: Path) -> None:
    cache = Remembered(tmp_path / "verdicts.db")
    cache.remember("a", verdict())
    with sqlite3.connect(tmp_path / "verdicts.db") as connection:
        connection.execute("""UPDATE verdicts SET verdict = '{"status": "ok", "colour": "red"}'""")
    assert cache.recall("a") is None


# ---------------------------------------------------------------- once


def test_equal_questions_at_once_are_answered_once() -> None:
    once: SingleFlight[int] = SingleFlight()
    calls: list[str] = []
    found: list[tuple[int, bool]] = []

    def work(name: str) -> int:
        calls.append(name)
        time.sleep(0.1)
        return int(name)

    threads = [
        threading.Thread(
            target=lambda n=n: found.append(once.do(str(n % 2), lambda: work(str(n % 2))))
        )
        for n in range(12)
    ]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(calls) == ["0", "1"] and sorted(value for value, _ in found) == [0] * 6 + [1] * 6
    assert sum(mine for _, mine in found) == 2 and time.monotonic() - began < 5
    assert once.do("1", lambda: 99) == (1, False)


def test_after_a_failure_another_works() -> None:
    once: SingleFlight[int] = SingleFlight()
    attempts: list[int] = []
    outcomes: list[object] = []

    def work() -> int:
        attempts.append(1)
        time.sleep(0.05)
        if len(attempts) < 3:
            raise RuntimeError(f"attempt {len(attempts)}")
        return 7

    def ask() -> None:
        try:
            outcomes.append(once.do("a", work)[0])
        except RuntimeError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(attempts) == 3
    assert sorted(map(str, outcomes)) == ["7", "7", "7", "7", "attempt 1", "attempt 2"]
