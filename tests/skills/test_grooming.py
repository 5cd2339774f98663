"""Grooming: decisions with reasons, applied as events; joint effects of skills; merging libraries."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from dvk.config import LibraryConfig
from dvk.errors import LibraryError
from dvk.records import Skill
from dvk.skills import Library, seeds
from dvk.skills.events import Event, replay
from dvk.skills.grooming import LibraryChange, apply, groom, plan
from dvk.skills.likeness import likeness, near_duplicates, words
from dvk.skills.merging import bring, diff
from dvk.skills.relations import joints, learned, related
from dvk.skills.usage import SkillUsage, tally

Make = Callable[..., Skill]
SETTINGS = LibraryConfig()


def used(
    name: str, gain: float, half: float, trials: int = 20, **more: object
) -> tuple[tuple[str, str], SkillUsage]:
    fields = {
        "trials": trials,
        "gain": gain,
        "lo": gain - half,
        "hi": gain + half,
        "total": gain * trials,
        **more,
    }
    return (name, "policy"), SkillUsage(name, **fields)  # type: ignore[arg-type]


def play(skills: Sequence[str], gain: float, step: int) -> list[Event]:
    others = {name: [other for other in skills if other != name] for name in skills}
    return [
        Event(
            "given",
            name,
            step,
            {"role": "policy", "task": "t", "gain": gain, "together": others[name]},
        )
        for name in skills
    ]


# ---------------------------------------------------------------- plan


def test_skills_that_stopped_helping_are_retired_on_evidence_alone(make: Make) -> None:
    skills = [make(name, name) for name in ("bad", "few", "good", "open", "pinned", "unused")]
    skills.append(make("seed", "seed", provenance={"source": "seed"}))
    known = dict(
        [
            used("bad", -0.10, 0.09),
            used("few", -0.5, 0.1, trials=11),
            used("good", 0.1, 0.05),
            used("open", -0.10, 0.10),
            used("pinned", -0.5, 0.1),
            used("seed", -0.2, 0.1),
        ]
    )
    (worst,) = plan(
        skills, known, LibraryConfig(pinned=("pinned",), merge_similarity=1.0), step=100
    )
    assert (worst.kind, worst.skill) == ("retired", "seed"), "one a round"
    assert "-0.200" in worst.why and "-0.300 to -0.100" in worst.why and "20 trials" in worst.why
    (second,) = plan(
        skills[:-1], known, LibraryConfig(pinned=("pinned",), merge_similarity=1.0), step=100
    )
    assert second.skill == "bad"
    assert (
        plan(skills[1:-1], known, LibraryConfig(pinned=("pinned",), merge_similarity=1.0), step=100)
        == []
    )


def test_near_duplicates_become_the_one_with_better_evidence(make: Make) -> None:
    text = "keep the running maximum and rescale the sum when it grows so one pass over a row is enough"
    one = make("one", text, relations={"combines": ["x", "two"]}, evidence=({"speedup": 1.1},))
    two = make("two", text + " indeed", evidence=({"speedup": 1.3},))
    other = make(
        "other",
        "tile the matrix product over shared memory",
        relations={"conflicts": ["one", "two"]},
    )
    recipe = make("recipe", text, recipe="online_softmax")
    changes = plan(
        [one, two, other, recipe],
        dict([used("one", 0.1, 0.1), used("two", 0.1, 0.05)]),
        SETTINGS,
        step=1,
    )
    merged, renamed = changes
    assert (merged.kind, merged.skill, merged.into) == ("merged", "one", "two")
    assert merged.after is not None and merged.after.evidence == (
        {"speedup": 1.3},
        {"speedup": 1.1},
    )
    assert merged.after.relations == {"combines": ("x",)}, "the other's, but none with itself"
    assert (
        renamed.skill == "other"
        and renamed.after is not None
        and renamed.after.relations == {"conflicts": ("two",)}
    )


def test_seeds_and_pinned_skills_are_not_merged_away(make: Make) -> None:
    seed, copy, pinned = make("seed", provenance={"source": "seed"}), make("copy"), make("pinned")
    known = dict([used("copy", 0.5, 0.1)])
    changes = plan([copy, seed], known, SETTINGS, step=1)
    assert [(change.skill, change.into) for change in changes] == [("copy", "seed")]
    assert plan([seed, pinned], known, LibraryConfig(pinned=("pinned",)), step=1) == []
    three = plan([copy, make("copz"), make("copx")], known, SETTINGS, step=1)
    assert [(change.skill, change.into) for change in three] == [("copx", "copy"), ("copz", "copy")]


def test_a_merged_skill_is_not_retired_before_both_are_counted_together(make: Make) -> None:
    changes = plan(
        [make("a"), make("b")], dict([used("a", -0.5, 0.1), used("b", -0.6, 0.1)]), SETTINGS, step=1
    )
    assert [change.kind for change in changes] == ["merged"]


def test_room_is_made_by_what_brought_least(make: Make) -> None:
    names = ("helpful", "idle_lately", "idle_long", "newcomer", "pinned", "weak")
    skills = [make(name, f"{name} " * 3) for name in names] + [
        make("seed", provenance={"source": "seed"})
    ]
    known = dict(
        [
            used("helpful", 0.1, 0.2, last_used=99),
            used("weak", -0.01, 0.2, last_used=99),
            used("idle_long", 0.0, 0.0, 0, last_used=10),
            used("idle_lately", 0.0, 0.0, 0, last_used=90),
            used("newcomer", -0.2, 0.5, 2, born=95),
            used("pinned", -0.1, 0.2),
        ]
    )

    def gone(most: int) -> list[str]:
        settings = LibraryConfig(max_skills=most, pinned=("pinned",), merge_similarity=1.0)
        return [change.skill for change in plan(skills, known, settings, step=100)]

    assert gone(7) == [] and gone(6) == ["weak"]
    assert gone(3) == ["weak", "idle_long", "idle_lately", "helpful"]
    assert gone(1) == ["weak", "idle_long", "idle_lately", "helpful", "newcomer"], (
        "what is pinned stays, however full it is"
    )


def test_likeness_is_jaccards(make: Make) -> None:
    assert (
        likeness(frozenset("abc"), frozenset("bcd")) == 0.5
        and likeness(frozenset(), frozenset()) == 0.0
    )
    assert {"num", "warps"} <= words(make("x", "NUM_WARPS=8"))


def test_no_two_seeds_are_near_duplicates() -> None:
    assert (
        near_duplicates({skill.name: skill for skill in seeds.load()}, SETTINGS.merge_similarity)
        == []
    )


# ---------------------------------------------------------------- apply


def test_grooming_a_library_is_events_that_can_be_replayed_and_undone(
    library: Library, make: Make
) -> None:
    library.add_all(
        [
            make("bad", "one thing"),
            make("twin", "alike"),
            make("twin_2", "alike"),
            make("good", "another thing"),
        ]
    )
    for step in range(1, 15):
        library.record_all(
            [
                *play(["bad"], -0.2 + 0.01 * (step % 3), step),
                *play(["good"], 0.2, step),
                *play(["twin_2"], 0.1, step),
            ]
        )
    before = {skill.name: skill for skill in library.list()}
    dry = groom(library, LibraryConfig(merge_similarity=0.85), dry=True)
    assert len(library) == 4
    changes = groom(library, LibraryConfig(merge_similarity=0.85))
    assert changes == dry and [(change.kind, change.skill) for change in changes] == [
        ("merged", "twin"),
        ("retired", "bad"),
    ]
    assert library.names() == ["good", "twin_2"]
    assert replay(library.events()) == {skill.name: skill for skill in library.list()}
    retired = library.events("bad")[-1]
    assert (retired.kind, retired.step) == ("retired", 14) and "stopped helping" in retired.data[
        "why"
    ]
    assert groom(library, LibraryConfig(merge_similarity=0.85)) == [], "all is done"
    library.restore("bad", step=15)
    assert library.get("bad") == before["bad"]
    assert groom(library, LibraryConfig(merge_similarity=0.85)) == [], (
        "a restored skill is judged again"
    )


def test_a_merged_skill_that_was_restored_stays(library: Library, make: Make) -> None:
    library.add_all([make("twin", "alike"), make("twin_2", "alike")])
    (change,) = groom(library, SETTINGS)
    library.restore(change.skill)
    assert groom(library, SETTINGS) == [] and library.names() == ["twin", "twin_2"]


def test_a_harmful_skill_does_not_take_its_company_with_it(library: Library, make: Make) -> None:
    library.add_all(
        [
            make("harmful", "one thing"),
            make("company", "another matter"),
            make("second", "a third one"),
        ]
    )
    for step in range(20):
        library.record_all(
            [
                *play(["harmful", "company"], -0.4 - 0.01 * (step % 2), step),
                *play(["second"], -0.1, step + 100),
            ]
        )
    assert [
        change.skill for change in groom(library, LibraryConfig(merge_similarity=0.95), dry=True)
    ] == ["company", "second"], "nothing tells them apart"
    for step in range(20, 40):
        library.record_all(play(["harmful"], -0.6, step))
    assert [change.skill for change in groom(library, LibraryConfig(merge_similarity=0.95))] == [
        "harmful",
        "second",
    ]
    use = tally(library.events())["company", "policy"]
    assert (use.given, use.trials) == (20, 0)


def test_a_skill_that_made_room_leaves_its_company_what_they_brought(
    library: Library, make: Make
) -> None:
    library.add_all([make("good", "one thing"), make("weak", "another matter")])
    for step in range(3):
        library.record_all([*play(["good", "weak"], 0.2, step), *play(["good"], 0.3, step + 10)])
    assert [
        change.skill
        for change in groom(library, LibraryConfig(merge_similarity=0.95, max_skills=1))
    ] == ["weak"]
    use = tally(library.events())["good", "policy"]
    assert (use.given, use.trials) == (6, 6)
    retired = library.events("weak")[-1]
    untold = [
        replace(event, data={"why": "of old"}) if event == retired else event
        for event in library.events()
    ]
    assert tally(untold)["good", "policy"].trials == 3, "events of earlier versions do not say why"


def test_no_room_is_made_where_retirement_makes_it(library: Library, make: Make) -> None:
    library.add_all([make("bad", "one thing"), make("idle", "another matter")])
    library.record_all([event for step in range(14) for event in play(["bad"], -0.2, step)])
    changes = groom(library, LibraryConfig(merge_similarity=0.95, max_skills=1))
    assert [change.skill for change in changes] == ["bad"] and library.names() == ["idle"]


def test_old_evidence_retires_no_skill(library: Library, make: Make) -> None:
    library.add(make("bad"))
    library.record_all([event for step in range(14) for event in play(["bad"], -0.2, step)])
    assert [change.kind for change in groom(library, SETTINGS, 500, dry=True)] == ["retired"]
    assert groom(library, SETTINGS, 514) == [], "ten half-lives of 50 steps later nothing is read"


def test_a_plan_that_no_longer_holds_is_refused_whole(library: Library, make: Make) -> None:
    library.add_all([make("a"), make("b")])
    changes = [
        LibraryChange("retired", "a", "test"),
        LibraryChange("merged", "b", "test", "gone", make("gone")),
    ]
    with pytest.raises(LibraryError):
        apply(library, changes, step=1)
    assert library.names() == ["a", "b"]


# ---------------------------------------------------------------- relations


def joint_plays(
    effects: dict[str, float], sets: Sequence[Sequence[str]], excess: float, times: int = 12
) -> list[Event]:
    """Plays of `sets` whose gains are the sum of `effects`, plus `excess` if a and b are both given; errors of ±0.01."""
    events = [Event("added", name) for name in effects]
    for step, names in product(range(times), sets):
        gain = sum(effects[name] for name in names) + (excess if {"a", "b"} <= set(names) else 0.0)
        events += play(
            names,
            gain + (0.01 if step % 2 else -0.01),
            1000 * len(names) + 10 * step + sum(map(ord, names)),
        )
    return events


def test_the_excess_over_the_sum_of_both() -> None:
    (pair,) = joints(joint_plays({"a": 0.1, "b": 0.2}, [["a"], ["b"], ["a", "b"]], 0.3))
    assert (pair.one, pair.other, pair.plays) == ("a", "b", 12) and pair.excess == pytest.approx(
        0.3
    )
    # Three means of 12 with errors ±0.01: s² = 36·10⁻⁴/33, error √(3 s²/12) = 0.0052223, t(0.995; 33) = 2.733277.
    assert pair.hi - pair.excess == pytest.approx(2.733277 * 0.0052223, abs=1e-5)
    assert pair.kind(0.05) == "combines"


@pytest.mark.parametrize(
    ("excess", "said"),
    [
        (0.3, {"a": {"combines": ["b"]}, "b": {"combines": ["a"]}}),
        (0.02, {}),
        (0.0, {}),
        (-0.2, {"a": {"conflicts": ["b"]}, "b": {"conflicts": ["a"]}}),
    ],
)
def test_a_third_skill_is_not_taken_for_the_twos_doing(
    make: Make, excess: float, said: object
) -> None:
    effects = {"a": 0.1, "b": 0.2, "c": 0.4}
    events = joint_plays(effects, [["c"], ["a", "c"], ["b", "c"], ["a", "b", "c"]], excess)
    assert learned([make(name) for name in effects], events) == said


def test_without_evidence_nothing_is_reported(make: Make) -> None:
    skills = [make("a"), make("b")]
    together = joint_plays({"a": 0.1, "b": 0.2}, [["a", "b"]], 0.5)
    assert learned(skills, together) == {}, "never given without each other"
    rarely = joint_plays({"a": 0.1, "b": 0.2}, [["a"], ["b"], ["a", "b"]], 0.5, times=9)
    assert learned(skills, rarely) == {}
    assert learned(skills, []) == {}


def test_a_skill_refines_what_it_was_written_with_if_it_resembles_it(make: Make) -> None:
    old, far = (
        make("old", "keep a running maximum and rescale"),
        make("far", " ".join(f"word{n}" for n in range(40))),
    )
    new = make(
        "new",
        "keep a running maximum and rescale twice",
        provenance={"source": "run", "given": ["old", "far", "gone"]},
    )
    assert learned([old, far, new], []) == {"new": {"refines": ["old"]}}


def test_learned_relations_are_noted_as_such_and_yield_to_later_ones_only(make: Make) -> None:
    skill = make("s", relations={"combines": ["x"]})
    once = related(skill, {"combines": ["x", "y"], "conflicts": ["x"], "refines": ["s"]})
    assert once.relations == {"combines": ("x", "y")} and once.provenance["learned"] == {
        "combines": ["y"]
    }, "its author's word stays"
    twice = related(once, {"conflicts": ["y"]})
    assert twice.relations == {"combines": ("x",), "conflicts": ("y",)} and twice.provenance[
        "learned"
    ] == {"conflicts": ["y"]}
    assert related(twice, {"conflicts": ["y"]}) is twice


def test_learned_relations_do_not_make_a_seed_an_edited_one(library: Library, make: Make) -> None:
    from dvk.skills.rows import digest

    skill = make("s", relations={"combines": ["x"]})
    assert digest(related(skill, {"conflicts": ["y"], "combines": ["z"]})) == digest(skill)
    assert digest(skill.model_copy(update={"relations": {"combines": ("x", "z")}})) != digest(skill)


def test_grooming_writes_down_what_it_learned(library: Library, make: Make) -> None:
    library.add_all([make("a", "one thing"), make("b", "quite another matter")])
    library.record_all(
        [
            e
            for e in joint_plays({"a": 0.1, "b": 0.2}, [["a"], ["b"], ["a", "b"]], 0.3)
            if e.kind == "given"
        ]
    )
    changes = groom(library, LibraryConfig(merge_similarity=0.95))
    assert [(change.skill, change.why) for change in changes] == [
        ("a", "learned: combines b"),
        ("b", "learned: combines a"),
    ]
    assert (
        library.get("a").relations == {"combines": ("b",)}
        and groom(library, LibraryConfig(merge_similarity=0.95)) == []
    )


# ---------------------------------------------------------------- two libraries


@pytest.fixture
def run(tmp_path: Path, make: Make) -> Library:
    """A run's library: `same` was played with, `mine` is another text, `new` is new."""
    (tmp_path / "run").mkdir()
    opened = Library.open(tmp_path / "run" / "skills.db", create=True)
    opened.add_all([make("same"), make("mine", "theirs"), make("new")])
    for step in range(3):
        opened.record_all(play(["same"], 0.1 * step, step))
    return opened


