"""Proposers and costs in both reports; left out if the summary does not have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dvk.records import Episode, Trace, Turn
from dvk.search.repeats import repeat
from tests.pipelines.pages import Page, write
from tests.pipelines.searches import BEST, SUMMARY, TASK, candidate, ok, turns

MODEL = "endpoint:m"
SPENT: dict[str, Any] = SUMMARY | {
    "proposer": MODEL,
    "backbone": MODEL,
    "cost": {
        "judge_s": 200.0,
        "confirm_s": 9.0,
        "model_s": 75.5,
        "prompt_tokens": 12345,
        "completion_tokens": 678,
        "usd": 0.0123,
        "answers": 14,
        "malformed": 2,
    },
    "proposers": [
        {"name": "composer", "candidates": 30, "correct": 26, "best": 2.35, "judge_s": 150.0},
        {"name": MODEL, "candidates": 1, "correct": 1, "best": 2.4, "judge_s": 50.0},
    ],
}


def both(tmp_path: Path, summary: dict[str, Any], made: Episode) -> tuple[Page, str]:
    return write(tmp_path, made, summary, BEST)


def played() -> Episode:
    """The composer's search, and a conversation of the model that two rollouts end the same way."""
    theirs = turns()
    one = Turn(
        candidate=candidate(99, title="no skills, rollout 0, turn 1", proposer=MODEL),
        verdict=ok(1.7),
        elapsed_s=5.0,
        messages=({"role": "user", "content": "?"},),
        completion="!",
    )
    selection = Trace(role="selection", turns=(Turn(completion="a", chosen=("online_softmax",)),))
    return Episode(
        task=TASK,
        traces=(
            Trace(role="policy", turns=tuple(theirs)),
            selection,
            Trace(role="policy", turns=(one,)),
            Trace(role="policy", turns=(one,)),
        ),
    )


@pytest.fixture
def told(tmp_path: Path) -> tuple[Page, str]:
    return both(tmp_path, SPENT, played())


def test_the_cost_is_reported(told: tuple[Page, str]) -> None:
    for text in (told[0].text, told[1]):
        for said in (
            "3 min 20 s to compile, check and time, and 9.0 s to confirm",
            "12,345 read, 678 written",
            "0.0123 US dollars",
            "14 answers, 2 of them malformed, in 76 s",
            "endpoint:m found it; composer proposed as well.",
        ):
            assert said in text, said


def test_proposers_have_a_row_each(told: tuple[Page, str]) -> None:
    rows = told[0].table("Proposer")
    assert [row[1:] for row in rows[1:]] == [
        ["30", "26", "2.35×", "2 min 30 s"],
        ["1", "1", "2.40×", "50 s"],
    ]
    assert rows[2][0] == "endpoint:mfound best.py" and "endpoint:m → best.py" in told[1]


def test_each_attempt_says_whose_it_is_and_comes_once(told: tuple[Page, str]) -> None:
    rows = [row for row in told[0].table("Candidate") if "rollout 0" in row[2]]
    assert len(rows) == 1 and "by endpoint:m" in rows[0][2]
    assert "by composer" in told[0].table("Candidate")[1][2]
    lines = [line for line in told[1].splitlines() if "rollout 0" in line]
    assert len(lines) == 1 and "| endpoint:m " in lines[0]


def test_another_measurement_of_the_winner_is_no_runner_up_and_no_candidate_more(
    tmp_path: Path,
) -> None:
    best, other = (
        candidate(1, source=BEST, title="the winner", proposer=MODEL),
        candidate(2, title="another", proposer=MODEL),
    )
    judged = [
        Turn(candidate=best, verdict=ok(2.4)),
        Turn(candidate=repeat(best, 2), verdict=ok(2.3)),
        Turn(candidate=other, verdict=ok(2.0)),
        Turn(candidate=best, verdict=ok(2.31, tier="claim")),
    ]
    made = Episode(task=TASK, traces=(Trace(role="policy", turns=tuple(judged)),))
    _, text = both(tmp_path, SPENT | {"num_candidates": 2}, made)
    assert (
        "The runner-up, “another”" in text
        and "2 candidates were judged" in text
        and "2 agreed with the reference" in text
    )


def test_unknown_prices_and_a_composer_alone(tmp_path: Path) -> None:
    free = SPENT | {"cost": SPENT["cost"] | {"usd": None, "malformed": 0}}
    _, text = both(tmp_path / "free", free, played())
    assert "no price is known" in text and "malformed" not in text
    alone = SUMMARY | {
        "proposer": "composer",
        "backbone": None,
        "proposers": SPENT["proposers"][:1],
        "cost": dict.fromkeys(SPENT["cost"]) | {"judge_s": 3.0, "confirm_s": 0.0},
    }
    page, text = both(tmp_path / "alone", alone, played())
    assert "- Judging: 3.0 s to compile, check and time\n" in text
    assert "- Tokens" not in text and "found it" not in text and ">by composer<" not in page.text
