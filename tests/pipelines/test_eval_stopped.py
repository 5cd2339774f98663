"""Winners are timed again beside the searches of other tasks; an evaluation that was stopped shows what it measured."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dvk.cli import app
from dvk.cli.eval import lines
from dvk.config import Config
from dvk.errors import UsageError
from dvk.harness.queue import JudgeQueue
from dvk.pipelines import eval as evaluation
from dvk.pipelines.eval import definitions, playing, retime
from dvk.pipelines.eval.alongside import Alongside
from dvk.pipelines.eval.request import AGAIN, EPISODES, EvalRequest
from dvk.pipelines.eval.results import show
from dvk.records import Device, Episode
from dvk.runs import RunFolder
from tests.interop.trace_sets import RMS, RMS_INPUTS, trace_set, workload
from tests.pipelines.evaluations import episode, verdict
from tests.python_path import python_path

Row = dict[str, Any]


def rows(episodes: Sequence[Episode]) -> Iterator[Row]:
    yield from ({"task": one.task.name} for one in episodes)


def test_each_row_is_written_while_others_are_still_measured() -> None:
    written: list[Row] = []
    go, first = threading.Event(), threading.Event()

    def timed(episodes: Sequence[Episode]) -> Iterator[Row]:
        if episodes[0].task.name == "slow":
            go.wait(10)
        yield from rows(episodes)

    def write(row: Row) -> None:
        written.append(row)
        first.set()

    with Alongside(timed, write, 2) as second:
        second.add(episode("slow", [1.0]), episode("quick", [1.0]))
        assert first.wait(10) and written == [{"task": "quick"}] and second.num_left
        go.set()
        second.finish()
        assert [row["task"] for row in written] == ["quick", "slow"] and not second.num_left


def test_claims_wait_for_the_end_and_come_in_one_list() -> None:
    asked: list[list[str]] = []

    def timed(episodes: Sequence[Episode]) -> Iterator[Row]:
        asked.append([one.task.name for one in episodes])
        return rows(episodes)

    with Alongside(timed, lambda row: None, 4, at_once=False) as second:
        second.add(episode("a", [1.0]))
        second.add(episode("b", [1.0]))
        assert asked == [] and second.num_left == 2
        second.finish()
    assert asked == [["a", "b"]]


@pytest.mark.parametrize(
    ("device", "judge"), [("cpu", None), ("cuda", None), ("cpu", "table:elsewhere")]
)
def test_on_a_cpu_nothing_is_timed_again_beside_the_search(
    device: Device, judge: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere the first winner's second time comes before the second task's search ends."""
    events: list[str] = []
    timed = threading.Event()
    waits = device == "cuda" or judge is not None

    def play_all(*_: Any, **__: Any) -> Iterator[Episode]:
        yield episode("a", [1.0, 2.0])
        assert timed.wait(10 if waits else 0.3) is waits
        events.append("searched")
        yield episode("b", [1.0, 2.0])

    def time_again(some: Sequence[Episode], *_: Any) -> Iterator[Row]:
        for one in some:
            events.append(one.task.name)
            timed.set()
            yield {"task": one.task.name, "sample": 0, "candidate": "?", "verdict": verdict(2.0)}

    monkeypatch.setattr(playing, "play_all", play_all)
    monkeypatch.setattr(retime, "time_again", time_again)
    remote = Config().remote.model_copy(update={"judge": judge})
    config = Config().model_copy(update={"remote": remote})
    request = EvalRequest(suite=tmp_path, turns=2, quiet=True)
    with (
        RunFolder.open(
            tmp_path / "run", command="eval", name="x", argv=(), config=config, resume=False
        ) as run,
        JudgeQueue[Any](2, config) as judges,
    ):
        monkeypatch.setattr(playing, "open_judges", lambda *_: nullcontext(judges))
        evaluation._measured(run, [], None, request, config, (device, "cpp"))
        assert events == (["a", "searched", "b"] if waits else ["searched", "a", "b"])
        assert judges.workers == (2 if waits else 1)


def test_an_error_ends_it_and_nothing_is_written_after_it_was_left() -> None:
    def broken(episodes: Sequence[Episode]) -> Iterator[Row]:
        raise RuntimeError("the disk")
        yield {}

    with (
        pytest.raises(RuntimeError, match="the disk"),
        Alongside(broken, lambda row: None, 1) as second,
    ):
        second.add(episode("a", [1.0]), episode("b", [1.0]))
        second.finish()
    go, ended, written = threading.Event(), threading.Event(), list[Row]()

    def late(episodes: Sequence[Episode]) -> Iterator[Row]:
        go.wait(10)
        try:
            yield from rows(episodes)
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt), Alongside(late, written.append, 1) as second:
        second.add(episode("a", [1.0]))
        raise KeyboardInterrupt
    go.set()
    assert ended.wait(10) and not written


