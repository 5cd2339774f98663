"""FlashInfer-Bench's and SOL-ExecBench's schema: what is read becomes tasks and candidates, verdicts become traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk.errors import UsageError
from dvk.interop.flashinfer.candidate import candidate_text, solution_json
from dvk.interop.flashinfer.dataset import is_dataset, read_dataset
from dvk.interop.flashinfer.definition import Definition, read_definition
from dvk.interop.flashinfer.fields import parse_json, read_lines
from dvk.interop.flashinfer.solution import read_solution
from dvk.interop.flashinfer.task_text import task_text
from dvk.interop.flashinfer.trace import ResultsFolder, status_of, trace
from dvk.interop.flashinfer.workload import Workload, read_workload
from dvk.records import Interval, Status, Timing, Verdict
from dvk.tasks.sourcefile import execute
from tests.interop.trace_sets import (
    GEMM,
    MADE,
    PICK,
    RANDOM,
    RMS,
    RMS_INPUTS,
    SPLIT,
    VAR,
    const,
    problem,
    safetensors,
    solution,
    tensor,
    trace_set,
    workload,
    write,
)

RMS_RUN = "import torch\n\n\ndef run(x, weight, eps):\n    return torch.nn.functional.rms_norm(x, (32,), weight, eps)\n"


def rms(batch: int = 5, **changed: Any) -> tuple[Definition, Workload]:
    definition = read_definition({**RMS, **changed}, "rms")
    return definition, read_workload(
        workload("w", {"batch": batch}, RMS_INPUTS), definition, Path(), "w"
    )


def answer(text: str, name: str, args: list[Any]) -> Any:
    return getattr(execute(text), name)()(*args)


@pytest.fixture
def picked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set with stored indices."""
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "home"))
    safetensors(tmp_path / "set/blob/pick.safetensors", at=[3, 0, 3])
    stored = {"type": "safetensors", "path": "blob/pick.safetensors", "tensor_key": "at"}
    calls = [workload("p", {"pages": 6, "n": 3}, {"cache": RANDOM, "at": stored})]
    return trace_set(tmp_path / "set", PICK, calls)


def test_a_definition_becomes_a_task_whose_other_sizes_follow_its_axes() -> None:
    definition, first = rms(5)
    other = read_workload(workload("v", {"batch": 9}, RMS_INPUTS), definition, Path(), "v")
    file = execute(task_text(definition, first, [first, other]))
    x, weight, eps = file.get_inputs()
    assert (x.shape, weight.shape, eps) == ((5, 32), (32,), 1e-6)
    assert torch.equal(file.Model()(x, weight, eps), file.run(x, weight, eps))
    changes = [change for _, change in file.get_shape_variants()]
    assert [("x", 0, 9)] in changes and [("x", 0, 1)] in changes
    assert {dimension for change in changes for _, dimension, _ in change} == {0}


def test_other_sizes_keep_constraints_and_the_sizes_of_stored_inputs(picked: Path) -> None:
    definition = read_definition(GEMM, "gemm")
    first = read_workload(workload("w", {"M": 16}, {"A": RANDOM}), definition, Path(), "w")
    file = execute(task_text(definition, first))
    assert all(size % 8 == 0 for _, change in file.get_shape_variants() for _, _, size in change)
    assert [x.dtype for x in file.get_inputs()] == [torch.bfloat16] * 2
    definition, calls = read_dataset(picked).one("pick_d4", "a test")
    file = execute(task_text(definition, calls[0], calls))
    cache, at = file.get_inputs()
    assert at.tolist() == [3, 0, 3] and at.dtype == torch.int32
    assert [rows.shape for rows in file.Model()(cache, at)] == [(3, 4), (3,)]
    assert {name for _, change in file.get_shape_variants() for name, _, _ in change} == {"cache"}


def test_inputs_made_by_a_function_and_axes_by_an_expression(tmp_path: Path) -> None:
    names = {name: {"type": "custom"} for name in MADE["inputs"]}
    problem(tmp_path / "level/made", MADE, [workload("m", {"total": 9, "segments": 3}, names)])
    problem(tmp_path / "level/split", SPLIT, [workload("s", {"s": 5}, {"x": RANDOM})])
    found = read_dataset(tmp_path)
    assert is_dataset(tmp_path) and set(found.problems) == {"segment_sum", "split_heads"}
    definition, calls = found.one("segment_sum", "a test")
    file = execute(task_text(definition, calls[0]))
    assert file.Model()(*file.get_inputs()).shape == (3,)
    definition, calls = found.one("split_heads", "a test")
    assert calls[0].sizes["d"] == 4
    file = execute(task_text(definition, calls[0]))
    assert file.Model()(*file.get_inputs()).shape == (2, 5, 4)


