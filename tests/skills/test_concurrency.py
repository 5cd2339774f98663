"""Several processes, some of them killed: every committed skill is there, nothing else, and the file is whole."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dvk.config import LibraryConfig
from dvk.records import Skill
from dvk.skills import Library, schema, seed_dir
from dvk.skills.grooming import groom
from dvk.skills.merging import bring
from tests.skills.search_index import index_is_whole

Make = Callable[..., Skill]
WRITER = """
import sys
from pathlib import Path
from dvk.records import Skill
from dvk.skills import Library
path, label, count, batch = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with Library.open(path, create=True) as library:
    for start in range(0, count, batch):
        names = [f"{label}_{number}" for number in range(start, min(start + batch, count))]
        library.add_all([Skill(name=name, description=label, body="word " * 200) for name in names])
        print(names[-1], flush=True)
        if start % 3 == 0:
            library.search(label)
"""


def start(code: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


def test_two_writers_and_a_reader_at_once(tmp_path: Path) -> None:
    path = tmp_path / "skills.db"
    writers = [start(WRITER, path, label, 60, 1) for label in ("one", "two")]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            with Library.open(path, create=True) as library:
                assert len(library) >= seen
                seen = len(library)
        time.sleep(0.05)
    assert [writer.wait() for writer in writers] == [0, 0]
    with Library.open(path) as library:
        assert set(library.names()) == {
            f"{label}_{number}" for label in ("one", "two") for number in range(60)
        }
        assert len(library.search("one", 100)) == 60
    assert index_is_whole(path)
    for writer in writers:
        assert writer.stdout
        writer.stdout.close()


@pytest.mark.slow
def test_kill_9_in_the_middle_of_writing(tmp_path: Path) -> None:
    """Batches of 20: after each kill the library has whole batches only, and all that were reported."""
    path = tmp_path / "skills.db"
    draw = random.Random(0)
    for attempt in range(3):
        writer = start(WRITER, path, f"w{attempt}", 100_000, 20)
        assert writer.stdout
        reported = [writer.stdout.readline().strip()]
        time.sleep(draw.uniform(0, 0.1))
        writer.send_signal(signal.SIGKILL)
        reported += writer.stdout.read().split()
        writer.stdout.close()
        assert writer.wait() == -signal.SIGKILL
        with Library.open(path) as library:
            present = {name for name in library.names() if name.startswith(f"w{attempt}_")}
            assert present.issuperset(reported) and len(present) % 20 == 0
            assert library.search("word", 5) and len(library.search(f"w{attempt}", 5)) == 5
    assert index_is_whole(path)


FIRST_USE = """
from dvk.skills import Library
with Library.open() as library:
    print(len(library), len(library.search("softmax")))
"""
SLOW_FIRST_USE = (
    """
import time
from dvk.skills import rows
to_row = rows.to_row
def slowly(skill):
    print(skill.name, flush=True)
    time.sleep(0.005)
    return to_row(skill)
rows.to_row = slowly
"""
    + FIRST_USE
)


@pytest.mark.slow
def test_first_uses_at_once_build_one_library(tmp_path: Path) -> None:
    home = tmp_path / "home"
    together = [start(FIRST_USE, DVK_HOME=str(home)) for _ in range(3)]
    answers = {process.communicate()[0] for process in together}
    assert [process.returncode for process in together] == [0] * 3
    assert len(answers) == 1 and answers != {"0 0\n"}
    assert index_is_whole(home / "skills.db")
    assert {path.name for path in home.iterdir()} <= {"skills.db", "skills.db-wal", "skills.db-shm"}


@pytest.mark.slow
def test_kill_9_during_first_use(tmp_path: Path) -> None:
    """Killed at any moment of building, the next use finds no library or a whole one, and ends with a whole one."""
    for attempt, num_seeds in enumerate((1, 20)):
        home = tmp_path / str(attempt)
        process = start(SLOW_FIRST_USE, DVK_HOME=str(home))
        assert process.stdout
        for _ in range(num_seeds):
            assert process.stdout.readline()
        process.kill()
        process.wait()
        process.stdout.close()
        with sqlite3.connect(home / "skills.db") as connection:
            assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,), (
                "half a library"
            )
        again = start(FIRST_USE, DVK_HOME=str(home))
        assert again.communicate()[0].split()[0] == str(len(list(seed_dir().glob("*.md"))))
        assert index_is_whole(home / "skills.db")


def test_a_writer_waits_for_another(tmp_path: Path) -> None:
    """A transaction that holds the write lock for a second delays a writer and no reader."""
    path = tmp_path / "skills.db"
    with Library.open(path, create=True):
        pass
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    writer = start(WRITER, path, "late", 1, 1)
    with Library.open(path) as library:
        begin = time.perf_counter()
        assert library.names() == []
        assert time.perf_counter() - begin < 0.5
    time.sleep(1.0)
    assert writer.poll() is None
    holder.execute("COMMIT")
    holder.close()
    assert writer.communicate()[0] == "late_0\n" and writer.returncode == 0


@contextmanager
def just_before_its_changes(
    library: Library, monkeypatch: pytest.MonkeyPatch, deed: Callable[[Library], object]
) -> Iterator[None]:
    """`deed`, by another connection, begins when `library` has decided what to write; it ends before that or waits."""

    def work() -> None:
        with Library.open(library.path) as other:
            deed(other)

    thread, record_all = threading.Thread(target=work), library.record_all

    def late(events: object) -> object:
        thread.start()
        thread.join(0.5)
        return record_all(events)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(library, "record_all", late)
        yield
    thread.join()


def test_two_merges_at_once_lose_nothing(
    library: Library, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.add(make("shared"))
    runs = []
    for label in ("one", "two"):
        run = tmp_path / label / "skills.db"
        with Library.open(run, create=True) as opened:
            opened.add_all([make("shared"), make("new", label)])
            opened.record("given", "shared", {"role": "policy", "task": "t", "gain": 0.1})
        runs.append(run)

    def bring_two(other: Library) -> None:
        with Library.open(runs[1]) as source:
            bring(other, source)

    with Library.open(runs[0]) as source, just_before_its_changes(library, monkeypatch, bring_two):
        bring(library, source)
    assert [entry["use"] for entry in library.get("shared").evidence] == [
        "one/skills.db",
        "two/skills.db",
    ]
    assert library.get("new") == make("new", "one"), "the second finds it there"


def test_what_a_user_writes_while_grooming_plans_stays(
    library: Library, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.add_all([make("a", "the same words"), make("b", "the same words")])
    edited = make("b", "mine")
    with just_before_its_changes(
        library, monkeypatch, lambda other: other.add(edited, replace=True)
    ):
        groom(library, LibraryConfig())
    assert library.get("b") == edited


def test_a_library_that_another_process_has_just_made_is_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, pragma = tmp_path / "skills.db", schema._pragma

    def late(connection: sqlite3.Connection, name: str) -> int:
        found = pragma(connection, name)
        if not made:
            made.append(name)
            with Library.open(path, create=True):
                pass
        return found

    made: list[str] = []
    monkeypatch.setattr(schema, "_pragma", late)
    with Library.open(path, create=True) as library:
        assert made and library.names() == []
