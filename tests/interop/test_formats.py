"""Published formats, written here by their documented columns: reading, and errors of bad rows."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from dvk.errors import MachineError, UsageError
from dvk.interop.davinci import formats
from dvk.interop.davinci.formats import combined, feedback, operators
from dvk.learn import messages
from dvk.learn.examples import Example
from dvk.pipelines.sft.tokens import worth_learning
from tests.interop.format_rows import (
    PROMPT,
    SOURCE,
    answer,
    coldstart_row,
    json_lines,
    parquet,
    teacher_row,
    told,
    trajectory,
)


def test_cold_start(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "cold.parquet", [coldstart_row(), coldstart_row(best_round=5, final_speedup=3.0)]
    )
    first, second = formats.read(path)
    assert (first.kind, first.backend, first.verified, first.origin) == (
        "policy",
        "triton",
        False,
        "import:coldstart",
    )
    assert first.round_speedups == (None, 1.4, 2.6) and first.speedup == 2.6
    assert (
        len(first.messages) == 6
        and first.code.startswith("import triton\n# round 3")
        and first.code.endswith("class ModelNew: pass")
    )
    assert (
        first.task.source == SOURCE
        and first.task.name == "Block"
        and first.quality["best_round"] == 3
    )
    assert first.signature == ("linear", "relu", "layer_norm", "mul", "add", "softmax", "sum")
    # The fourth round was a decoy; the fifth is known to be the best one only from the columns.
    assert second.round_speedups == (None, 1.4, 2.5, None, 3.0) and len(second.messages) == 10


def test_half_of_a_surrogate_pair_can_be_written_down(tmp_path: Path) -> None:
    talk = [
        {"role": "user", "content": "a \ud83d"},
        {"role": "assistant", "content": "b \U0001f600"},
    ]
    (found,) = formats.read(json_lines(tmp_path / "talk.jsonl", [{"messages": talk}]))
    assert [m["content"] for m in found.messages] == [
        "a ?",
        "b \U0001f600",
    ] and found.model_dump_json()


def test_seed_records(tmp_path: Path) -> None:
    row = coldstart_row(
        round_speedups=[0.0, 1.4, 2.5, -1, 1.1], injected_skills=["tile", {"name": "fuse"}]
    )
    del row["best_round"], row["final_speedup"]
    (made,) = formats.read(json_lines(tmp_path / "seed.jsonl", [row]))
    assert (made.kind, made.skills, made.origin) == (
        "policy_with_skills",
        ("tile", "fuse"),
        "import:seed",
    )
    assert made.round_speedups == (None, 1.4, 2.5) and made.code.startswith(
        "import triton\n# round 3"
    )
    row = coldstart_row(round_speedups=[None, 1.4, 2.5])
    (made,) = formats.read(json_lines(tmp_path / "seed.jsonl", [row]))
    assert made.round_speedups == () and made.speedup == 2.6, (
        "the first round was not told, and may have been right"
    )


def test_rounds_without_a_report_are_not_errors(tmp_path: Path) -> None:
    row = coldstart_row()
    row["messages"] = [
        {**said, "content": "Try again."} if number == 2 else said
        for number, said in enumerate(row["messages"])
    ]
    said = row["messages"][:4]
    (cold,) = formats.read(parquet(tmp_path / "cold.parquet", [row]))
    mixed = combined.example({"messages": json.dumps(said), "tools": None, "enable_thinking": True})
    for made in (cold, mixed):
        assert made.round_speedups == () and list(itertools.islice(worth_learning(made), 2)) == [
            True,
            True,
        ]
    assert cold.speedup == 2.6


TOOL = {
    "type": "function",
    "function": {
        "name": "select_skills",
        "parameters": {"type": "object", "properties": {"think": {"type": "string"}}},
    },
}


def tool_answer(name: str, arguments: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}
        ],
    }


@pytest.mark.parametrize(
    "arguments",
    [
        {"think": "t", "selected_skills": [{"name": "b", "reason": "r"}]},
        json.dumps({"think": "t", "selected_skills": ["b"]}),
        "{'think': 't', 'selected_skills': [{'name': 'b'}]}",
        {"think": "t", "selected_skills": "[{'name': 'b'}]"},
    ],
)
@pytest.mark.parametrize("as_text", [True, False])
def test_combined_selection(tmp_path: Path, arguments: Any, as_text: bool) -> None:
    asked = f"{PROMPT}\n1. **a** [scope=general] [tags: x]\n   does a\n2. **b** [scope=general]\n   does b"
    said = [
        {"role": "system", "content": "choose"},
        {"role": "user", "content": asked},
        tool_answer("select_skills", arguments),
    ]
    row = {
        "messages": json.dumps(said) if as_text else said,
        "tools": json.dumps([TOOL]) if as_text else [TOOL],
        "enable_thinking": False,
    }
    file = (
        json_lines(tmp_path / "rows.jsonl", [row])
        if not as_text
        else parquet(tmp_path / "rows.parquet", [row])
    )
    (made,) = formats.read(file)
    assert (made.kind, made.skills, made.chosen, made.code, made.backend) == (
        "selection",
        ("a", "b"),
        ("b",),
        "",
        "",
    )
    assert isinstance(
        made.messages[-1]["tool_calls"][0]["function"]["arguments"], dict
    ) and made.task.source == SOURCE.rstrip("\n")


def test_combined_nested_parquet_has_nulls_everywhere(tmp_path: Path) -> None:
    selection = [
        {"role": "user", "content": "1. **a** [scope=general]"},
        tool_answer("select_skills", {"selected_skills": [{"name": "a"}]}),
    ]
    plain = [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": answer(1)}]
    rows = [
        {"messages": said, "tools": tools, "enable_thinking": False}
        for said, tools in ((selection, [TOOL]), (plain, None))
    ]
    summary = [
        {"role": "user", "content": PROMPT},
        tool_answer("update_skill_library", {"new_skills": [{"name": "n", "content": "c"}]}),
    ]
    rows.append({"messages": summary, "tools": None, "enable_thinking": False})
    first, second, third = formats.read(parquet(tmp_path / "rows.parquet", rows), "combined")
    assert first.chosen == ("a",) and "tool_calls" not in second.messages[0]
    assert first.messages[-1]["tool_calls"][0]["function"]["arguments"] == {
        "selected_skills": [{"name": "a"}]
    }
    assert third.messages[-1]["tool_calls"][0]["function"]["arguments"] == {
        "new_skills": [{"name": "n", "content": "c"}]
    }
    assert (
        second.kind == "policy"
        and second.tools == ()
        and second.code.endswith("class ModelNew: pass")
    )


def test_combined_policy_with_skills_and_feedback(tmp_path: Path) -> None:
    title = f"{messages.SKILL_BLOCK} Potentially Relevant Optimization Techniques"
    block = f"{title}\n---\nname: tile_rows\ndescription: d\n---\n\nbody\n\n---\n\n---\nname: fuse\n---\nbody\n"
    said = [{"role": "user", "content": block + PROMPT}, *trajectory()[1:4]]
    (made,) = formats.read(
        parquet(
            tmp_path / "rows.parquet",
            [{"messages": json.dumps(said), "tools": None, "enable_thinking": True}],
        )
    )
    assert (made.kind, made.skills, made.round_speedups) == (
        "policy_with_skills",
        ("tile_rows", "fuse"),
        (None, None),
    )
    assert made.code.startswith("import triton\n# round 2") and made.speedup is None


def test_combined_round_trip(tmp_path: Path) -> None:
    asked = {"role": "user", "content": f"{PROMPT}\n1. **a** [scope=general]"}
    rows = [
        {
            "messages": [
                {"role": "user", "content": PROMPT},
                {"role": "assistant", "content": answer(1)},
            ],
            "tools": None,
        },
        {
            "messages": [asked, tool_answer("select_skills", {"selected_skills": [{"name": "a"}]})],
            "tools": [TOOL],
        },
    ]
    made = [combined.example(row) for row in rows]
    path = tmp_path / "out" / "sft.parquet"
    assert combined.write(path, iter(made)) == 2
    assert [str(field.type) for field in pyarrow.parquet.read_schema(path)] == [
        "large_string",
        "large_string",
        "bool",
    ]
    assert list(formats.read(path)) == made
    assert pyarrow.parquet.read_table(path).to_pylist()[0]["tools"] is None


def test_generated_skills(tmp_path: Path) -> None:
    skill = {
        "name": "tile",
        "description": "d",
        "scope": "general",
        "tags": ["a"],
        "content": "## Motivation",
    }
    rows = [
        teacher_row(
            "update_skill_library",
            {"think": "t", "new_skills": [skill]},
            retrieved_skills=[{"name": "old"}],
        ),
        teacher_row("update_skill_library", {}, status="rejected"),
    ]
    problems: list[str] = []
    (made,) = formats.read(json_lines(tmp_path / "skills.jsonl", rows), problems=problems)
    assert (made.kind, made.chosen, made.skills, made.speedup) == (
        "summary",
        ("tile",),
        ("old",),
        2.5,
    )
    assert made.messages[-1]["tool_calls"][0]["function"]["arguments"]["new_skills"] == [skill]
    assert (
        made.tools[0]["function"]["name"] == "update_skill_library"
        and made.signature[0] == "linear"
    )
    assert problems == [f"{tmp_path}/skills.jsonl:2: status is 'rejected', not ok"]


def test_selections_keep_names_that_do_not_exist(tmp_path: Path) -> None:
    row = teacher_row(
        "select_skills",
        {"selected_skills": [{"name": "a"}, {"name": "dreamt"}]},
        bm25_candidates=[{"name": "a"}, {"name": "b"}],
    )
    (made,) = formats.read(json_lines(tmp_path / "selected.jsonl", [row]))
    assert (made.kind, made.skills, made.chosen) == ("selection", ("a", "b"), ("a", "dreamt"))


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"messages": "not json"}, "text but not JSON"),
        ({"messages": trajectory()[:3]}, "does not end with the assistant"),
        ({"best_round": 6}, "best_round is 6 in a trajectory of 5 rounds"),
        ({"messages": [{"content": "x"}]}, "no role"),
    ],
)
def test_a_bad_row_is_reported_and_the_rest_is_read(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    problems: list[str] = []
    path = json_lines(tmp_path / "cold.jsonl", [coldstart_row(), coldstart_row(**changes)])
    assert len(list(formats.read(path, "coldstart", problems))) == 1
    assert len(problems) == 1 and problems[0].startswith(f"{path}:2: ") and why in problems[0]


def test_files_that_are_not_such_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(parquet(tmp_path / "whole.parquet", [coldstart_row()]).read_bytes()[:-9])
    for path, why in [
        (tmp_path / "absent.parquet", "no such file"),
        (torn, "cannot read"),
        (json_lines(tmp_path / "other.jsonl", [{"a": 1}]), "unknown columns: a"),
        (tmp_path / "list.jsonl", ":1: not a JSON object"),
    ]:
        if path.name == "list.jsonl":
            path.write_text("[1]\n")
        with pytest.raises(UsageError, match=why):
            list(formats.read(path))
    with pytest.raises(UsageError, match="unknown format"):
        list(formats.read(tmp_path / "other.jsonl", "guess"))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MachineError, match=r"dvk\[formats\]"):
        list(formats.read(tmp_path / "whole.parquet"))


def test_every_format_is_a_function_of_a_row() -> None:
    from dvk import registry

    for name in formats.FORMATS:
        convert = registry.resolve(name, formats.FORMATS, "format")
        with pytest.raises(ValueError):
            convert({})


def test_feedback() -> None:
    assert feedback.speedup(told(1.25)) == 1.25
    assert (
        feedback.speedup(
            "```json\n"
            + json.dumps({"result": {"compiled": True, "correctness": True, "speedup": 2}})
            + "\n```"
        )
        == 2.0
    )
    for text in (
        told(1.25, False),
        told(1.25, decoy_kernel=True),
        told(-1.0),
        told(0),
        "no {json} here",
        "{",
        told(float("nan")),
        "{}" * 9,
        "",
    ):
        assert not feedback.speedup(text)


def test_fences() -> None:
    assert (
        messages.fenced("a\n```py\nx\n```\n```\nclass ModelNew\n```\n```text\nlog\n```", "ModelNew")
        == "class ModelNew"
    )
    assert messages.fenced("```python\nx = 1") == "x = 1"
    assert messages.fenced("nothing") == ""


@pytest.mark.parametrize(
    "source, names",
    [
        (
            "class Model:\n    def forward(self, a, b):\n        return torch.relu(a @ b) - a.sum(-1)",
            ("matmul", "relu", "sum", "sub"),
        ),
        (
            "class Model:\n    def forward(self, x):\n        for i in range(3):\n            x += F.gelu(x)\n        return x",
            ("gelu", "add"),
        ),
        ("class Other:\n    def forward(self): pass", ()),
        ("not python(", ()),
        ("", ()),
    ],
)
def test_operators_of_a_text(source: str, names: tuple[str, ...]) -> None:
    assert operators.signature(source) == names


def test_an_import_is_an_example_like_any_other(tmp_path: Path) -> None:
    for made in formats.read(parquet(tmp_path / "cold.parquet", [coldstart_row()])):
        assert (
            Example.model_validate_json(made.model_dump_json()) == made
            and made.id == made.content_id()
        )