@pytest.mark.parametrize(
    ("code", "spec"),
    [
        (RMS_RUN, {}),
        (
            RMS_RUN.replace("eps):\n    return ", "eps, y):\n    y[:] = "),
            {"destination_passing_style": True},
        ),
        ({"main.py": "from .norm import run\n", "norm.py": RMS_RUN}, {}),
        ({"main.py": "import norm\n\nrun = norm.run\n", "norm.py": RMS_RUN}, {}),
        (RMS_RUN + "\n\nclass ModelNew:\n    'Another thing.'\n", {}),
    ],
)
def test_a_solution_becomes_a_candidate(code: Any, spec: dict[str, Any]) -> None:
    definition, call = rms()
    file = execute(task_text(definition, call))
    args = file.get_inputs()
    made = read_solution(solution("s", "rms_h32", code, **spec), "s")
    torch.testing.assert_close(
        answer(candidate_text(made, definition), "ModelNew", args), file.Model()(*args)
    )


def test_outputs_are_allocated_by_expressions_and_several_come_in_order() -> None:
    split = read_definition(SPLIT, "split")
    code = "def run(x, y):\n    y.copy_(x.view(x.shape[0], 2, 4).transpose(0, 1))\n"
    made = read_solution(solution("s", "split_heads", code, destination_passing_style=True), "s")
    assert answer(candidate_text(made, split), "ModelNew", [torch.randn(3, 8)]).shape == (2, 3, 4)
    pick = read_definition(PICK, "pick")
    code = "def run(cache, at):\n    rows = cache[at.long()]\n    return {'total': rows.sum(-1), 'rows': rows}\n"
    made = read_solution(solution("s", "pick_d4", code), "s")
    rows, total = answer(
        candidate_text(made, pick), "ModelNew", [torch.randn(5, 4), torch.tensor([1, 2])]
    )
    assert (rows.shape, total.shape) == ((2, 4), (2,))


def test_an_extension_gets_its_headers_and_no_cuda_source_on_a_cpu() -> None:
    code = {
        "main.cpp": '#include "one.h"\nint run() { return one(); }\n',
        "one.h": "#pragma once\nint one();\n",
    }
    spec = {"language": "cpp", "binding": "torch", "entry_point": "main.cpp::run"}
    text = candidate_text(read_solution(solution("s", "rms_h32", code, **spec), "s"), rms()[0])
    assert "int one();" in text and '#include "one.h"' not in text and "cuda_sources" not in text


def test_winners_become_one_solution_that_picks_by_size() -> None:
    definition, call = rms()
    text = (
        "import torch\n\n\ndef run(x):\n    return torch.full_like(x, {})\n\n\n"
        "class ModelNew(torch.nn.Module):\n    def forward(self, x, weight, eps):\n        return run(x)\n"
    )
    winners = {(5,): (text.format(1), "cpp"), (7,): (text.format(2), "triton")}
    made = read_solution(solution_json("w", definition, winners, "cpu", "two sizes"), "w")
    new = execute(candidate_text(made, definition)).ModelNew()
    weight = torch.ones(32)
    assert [float(new(torch.zeros(n, 32), weight, 1.0).mean()) for n in (5, 7, 6)] == [1, 2, 0]
    assert made.language == "triton" and made.author == "dvk"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"axes": {"hidden": const(32)}}, "undefined axis `batch`"),
    ({"axes": {**RMS["axes"], "free": VAR}}, "variable axis `free`, which no input binds"),
    (
        {"inputs": {"x": tensor(["batch", "hidden"], "float4_e2m1")}},
        "unsupported dtype `float4_e2m1`",
    ),
    ({"inputs": {"class": tensor(["batch"])}}, "no Python parameter"),
    ({"reference": "def other(x):\n    return x\n"}, "without a top-level function `run`"),
    ({"reference": "def run(x:\n"}, "not Python"),
    (
        {"reference": "class Model:\n    pass\n\n\ndef run(x, weight, eps):\n    return x\n"},
        "defines `Model`",
    ),
    ({"constraints": ["batch >"]}, "no Python expression"),
    ({"outputs": {}}, "has no outputs"),
    ({"axes": {"batch": {"type": "range"}}}, "has the type `range`"),
]


