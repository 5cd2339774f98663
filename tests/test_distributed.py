"""Several processes of one run: they share work, exchange results, and end together."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dvk.config import Config
from dvk.distributed import ProcessGroup
from dvk.errors import DvkError, RunFolderError
from tests.together import together as together_with

together = partial(together_with, preloaded=["torch.distributed", "dvk.distributed"])


def opened(processes: ProcessGroup, folder: str) -> Any:
    return processes.folder(
        Path(folder), command="train", name="t", argv=("dvk",), config=Config(), resume=True
    )


def exchange(folder: str) -> Any:
    with ProcessGroup.join(30) as processes, opened(processes, folder) as run:
        squares = processes.gather([(processes.rank, n * n) for n in processes.shard(range(5))])
        with processes.main_first():
            first = (run.path / "made").exists()
            (run.path / "made").touch()
        run.append("metrics.jsonl", {"by": processes.rank})
        run.write_text("text", str(processes.rank))
        processes.barrier()
        told = (
            processes.broadcast(f"by {processes.rank}"),
            run.read("metrics.jsonl"),
            (run.path / "text").read_text(),
            first,
        )
        run.finish("done")
        return squares, told


def fails(folder: str, how: str) -> Any:
    with ProcessGroup.join(20) as processes, opened(processes, folder):
        processes.barrier()
        if processes.rank == 1:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RunFolderError("the disk is full", "make room")
        began = time.monotonic()
        try:
            processes.gather(["x"])
        finally:
            Path(folder, "waited").write_text(str(time.monotonic() - began))


def impatient(folder: str) -> Any:
    with ProcessGroup.join(1.5) as processes:
        processes.barrier()
        if processes.rank == 1:
            time.sleep(3)
        processes.barrier()


def test_alone_all_is_free() -> None:
    with ProcessGroup.join(1) as processes:
        assert (
            processes.is_main
            and processes.shard([1, 2, 3]) == processes.gather([1, 2, 3]) == [1, 2, 3]
            and processes.broadcast(5) == 5
        )
        processes.barrier()


@pytest.mark.slow
def test_results_are_gathered_everywhere_and_written_once(tmp_path: Path) -> None:
    (run := tmp_path / "run").mkdir()
    one, other = together(exchange, str(run), folder=tmp_path)
    assert one[0] == other[0] == [(0, 0), (1, 1), (0, 4), (1, 9), (0, 16)]
    assert one[1][:3] == other[1][:3] == ("by 0", [{"by": 0}], "0")
    assert (one[1][3], other[1][3]) == (False, True)


@pytest.mark.parametrize("how", ["raises", "killed"])
@pytest.mark.slow
def test_the_others_end_with_the_one_that_fails(tmp_path: Path, how: str) -> None:
    (run := tmp_path / "run").mkdir()
    codes = together(fails, str(run), how, folder=tmp_path)
    said = [(tmp_path / f"{rank}.err").read_text() for rank in range(2)]
    assert float((run / "waited").read_text()) < 5
    assert '"failed"' in (run / "run.json").read_text()
    if how == "raises":
        assert codes == [2, 1] and "disk is full" in said[1] and not said[0].strip(), said
    else:
        assert codes == [1, -signal.SIGKILL] and "has ended or does not answer" in said[0]


@pytest.mark.slow
def test_who_does_not_answer_is_waited_for_so_long_and_no_longer(tmp_path: Path) -> None:
    codes = together(impatient, "", folder=tmp_path)
    assert codes[0] == 1 and "does not answer" in (tmp_path / "0.err").read_text()


def test_errors_are_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(DvkError, match="cannot meet"):
        ProcessGroup.join(1)
