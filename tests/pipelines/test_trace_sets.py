"""Data sets of FlashInfer-Bench through `dvk verify` and `dvk eval`: verdicts as traces, winners as solutions."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk import tasks
from dvk.agents import TaskContext
from dvk.agents.preparing import prepare
from dvk.config import Config
from dvk.errors import UsageError
from dvk.interop.flashinfer.solution import read_solution
from dvk.pipelines.convert import convert
from dvk.pipelines.eval import definitions, suites
from dvk.pipelines.eval.launches import weighted
from dvk.pipelines.eval.rows import EvalMeasurement, EvalRow
from dvk.pipelines.verify.solutions import solutions_of
from dvk.tasks.sourcefile import execute
from tests.cli import warm
from tests.interop.trace_sets import (
    RANDOM,
    RMS,
    RMS_INPUTS,
    VAR,
    const,
    solution,
    tensor,
    trace_set,
    workload,
)
from tests.pipelines.evaluations import episode

QUICK = ("--set", "judge.search_s=0.05", "--set", "judge.num_seeds=1", "--device", "cpu")
RUN = "import torch\n\n\ndef run(x, weight, eps):\n    return torch.nn.functional.rms_norm(x, (32,), weight, {})\n"
GATE: dict[str, Any] = {
    "name": "gate_d512",
    "op_type": "act",
    "axes": {"rows": VAR, "d": const(512)},
    "inputs": {"x": tensor(["rows", "d"]), "gate": tensor(["rows", "d"])},
    "outputs": {"out": tensor(["rows", "d"])},
    "reference": "import torch\n\n\ndef run(x, gate):\n"
    "    return torch.sigmoid(gate) * torch.tanh(x) * 2 + x * 0.5 - gate * 0.25 + x * gate\n",
}
NET = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, 3)
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        return self.fc(x.float()) * self.scale


def get_inputs():
    return [torch.rand(4, 8)]


def get_init_inputs():
    return [8]
"""
GATE_INPUTS = {"x": RANDOM, "gate": RANDOM}


def rms_set(folder: Path) -> Path:
    return trace_set(
        folder,
        RMS,
        [workload("small", {"batch": 3}, RMS_INPUTS), workload("large", {"batch": 40}, RMS_INPUTS)],
        solution("right", "rms_h32", RUN.format("eps")),
        solution("wrong", "rms_h32", RUN.format("0.5")),
    )


def traces(root: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted((root / "traces").rglob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def test_a_file_lists_the_sizes_that_it_is_judged_at(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n\n\n"
        "def get_inputs():\n    return [torch.randn(4, 6)]\n\n\n"
        "def get_shape_variants():\n    return [('six', [('x', 0, 6)]), ('one', [('x', 0, 1)])]\n"
    )
    task = tasks.load(str(tmp_path / "task.py"))
    assert [(v.name, v.changes) for v in task.shape_variants] == [
        ("six", (("x", 0, 6),)),
        ("one", (("x", 0, 1),)),
    ]


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (
            lambda root: (root / "definitions/norm/rms_h32.json").unlink(),
            "of the definition `rms_h32`, which",
        ),
        (lambda root: (root / "definitions/norm/rms_h32.json").write_text("{"), "is not JSON"),
        (lambda root: (root / "workloads/norm/rms_h32.jsonl").unlink(), "has no workload"),
    ],
)
def test_what_cannot_be_judged_exits_2_with_one_message(
    break_it: Any, said: str, tmp_path: Path
) -> None:
    break_it(rms_set(tmp_path / "set"))
    (tmp_path / "set/definitions").mkdir(exist_ok=True)
    done = warm.dvk("verify", tmp_path / "set", cwd=tmp_path, exits=2)
    assert re.search(said, done.stderr) and done.stderr.startswith("error: ")


