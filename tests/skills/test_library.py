"""The library: find, add, remove, and refuse files that are no library."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dvk.config import LibraryConfig
from dvk.errors import LibraryError
from dvk.records import Skill
from dvk.skills import Library, default_path, schema
from dvk.skills.grooming import groom
from dvk.skills.relations import related
from dvk.skills.schema import file_damage
from dvk.skills.soundness import faults
from tests.skills.search_index import index_is_whole

Make = Callable[..., Skill]

ODD_TEXTS = [
    *(
        '"',
        "'",
        '"unbalanced',
        "AND",
        "a OR",
        "NOT",
        "NEAR(a b, 3)",
        "*",
        "a*",
        "^a",
        "name:softmax",
        "{name body}: x",
    ),
    *(
        "-",
        "--",
        "+",
        "(",
        ")",
        "a\0b",
        "\0",
        "",
        " \n\t",
        "💥",
        "日本語",
        "\ud800",
        "ﬁ",
        "é",
        "%s %d",
        "\\",
    ),
    *("'; DROP TABLE skills; --", "<<<grid, block>>>", "x" * 100_000, "word " * 20_000, '"' * 5000),
    " OR ".join(f"w{i}" for i in range(20_000)),
    bytes(range(256)).decode("latin-1") * 400,
]


def names(library: Library, text: str, limit: int = 10) -> list[str]:
    return [hit.name for hit in library.search(text, limit)]


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("float4", ["float4", "FLOAT4", "float"]),
        ("tl.dot", ["tl.dot", "dot", "tl", "tl dot"]),
        ("num_warps", ["num_warps", "warps", "num", "warp", "num warps", "NUM_WARPS", "numWarps"]),
        ("BLOCK_SIZE", ["BLOCK_SIZE", "block_size", "block", "size", "BlockSize"]),
        ("torch.compile", ["torch.compile", "compile", "torch", "compiled"]),
        ("kernel<<<grid, block>>>(x)", ["<<<grid, block>>>", "grid", "kernel<<<grid", "block>>>"]),
        ("LayerNorm", ["LayerNorm", "layernorm", "layer_norm", "layer norm", "norm"]),
        ("layer_norm", ["LayerNorm", "layernorm", "F.layer_norm"]),
        ("log-sum-exp", ["logsumexp", "log_sum_exp", "exp"]),
        ("__launch_bounds__(256)", ["__launch_bounds__", "launch_bounds", "bounds", "256"]),
        ("-O3 --use_fast_math", ["-O3", "--use_fast_math", "fast_math", "use"]),
        ("Straße café", ["straße", "cafe", "CAFÉ"]),
    ],
)
def test_wholes_and_their_parts_are_found(
    library: Library, make: Make, written: str, asked: list[str]
) -> None:
    library.add(make("wanted", f"use {written} here."))
    library.add(make("other", "nothing of that kind"))
    for text in asked:
        assert names(library, text)[:1] == ["wanted"], text


def test_a_whole_identifier_beats_its_scattered_parts(library: Library, make: Make) -> None:
    library.add(make("scattered", "a number of warps; the num of warps, warps and num"))
    library.add(make("whole", "set num_warps"))
    for number in range(8):
        library.add(make(f"noise_{number}"))
    assert names(library, "num_warps") == ["whole", "scattered"]


def test_names_and_tags_weigh_more_than_bodies(library: Library, make: Make) -> None:
    library.add(make("in_body", "softmax softmax"))
    library.add(make("in_description", description="softmax"))
    library.add(make("in_tags", tags=("softmax",)))
    library.add(make("softmax"))
    for number in range(8):
        library.add(make(f"noise_{number}"))
    assert names(library, "softmax") == ["softmax", "in_tags", "in_description", "in_body"]


def test_scope_is_indexed(library: Library, make: Make) -> None:
    library.add(make("a", scope="task_specific/quantisation"))
    assert names(library, "quantisation") == ["a"]


def test_a_tiny_library_still_finds(library: Library, make: Make) -> None:
    """Cases in which plain BM25 has an idf below zero: one skill, or two that share a word."""
    library.add(make("one", "softmax"))
    assert names(library, "softmax") == ["one"]
    library.add(make("two", "softmax"))
    assert set(names(library, "softmax")) == {"one", "two"}
    assert all(hit.score > 0 for hit in library.search("softmax"))


@pytest.mark.parametrize("text", ODD_TEXTS, ids=lambda text: ascii(text[:12]))
def test_any_text_is_a_valid_query(library: Library, make: Make, text: str) -> None:
    library.add(make("a", "words to find w17 x"))
    for hit in library.search(text):
        assert hit.name == "a"


def test_random_text_is_a_valid_query(library: Library, make: Make) -> None:
    library.add(make("a"))
    draw = random.Random(0)
    for _ in range(300):
        library.search(
            "".join(
                chr(draw.choice([draw.randrange(1, 128), draw.randrange(0x110000)]))
                for _ in range(40)
            )
        )


def test_odd_text_can_be_stored(library: Library, make: Make) -> None:
    library.add(make("odd", "nul \0 surrogate \ud800 emoji 💥"))
    assert "emoji 💥" in library.get("odd").body
    library.remove("odd")
    assert names(library, "emoji") == []


def test_hits_are_sorted_marked_and_carry_the_skill(library: Library, make: Make) -> None:
    library.add(
        make(
            "first",
            "warps " * 3,
            tags=("warps",),
            recipe="vectorize",
            relations={"refines": ["second"]},
        )
    )
    library.add(make("second", "one of many warps " + "filler " * 200))
    for number in range(8):
        library.add(make(f"noise_{number}"))
    hits = library.search("warps")
    assert [hit.name for hit in hits] == ["first", "second"]
    assert hits[0].score > hits[1].score > 0
    assert "«warps»" in hits[1].snippet and len(hits[1].snippet) < 300
    assert hits[0].skill == library.get("first")
    assert library.search("warps", snippets=False)[0].snippet == ""
    assert len(library.search("warps", 1)) == 1


def test_get_returns_what_was_added(library: Library, make: Make) -> None:
    origin = {"provenance": {"source": "user", "n": 1}, "evidence": ({"speedup": 1.5},)}
    skill = make(
        "full", tags=("a", "b c"), recipe="vectorize", relations={"combines": ["x"]}, **origin
    )
    library.add(skill)
    assert library.get("full") == skill
    assert "full" in library and "fool" not in library and len(library) == 1
    with pytest.raises(LibraryError, match="fool") as caught:
        library.get("fool")
    assert "full" in caught.value.hint


def test_add_refuses_a_taken_name_and_replaces_on_request(library: Library, make: Make) -> None:
    library.add(make("a", "oldword"))
    with pytest.raises(LibraryError, match="already"):
        library.add_all([make("b"), make("a", "newword")])
    assert library.names() == ["a"], "nothing of a refused batch is stored"
    library.add(make("a", "newword"), replace=True)
    assert names(library, "newword") == ["a"] and names(library, "oldword") == []
    done = library.add_all([make("a", "third"), make("c"), make("c", "again")], taken="keep")
    assert (done.added, done.kept) == (("c",), ("a",))
    assert "newword" in library.get("a").body and "again" not in library.get("c").body


def test_evidence_of_a_skill_survives_its_export(
    library: Library, make: Make, tmp_path: Path
) -> None:
    from dvk.skills.exchange import export_to, import_from

    known = {"provenance": {"source": "seed"}, "evidence": ({"speedup": 2.0},)}
    measured = related(make("a", relations={"combines": ["x"]}, **known), {"conflicts": ["b"]})
    library.add_all([measured, make("b", "old", **known)])
    for form, target in (("markdown", tmp_path / "out"), ("jsonl", tmp_path / "out.jsonl")):
        export_to(library.path, target, form, replace=False)  # type: ignore[arg-type]
        done = import_from(library.path, target, replace=True)
        assert (done.replaced, done.kept, library.get("a")) == ([], ["a", "b"], measured)
    (tmp_path / "out" / "b.md").write_text(
        (tmp_path / "out" / "b.md").read_text().replace("old", "new")
    )
    done = import_from(library.path, tmp_path / "out", replace=True)
    assert (done.replaced, done.kept) == (["b"], ["a"]) and library.get("b").evidence == ()


def test_remove_takes_it_out_of_the_index(library: Library, make: Make) -> None:
    library.add(make("a", "float4"))
    library.remove("a")
    assert names(library, "float4") == []
    with pytest.raises(LibraryError):
        library.remove("a")
    assert index_is_whole(library.path)


def test_list_filters_by_scope_and_tag(library: Library, make: Make) -> None:
    library.add(make("c", scope="task_specific/norm", tags=("x",)))
    library.add(make("b", scope="task_specific/normal", tags=("x y",)))
    library.add(make("a", tags=("x",)))
    assert [skill.name for skill in library.list()] == ["a", "b", "c"]
    assert [skill.name for skill in library.list(scope="task_specific")] == ["b", "c"]
    assert [skill.name for skill in library.list(scope="task_specific/norm")] == ["c"]
    assert [skill.name for skill in library.list(tag="x")] == ["a", "c"]


def test_stats_count(library: Library, make: Make) -> None:
    library.add(make("a", tags=("x", "y"), recipe="vectorize"))
    library.add(make("b", tags=("x",), evidence=({"speedup": 2.0},)))
    stats = library.stats()
    assert (
        stats["num_skills"],
        stats["num_recipes"],
        stats["num_measured"],
        stats["num_seeds"],
    ) == (2, 1, 1, 0)
    assert stats["tags"] == {"x": 2, "y": 1} and stats["scopes"] == {"general": 2}


# ------------------------------------------------------------ files that are no library


def test_a_missing_library_is_an_error_unless_made(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match="no skill library"):
        Library.open(tmp_path / "typo.db")
    assert not (tmp_path / "typo.db").exists()
    with Library.open(tmp_path / "new" / "made.db", create=True) as library:
        assert len(library) == 0, "only the default library is filled with seeds"


def test_other_files_are_refused_untouched(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("not a database, " * 100)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (x)")
    folder = tmp_path / "folder.db"
    folder.mkdir()
    for path in (text, other, folder):
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(LibraryError):
            Library.open(path, create=True)
        assert path.is_dir() or path.read_bytes() == before


def test_a_library_of_a_newer_dvk_is_refused(library: Library) -> None:
    library.close()
    with sqlite3.connect(library.path) as connection:
        connection.execute(f"PRAGMA user_version={len(schema.MIGRATIONS) + 1}")
    with pytest.raises(LibraryError, match="newer"):
        Library.open(library.path)


def test_a_damaged_file_is_an_error_not_a_traceback(library: Library, make: Make) -> None:
    library.add_all(make(f"s{number}", "word " * 300) for number in range(50))
    library.close()
    content = bytearray(library.path.read_bytes())
    content[4096:] = random.Random(0).randbytes(len(content) - 4096)
    library.path.write_bytes(content)
    with pytest.raises(LibraryError) as caught, Library.open(library.path) as damaged:
        damaged.search("word")
    assert str(library.path) in caught.value.message


def test_a_skill_that_cannot_be_decoded_is_not_quoted_in_the_error(
    library: Library, make: Make
) -> None:
    """Its text is no advice: this one speaks of a full disk."""
    library.add(make("a"))
    library.close()
    with sqlite3.connect(library.path) as connection:
        connection.execute("UPDATE skills SET body = CAST(x'66756c6c0aff' AS TEXT)")
    with pytest.raises(LibraryError) as caught, Library.open(library.path) as damaged:
        damaged.list()
    assert (
        "\n" not in caught.value.message
        and "'body'" in caught.value.message
        and caught.value.hint == schema.RESTORE
    )


def test_one_value_that_is_no_json_is_named(library: Library, make: Make) -> None:
    library.add_all([make("a"), make("b", "float4")])
    with sqlite3.connect(library.path) as connection:
        connection.execute(
            "INSERT INTO events (kind, skill, step, time, data) VALUES ('given', 'a', 1, '', 'oops')"
        )
    assert faults(library, ()) == ["event 3 (given a) is damaged: its data is no JSON object"]
    assert len(library.events("b")) == 1
    for read in (
        library.events,
        lambda: library.events("a"),
        lambda: groom(library, LibraryConfig()),
    ):
        with pytest.raises(LibraryError, match="event 3"):
            read()
    with sqlite3.connect(library.path) as connection:
        connection.execute("UPDATE skills SET tags = 'oops' WHERE name = 'b'")
    (hit,) = library.search("float4")
    with pytest.raises(LibraryError, match="skill `b` is damaged"):
        _ = hit.tags
    assert library.stats()["num_skills"] == 2 and "skill `b` is damaged" in faults(library, ())[0]


def test_a_file_that_is_damaged_in_many_places_is_one_fault_with_one_way_out() -> None:
    said = "*** in database main ***\nPage 68: btreeInitPage() returns error code 11\nPage 71: btreeInitPage() returns error code 11"
    damaged: Any = SimpleNamespace(execute=lambda sql: [(said,), ("Page 72: never used",)])
    assert file_damage(damaged) == [
        f"file: Page 68: btreeInitPage() returns error code 11; {schema.RESTORE}"
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_library_is_readable(library: Library, make: Make) -> None:
    library.add(make("a", "float4"))
    library.close()
    library.path.chmod(stat.S_IRUSR)
    library.path.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with Library.open(library.path) as again:
            assert names(again, "float4") == ["a"]
            with pytest.raises(LibraryError, match="readonly"):
                again.remove("a")
    finally:
        library.path.parent.chmod(stat.S_IRWXU)


def test_without_write_access_what_is_still_in_the_log_is_seen(
    library: Library, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    library.add(make("a"))
    with Library.open(library.path) as again:
        assert again.names() == ["a"]
        library.add(make("b"))
        assert again.names() == ["a", "b"]
        with pytest.raises(LibraryError, match="readonly"):
            again.remove("a")


def test_default_path_follows_dvk_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "home"))
    assert default_path() == tmp_path / "home" / "skills.db"
    monkeypatch.delenv("DVK_HOME")
    assert default_path() == Path.home() / ".dvk" / "skills.db"
