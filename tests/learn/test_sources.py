"""Sources: the same examples from a list and from files, by batches, by position, by field and by sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from dvk.errors import UsageError
from dvk.learn.examples import Example, ExampleTask, write
from dvk.learn.sources import InMemory, OnDisk, parsed


def one(number: int, **fields: object) -> Example:
    said = (
        {"role": "user", "content": f"q{number}" * (1 + number % 7)},
        {"role": "assistant", "content": '"speedup"'},
    )
    return Example.new(
        **{
            "kind": "policy",
            "messages": said,
            "task": ExampleTask(id="t"),
            "origin": "test",
            **fields,
        }
    )


@pytest.fixture
def both(tmp_path: Path) -> tuple[InMemory, OnDisk]:
    given = InMemory(one(n, **({"speedup": 1.0 + n} if n % 5 == 0 else {})) for n in range(300))
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.jsonl")]
    for path, (first, last) in zip(paths, ((0, 200), (200, 200), (200, 300))):
        write(path, given[first:last])
    paths[0].write_bytes(paths[0].read_bytes().replace(b"\n", b"\n \n\n", 3))
    return given, OnDisk(paths)


def test_files_are_the_list_that_was_written(both: tuple[InMemory, OnDisk]) -> None:
    given, files = both
    assert list(files) == given
    for source in both:
        batches = list(source.batches(7))
        assert [len(batch) for batch in batches] == [7] * 42 + [6]
        assert [example for batch in batches for example in parsed(batch)] == given
        assert [source.at(n) for n in (0, 2, 3, 199, 200, 299)] == [
            given[n] for n in (0, 2, 3, 199, 200, 299)
        ]
        assert list(source.having("speedup")) == given[::5]


def test_a_sample_is_even_and_in_order(both: tuple[InMemory, OnDisk]) -> None:
    given, _ = both
    place = {example.id: number for number, example in enumerate(given)}
    for source in both:
        found = [place[example.id] for example in source.sample(30)]
        assert found == sorted(set(found)) and 25 <= len(found) <= 31
        assert (
            max(b - a for a, b in zip(found, found[1:])) <= 20 and found[0] < 10 and found[-1] > 280
        )
        assert list(source.sample(100_000)) == given, "all where there are fewer"
    assert list(InMemory().sample(5)) == []


def test_a_line_that_is_no_example_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    write(path, [one(0)])
    path.write_bytes(path.read_bytes() + b"\n{}\n")
    with pytest.raises(UsageError, match=r"bad\.jsonl:3"):
        list(OnDisk([path]))
