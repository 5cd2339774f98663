"""Examples on disk: a round trip, and invalid lines are refused with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from dvk.errors import UsageError
from dvk.learn import examples
from dvk.learn.examples import Example, ExampleTask

MESSAGES = (
    {"role": "user", "content": "make it fast"},
    {"role": "assistant", "content": "def run(x0): return x0"},
)


def one(**fields: object) -> Example:
    return Example.new(
        **{
            "kind": "policy",
            "messages": MESSAGES,
            "task": ExampleTask(id="t"),
            "origin": "composer",
            **fields,
        }
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    made = [
        one(code="a\u2028b", speedup=1.5, lo=1.4, signature=("relu",), round_speedups=(None, 1.5)),
        one(backend="cpp", quality={"x": [1, None]}),
    ]
    path = tmp_path / "deep" / "examples.jsonl"
    assert examples.write(path, iter(made)) == 2
    assert list(examples.read(path)) == list(examples.read(path.parent)) == made
    assert [entry.name for entry in path.parent.iterdir()] == ["examples.jsonl"]


def test_the_id_is_of_what_is_learned() -> None:
    assert one().id == one(speedup=2.0, origin="endpoint:m").id == one().content_id()
    others = [
        one(backend="cpp"),
        one(task=ExampleTask(id="u")),
        one(messages=(MESSAGES[0], {"role": "assistant", "content": "other"})),
    ]
    assert len({example.id for example in [one(), *others]}) == 4


def test_answer_is_all_that_the_assistant_says() -> None:
    call = {
        "id": "0",
        "type": "function",
        "function": {"name": "select_skills", "arguments": {"selected_skills": ["a"]}},
    }
    turns = (
        *MESSAGES,
        {"role": "user", "content": "slow"},
        {"role": "assistant", "content": [{"type": "text", "text": "again"}], "tool_calls": [call]},
    )
    assert (
        one(messages=turns).answer() == 'def run(x0): return x0\nagain\n{"selected_skills": ["a"]}'
    )


@pytest.mark.parametrize(
    "fields, why",
    [
        ({"messages": MESSAGES[:1]}, "last message"),
        ({"messages": ({"content": "?"}, MESSAGES[1])}, "no role"),
        ({"kind": "policy_with_skills"}, "no skill"),
        ({"skills": ("a",)}, "plain policy"),
        ({"lo": 2.0, "speedup": 1.5}, "interval"),
        ({"speedup": 0.0}, "greater than 0"),
        ({"unknown": 1}, "Extra inputs"),
    ],
)
def test_states_that_contradict_each_other(fields: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        one(**fields)


@pytest.mark.parametrize(
    "line, why",
    [
        (b'{"id": "a", "kind": "pol', r":2: not JSON.*\n?.*deleted"),
        (b"[]", ":2: not an example"),
        (b'{"kind": "policy"}', ":2: not an example: id: Field required"),
        (b"\xff\xfe", ":2: not JSON"),
    ],
)
def test_a_line_that_is_not_an_example_is_named(tmp_path: Path, line: bytes, why: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(one().model_dump_json().encode() + b"\n" + line + b"\n")
    with pytest.raises(UsageError, match=why):
        list(examples.read(path))


def test_nothing_there(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.jsonl"):
        with pytest.raises(UsageError, match="no examples"):
            list(examples.read(path))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    examples.write(path, [one()])

    def broken():
        yield one(speedup=3.0)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        examples.write(path, broken())
    assert list(examples.read(path)) == [one()]
    assert len(list(tmp_path.iterdir())) == 1