@pytest.mark.slow
def test_solutions_are_judged_at_every_workload_and_traced(tmp_path: Path) -> None:
    done = warm.dvk(
        "verify", rms_set(tmp_path / "set"), *QUICK, "--json", "--out", "run", cwd=tmp_path, exits=1
    )
    rows = json.loads(done.stdout)
    assert [(row["candidate"], row["status"]) for row in rows] == [
        ("right (batch=3)", "ok"),
        ("right (batch=40)", "ok"),
        ("wrong (batch=3)", "mismatch"),
        ("wrong (batch=40)", "mismatch"),
    ]
    assert {row["workload"] for row in rows} == {"small", "large"}
    assert rows[0]["worst_absolute_error"] < 1e-5
    found = traces(tmp_path / "run/trace_set")
    assert [(t["solution"], t["evaluation"]["status"]) for t in found] == [
        ("right", "PASSED"),
        ("right", "PASSED"),
        ("wrong", "INCORRECT_NUMERICAL"),
        ("wrong", "INCORRECT_NUMERICAL"),
    ]
    assert found[0]["workload"]["inputs"] == RMS_INPUTS
    # The folder of results is a data set: what it holds can be judged again.
    again = warm.dvk(
        "verify",
        tmp_path / "run/trace_set",
        *QUICK,
        "--json",
        "--out",
        "again",
        cwd=tmp_path,
        exits=1,
    )
    assert [row["status"] for row in json.loads(again.stdout)] == [row["status"] for row in rows]


def evaluated(tmp_path: Path) -> tuple[dict[str, Any], Path]:
    calls = [
        workload("a", {"rows": 700}, GATE_INPUTS, launches=30),
        workload("b", {"rows": 500}, GATE_INPUTS, launches=10),
    ]
    trace_set(tmp_path / "set", GATE, calls)
    done = warm.dvk(
        "eval", tmp_path / "set", "--turns", "2", "--json", "--out", "run", *QUICK, cwd=tmp_path
    )
    return json.loads(done.stdout), tmp_path / "run/trace_set"


@pytest.mark.slow
def test_an_evaluation_writes_winners_as_a_solution_with_traces(tmp_path: Path) -> None:
    summary, root = evaluated(tmp_path)
    assert summary["num_tasks"] == 2 and set(summary["groups"]["definition"]) == {"gate_d512"}
    assert summary["weighted"]["by_kind"]["gate_d512"]["speedup"] >= 1
    assert summary["num_solutions"] == 1
    (made,) = (root / "solutions").rglob("*.json")
    assert json.loads(made.read_text())["spec"]["entry_point"] == "main.py::run"
    found = traces(root)
    assert {t["workload"]["uuid"] for t in found} == {"a", "b"}
    assert {t["evaluation"]["status"] for t in found} == {"PASSED"}


def test_definitions_are_converted_to_a_task_file_a_workload(tmp_path: Path) -> None:
    done = convert(rms_set(tmp_path / "set"), tmp_path / "tasks")
    assert (done.form, done.number) == ("tasks", 2)
    names = sorted(path.name for path in (tmp_path / "tasks").rglob("*.py"))
    assert names == ["rms_h32-batch=3.py", "rms_h32-batch=40.py"]


def alike(folder: Path, *definitions_of: dict[str, Any]) -> Path:
    """Workloads that differ in the last character of their identifiers."""
    for definition in definitions_of or (RMS,):
        calls = [workload(f"workload-{n}", {"batch": 3}, RMS_INPUTS) for n in range(3)]
        trace_set(folder, definition, calls)
    return folder


def test_workloads_with_equal_names_get_a_task_file_each(tmp_path: Path) -> None:
    """Definitions whose names differ in characters that files cannot have, too; and again over the files of an earlier run."""
    both = ({**RMS, "name": "rms,32"}, {**RMS, "name": "rms 32"})
    for _ in range(2):
        done = convert(alike(tmp_path / "set", *both), tmp_path / "tasks", replace=True)
        files = sorted(path for path in (tmp_path / "tasks").rglob("*.py"))
        assert (done.number, len(files)) == (6, 6)
    said = {re.findall(r"Definition .*", path.read_text())[0] for path in files}
    assert len(said) == 6 and files[0].name == "rms_32-batch=3.py"


