"""Winners are timed a second time, each in the way its figure is given in; graphs race from end to end first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dvk.config import Config
from dvk.harness import JudgeSpec
from dvk.pipelines.eval import EvalRequest, retime
from dvk.pipelines.eval.kernelbench_ids import results
from dvk.pipelines.eval.progress import Progress
from dvk.pipelines.eval.suites import SuiteTask
from dvk.records import Episode, Verdict
from tests.pipelines.evaluations import episode, on_gpu, verdict

Asked = list[tuple[str, str, tuple[str, ...], list[str]]]
"""Tier, contract, baselines and sources of each map."""
Judged = tuple[Asked, dict[str, float | None], set[str]]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Judged:
    """Requests to the judge, its answers by source (1.5 by default), and the errors that it finds at a claim."""
    asked: Asked = []
    speeds: dict[str, float | None] = {}
    wrong: set[str] = set()

    class Pool:
        def __init__(self, *_: Any):
            pass

        def map(self, jobs: Any, spec: JudgeSpec = JudgeSpec()) -> list[tuple[int, Verdict]]:  # noqa: B008 - it is frozen
            if jobs:
                asked.append(
                    (
                        spec.tier,
                        spec.contract,
                        spec.baselines,
                        [candidate.source for _, candidate in jobs],
                    )
                )
            found = [
                None if spec.tier == "claim" and c.source in wrong else speeds.get(c.source, 1.5)
                for _, c in jobs
            ]
            return [
                (n, verdict(speed).model_copy(update={"tier": spec.tier}))
                for n, speed in enumerate(found)
            ]

    monkeypatch.setattr("dvk.harness.JudgeQueue", Pool)
    return asked, speeds, wrong


def again(
    folder: Path,
    episodes: list[Episode],
    known: Mapping[tuple[str, int], Verdict] | None = None,
    **asked: Any,
) -> list[dict[str, Any]]:
    request = EvalRequest(suite=folder, **{"baselines": ("compile",), **asked})
    with Progress(len(episodes)) as progress:
        return list(retime.time_again(episodes, dict(known or {}), request, Config(), progress, 1))


TWO_WAYS = [
    on_gpu(episode("1_A", [3.0, 2.0, 2.5]), "device", "end_to_end", "end_to_end"),
    on_gpu(episode("2_B", [3.0, 2.0]), "device", "device"),
    on_gpu(episode("3_C", [3.0, 2.0]), "device", "end_to_end"),
    on_gpu(episode("4_D", [3.0, 1.05]), "device", "end_to_end"),
    on_gpu(episode("5_E", [0.5, 0.99]), "device", "end_to_end"),
]
"""In the first the second way wins from end to end, in the third it does not; the fourth's is no faster than eager, and the last has
nothing that is."""


def test_a_graph_counts_where_it_is_shown_to_be_faster_from_end_to_end(
    tmp_path: Path, judged: Judged
) -> None:
    asked, speeds, _ = judged
    speeds |= {
        "1_A 0 0": 1.1,
        "1_A 0 2": 1.8,
        "3_C 0 0": 1.9,
        "3_C 0 1": 2.0,
        "5_E 0 0": None,
        "5_E 0 1": 0.99,
    }
    found = {row["task"]: row for row in again(tmp_path, TWO_WAYS)}
    assert asked == [
        (
            "search",
            "module",
            (),
            ["1_A 0 0", "1_A 0 2", "3_C 0 0", "3_C 0 1", "5_E 0 0", "5_E 0 1"],
        ),
        ("search", "auto", ("compile",), ["2_B 0 0", "4_D 0 0", "3_C 0 0"]),
    ]
    assert found["1_A"]["verdict"].timing.speedup.value == 1.8 and len(found) == 5
    problems = [SuiteTask(name, Path("a"), {"level": "1"}) for name in found]
    verdicts = {(name, 0): row["verdict"] for name, row in found.items()}
    made = results(
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
        "5_E.py": "5_E 0 1",
    }


def test_a_claim_is_made_of_one_of_two(tmp_path: Path, judged: Judged) -> None:
    asked, speeds, wrong = judged
    speeds |= {
        "1_A 0 0": None,
        "1_A 0 2": 1.8,
        "3_C 0 0": 1.9,
        "3_C 0 1": None,
        "4_D 0 0": 0.96,
        "4_D 0 1": 0.98,
    }
    wrong.add("4_D 0 1")
    found = again(tmp_path, TWO_WAYS[:4], claim=True)
    assert [(tier, baselines, sources) for tier, _, baselines, sources in asked] == [
        ("search", (), ["1_A 0 0", "1_A 0 2", "3_C 0 0", "3_C 0 1", "4_D 0 0", "4_D 0 1"]),
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
        found = again(tmp_path, [episode("a", [1.5, 1.6])], timed, claim=claim)
        timed.update({(row["task"], row["sample"]): row["verdict"] for row in found})
        return [row["verdict"].tier for row in found]

    assert [tiers(False), tiers(True), tiers(True), tiers(False)] == [[], ["claim"], [], []]
