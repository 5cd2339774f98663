"""Candidates that exist already are judged again; results in KernelBench's layout; two evaluations side by side."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dvk.agents import TaskContext
from dvk.backbone import TokenUsage
from dvk.config import Config, RolloutConfig
from dvk.errors import UsageError
from dvk.harness.queue import JudgeQueue
from dvk.interop.kernelbench import results as kernelbench_results
from dvk.pipelines.eval import EvalRequest, evaluate, playing, recorded, suites
from dvk.pipelines.eval.kernelbench_ids import results_by_id
from dvk.pipelines.eval.progress import Progress
from dvk.pipelines.eval.request import EPISODES, Unplayed
from dvk.pipelines.eval.rows import EvalRow, rows_for
from dvk.pipelines.eval.spending import Meter
from dvk.pipelines.eval.suites import SuiteTask
from dvk.records import Candidate, Episode, Status, Task, Verdict
from dvk.runs import RunFolder
from tests.agents.conftest import configured, make_skill
from tests.pipelines.evaluations import episode, rows, unfinished, verdict
from tests.search.refining import CAPTURED, TASK, counting

SOURCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + x

def get_inputs():
    return [torch.randn(64, 96)]

def get_init_inputs():
    return []
"""


class Known(JudgeQueue[Any]):
    """A judge for whom everything is right, and as fast as its source is long."""

    def __init__(self) -> None:
        super().__init__(1, Config())
        self._found: list[tuple[Any, Verdict]] = []

    def submit(self, name: Any, task: Task, candidate: Candidate) -> None:
        self.num_pending += 1
        self._found.append((name, verdict(float(len(candidate.source)))))

    def results(self, *, wait: bool) -> list[tuple[Any, Verdict]]:
        found, self._found = self._found, []
        self.num_pending -= len(found)
        return found


def subject(name: str) -> TaskContext:
    return TaskContext(
        Task(id=f"id-{name}", name=name, source="", entry="Model", kind="module"), None, "cpp"
    )


# ---------------------------------------------------------------- judged again


def test_recorded_episodes_get_todays_verdicts(tmp_path: Path) -> None:
    unfinished(tmp_path, episode("a", [None, 9.0], [1.0]), episode("b", []))
    found = list(recorded.replay_records(map(subject, "abz"), [], f"episodes:{tmp_path}", Known()))
    by_name = {one.task.name if isinstance(one, Episode) else one.name: one for one in found}
    assert isinstance(by_name["z"], Unplayed) and len(found) == 3
    again = by_name["a"]
    assert isinstance(again, Episode) and [len(trace.turns) for trace in again.traces] == [2, 1]
    assert [
        turn.verdict.timing.speedup.value for trace in again.traces for turn in trace.turns
    ] == [5.0, 5.0, 5.0]  # type: ignore[union-attr]


