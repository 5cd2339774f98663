"""Winners are timed a second time, each in the way its figure is given in; graphs race from end to end first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dvk.composer.plan_space import AS_IT_IS
from dvk.harness import JudgeSpec
from dvk.pipelines.eval import EvalRequest, retime
from dvk.pipelines.eval.kernelbench_ids import results_by_id
from dvk.pipelines.eval.progress import Progress
from dvk.pipelines.eval.suites import SuiteTask
from dvk.records import Candidate, Episode, Verdict
from tests.pipelines.evaluations import episode, on_gpu, verdict

Asked = list[tuple[str, str, tuple[str, ...], list[str]]]
"""Tier, contract, baselines and sources of each map."""
Judged = tuple[Asked, dict[str, float | None], set[str]]


class Pool:
    """A judge that knows its answers."""

    def __init__(self, asked: Asked, speeds: dict[str, float | None], wrong: set[str]):
        self.asked, self.speeds, self.wrong = asked, speeds, wrong

    def map(self, jobs: Any, spec: JudgeSpec, priority: int) -> list[tuple[int, Verdict]]:
        if jobs:
            sources = [candidate.source for _, candidate in jobs]
            self.asked.append((spec.tier, spec.contract, spec.baselines, sources))
        return [(n, self.verdict(candidate, spec)) for n, (_, candidate) in enumerate(jobs)]

    def verdict(self, candidate: Candidate, spec: JudgeSpec) -> Verdict:
        failed = spec.tier == "claim" and candidate.source in self.wrong
        second = f"{candidate.source} again"
        speed = self.speeds.get(candidate.source, 1.5)
        if spec.baselines and second in self.speeds:
            speed = self.speeds[second]
        return verdict(None if failed else speed).model_copy(update={"tier": spec.tier})


@pytest.fixture
def judged() -> Judged:
    """Requests to the judge, its answers by source (1.5 by default), and the errors that it finds at a claim."""
    asked: Asked = []
    speeds: dict[str, float | None] = {}
    wrong: set[str] = set()

    return asked, speeds, wrong


def again(
    folder: Path,
    episodes: list[Episode],
    judged: Judged,
    known: Mapping[tuple[str, int], Verdict] | None = None,
    **asked: Any,
) -> list[dict[str, Any]]:
    request = EvalRequest(suite=folder, **{"baselines": ("compile",), **asked})
    with Progress(len(episodes)) as progress:
        pool: Any = Pool(*judged)
        return list(retime.time_again(episodes, dict(known or {}), request, progress, pool))


TWO_WAYS = [
    on_gpu(episode("1_A", [3.0, 2.0, 2.5]), "device", "end_to_end", "end_to_end"),
    on_gpu(episode("2_B", [3.0, 2.0]), "device", "device"),
    on_gpu(episode("3_C", [3.0, 2.0]), "device", "end_to_end"),
    on_gpu(episode("4_D", [3.0, 1.05]), "device", "end_to_end"),
    on_gpu(episode("5_E", [0.5, 0.99]), "device", "end_to_end"),
    on_gpu(episode("6_F", [3.0, 2.0]), "device", "end_to_end"),
]
"""In the first the second way wins from end to end, in the third it does not; the fourth's is not shown to be faster than eager, the
fifth has nothing that is, and in the last what won once does not win again."""


def test_a_graph_counts_where_it_is_shown_to_be_faster_from_end_to_end_twice(
    tmp_path: Path, judged: Judged
) -> None:
    asked, speeds, _ = judged
    speeds |= {"1_A 0 0": 1.1, "3_C 0 0": 1.9, "5_E 0 0": 0.4, "6_F 0 0": 1.2}
    speeds |= {"1_A 0 2 again": 1.8, "5_E 0 1 again": 0.98, "6_F 0 1 again": 1.15}
    found = {row["task"]: row for row in again(tmp_path, TWO_WAYS, judged)}
    assert asked == [
        ("search", "module", (), ["1_A 0 0", "3_C 0 0", "5_E 0 0", "6_F 0 0"]),
        (
            "search",
            "auto",
            ("compile",),
            ["2_B 0 0", "4_D 0 0", "1_A 0 2", "3_C 0 0", "5_E 0 0", "6_F 0 1"],
        ),
        ("search", "auto", ("compile",), ["6_F 0 0"]),
    ]
    assert found["1_A"]["verdict"].timing.speedup.value == 1.8 and len(found) == 6
    assert all("compile" in row["verdict"].timing.baselines for row in found.values())
    problems = [SuiteTask(name, Path("a"), {"level": "1"}) for name in found]
    verdicts = {(name, 0): row["verdict"] for name, row in found.items()}
    made = results_by_id(
        problems,
        TWO_WAYS,
        {},
        verdicts,
        {(name, 0): row["candidate"] for name, row in found.items()},
    )
    assert {one.file: one.source for one in made} == {
        "1_A.py": "1_A 0 2",
        "2_B.py": "2_B 0 0",
        "3_C.py": "3_C 0 0",
        "4_D.py": "4_D 0 0",
        "5_E.py": "5_E 0 0",
        "6_F.py": "6_F 0 0",
    }


def test_the_model_as_it_is_goes_before_what_is_not_shown_to_be_faster(
    tmp_path: Path, judged: Judged
) -> None:
    """By the device's time a kernel took twice as long as the module, and a graph's 0.96 from end to end said little."""
    asked, _, _ = judged
    lost = on_gpu(episode("a", [0.45, 0.96, 1.0]), "device", "end_to_end", "device")
    noisy = on_gpu(episode("b", [1.05, 0.99]), "end_to_end", "end_to_end")
    several = [as_it_is(lost, 2), as_it_is(noisy, 1)]
    found = again(tmp_path, several, judged)
    assert [(*rest, sorted(sources)) for *rest, sources in asked] == [
        ("search", "auto", ("compile",), ["a 0 2", "b 0 1"])
    ]
    assert {row["task"]: row["candidate"] for row in found} == {
        one.task.name: one.traces[0].turns[place].candidate.id  # type: ignore[union-attr]
        for one, place in zip(several, (2, 1))
    }


def as_it_is(one: Episode, place: int) -> Episode:
    """The same, whose candidate there is the unchanged module."""
    turns = list(one.traces[0].turns)
    made = turns[place].candidate.model_copy(  # type: ignore[union-attr]
        update={"title": AS_IT_IS, "proposer": "composer"}
    )
    turns[place] = turns[place].model_copy(update={"candidate": made})
    return one.model_copy(
        update={"traces": (one.traces[0].model_copy(update={"turns": tuple(turns)}),)}
    )


def test_a_claim_is_made_of_one_of_two(tmp_path: Path, judged: Judged) -> None:
    asked, speeds, wrong = judged
    speeds |= {"1_A 0 0": None, "3_C 0 0": 2.1, "4_D 0 0": 0.96}
    wrong.add("4_D 0 1")
    found = again(tmp_path, TWO_WAYS[:4], judged, claim=True)
    assert [(tier, baselines, sources) for tier, _, baselines, sources in asked] == [
        ("search", (), ["1_A 0 0", "3_C 0 0", "4_D 0 0"]),
        ("claim", ("compile",), ["2_B 0 0", "1_A 0 2", "3_C 0 0", "4_D 0 1"]),
        ("claim", ("compile",), ["4_D 0 0"]),
    ]
    assert len(found) == 4 and all(row["verdict"].timing for row in found), (
        "what is found wrong leaves its place to the other"
    )


def test_what_was_timed_again_is_still_claimed_when_a_run_goes_on_with_claims(
    tmp_path: Path, judged: Judged
) -> None:
    timed: dict[tuple[str, int], Verdict] = {("a", 0): verdict(1.5)}

    def tiers(claim: bool) -> list[str]:
        found = again(tmp_path, [episode("a", [1.5, 1.6])], judged, timed, claim=claim)
        timed.update({(row["task"], row["sample"]): row["verdict"] for row in found})
        return [row["verdict"].tier for row in found]

    assert [tiers(False), tiers(True), tiers(True), tiers(False)] == [[], ["claim"], [], []]


def test_the_model_as_it_is_is_timed_again_only_for_a_baseline_or_a_claim(
    tmp_path: Path, judged: Judged
) -> None:
    """It was not chosen for its speed: its first time is its second."""
    one = as_it_is(episode("a", [0.45, 0.96, 1.0]), 2)
    (row,) = again(tmp_path, [one], judged, baselines=())
    turn = one.traces[0].turns[2]
    assert judged[0] == [] and turn.candidate is not None
    assert (row["candidate"], row["verdict"]) == (turn.candidate.id, turn.verdict)
    again(tmp_path, [one], judged, baselines=(), claim=True)
    assert [tier for tier, *_ in judged[0]] == ["claim"]
