"""Grooming: decisions with reasons, applied as events; joint effects of skills; merging libraries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dvk.config import LibraryConfig
from dvk.errors import LibraryError
from dvk.skills import Library, seeds
from dvk.skills.events import replay
from dvk.skills.grooming import LibraryChange, apply, groom, plan
from dvk.skills.likeness import likeness, near_duplicates, words
from dvk.skills.usage import SkillUsage, tally
from tests.skills.plays_given import Make, play

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
