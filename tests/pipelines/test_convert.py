"""`dvk convert`: a round trip through every published format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from dvk.errors import UsageError
from dvk.interop.davinci import formats
from dvk.interop.kernelbench.problems import problems
from dvk.learn import examples
from dvk.learn.examples import Example
from dvk.pipelines.convert import convert
from tests.cli import warm
from tests.interop.format_rows import SOURCE, coldstart_row, json_lines, parquet, teacher_row

SKILL = {
    "name": "tile",
    "description": "d",
    "scope": "general",
    "tags": ["a"],
    "content": "## Motivation",
}
TASK = (
    "import torch\n\n\nclass {}(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n\n\n"
    "def get_inputs():\n    return [torch.randn(3)]\n"
)


def seeds(path: Path) -> Path:
    plain = coldstart_row(round_speedups=[0.0, 1.4, 2.6, -1, 1.1])
    return json_lines(path, [plain, {**plain, "uuid": 8, "injected_skills": ["fuse"]}])


def taught(path: Path, kind: str) -> Path:
    tool, arguments, rest = {
        "skills": (
            "update_skill_library",
            {"think": "é", "new_skills": [SKILL]},
            {"retrieved_skills": [{"name": "old"}]},
        ),
        "selection": (
            "select_skills",
            {"think": "t", "selected_skills": [{"name": "b", "reason": "r"}]},
            {"bm25_candidates": [{"name": "b"}]},
        ),
    }[kind]
    return json_lines(path, [teacher_row(tool, arguments, **rest)])


def facts(example: Example) -> tuple[Any, ...]:
    """Content that a format has to keep; the id is a hash of the conversation, its kind and its task."""
    return (
        example.id,
        example.skills,
        example.chosen,
        example.code,
        example.speedup,
        example.round_speedups,
        example.task,
    )


@pytest.mark.parametrize(
    ("form", "ending"),
    [
        ("seed", "jsonl"),
        ("coldstart", "parquet"),
        ("skills", "jsonl"),
        ("selection", "jsonl"),
        ("examples", "jsonl"),
    ],
)
def test_what_is_written_is_what_is_read(tmp_path: Path, form: str, ending: str) -> None:
    source = (
        taught(tmp_path / "in.jsonl", form)
        if form in ("skills", "selection")
        else seeds(tmp_path / "in.jsonl")
    )
    wanted = [made for made in formats.read(source) if form != "coldstart" or made.kind == "policy"]
    target = tmp_path / "out" / f"rows.{ending}"
    done = convert(source, target, form)
    assert done.number == len(wanted) and len(done.problems) == (1 if form == "coldstart" else 0)
    assert [facts(made) for made in formats.any_examples(target, [])] == [
        facts(made) for made in wanted
    ]


def test_documented_columns(tmp_path: Path) -> None:
    target = tmp_path / "cold.parquet"
    convert(seeds(tmp_path / "in.jsonl"), target, "coldstart")
    schema = pyarrow.parquet.read_schema(target)
    assert set(schema.names) == set(coldstart_row()) and str(schema.field("uuid").type) == "int64"
    assert (
        str(schema.field("messages").type) == "list<element: struct<role: string, content: string>>"
    )
    convert(taught(tmp_path / "skills_in.jsonl", "skills"), tmp_path / "skills.jsonl", "skills")
    row = json.loads((tmp_path / "skills.jsonl").read_text())
    assert (
        isinstance(row["tool_call_raw"]["function"]["arguments"], str)
        and row["skills"] == [SKILL]
        and row["status"] == "ok"
    )
    assert (
        row["uuid"] == 7
        and row["think"] == "é"
        and row["source_record"]["round_speedups"] == [0.0, 1.4, 2.5]
    )


def test_the_combined_table_of_all_kinds(tmp_path: Path) -> None:
    files = [
        seeds(tmp_path / "a.jsonl"),
        taught(tmp_path / "b.jsonl", "skills"),
        taught(tmp_path / "c.jsonl", "selection"),
    ]
    made = [example for file in files for example in formats.read(file)]
    examples.write(tmp_path / "all.jsonl", made)
    assert convert(tmp_path / "all.jsonl", tmp_path / "sft.parquet").form == "combined"
    again = list(formats.read(tmp_path / "sft.parquet"))
    assert [(e.messages, e.tools) for e in again] == [(e.messages, e.tools) for e in made]
    assert [e.kind for e in again[2:]] == ["summary", "selection"]


def test_problems_to_the_rl_table_and_back(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    (folder / "level1").mkdir(parents=True)
    (folder / "level1" / "relu.py").write_text(TASK.format("Model"))
    (folder / "head.py").write_text(TASK.format("Head"))
    (folder / "notes.py").write_text("x = 1\n")
    done = convert(folder, tmp_path / "rl.parquet")
    assert (done.form, done.number) == ("rl", 2) and "notes" in done.problems[0]
    rows = pyarrow.parquet.read_table(tmp_path / "rl.parquet").to_pylist()
    head, relu = rows
    assert relu["reward_model"] == {
        "style": "rule",
        "ground_truth": TASK.format("Model"),
        "entry_point": "Model",
    }
    assert relu["extra_info"]["level"] == "1" and json.loads(relu["extra_info"]["ops"]) == ["relu"]
    assert relu["ability"] == "kernel_optimization" and relu["data_source"]
    (question,) = relu["prompt"]
    assert question["role"] == "user" and TASK.format("Model").strip() in question["content"]
    assert (
        "Optimize the architecture named Model" in question["content"]
        and head["extra_info"]["entry_point"] == "Head"
    )
    found = {problem.name: problem for problem in problems(tmp_path / "rl.parquet")}
    assert (
        found[
            "relu" if "relu" in found else next(name for name in found if name.startswith("relu"))
        ].level
        == "level1"
    )
    assert convert(tmp_path / "rl.parquet", tmp_path / "back").number == 2
    (back,) = (tmp_path / "back" / "level1").glob("relu*.py")
    assert back.read_text() == TASK.format("Model")
    assert any(
        "class Model" in file.read_text() or "Model = Head" in file.read_text()
        for file in (tmp_path / "back").glob("*.py")
    )


@pytest.mark.parametrize(
    ("level", "place"),
    [
        ("../../escaped", "escaped"),
        ("ABSOLUTE", None),
        ("..", "."),
        ("a/../b", "a_b"),
        (2, "level2"),
        ("level3", "level3"),
        (None, "."),
    ],
)
def test_a_level_leads_nowhere_else(tmp_path: Path, level: Any, place: str | None) -> None:
    level = str(tmp_path / "absolute") if level == "ABSOLUTE" else level
    rows = [{"code": TASK.format("Model"), "level": level, "name": "a", "problem_id": 1}]
    convert(json_lines(tmp_path / "in.jsonl", rows), tmp_path / "x" / "y" / "out")
    (file,) = tmp_path.rglob("*.py")
    assert file.is_relative_to(tmp_path / "x" / "y" / "out") and (
        place is None or file.parent == tmp_path / "x" / "y" / "out" / place
    )


@pytest.mark.parametrize(
    ("source", "target", "form", "text"),
    [
        ("missing.jsonl", "out.jsonl", None, "no such file"),
        ("in.jsonl", "out.jsonl", "yaml", "unknown form"),
        ("in.jsonl", "out.jsonl", "combined", "ends in .parquet"),
        ("in.jsonl", "in.jsonl", None, "exists"),
        ("in.jsonl", "out.jsonl", "selection", "nothing in"),
        ("empty", "out.parquet", None, "no task files"),
    ],
)
def test_what_cannot_be_done(
    tmp_path: Path, source: str, target: str, form: str | None, text: str
) -> None:
    seeds(tmp_path / "in.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError) as caught:
        convert(tmp_path / source, tmp_path / target, form)
    assert (
        text in str(caught.value)
        and not (tmp_path / "out.jsonl").exists()
        and not (tmp_path / "out.parquet").exists()
    )


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    source = seeds(tmp_path / "in.jsonl")
    kept = source.read_bytes()
    with pytest.raises(UsageError, match="nothing in"):
        convert(source, source, "selection", replace=True)
    assert source.read_bytes() == kept and [path.name for path in tmp_path.iterdir()] == [
        "in.jsonl"
    ]
    assert convert(source, source, "seed", replace=True).number == 2 and source.read_bytes() != kept


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("plain", "is a file"),
        ("dd.jsonl", "is a folder"),
        ("plain/out.jsonl", "cannot write"),
        ("plain/out", "cannot write"),
        ("/proc/out.jsonl", "cannot write"),
        ("/proc/out.parquet", "cannot write"),
        ("/proc/out", "cannot write"),
    ],
)
@pytest.mark.parametrize("replace", [False, True])
def test_where_nothing_can_be_written(
    tmp_path: Path, target: str, text: str, replace: bool
) -> None:
    (tmp_path / "plain").write_text("kept")
    (tmp_path / "dd.jsonl").mkdir()
    row = {"code": TASK.format("Model"), "name": "a"}
    source = (
        seeds(tmp_path / "in.jsonl")
        if Path(target).suffix
        else json_lines(tmp_path / "in.jsonl", [row])
    )
    with pytest.raises(UsageError, match=text):
        convert(source, tmp_path / target, replace=replace)
    assert (tmp_path / "plain").read_text() == "kept" and not list(
        (tmp_path / "dd.jsonl").iterdir()
    )


def test_by_the_command(tmp_path: Path) -> None:
    parquet(tmp_path / "cold.parquet", [coldstart_row(), coldstart_row(best_round=9)])
    done = warm.dvk(
        "convert", "cold.parquet", "seeds.jsonl", "--to", "seed", "--json", cwd=tmp_path
    )
    assert json.loads(done.stdout) == {
        "form": "seed",
        "number": 1,
        "left_out": 1,
        "target": "seeds.jsonl",
    }
    assert (
        "best_round is 9" in done.stderr
        and json.loads((tmp_path / "seeds.jsonl").read_text())["original_python_code"] == SOURCE
    )
    assert (
        "exists"
        in warm.dvk(
            "convert", "cold.parquet", "seeds.jsonl", "--to", "seed", cwd=tmp_path, exits=2
        ).stderr
    )