def test_a_folder_that_is_not_finished_is_shown_as_it_is(tmp_path: Path) -> None:
    """Before a winner was timed again, first times of all count; then winners that were, and the same share of failures."""
    suite = tmp_path / "suite"
    suite.mkdir()
    for name in "abcdef":
        (suite / f"{name}.py").write_text("class Model: ...")
    request = EvalRequest(suite=suite, baselines=("compile",), turns=2)
    with RunFolder.open(
        tmp_path / "run", command="eval", name="x", argv=(), config=Config(), resume=False
    ) as run:
        run.answered(request, Config())
        run.append(EPISODES, episode("a", [3.0, 2.0]))
        run.append(EPISODES, episode("b", [0.5, 4.0]))
        run.append(EPISODES, episode("c", [None, None]))
        run.append(EPISODES, episode("d", [None, None]))
        early = show(run.path)
        assert early["num_tasks"] == 4 and early["num_left"] == 2 and "portfolio" not in early
        assert early["fast_p"]["1"] == 0.5 and early["cost"]["num_candidates"] == 8
        assert any(line.startswith("first times") for line in lines(early))
        run.append(AGAIN, {"task": "a", "sample": 0, "candidate": "?", "verdict": verdict(2.5)})
        found = show(run.path)
        shutil.rmtree(suite)
        moved = show(run.path)
    assert found["num_tasks"] == 2 and found["num_left"] == 3 and found["geomean_kept"] == 2.5**0.5
    assert found["fast_p"]["1"] == 0.5 and found["portfolio"]["num_tasks"] == 2
    assert found["counted"] == {"times": "second", "num_waiting": 1, "num_left_out": 1}
    assert found["cost"]["num_candidates"] == 8
    assert any("3 tasks left" in line and "--resume" in line for line in lines(found))
    assert moved["num_left"] is None and any(
        line.startswith("not finished;") for line in lines(moved)
    )
    with pytest.raises(UsageError, match="no results"):
        show(tmp_path)


def test_what_is_left_of_definitions_is_shown_and_a_run_is_finished_by_its_status(
    tmp_path: Path,
) -> None:
    calls = [workload(f"of-{n}", {"batch": n}, RMS_INPUTS) for n in (3, 40)]
    suite = trace_set(tmp_path / "definitions", RMS, calls)
    first, _ = [one.name for one in definitions.read(suite).tasks]
    with RunFolder.open(
        tmp_path / "run", command="eval", name="x", argv=(), config=Config(), resume=False
    ) as run:
        run.answered(EvalRequest(suite=suite), Config())
        run.append(EPISODES, episode(first, [3.0]))
        run.finish("interrupted")
    found = show(tmp_path / "run")
    assert found["num_left"] == 1 and found["finished"] is False
    assert any("not finished: 1 task left" in line for line in lines(found))
    whole = lines({**found, "num_left": 0})  # lines and solutions are judged after all tasks
    assert any("not finished;" in line and "--resume" in line for line in whole)


def test_show_takes_no_options_of_a_run(tmp_path: Path) -> None:
    for option in (["--out", "x"], ["--kernelbench", "x"], ["--baseline", "compile"], ["--resume"]):
        with pytest.raises(UsageError, match=f"{option[0]} does not go with --show"):
            CliRunner().invoke(
                app, ["eval", "--show", str(tmp_path), *option], catch_exceptions=False
            )


@pytest.mark.slow
def test_ctrl_c_ends_within_seconds_and_prints_what_is_measured(tmp_path: Path) -> None:
    """Resumed, the rest is played; a task that was done keeps its episode."""
    suite = tmp_path / "suite"
    suite.mkdir()
    for number in range(3):
        (suite / f"t{number}.py").write_text(SMALL.replace("SIZE", str(200 + number)))
    command = [sys.executable, "-m", "dvk", "eval", str(suite), "--device", "cpu", "--backend"]
    command += ["cpp", "--turns", "2", "--workers", "1", "--out", str(tmp_path / "run")]
    env = {**os.environ, "PYTHONPATH": python_path(), "DVK_HOME": str(tmp_path / "home")}
    process = subprocess.Popen(
        [*command, "--json"],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    kept = tmp_path / "run" / EPISODES
    while not (kept.exists() and kept.read_text()):
        assert process.poll() is None
        time.sleep(0.1)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert time.monotonic() - began < 15  # on busy cores: on quiet ones, two
    found = json.loads(out)
    assert process.returncode == 130 and found["num_tasks"] >= 1 and found["num_left"] >= 1
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"
    before = kept.read_text()
    whole = subprocess.run(
        [*command, "--json", "--resume"], env=env, capture_output=True, text=True, check=True
    )
    assert json.loads(whole.stdout)["num_tasks"] == 3 and kept.read_text().startswith(before)


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_files_that_are_still_to_be_examined(tmp_path: Path) -> None:
    """They would take a minute; a run without results leaves no table."""
    suite = tmp_path / "suite"
    suite.mkdir()
    for number in range(30):
        late = "import time\ntime.sleep(3)\n"
        (suite / f"t{number}.py").write_text(late + SMALL.replace("SIZE", str(200 + number)))
    command = [sys.executable, "-m", "dvk", "eval", str(suite), "--device", "cpu", "--backend"]
    process = subprocess.Popen(
        [*command, "cpp", "--out", str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": python_path(), "DVK_HOME": str(tmp_path / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "playing composer" in line:
            break
    time.sleep(4)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert time.monotonic() - began < 15 and process.returncode == 130
    assert not out and "Traceback" not in error


SMALL = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2 + 1).tanh()
def get_inputs():
    return [torch.randn(64, SIZE)]
def get_init_inputs():
    return []
"""