def test_workloads_with_equal_names_are_tasks_with_their_own_results(tmp_path: Path) -> None:
    suite = definitions.read(alike(tmp_path))
    found = suites.read(tmp_path, found=suite.tasks)
    assert {suite.called[task.name].workload.uuid for task in found} == {
        f"workload-{n}" for n in range(3)
    }


def won(suite: definitions.DefinitionSuite, *speedups: float, **changed: Any) -> list[Any]:
    """The winners of an evaluation with one candidate a task."""
    found = []
    for task, speedup in zip(suite.tasks, speedups):
        one = episode(task.name, [speedup])
        (turn,) = one.traces[0].turns
        made = turn.candidate.model_copy(update={"source": f"speedup = {speedup}", **changed})  # type: ignore[union-attr]
        turns = (turn.model_copy(update={"candidate": made}),)
        found.append(
            one.model_copy(update={"traces": (one.traces[0].model_copy(update={"turns": turns}),)})
        )
    return list(definitions._winners(suite, found, {}, {}))


def test_a_solution_has_the_fastest_kernels_of_equal_sizes(tmp_path: Path) -> None:
    suite = definitions.read(alike(tmp_path))
    winners = won(suite, 2.0, 3.0, 1.5)
    value = definitions._solution(winners[0].called.definition, winners)
    files = {one["path"]: one["content"] for one in value["sources"]}
    assert set(files) == {"main.py", "at_1.py", "reference.py"}
    assert "speedup = 3.0" in files["at_1.py"] and value["description"] == "Kernels for batch=3"


def test_the_model_as_it_is_is_no_solution(tmp_path: Path) -> None:
    suite = definitions.read(alike(tmp_path))
    assert won(suite, 1.2, proposer="composer", title="as it is") == []
    assert won(suite, 1.2, proposer="composer", title="left to torch") == []
    for kept in (
        {"proposer": "a model"},
        {"proposer": "composer", "recipes": ("channels_last",)},
        {"proposer": "composer", "schedule": {"k0": {}}},
    ):
        assert len(won(suite, 1.2, **kept)) == 1


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        ("import triton\nCODE = '''x'''\n", "triton"),
        ("CODE = r'''__global__ void k() {}'''\n", "cuda"),
        ("import torch\n", "cpp"),
    ],
)
def test_a_solution_is_judged_with_the_back_end_of_its_kernels(
    text: str, backend: str, tmp_path: Path
) -> None:
    (winner, *_) = won(
        definitions.read(alike(tmp_path)), 2.0, source=text + "ModelNew = None\n", backend=backend
    )
    definition = winner.called.definition
    made = read_solution(definitions._solution(definition, [winner]), "it")
    assert definitions._candidate(made, definition).backend == backend


def test_solutions_that_dvk_does_not_judge_are_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "home"))
    gate = [workload("a", {"rows": 7}, GATE_INPUTS)]
    other = solution("tiled", "gate_d512", RUN, language="tilelang")
    root = trace_set(rms_set(tmp_path / "set"), GATE, gate, other)
    file = root / "definitions/norm/rms_h32.json"
    own = solutions_of(str(file), [])
    assert {one.name for one, _ in own.pairs} == {"right", "wrong"} and own.left_out == ()
    found = solutions_of(str(root), [])
    assert {one.name for one, _ in found.pairs} == {"right", "wrong"}
    (why,) = found.left_out
    assert "solution `tiled` is in tilelang" in why
    named = next(root.rglob("tiled.json"))
    for reference, files in ((root, [named]), (root / "definitions/act/gate_d512.json", [])):
        with pytest.raises(UsageError, match="is in tilelang"):
            solutions_of(str(reference), files)
    named.write_text("{")
    with pytest.raises(UsageError, match="is not JSON"):
        solutions_of(str(root), [])


