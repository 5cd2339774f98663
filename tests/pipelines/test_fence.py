"""One task never ends a run: exceptions at every stage become rows, and the other tasks are played."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dvk import tasks
from dvk.agents import TaskContext, dialects, run_episodes
from dvk.composer import CannotCompose
from dvk.config import Config
from dvk.errors import MachineError, TaskError
from dvk.harness import open_sessions
from dvk.harness.queue import JudgeQueue
from dvk.harness.session.judge_session import JudgeSession
from dvk.pipelines import verify
from dvk.pipelines.eval import EvalRequest, evaluate, suites
from dvk.records import Candidate, Episode, Graph, Status, Task, Verdict
from dvk.search import Proposals, SearchProblem
from dvk.search.play import play
from dvk.skills import Library
from tests.agents.conftest import QUICK, Said, affine, fenced, source

FILES = Path(__file__).parent / "files" / "fence"
HEAD = "import torch\nimport torch.nn as nn\n\n\n"
TAIL = "\n\ndef get_inputs():\n    return [torch.randn(16, 64)]\n"


def file_of(body: str, head: str = "") -> str:
    return f"{HEAD}{head}class Model(nn.Module):\n{body}{TAIL}"


WORDLESS = (
    "class Odd(Exception):\n    def __str__(self):\n        raise ValueError('no words')\n\n\n"
)
ODD = {
    "good": file_of("    def forward(self, x):\n        return torch.relu(x * 2 + 1)\n"),
    "sick": file_of("    def forward(self, x):\n        return torch.erfinv(x.sigmoid()) * 2\n"),
    "in_init": file_of(
        "    def __init__(self):\n        super().__init__()\n        raise Odd()\n", WORDLESS
    ),
    "in_forward": file_of(
        "    def forward(self, x):\n        raise Odd('unusual')\n",
        "class Odd(BaseException):\n    pass\n\n\n",
    ),
    "in_trace": file_of(
        "    def forward(self, x):\n        if type(x) is not torch.Tensor:\n            raise Odd()\n"
        "        return x.relu() + 1\n",
        WORDLESS,
    ),
    "in_attributes": file_of(
        "    def __getattr__(self, name):\n        raise RuntimeError(f'no {name}')\n\n"
        "    def forward(self, x):\n        return x.relu() + 1\n"
    ),
    "leaves": file_of(
        "    def forward(self, x):\n        if type(x) is not torch.Tensor:\n            import os\n"
        "            os._exit(7)\n        return x.relu() + 1\n"
    ),
    "interrupts": f"{HEAD}class Model(nn.Module):\n    def forward(self, x):\n        return x\n\n\ndef get_inputs():\n"
    "    raise KeyboardInterrupt\n",
    "half": "class Model",
}


def a_task(name: str) -> Task:
    return Task(id=name, name=name, source="", entry="Model", kind="module")


def ok(*_: object) -> Verdict:
    return Verdict(status=Status.OK, tier="smoke", stage="done")


class Judge:
    """One worker to whom everything is right."""

    def __init__(self) -> None:
        self.workers, self.waiting = 2, list[Any]()

    def expect(self, more: bool) -> None: ...

    def submit(self, name: Any, task: Task, candidate: Candidate) -> None:
        self.waiting.append(name)

    def results(self, *, wait: bool) -> list[tuple[Any, Verdict]]:
        return [(self.waiting.pop(), ok())]


def failing(problem: SearchProblem) -> Proposals:
    """Raises before its first candidate, after it, or not at all, as the task is called."""
    if problem.task.name == "at once":
        raise TypeError("list indices must be integers")
    if problem.task.name == "cannot":
        raise CannotCompose("a strange operator")
    yield [Candidate(source=problem.task.name, backend="cpp")]
    if problem.task.name == "later":
        raise ZeroDivisionError("later")
    if problem.task.name == "machine":
        raise MachineError("no compiler", "install one")


def test_a_strategy_that_raises_ends_only_its_task() -> None:
    problems: list[Any] = [
        SimpleNamespace(task=a_task(name), skills=())
        for name in ("at once", "well", "later", "cannot", "fine")
    ]
    found = {
        episode.task.name: episode.traces[0].turns
        for episode in play(problems, failing, Judge(), limit=9)
    }
    assert set(found) == {"at once", "well", "later", "cannot", "fine"}
    assert [turn.verdict and turn.verdict.status for turn in found["later"]] == [
        Status.OK,
        Status.BROKEN_TASK,
    ]
    (turn,) = found["at once"]
    assert (
        turn.verdict is not None
        and "TypeError: list indices" in str(turn.verdict.error)
        and "in failing" in turn.verdict.traceback
    )
    (turn,) = found["cannot"]
    assert (
        turn.verdict is not None
        and "a strange operator" in str(turn.verdict.error)
        and not turn.verdict.traceback
    )
    with pytest.raises(MachineError):
        list(play([SimpleNamespace(task=a_task("machine"), skills=())], failing, Judge(), limit=9))  # type: ignore[list-item]


class Sick:
    """A court that raises at one candidate, or cannot be turned to one task."""

    def __init__(self, task: Task, *_: object, **__: object):
        if task.name == "unopened":
            raise TypeError("no such court")
        self.task, self.sharers, self.broken, self.closed = task, 1, None, 0

    def switch_task(self, task: Task) -> None:
        if task.name == "unopened":
            raise TypeError("no such court")
        self.task = task

    def judge(self, candidate: Candidate, *_: object) -> Verdict:
        if candidate.source == "machine":
            raise MachineError("no sandbox", "see dvk doctor")
        if candidate.source == "bad":
            raise ValueError("a bug of the judge")
        return ok()

    def close(self) -> None:
        self.closed += 1


JOBS = [
    (a_task(name), Candidate(source=text, backend="cpp"))
    for name, text in (
        ("one", "good"),
        ("one", "bad"),
        ("one", "better"),
        ("unopened", "good"),
        ("two", "good"),
    )
]
WANTED = [Status.OK, Status.BROKEN_TASK, Status.OK, Status.BROKEN_TASK, Status.OK]


def test_an_error_in_judging_is_its_candidates_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_sessions, "open_session", Sick)
    with JudgeQueue[int](1, QUICK) as docket:
        for number, (task, candidate) in enumerate(JOBS):
            docket.submit(number, task, candidate)
        found: dict[int, Verdict] = {}
        while docket.num_pending:
            found |= dict(docket.results(wait=True))
    assert [found[n].status for n in range(len(JOBS))] == WANTED
    assert (
        "dvk failed while judging it: ValueError: a bug of the judge" in str(found[1].error)
        and "in judge" in found[1].traceback
    )
    pooled = dict(JudgeQueue[int](1, QUICK).map(JOBS))
    assert [pooled[n].status for n in range(len(JOBS))] == WANTED and pooled[3].traceback
    with JudgeQueue[int](1, QUICK) as docket:
        docket.submit(0, a_task("one"), Candidate(source="machine", backend="cpp"))
        with pytest.raises(MachineError):
            docket.results(wait=True)


def test_an_error_in_a_prompt_or_an_answer_ends_only_its_task(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dialect, named = (
        dialects.get("chat"),
        lambda name: TaskContext(affine().model_copy(update={"name": name}), None, "cpp"),
    )
    asks, reads = dialect.policy, dialect.read_policy

    def policy(subject: TaskContext, *rest: Any) -> Any:
        return [][1] if subject.task.name == "unasked" else asks(subject, *rest)

    def read(subject: TaskContext, answer: Any) -> Any:
        return {}["text"] if subject.task.name == "unread" else reads(subject, answer)

    monkeypatch.setattr(type(dialect), "policy", lambda _, *given: policy(*given))
    monkeypatch.setattr(type(dialect), "read_policy", lambda _, *given: read(*given))
    monkeypatch.setattr(JudgeSession, "judge", ok)
    monkeypatch.setattr(
        "dvk.agents.rollout.selection.candidates",
        lambda subject, *_: [][2] if subject.task.name == "unoffered" else [],
    )
    said = Said(lambda conversation: fenced(source("good/torch_affine")))
    subjects = [named(name) for name in ("unasked", "good", "unread", "unoffered", "fine")]
    with Library.open(tmp_path / "skills.db", create=True) as library:
        found = {
            episode.task.name: episode for episode in run_episodes(subjects, said, library, QUICK)
        }
    assert len(found) == 5
    for name in ("good", "fine"):
        assert [turn.verdict and turn.verdict.status for turn in found[name].traces[0].turns] == [
            Status.OK
        ] * QUICK.rollout.turns
    for name in ("unasked", "unoffered"):
        (trace,) = found[name].traces
        verdict = trace.turns[-1].verdict
        assert (
            trace.broken
            and verdict is not None
            and "IndexError" in str(verdict.error)
            and verdict.traceback
        )
    assert all("KeyError" in str(turn.malformed) for turn in found["unread"].traces[0].turns)


def test_broken_files_of_a_suite_are_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good.py").write_text(ODD["good"])
    (tmp_path / "binary.py").write_bytes(bytes(range(128, 250)))
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    (tmp_path / "strange.py").write_text("# strange")
    looked = suites.layouts.has_tests
    monkeypatch.setattr(
        suites.layouts, "has_tests", lambda text: [][3] if "strange" in text else looked(text)
    )
    found = {problem.name: problem.error for problem in suites.read(tmp_path)}
    assert (
        found["good"] is None
        and found["binary"]
        and found["gone"]
        and "IndexError" in str(found["strange"])
    )


def test_one_bad_reference_of_several_is_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(spec: str, **_: object) -> Task:
        if Path(spec).stem == "bad":
            raise TaskError("it holds NaN", "draw finite values")
        if Path(spec).stem == "odd":
            raise KeyError("odd")
        return a_task(Path(spec).stem)

    monkeypatch.setattr(verify.tasks, "load", load)
    monkeypatch.setattr(open_sessions, "open_session", Sick)
    jobs = []
    for name in ("good", "bad", "odd", "fine"):
        (tmp_path / f"{name}.py").write_text("")
        jobs.append(verify.VerifyJob(str(tmp_path / f"{name}.py"), name, f"# {name}"))
    asked = verify.VerifyRequest(
        jobs=tuple(jobs),
        name="batch",
        tier="smoke",
        device="cpu",
        workers=1,
        out=tmp_path / "run",
        no_cache=True,
    )
    rows, run = verify.verify(asked, QUICK)
    assert [row.verdict.status for row in rows] == [
        Status.OK,
        Status.BROKEN_TASK,
        Status.BROKEN_TASK,
        Status.OK,
    ]
    assert rows[1].verdict.error == "it holds NaN" and "KeyError" in str(rows[2].verdict.error)
    assert [path.name for path in (run / "tracebacks").iterdir()] == ["odd.txt"]
    with pytest.raises(TaskError):
        verify.verify(
            verify.VerifyRequest(
                jobs=(jobs[1],), name="one", tier="smoke", device="cpu", out=tmp_path / "other"
            ),
            QUICK,
        )


# ---------------------------------------------------------------- whole evaluations


@pytest.fixture
def sick_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A composer that fails on one operator that no rule declines."""

    def lower(graph: Graph, *rest: Any, **named: Any) -> Any:
        if any("erfinv" in node.op for node in graph.nodes):
            raise IndexError("a rule tripped")
        return compose_lower(graph, *rest, **named)

    module = sys.modules["dvk.composer.compose"]
    compose_lower = module.lower
    monkeypatch.setattr(module, "lower", lower)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_an_evaluation_ends_whatever_its_tasks_do(
    tmp_path: Path, sick_rule: None, capfd: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / "suite"
    suite.mkdir()
    for name, text in ODD.items():
        (suite / f"{name}.py").write_text(text)
    for path in FILES.glob("*.py"):
        shutil.copy(path, suite)
    config: Config = QUICK
    summary = evaluate(
        EvalRequest(suite=suite, turns=1, device="cpu", out=tmp_path / "run"), config
    )
    rows = {
        row["task"]: row
        for row in map(json.loads, (tmp_path / "run" / "results.jsonl").read_text().splitlines())
    }
    assert set(rows) == {*ODD, "foreach", "where_bools"}
    assert rows["good"]["status"] == "ok" and rows["good"]["error"] is None
    for name, why in {
        "sick": "IndexError: a rule tripped",
        "in_init": "Odd",
        "in_forward": "unusual",
        "in_trace": "words",
        "in_attributes": "no ",
        "leaves": "exit 7",
        "interrupts": "KeyboardInterrupt",
        "half": "not Python",
    }.items():
        assert why in rows[name]["error"], rows[name]["error"]
    assert "a rule tripped" in (tmp_path / "run" / rows["sick"]["traceback"]).read_text()
    assert rows["foreach"]["traceback"] is None and rows["where_bools"]["traceback"] is None
    assert (
        summary["tracebacks"] >= 1
        and "ended with an error inside dvk; the tracebacks are in" in capfd.readouterr().err
    )

    # As after a kill by an older dvk: some tasks are recorded, the rest are played.
    run = tmp_path / "run"
    for name in ("unplayed.jsonl", "episodes/eval.jsonl"):
        kept = (run / name).read_text().splitlines(keepends=True)[:1]
        (run / name).write_text("".join(kept))
    for name in ("results.jsonl", "summary.jsonl"):
        (run / name).unlink()
    manifest = run / "run.json"
    manifest.write_text(manifest.read_text().replace('"done"', '"running"'))
    again = evaluate(EvalRequest(suite=suite, turns=1, device="cpu", out=run, resume=True), config)
    assert again["num_tasks"] == summary["num_tasks"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_search_ends_with_what_was_found_before(
    tmp_path: Path, sick_rule: None, capfd: pytest.CaptureFixture[str]
) -> None:
    from dvk.pipelines.optimize import optimize
    from dvk.pipelines.optimize.request import OptimizeRequest as Asked

    (tmp_path / "sick.py").write_text(ODD["sick"])
    summary = optimize(
        Asked(spec=str(tmp_path / "sick.py"), device="cpu", out=tmp_path / "run", quiet=False),
        Config.model_validate({**QUICK.model_dump(), "optimize": {"budget_s": 5.0}}),
    )
    assert summary["status"] != "faster" and "IndexError: a rule tripped" in summary["reason"]
    assert "a rule tripped" in (tmp_path / "run" / "tracebacks" / "sick.txt").read_text()
    assert "the traceback is in" in capfd.readouterr().err
    assert isinstance(tasks.load(str(tmp_path / "sick.py")), Task)
    assert Episode.model_validate_json(
        (tmp_path / "run" / "episodes" / "optimize.jsonl").read_text().splitlines()[0]
    )