def test_bringing_a_runs_library_into_another(library: Library, run: Library, make: Make) -> None:
    library.add_all(
        [make("same", evidence=({"speedup": 2.0},)), make("mine", "ours"), make("only")]
    )
    assert diff(library, run).changed == {"mine": ["body"], "same": ["evidence"]}
    done = bring(library, run)
    assert (done.added, done.updated, done.kept, done.replaced) == (["new"], ["same"], ["mine"], [])
    first, told = library.get("same").evidence
    assert first == {"speedup": 2.0} and told["use"] == "run/skills.db"
    assert (told["trials"], told["given"]) == (3, 3) and told["gain"] == pytest.approx(
        0.1, abs=0.01
    )
    assert "ours" in library.get("mine").body
    again = bring(library, run)
    assert (again.added, again.updated, again.kept) == ([], [], ["mine"]), "nothing twice"
    run.record_all(play(["same"], 0.5, 9))
    assert bring(library, run).updated == ["same"] and len(library.get("same").evidence) == 2, (
        "the newer report of a library"
    )
    assert (
        bring(library, run, replace=True).replaced == ["mine"]
        and "theirs" in library.get("mine").body
    )
    assert replay(library.events()) == {skill.name: skill for skill in library.list()}
    assert diff(library, run) == diff(library, run) and diff(library, run).removed == ["only"]