@pytest.mark.slow
def test_a_task_becomes_a_definition_with_its_weights_as_inputs_and_back(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/net.py").write_text(NET)
    (tmp_path / "mine/index.py").write_text(
        NET.replace("torch.rand(4, 8)", "torch.ones(4, 8).long()")
    )
    named_as_an_output = NET.replace("(self, x)", "(self, out)").replace("x.float", "out.float")
    (tmp_path / "mine/named.py").write_text(named_as_an_output)
    done = convert(tmp_path / "mine", tmp_path / "set", "flashinfer")
    assert done.number == 1 and len(done.problems) == 2
    assert "`out` among inputs and outputs" in done.problems[1]
    value = json.loads((tmp_path / "set/definitions/module/net.json").read_text())
    assert list(value["inputs"]) == ["x", "fc_weight", "fc_bias", "scale"]
    assert value["outputs"]["out"]["shape"] == ["batch", "n3"]
    convert(tmp_path / "set", tmp_path / "tasks")
    file = execute((tmp_path / "tasks/net/net-batch=4.py").read_text())
    x, weight, bias, scale = file.get_inputs()
    want = torch.nn.functional.linear(x, weight, bias) * scale
    torch.testing.assert_close(file.Model()(x, weight, bias, scale), want)
    (found,) = prepare([tmp_path / "tasks/net/net-batch=4.py"], "cpu", "cpp", Config())
    assert isinstance(found, TaskContext) and found.captured is not None, found
    assert len(found.task.shape_variants) > 1


@pytest.mark.hand
def test_the_package_reads_all_that_is_written(tmp_path: Path) -> None:
    """Round trip with the real package, installed aside without what it needs to run kernels."""
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--target",
            tmp_path / "package",
        ]
        + ["flashinfer-bench", "docstring-parser", "safetensors"],
        check=True,
    )
    evaluated(tmp_path)
    warm.dvk("verify", rms_set(tmp_path / "rms"), *QUICK, "--out", "verify", cwd=tmp_path, exits=1)
    code = (
        "import sys\nfrom flashinfer_bench.data import TraceSet\n"
        "for folder in sys.argv[1:]:\n    found = TraceSet.from_path(folder)\n"
        "    for name in found.definitions:\n        print(name, len(found.workloads[name]), len(found.solutions[name]),\n"
        "              sorted({t.evaluation.status.value for t in found.traces[name]}), found.get_best_trace(name) is not None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run/trace_set", "verify/trace_set"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "package")},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == [
        "gate_d512 2 1 ['PASSED'] True",
        "rms_h32 2 2 ['INCORRECT_NUMERICAL', 'PASSED'] True",
    ], done.stderr


def test_gains_are_weighted_by_launches(tmp_path: Path) -> None:
    calls = [
        workload("a", {"rows": 7}, GATE_INPUTS, launches=30),
        workload("b", {"rows": 5}, GATE_INPUTS, launches=10),
        workload("c", {"rows": 3}, GATE_INPUTS),
    ]
    suite = definitions.read(trace_set(tmp_path, GATE, calls))

    def row(name: str, reference_ms: float, candidate_ms: float) -> EvalRow:
        one = EvalMeasurement(
            correct=True,
            speedup=reference_ms / candidate_ms,
            reference_ms=reference_ms,
            candidate_ms=candidate_ms,
        )
        return EvalRow(task=name, turns=(one,), status="ok")

    found = weighted(
        [row("gate_d512-rows=7", 1.0, 0.5), row("gate_d512-rows=5", 1.0, 2.0)], suite.tasks
    )["weighted"]
    assert (found["reference_ms"], found["ms"]) == (40.0, 25.0)  # what is slower is not used
    assert found["speedup"] == 1.6 and found["num_not_timed"] == 1