@pytest.mark.parametrize(("changed", "said"), BAD)
def test_definitions_that_cannot_be_used(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_definition({**RMS, **changed}, "`rms.json`")


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("1e999", "= inf, which is no size"),
        ("(0 - hidden) ** 0.5", "which is no size"),
        ("hidden / 3", "which is no size"),
        ("hidden ** 64 * hidden", "which is no 64-bit size"),
        ("+".join(["hidden"] * 2000), "cannot compute axis `d`"),
    ],
)
def test_axes_whose_expression_gives_no_size(expression: str, said: str) -> None:
    axes = {**SPLIT["axes"], "d": {"type": "expr", "expression": expression}}
    definition = read_definition({**SPLIT, "axes": axes}, "split")
    with pytest.raises(UsageError, match=said):
        read_workload(workload("w", {"s": 5}, {}), definition, Path(), "w")


def test_a_shape_may_have_decimal_sizes_and_no_other_digits() -> None:
    for axis in ("²", "9" * 30):
        with pytest.raises(UsageError, match="undefined axis"):
            rms(inputs={**RMS["inputs"], "weight": tensor([axis])})
    code = RMS_RUN.replace("eps):\n    return ", "eps, y):\n    y[:] = ")
    made = read_solution(solution("s", "rms_h32", code, destination_passing_style=True), "s")
    for axis in ("32", "032", "٣٢"):
        definition, call = rms(outputs={"y": tensor(["batch", axis])})
        assert definition.shape(definition.outputs[0], call.sizes) == (5, 32)
        args = [torch.randn(5, 32), torch.ones(32), 1e-6]
        assert answer(candidate_text(made, definition), "ModelNew", args).shape == (5, 32)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (workload("w", {}, RMS_INPUTS), "gives the variable axis `batch` no size"),
        (workload("w", {"batch": 0}, RMS_INPUTS), "breaks the constraint `batch > 0`"),
        (
            workload("w", {"batch": 1, "n": 2}, RMS_INPUTS),
            "axis `n`, which `rms_h32` does not have",
        ),
        (workload("w", {"batch": 1, "hidden": 3}, RMS_INPUTS), "hidden=3, which is 32"),
        (workload("w", {"batch": 1}, {"z": RANDOM}), "input `z`"),
        (workload("w", {"batch": 1}, {"x": {"type": "file"}}), "has the type `file`"),
        (workload("w", {"batch": 1}, {"x": {"type": "custom"}}), "no custom_inputs_entrypoint"),
        (workload("w", {"batch": 1}, RMS_INPUTS, launches=-1), "is no count"),
        (workload("w", {"batch": 1}, RMS_INPUTS, launches=10**400), "is no count"),
        (workload("w", {"batch": 2**63}, RMS_INPUTS), "has no whole number `batch`"),
        (
            workload(
                "w",
                {"batch": 1},
                {"x": {"type": "safetensors", "path": "../x.safetensors", "tensor_key": "x"}},
            ),
            r"input `x` of workload `w` .* has the path `\.\./x.safetensors`",
        ),
    ],
)
def test_workloads_that_cannot_be_used(call: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_workload(call, read_definition(RMS, "rms"), Path(), "w")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"language": "tilelang"}, "is in tilelang, which dvk does not judge"),
        ({"language": "cuda", "entry_point": "main.py::run"}, "the binding tvm-ffi"),
        ({"entry_point": "main.py"}, "entry point"),
        ({"entry_point": "other.py::run"}, "no source `other.py`"),
    ],
)
def test_solutions_that_cannot_be_judged(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_solution(solution("s", "rms_h32", RMS_RUN, **spec), "s")


def test_what_a_data_set_lacks(picked: Path) -> None:
    found = read_dataset(picked)
    with pytest.raises(UsageError, match="definition `none`, which"):
        found.one("none", "solution `s`")
    (picked / "blob/pick.safetensors").unlink()
    with pytest.raises(UsageError, match="which is missing"):
        read_dataset(picked).one("pick_d4", "a test")
    safetensors(picked / "blob/pick.safetensors", at=[1, 2])
    with pytest.raises(UsageError, match=r"stored as \[2\], and its axes say \[3\]"):
        read_dataset(picked).one("pick_d4", "a test")
    write(picked / "workloads/x.jsonl", [{"definition": "gone", "workload": {}}])
    with pytest.raises(UsageError, match="line 1 is of the definition `gone`"):
        read_dataset(picked)


@pytest.mark.parametrize(
    ("key", "entry", "said"),
    [
        ("__metadata__", {"format": "pt"}, "stored as `__metadata__`, which"),
        ("at", {"dtype": "I32", "data_offsets": [0, 12]}, "no valid `shape`"),
        ("at", {"shape": [3], "data_offsets": [0, 12]}, "no valid `dtype`"),
        ("at", {"dtype": "I32", "shape": 3, "data_offsets": [0, 12]}, "no valid `shape`"),
        ("at", {"dtype": "I32", "shape": [3]}, "no valid `data_offsets`"),
    ],
)
def test_stored_inputs_whose_header_does_not_describe_them(
    key: str, entry: dict[str, Any], said: str, tmp_path: Path
) -> None:
    text = json.dumps({key: entry}).encode()
    (tmp_path / "a.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(12))
    stored = {"type": "safetensors", "path": "a.safetensors", "tensor_key": key}
    call = workload("p", {"pages": 6, "n": 3}, {"at": stored})
    with pytest.raises(UsageError, match=said):
        read_workload(call, read_definition(PICK, "pick"), tmp_path, "p")


def test_lines_end_at_newlines_only_and_half_characters_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": "1\u20282\x853"}\r\n\n{"b": 2}\n', encoding="utf-8")
    assert read_lines(tmp_path / "a.jsonl") == [(1, {"a": "1\u20282\x853"}), (3, {"b": 2})]
    with pytest.raises(UsageError, match="is not JSON"):
        parse_json(r'{"reference": "\ud800"}', "it")
    assert parse_json(r'"\ud83d\ude00"', "it") == "\U0001f600"


def test_names_of_a_data_set_stay_below_the_folder_of_results(tmp_path: Path) -> None:
    definition, call = rms(name="..", op_type="..")
    results = ResultsFolder(tmp_path / "a/b/results")
    results.add_problem(definition, [call], tmp_path)
    place = results.add_solution(definition, solution("../../s", "..", RMS_RUN))
    results.add_traces(definition, [])
    assert place.relative_to(results.root) == Path("solutions/_/_/_.._s.json")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 4 and all(results.root in path.parents for path in files)


TIMED = Timing(
    candidate_ms=2.0,
    reference_ms=3.0,
    speedup=Interval(value=1.5, lo=1.4, hi=1.6),
    num_pairs=9,
    seconds=1,
)


@pytest.mark.parametrize(
    ("status", "error", "want"),
    [
        (Status.OK, None, "PASSED"),
        (Status.MISMATCH, "`output` has shape (3,) instead of (4,)", "INCORRECT_SHAPE"),
        (Status.MISMATCH, "the output is (*, *) instead of a tensor", "INCORRECT_SHAPE"),
        (Status.MISMATCH, "`output` has dtype torch.float16 instead of x", "INCORRECT_DTYPE"),
        (Status.MISMATCH, "`output`: 3 of 9 elements are off", "INCORRECT_NUMERICAL"),
        (Status.COMPILE_ERROR, "g++", "COMPILE_ERROR"),
        (Status.REJECTED, "not Python", "COMPILE_ERROR"),
        (Status.CHEAT, "it read the clock", "RUNTIME_ERROR"),
        (Status.TIMEOUT, "slow", "TIMEOUT"),
        (Status.BROKEN_TASK, "raises", None),
    ],
)
def test_verdicts_become_statuses_with_the_fields_that_these_have(
    status: Status, error: str | None, want: str | None
) -> None:
    right = status is Status.OK
    verdict = Verdict(
        status=status,
        tier="search",
        stage="done" if right else "check",
        error=error,
        timing=TIMED if right else None,
        worst_error=1e-7 if right else None,
        machine="A GPU, torch 2",
    )
    assert status_of(verdict) == want
    made = trace("rms_h32", rms()[1], "s", verdict)
    if want is None or made is None:
        assert made is want
        return
    found = made["evaluation"]
    assert found["environment"]["hardware"] == "A GPU"
    assert (found["performance"] is None) == (want != "PASSED")
    assert (found["correctness"] is None) == (want not in ("PASSED", "INCORRECT_NUMERICAL"))
    if right:
        assert found["performance"]["speedup_factor"] == 1.5
