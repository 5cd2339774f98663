"""The diversity filter as a whole: order does not matter, limits hold, nothing gets lost, and finished work is reused."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dvk.config import Config, load
from dvk.errors import MachineError, UsageError
from dvk.learn import diversity, examples
from dvk.learn.diversity import balance, clusters, decide, report
from dvk.learn.diversity.rows import facts, sketched
from dvk.learn.examples import Example
from tests.learn import synthetic

COUNT = 700


@pytest.fixture(scope="module")
def made() -> list[Example]:
    """Examples with some exact and some near copies among them."""
    rows = list(synthetic.examples(COUNT, seed=3, skew=1.5))
    copies = [renamed(row) for row in rows[:100] if row.kind == "policy"]
    return rows + copies + [row.model_copy() for row in rows[:20]]


def renamed(row: Example) -> Example:
    """The same program in other words: names changed, comments added; slower."""
    code = row.code.replace("scale", "factor").replace("v1", "temporary") + "\n# the end\n"
    said = (row.messages[0], {"role": "assistant", "content": code})
    fields = row.model_dump(exclude={"id", "code", "messages", "speedup", "lo"})
    return Example.new(
        **fields, code=code, messages=said, speedup=row.speedup * 0.95 if row.speedup else None
    )


def settings(**changes: Any) -> Config:
    return load(settings=[f"diversity.{key}={json.dumps(value)}" for key, value in changes.items()])


@pytest.fixture(scope="module")
def outcome(made: list[Example]) -> diversity.DiversityResult:
    return diversity.diversify(made, settings(cluster_cap=8))


def test_every_row_is_kept_or_rejected_once(
    made: list[Example], outcome: diversity.DiversityResult
) -> None:
    assert Counter(row.id for row in made) == Counter(
        row.id for row in [*outcome.kept, *(row for row, _, _ in outcome.rejected)]
    )
    assert (
        len(made)
        == outcome.report["num_rows"]
        == len(outcome.kept) + sum(outcome.report["reasons"].values())
    )
    assert outcome.report["num_kept"] == len(outcome.kept) > COUNT // 4
    assert {
        "duplicate",
        "cluster_full",
        "slow",
        "not_verified",
        "skill_share",
        "below_best",
    } <= set(outcome.report["reasons"])
    assert all(reason and detail for _, reason, detail in outcome.rejected)
    positions = {id(row): number for number, row in enumerate(made)}
    assert [positions[id(row)] for row in outcome.kept] == sorted(
        positions[id(row)] for row in outcome.kept
    )


def test_the_order_of_the_input_does_not_matter(
    made: list[Example], outcome: diversity.DiversityResult
) -> None:
    shuffled = made[:]
    random.Random(1).shuffle(shuffled)
    again = diversity.diversify(shuffled, settings(cluster_cap=8))
    assert {row.id for row in again.kept} == {row.id for row in outcome.kept}
    # One of two equal rows is kept: compare the contents, not the ids.
    assert Counter((row.id, reason) for row, reason, _ in again.rejected) == Counter(
        (row.id, reason) for row, reason, _ in outcome.rejected
    )


def test_the_seed_matters_only_where_there_is_a_choice(
    made: list[Example], outcome: diversity.DiversityResult
) -> None:
    other = diversity.diversify(made, settings(cluster_cap=8).model_copy(update={"seed": 1}))
    kept, same = {row.id for row in outcome.kept}, {row.id for row in other.kept}
    assert kept != same and len(kept & same) > 0.8 * len(kept)
    quality = {"slow", "not_verified", "below_best", "duplicate"}
    assert {(r.id, why) for r, why, _ in other.rejected if why in quality} == {
        (r.id, why) for r, why, _ in outcome.rejected if why in quality
    }


def test_no_two_kept_rows_are_near_duplicates(outcome: diversity.DiversityResult) -> None:
    text, _ = sketched(outcome.kept)
    alike = [facts(row).alike for row in outcome.kept]
    groups: dict[int, list[int]] = {}
    for number, key in enumerate(alike):
        groups.setdefault(key, []).append(number)
    pairs = [(a, b) for group in groups.values() for a in group for b in group if a < b]
    assert len(pairs) > 50, "nothing was compared"
    assert not [(a, b) for a, b in pairs if (text[a] == text[b]).mean() >= 0.9]


def test_of_near_duplicates_the_faster_one_stays(
    made: list[Example], outcome: diversity.DiversityResult
) -> None:
    by_id = {row.id: row for row in made}
    duplicates = [
        (row, detail) for row, reason, detail in outcome.rejected if reason == "duplicate"
    ]
    assert len(duplicates) > 30
    for row, detail in duplicates:
        kept = by_id[detail.removeprefix("of ")]
        assert (
            (kept.speedup or 0) >= (row.speedup or 0)
            and kept.kind == row.kind
            and kept.skills == row.skills
        )


def test_limits_hold(outcome: diversity.DiversityResult) -> None:
    assert (
        max(outcome.report["clusters"]["after"]["largest"])
        <= 8
        < max(outcome.report["clusters"]["before"]["largest"])
    )
    kept = [facts(row) for row in outcome.kept]
    for name, lists in {
        "skill": [row.skills for row in kept if row.skills],
        "operator": [row.operators for row in kept if row.operators],
    }.items():
        counts = Counter(value for values in lists for value in values)
        assert max(counts.values()) <= max(
            balance.SHARE_FROM, outcome.report["shares"][name] * len(lists)
        )
    before, after = outcome.report["before"], outcome.report["after"]
    assert before["effective"]["skill"] < after["effective"]["skill"], (
        "no skill dominates more than before"
    )


@pytest.mark.parametrize("target", [50, 200])
def test_a_target_is_met_and_balanced(
    made: list[Example], outcome: diversity.DiversityResult, target: int
) -> None:
    small = diversity.diversify(made, settings(target=target))
    assert len(small.kept) == target
    for facet in ("kind", "operator", "skill"):
        assert (
            small.report["after"]["effective"][facet]
            > 0.9 * outcome.report["after"]["effective"][facet]
        ), facet
    assert (
        small.report["after"]["effective"]["kind"]
        > 1.25 * small.report["before"]["effective"]["kind"]
    )


@pytest.mark.parametrize("method", ["structure", "hdbscan", "none"])
@pytest.mark.slow
def test_methods(made: list[Example], method: str) -> None:
    found = diversity.diversify(made[:400], settings(method=method, cluster_cap=4))
    clusters = found.report["clusters"]
    if method == "none":
        assert (
            clusters["before"]["largest"][0] == 1 and "cluster_full" not in found.report["reasons"]
        )
    else:
        assert clusters["before"]["largest"][0] > 4 >= clusters["after"]["largest"][0]


def test_a_custom_method(made: list[Example], tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np\ndef one(similarity, settings):\n    return np.zeros(len(similarity), dtype=int)\n"
    )
    found = diversity.diversify(made[:300], settings(method=f"{file}:one", cluster_cap=5))
    families = {(row.kind, row.backend, row.family) for row in map(facts, found.kept)}
    assert found.report["clusters"]["after"]["num_clusters"] == len(families)
    with pytest.raises(UsageError, match="unknown clustering method"):
        diversity.diversify(made[:30], settings(method="guess"))


def test_hdbscan_says_what_it_needs(made: list[Example], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sklearn.cluster", None)
    with pytest.raises(MachineError, match=r"dvk\[clusters\]"):
        diversity.diversify(made[:100], settings(method="hdbscan"))


def test_nothing_and_next_to_nothing(made: list[Example]) -> None:
    empty = diversity.diversify([], Config())
    assert empty.kept == [] and empty.report["num_rows"] == 0 and report.markdown(empty.report)
    good = next(
        row for row in made if row.kind == "policy" and row.verified and (row.speedup or 0) > 1
    )
    assert diversity.diversify([good], Config()).kept == [good]


# ---------------------------------------------------------------- files


def test_run_writes_what_diversify_says(
    made: list[Example], outcome: diversity.DiversityResult, tmp_path: Path
) -> None:
    half = len(made) // 2
    examples.write(tmp_path / "in" / "a.jsonl", made[:half])
    examples.write(tmp_path / "in" / "b.jsonl", made[half:])
    told: list[tuple[str, int, int]] = []
    found = diversity.run(
        tmp_path / "in",
        tmp_path / "out",
        settings(cluster_cap=8),
        progress=lambda *stage: told.append(stage),
    )
    assert list(examples.read(tmp_path / "out" / "kept.jsonl")) == outcome.kept
    refused = [
        json.loads(line) for line in (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()
    ]
    assert [
        (Example.model_validate(one["example"]), one["reason"], one["detail"]) for one in refused
    ] == outcome.rejected
    assert all(one["id"] == one["example"]["id"] for one in refused)
    same = {key: value for key, value in found.items() if key not in ("seconds", "key", "bytes")}
    assert same == {key: value for key, value in outcome.report.items() if key != "seconds"}
    assert {"read", "duplicates", "clusters", "caps", "balance"} == {stage for stage, _, _ in told}
    page = (tmp_path / "out" / "report.md").read_text()
    assert (
        f"{len(outcome.kept):,} of {len(made):,} examples kept" in page
        and "| `duplicate` |" in page
        and "### By skill" in page
    )
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "kept.jsonl",
        "rejected.jsonl",
        "report.json",
        "report.md",
    ]


@pytest.mark.slow
def test_several_processes_decide_as_one_does(
    made: list[Example], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide, "_ALONE", 0)
    monkeypatch.setattr(clusters, "_ALONE", 0)
    monkeypatch.setattr(clusters, "_CHUNK", 50)
    examples.write(tmp_path / "in.jsonl", made)
    diversity.run(tmp_path / "in.jsonl", tmp_path / "out", settings(cluster_cap=8), workers=2)
    alone = diversity.diversify(made, settings(cluster_cap=8))
    assert list(examples.read(tmp_path / "out" / "kept.jsonl")) == alone.kept
    rows = [
        json.loads(line) for line in (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()
    ]
    assert [(row["id"], row["reason"], row["detail"]) for row in rows] == [
        (e.id, *why) for e, *why in alone.rejected
    ]


def test_what_is_finished_is_used_again(made: list[Example], tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    examples.write(source, made[:200])
    stages: list[str] = []

    def run(
        config: Config = Config(),  # noqa: B008
        skills: list[str] | None = None,
    ) -> tuple[dict[str, Any], bool]:
        stages.clear()
        return diversity.run(
            source, out, config, skills, progress=lambda stage, done, total: stages.append(stage)
        ), bool(stages)

    first, worked = run()
    assert worked and run() == (first, False)
    assert run(settings(target=20))[1] and run(settings(target=20), list(synthetic.SKILLS))[1]
    assert run()[1]
    (out / "kept.jsonl").write_bytes((out / "kept.jsonl").read_bytes()[:-5])
    again, worked = run()
    assert worked and again["reasons"] == first["reasons"] and run() == (again, False)
    (out / "report.json").write_text("{")
    assert run()[1]
    examples.write(source, made[:201])
    assert run()[1]


def test_a_bad_line_stops_the_run_and_leaves_nothing(made: list[Example], tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    examples.write(source, made[:3])
    source.write_bytes(source.read_bytes() + b"{}\n")
    with pytest.raises(UsageError, match="in.jsonl:4: not an example"):
        diversity.run(source, tmp_path / "out", Config())
    assert not (tmp_path / "out").exists()


def test_effective_number() -> None:
    assert balance.effective_number([5, 5, 5, 5]) == pytest.approx(4)
    assert (
        balance.effective_number([1]) == 1
        and balance.effective_number([]) == balance.effective_number([0, 0]) == 0
    )
    assert 1 < balance.effective_number([99, 1]) < 1.1