def test_a_record_of_other_tasks_is_an_error(tmp_path: Path) -> None:
    unfinished(tmp_path, episode("a", [1.0]))
    with pytest.raises(UsageError, match="none of these tasks"):
        list(
            recorded.replay_records(
                [subject("z")], [], f"episodes:{tmp_path}/episodes/eval.jsonl", Known()
            )
        )
    (tmp_path / "bad.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match="bad.jsonl:1: not an episode"):
        list(recorded.replay_records([subject("z")], [], f"episodes:{tmp_path}/bad.jsonl", Known()))


def test_a_run_folder_of_kernelbench_is_played(tmp_path: Path) -> None:
    problems = [
        SuiteTask("7_Net", Path("7_Net.py"), {"level": "level2"}),
        SuiteTask("8_Op", Path("8_Op.py"), {"level": "level2"}),
    ]
    for sample, text in enumerate(["class ModelNew: pass", "import triton  # ModelNew"]):
        (tmp_path / f"level_2_problem_7_sample_{sample}_kernel.py").write_text(text)
    found = list(
        recorded.replay_records(
            map(subject, ["7_Net", "8_Op"]), problems, f"kernelbench:{tmp_path}", Known()
        )
    )
    assert isinstance(found[0], Episode) and [
        t.turns[0].candidate.backend for t in found[0].traces
    ] == ["cpp", "triton"]  # type: ignore[union-attr]
    assert found[1] == Unplayed(name="8_Op", error="nothing is recorded of it")
    with pytest.raises(UsageError, match="no kernels"):
        kernelbench_results.kernels(tmp_path / "none")


# ---------------------------------------------------------------- KernelBench's layout


def test_results_are_what_its_analysis_reads(tmp_path: Path) -> None:
    """Sample 0 of every problem, and baselines in the same order: its script pairs them by place."""
    problems = [SuiteTask(n, Path(n), {"level": "level1"}) for n in ("10_Z", "2_A", "3_B", "4_C")]
    broken = Verdict(
        status=Status.COMPILE_ERROR, tier="search", stage="compile", error="no such header"
    )
    third = episode("3_B", [1.0])
    third = third.model_copy(
        update={
            "traces": (
                third.traces[0].model_copy(
                    update={
                        "turns": (third.traces[0].turns[0].model_copy(update={"verdict": broken}),)
                    }
                ),
            )
        }
    )
    played = [episode("10_Z", [None, 1.5], [None]), episode("2_A", [2.0, 3.0]), third]
    made = results_by_id(problems, played, {"4_C": "no get_inputs"}, {("2_A", 0): verdict(2.5)})
    (file,) = kernelbench_results.write(tmp_path, made)
    found = json.loads(file.read_text())
    base = json.loads((tmp_path / "baseline_eager.json").read_text())["level1"]
    assert list(found) == ["2", "3", "4", "10"] and list(base) == [
        "2_A.py",
        "3_B.py",
        "4_C.py",
        "10_Z.py",
    ]
    assert all(
        [one["sample_id"] for one in samples] == list(range(len(samples)))
        for samples in found.values()
    )
    assert [found[p][0]["compiled"] for p in found] == [True, False, False, True]
    assert [found[p][0]["correctness"] for p in found] == [True, False, False, True]
    assert [found[p][0]["runtime"] for p in found] == [1.0, -1.0, -1.0, 1.0] and base["2_A.py"][
        "mean"
    ] == 2.5
    assert (
        found["2"][0]["runtime_stats"]["mean"] == 1.0
        and found["2"][0]["metadata"]["correctness_trials"] == "(10 / 10)"
    )
    assert found["10"][1]["metadata"]["correctness_issue"].startswith("off by one")
    assert found["3"][0]["metadata"]["compilation_error"] == "no such header"
    assert found["4"][0]["metadata"]["compilation_error"] == "no get_inputs"
    assert kernelbench_results.kernels(tmp_path)[1, 2] == {0: "2_A 0 1"}, (
        "the kernel is the winner's"
    )


def test_a_folder_a_level(tmp_path: Path) -> None:
    problems = [
        SuiteTask("1_A", Path("a"), {"level": "level1"}),
        SuiteTask("1_B", Path("b"), {"level": "level3"}),
    ]
    written = kernelbench_results.write(
        tmp_path, results_by_id(problems, [episode("1_A", [1.0]), episode("1_B", [1.0])], {}, {})
    )
    assert [path.parent.name for path in written] == ["level1", "level3"]
    assert (
        set(kernelbench_results.kernels(tmp_path)) == {(1, 1), (3, 1)}
        and (tmp_path / "level3/baseline_compile.json").is_file()
    )


# ---------------------------------------------------------------- choices and modes


@pytest.mark.parametrize(
    "given, said",
    [
        ({"iterations": 3}, "no conversations"),
        ({"policy": "hf:x", "window": 2}, "with --iterations"),
        ({"policy": "composer:nano"}, "asks no language model"),
        ({"policy": "evolve"}, "asks a language model"),
        ({"policy": "wizard"}, "unknown policy: `wizard`"),
        ({"policy": "auto:wizard"}, "unknown policy: `auto:wizard`"),
        ({"policy": "auto:nano"}, "the composer alone"),
        ({"policy": "auto:nano", "turns": 1}, "the composer alone"),
    ],
)
def test_choices_that_do_not_go_together_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        evaluate(EvalRequest(suite=Path("nowhere"), **given), Config())


@pytest.mark.parametrize("policy", ["refine:x", "best_of_n:x"])
def test_without_a_library_the_model_of_a_strategy_is_given_no_skills(
    monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    class Judge:
        workers = 1

        def __init__(self) -> None:
            self.waiting: list[Any] = []

        def expect(self, more: bool) -> None:
            pass

        def submit(self, name: Any, task: Task, candidate: Candidate) -> None:
            self.waiting.append(name)

        def results(self, *, wait: bool) -> list[tuple[Any, Verdict]]:
            found, self.waiting = self.waiting, []
            return [(name, verdict(1.5)) for name in found]

    monkeypatch.setattr(playing, "retrieve", lambda *_: (make_skill("a"),))

    def skills(library: Path | None) -> set[tuple[str, ...]]:
        request = EvalRequest(suite=Path("x"), policy=policy, turns=6, library=library)
        subject, few = TaskContext(TASK, CAPTURED, "cpp"), configured(schemes=1, rollouts=2)
        played = list(playing.play_strategy([subject], request, few, Judge(), counting()))  # type: ignore[arg-type]  # tests' own
        return {
            turn.candidate.skills
            for one in played
            for turn in one.traces[0].turns
            if turn.candidate is not None
        }

    assert skills(None) == {()} and skills(Path("named")) == {(), ("a",)}


@pytest.mark.parametrize("policy", ["nano:/nope", "kernelbench:/nope"])
def test_a_policy_that_is_not_there_leaves_no_run(tmp_path: Path, policy: str) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "a.py").write_text("")
    with pytest.raises(UsageError, match="/nope"):
        evaluate(
            EvalRequest(
                suite=tmp_path / "tasks", policy=policy, device="cpu", out=tmp_path / "run"
            ),
            Config(),
        )
    assert not (tmp_path / "run").exists()


DROPS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return torch.relu(self.drop(x)) + 1


def get_inputs():
    return [torch.randn(32, 96)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("eval_mode", [False, True])
@pytest.mark.slow
def test_tasks_are_played_in_the_mode_that_is_asked_for(tmp_path: Path, eval_mode: bool) -> None:
    """Also if the other mode has been prepared before."""
    (tmp_path / "a.py").write_text(DROPS)
    request = EvalRequest(suite=tmp_path, eval_mode=eval_mode)
    ((_, subject),) = playing.subjects(suites.read(tmp_path), request, Config(), "cpu", "cpp")
    assert isinstance(subject, TaskContext) and subject.captured is not None
    mode = "eval" if eval_mode else "train"
    assert subject.task.mode == mode and subject.captured.graph.training == (not eval_mode)
    known = playing.facts(subject, None)
    assert (known["mode"], known["depends"]) == (mode, not eval_mode)
    (row,) = rows_for([Episode(task=subject.task)], [], {})
    assert row.mode == mode


# ---------------------------------------------------------------- cost and output


def test_costs_add_up_over_processes(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, {}, -1)
    for _ in range(2):
        with Meter(run) as meter:
            usage = TokenUsage()
            meter.of(usage)
            usage.add(100, 10, 1.5)
            meter.note()
            usage.add(50, 5, 0.5, 0.25)
    found = meter.total([EvalRow(task="a"), *rows(episode("b", [1.0, 2.0]))])
    assert (found["prompt_tokens"], found["completion_tokens"], found["model_s"], found["usd"]) == (
        300,
        30,
        4.0,
        0.5,
    )
    assert (
        found["num_candidates"] == 2
        and found["judge_s"] == 4.0
        and found["tokens_per_task"] == 15.0
    )
    silent = RunFolder(tmp_path / "composer", {}, -1)
    with Meter(silent) as meter:
        pass
    assert meter.total([])["prompt_tokens"] is None and meter.total([])["usd"] is None


def test_silence_is_broken() -> None:
    file = io.StringIO()
    with Progress(3, heartbeat_s=0.1, file=file) as progress:
        progress.stage("playing composer")
        progress.judged(2)
        deadline = time.monotonic() + 5
        while "…" not in file.getvalue() and time.monotonic() < deadline:
            time.sleep(0.02)
        progress.ended("a: 2.00×")
    assert (
        "playing composer, 0 of 3 tasks done, 0 prepared, 2 candidates judged" in file.getvalue()
        and "[1/3] a: 2.00×" in file.getvalue()
    )


# ---------------------------------------------------------------- all of it


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_composer_and_model_side_by_side(tmp_path: Path) -> None:
    """Two tasks at a time share one model, and each is charged its own use."""
    for name, width in (("one", "96"), ("two", "80")):
        (tmp_path / f"{name}.py").write_text(SOURCE.replace("96", width))
    config = Config().model_copy(update={"rollout": RolloutConfig(schemes=0, rollouts=2, turns=1)})
    found = evaluate(
        EvalRequest(
            suite=tmp_path, policy="auto:nano", turns=4, device="cpu", out=tmp_path / "run"
        ),
        config,
    )
    assert found["fast_p"]["0"] == 1.0 and found["cost"]["completion_tokens"] > 0
    episodes = [json.loads(line) for line in (tmp_path / "run" / EPISODES).read_text().splitlines()]
    for played in episodes:
        who = {
            turn["candidate"]["proposer"] for trace in played["traces"] for turn in trace["turns"]
        }
        assert who == {"composer", "nano"}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_command_from_a_record_to_every_file(tmp_path: Path) -> None:
    """Two tasks and the real judge: a right candidate, none; a killed run's second process has nothing left to judge."""
    suite = tmp_path / "suite"
    (suite / "level1").mkdir(parents=True)
    (suite / "level1" / "1_Right.py").write_text(SOURCE)
    (suite / "level1" / "2_Absent.py").write_text(SOURCE.replace("96", "80"))
    kernels = tmp_path / "theirs"
    kernels.mkdir()
    (kernels / "level_1_problem_1_sample_0_kernel.py").write_text(
        SOURCE.replace("Model(", "ModelNew(")
    )
    command = [
        sys.executable,
        "-m",
        "dvk",
        "eval",
        str(suite),
        "--policy",
        f"kernelbench:{kernels}",
        "--device",
        "cpu",
        "--json",
        "--claim",
        "--eval",
        "--hygiene",
        "--kernelbench",
        str(tmp_path / "ours"),
        "--out",
        str(tmp_path / "run"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert (
        found["num_tasks"] == 2 and found["fast_p"]["0"] == 0.5 and found["fast_p_compile"] is None
    )
    assert found["levels"]["level1"]["num_tasks"] == 2 and found["failed"] == {
        "2_Absent": "nothing is recorded of it"
    }
    kept = [
        json.loads(line) for line in (tmp_path / "run" / "results.jsonl").read_text().splitlines()
    ]
    assert (
        found["eval_mode"]
        and found["num_in_train_mode"] == 0
        and {row["mode"] for row in kept} == {"eval", None}
    )
    assert found["num_claims"] == 1 and "timing 1 winners again" in done.stderr
    assert (
        "2 tasks of" in done.stderr and "probing 2 tasks" in done.stderr and "[2/2]" in done.stderr
    )
    assert (
        json.loads((tmp_path / "ours" / "eval_results.json").read_text())["1"][0]["correctness"]
        is True
    )
    assert (tmp_path / "run" / "report.html").read_text().startswith("<!doctype html>")
    shutil.rmtree(tmp_path / "ours")
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=True)
    assert json.loads(again.stdout) == found and (tmp_path / "ours" / "eval_results.json").is_file()