def test_libraries_of_one_name_keep_their_evidence_apart(
    library: Library, run: Library, make: Make, tmp_path: Path
) -> None:
    library.add(make("same"))
    bring(library, run)
    (tmp_path / "elsewhere" / "run").mkdir(parents=True)
    with Library.open(tmp_path / "elsewhere" / "run" / "skills.db", create=True) as other:
        other.add(make("same"))
        other.record_all(play(["same"], -0.1, 1))
        assert bring(library, other).updated == ["same"] and bring(library, other).updated == []
        assert [entry["use"] for entry in library.get("same").evidence] == ["run/skills.db"] * 2
    run.path.parent.rename(tmp_path / "moved")
    with Library.open(tmp_path / "moved" / "skills.db") as moved:
        assert moved.identity() == run.identity()
        moved.record_all(play(["same"], 0.4, 9))
        assert (
            bring(library, moved).updated == ["same"] and len(library.get("same").evidence) == 2
        ), "the same library elsewhere"


def test_a_library_from_before_there_were_identities_gets_one(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite3.connect(library.path) as connection:
        connection.execute("DELETE FROM meta")
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        with Library.open(library.path) as unwritable:
            assert unwritable.identity() == str(library.path)
    assert library.identity() == library.identity() != str(library.path)


def test_a_run_begins_with_a_librarys_skills_and_none_of_its_steps(
    library: Library, run: Library, make: Make
) -> None:
    bring(library, run)
    assert diff(run, library).changed == {"same": ["evidence"]} and library.names() == run.names()
    assert all(use.given == 0 for use in tally(library.events()).values())
