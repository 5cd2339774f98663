"""Parts of prompts: budgets hold and say so, skills read the same everywhere, notes survive a round trip."""

from __future__ import annotations

import pytest

from dvk.agents import notes, task_context
from dvk.agents.notes import Note
from dvk.agents.task_context import TaskContext
from dvk.records import ShapeVariant, Task, TensorSpec
from dvk.skills import markdown, seed_dir
from dvk.skills.markdown import parse
from tests.agents.conftest import make_skill

SEEDS = sorted(seed_dir().glob("*.md"))


def test_a_cut_is_seen_and_keeps_both_ends() -> None:
    text = "".join(f"<{n}>" for n in range(1000))
    short = task_context.cut(text, 100)
    assert (
        short.startswith("<0><1>")
        and short.endswith("<998><999>")
        and "characters left out" in short
    )
    assert len(short) < 100 * task_context.CHARS_PER_TOKEN + 60
    assert task_context.cut("as it is", 100) == "as it is"
    assert task_context.cut("abc" * 50, 0).strip() == "[… 150 characters left out …]"


def test_short_texts_stay_whole_and_leave_their_share_to_long_ones() -> None:
    texts = ["a" * 30, "b" * 3000, "c" * 300]
    first, second, third = task_context.fit(texts, 400)
    assert (first, third) == (texts[0], texts[2]) and "left out" in second
    assert 850 <= second.count("b") <= 870
    assert task_context.fit(texts, 2000) == texts and task_context.fit([], 10) == []


def test_three_seeds_fit_whole() -> None:
    """The budget's reason (config) is true of the seeds that ship."""
    longest = sorted((markdown.read(path) for path in SEEDS), key=lambda skill: -len(skill.body))[
        :3
    ]
    text = task_context.skill_texts(longest, task_context.SKILLS_TOKENS)
    assert "left out" not in text
    assert [parse(part, sections=False).name for part in text.split(task_context.SEPARATOR)] == [
        skill.name for skill in longest
    ]


def test_headers_tell_no_bodies() -> None:
    text = task_context.headers(
        [
            make_skill("one", scope="general", tags=("row", "softmax")),
            make_skill("two", description="a\nb"),
        ]
    )
    assert text.splitlines() == [
        "1. **one** [scope=general] [tags: row, softmax]",
        "   about one",
        "2. **two** [scope=general] [tags: ]",
        "   a b",
    ]


def test_a_task_records_its_tolerance_class() -> None:
    specs = (
        TensorSpec(name="x", dtype="float32", shape=(4, 3), strides=(3, 1)),
        TensorSpec(name="y", dtype="int8", shape=(4, 3), strides=(1, 4)),
    )
    task = Task(
        id="t",
        name="t",
        source="class Model: ...\n" * 20,
        entry="Model",
        kind="module",
        inputs=specs,
        outputs=specs[:1],
        shape_variants=(ShapeVariant(name="batch+3", changes=()),),
    )
    text = task_context.task(TaskContext(task, None, "cpp"), 1000)
    assert (
        "Inputs: x float32[4, 3]; y int8[4, 3] strides [1, 4]." in text
        and "Outputs: x float32[4, 3]." in text
    )
    assert (
        "other shapes: batch+3" in text
        and "Precision class: fp32" in text
        and text.count("class Model") == 20
    )
    assert "left out" in task_context.task(TaskContext(task, None, "cpp"), 20)


# ---------------------------------------------------------------- notes


@pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.stem)
def test_every_seed_has_a_note(path: object) -> None:
    skill = markdown.read(path)  # type: ignore[arg-type]
    note = notes.note(skill)
    rows = note.text().splitlines()
    assert len(rows) == 3 and rows[0] == f"skill {skill.name}"
    for row in (note.when, note.do):
        assert len("always") <= len(row) <= notes.MAX_CHARS and "\n" not in row
    assert note.when != note.do


def test_a_note_written_is_the_note_read() -> None:
    given = Note(
        "one_sweep", "rows of 4096 or more; fp32", "one sweep. Two accumulators, then merge"
    )
    skill = make_skill(
        "one_sweep",
        body=notes.body(given, evidence="Seen.", example="for i:\n## not a heading\n  x"),
    )
    assert notes.note(skill) == given
    assert not [name for name in markdown.REQUIRED if name not in notes.sections(skill.body)]
    assert parse(markdown.render(skill)).body == skill.body.strip("\n")


def test_a_note_is_derived_from_first_sentences() -> None:
    assert notes.note(make_skill("merge")) == Note("merge", "On long rows", "Do merge in one sweep")
    assert notes.note(make_skill("bare", body="nothing")) == Note(
        "bare", "about bare", "about bare"
    )


def test_a_long_line_is_cut_at_a_word() -> None:
    text = notes.line("word " * 50)
    assert len(text) <= notes.MAX_CHARS and text.endswith("word…")
    assert notes.line("x" * 500) == "x" * (notes.MAX_CHARS - 1) + "…"
