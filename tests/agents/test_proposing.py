"""Proposals of episodes, and which of them are new."""

from __future__ import annotations

from dvk.agents import notes
from dvk.agents.proposing import KnownSkill, Proposal, proposals, similarity, why_not_new
from dvk.records import Episode, Skill, Task, Trace
from dvk.skills import Library
from tests.agents.conftest import make_skill

TASK = Task(id="t", name="t", source="", entry="Model", kind="module")


def noted(name: str, when: str, do: str) -> Skill:
    body = notes.body(
        notes.Note(name, when, do),
        evidence="Seen on `t`: from 1.0× to 2.0× of eager.",
        example="for (;;)",
    )
    return Skill(name=name, description=f"{do}; {when}", body=body)


ONLINE = noted(
    "online_rows", "long rows of a softmax", "one pass with a running maximum and a rescaled sum"
)
REWORDED = noted(
    "online_softmax_rows",
    "long rows of a softmax",
    "one pass with running maximum and rescaled total",
)
BLOCKS = noted("column_blocks", "a reduction over columns", "accumulate blocks of columns")


def test_where_proposals_come_from() -> None:
    def by(name: str, scheme: int | None, rollout: int, summary: int) -> Skill:
        origin = {
            "source": "run",
            "task": "t",
            "step": 4,
            "scheme": scheme,
            "rollout": rollout,
            "summary": summary,
        }
        return make_skill(name, provenance=origin)

    played = Episode(
        task=TASK,
        step=4,
        traces=(
            Trace(role="policy", scheme=0, rollout=1, skills=("other",)),
            Trace(role="policy", scheme=1, rollout=1, skills=("p", "q")),
            Trace(role="selection", scheme=1),
            Trace(role="summary", scheme=1, rollout=0, skills=("p", "q")),
        ),
        proposed_skills=(
            by("a1", 1, 1, 0),
            by("a2", 1, 1, 0),
            by("c1", 1, 1, 2),
            by("b1", 1, 1, 1),
            by("n", None, 0, 3),
        ),
    )
    found = proposals([played])
    assert [p.skill.name for p in found] == [
        "a1",
        "b1",
        "c1",
        "n",
        "a2",
    ]  # of every summary the first, then the second ones
    assert [p.sample for p in found] == [0, 1, 2, 3, 0]
    assert [p.given for p in found] == [("p", "q"), ("p", "q"), ("p", "q"), (), ("p", "q")]
    assert all(p.task == "t" and p.skill.provenance["given"] == list(p.given) for p in found)


def test_similarity_is_of_what_is_said() -> None:
    assert similarity(ONLINE, ONLINE) == 1.0
    assert similarity(ONLINE, REWORDED) > 0.8
    assert similarity(ONLINE, BLOCKS) < 0.3
    # 4 of 6 words: about a b one | about a b two, and the name's are among them.
    a = Skill(name="a", description="about one b", body="")
    b = Skill(name="a", description="about two b", body="")
    assert similarity(a, b) == 3 / 5


def test_what_the_library_has_is_not_new(library: Library) -> None:
    library.add_all([ONLINE, *(make_skill(f"filler_{n}") for n in range(30))])
    assert why_not_new(Proposal(BLOCKS, "t", 0), library, [], 0.7) is None
    found = why_not_new(Proposal(REWORDED, "t", 0), library, [], 0.7)
    assert found is not None and "online_rows" in found.why and found.earlier is None
    taken = noted("online_rows", "few rows", "split them over threads")
    assert why_not_new(Proposal(taken, "t", 0), library, [], 0.7) == KnownSkill(
        "the library has a skill of the name online_rows"
    )
    assert why_not_new(Proposal(REWORDED, "t", 0), library, [], 1.0) is None


def test_what_was_proposed_before_is_not_new() -> None:
    first = Proposal(ONLINE, "other", 0)
    found = why_not_new(Proposal(REWORDED, "t", 3), None, [Proposal(BLOCKS, "t", 1), first], 0.7)
    assert found is not None and found.earlier is first
    same_name = why_not_new(
        Proposal(noted("online_rows", "few rows", "split them"), "t", 3), None, [first], 0.7
    )
    assert same_name is not None and same_name.earlier is first
    assert why_not_new(Proposal(REWORDED, "t", 3), None, [], 0.7) is None
