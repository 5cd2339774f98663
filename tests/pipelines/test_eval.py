"""`dvk eval`: what is played, and what the tables say of episodes whose numbers are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dvk.cli.eval import lines
from dvk.errors import UsageError
from dvk.pipelines.eval import Problem, Request, Unplayed, read_folder, rollout_of, summarise, tries, winner
from dvk.records import Candidate, Episode, Interval, Status, Task, Timing, Trace, Turn, Verdict


def verdict(speedup: float | None, over_compile: float = 1.0) -> Verdict:
    """Right and timed, or wrong."""
    if speedup is None:
        return Verdict(status=Status.MISMATCH, tier="search", stage="check", error="off by one\nand more")
    timing = Timing(candidate_ms=1, reference_ms=speedup, speedup=Interval(value=speedup, lo=speedup * 0.9, hi=speedup * 1.1),
                    baselines={"compile": Interval(value=over_compile, lo=over_compile, hi=over_compile)}, num_pairs=9, seconds=0)
    return Verdict(status=Status.OK, tier="search", stage="done", timing=timing)


def episode(name: str, *samples: list[float | None]) -> Episode:
    """Speedups by turn, a list a sample."""
    traces = [
        Trace(role="policy", rollout=number, turns=tuple(
            Turn(candidate=Candidate(source=f"{name} {number} {turn}", backend="cpp"), verdict=verdict(speedup))
            for turn, speedup in enumerate(speedups)))
        for number, speedups in enumerate(samples)
    ]  # fmt: skip
    return Episode(task=Task(id=name, name=name, source="", entry="Model", kind="module"), traces=tuple(traces))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("level1/b.py", "level1/a.py", "level2/c.py", "level2/_draft.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "index.json").write_text(json.dumps([{"name": "a", "category": "norm", "seed": 3}, {"name": "c", "category": "loss"}]))
    return tmp_path


def test_a_folder_is_read_with_its_levels_and_its_index(folder: Path) -> None:
    found = read_folder(folder)
    assert [(p.name, p.groups) for p in found] == [
        ("a", {"level": "level1", "category": "norm"}), ("b", {"level": "level1"}), ("c", {"level": "level2", "category": "loss"}),
    ]  # fmt: skip
    assert [p.name for p in read_folder(folder, ["c"])] == ["c"]


def test_bad_folders_say_what_to_do(folder: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        read_folder(folder / "none")
    with pytest.raises(UsageError, match="no task `zz`"):
        read_folder(folder, ["zz"])
    (folder / "index.json").write_text("{")
    with pytest.raises(UsageError, match="cannot read"):
        read_folder(folder)
    (folder / "empty").mkdir()
    with pytest.raises(UsageError, match="no task files"):
        read_folder(folder / "empty")


def test_one_sample_is_greedy_and_several_are_drawn() -> None:
    assert rollout_of(Request(Path("x")))["temperature"] == 0.0
    several = rollout_of(Request(Path("x"), samples=4, turns=2))
    assert "temperature" not in several and several["rollouts"] == 4 and several["turns"] == 2


def test_the_tables() -> None:
    problems = [Problem(n, Path(n), {"level": lv}) for n, lv in (("a", "one"), ("b", "one"), ("c", "two"), ("d", "two"))]
    episodes = [episode("a", [None, 1.3], [1.1, 1.6]), episode("b", [0.9, 0.95], [None, None]), episode("c", [None, None], [None, None])]
    again = {("a", 1): verdict(1.4), ("a", 0): verdict(1.3), ("b", 0): verdict(0.9)}
    request = Request(Path("x"), samples=2, turns=2, baselines=("compile",))
    found = summarise(problems, episodes, [Unplayed(name="d", error="no get_inputs")], again, request)
    assert found["num_tasks"] == 4 and found["num_tries"] == 7
    assert found["fast_p"]["0"] == pytest.approx((1 + 0.5 + 0 + 0) / 4)
    assert found["fast_p"]["1"] == found["fast_p"]["1.2"] == pytest.approx(1 / 4)
    assert found["fast_p"]["1.5"] == 0.0, "the winner's second time counts: 1.4, not 1.6"
    assert found["first_turn"]["fast_p"]["0"] == pytest.approx((0.5 + 0.5 + 0) / 3)
    assert found["by_turn"]["2"]["1.5"] == pytest.approx(0.5 / 3)
    assert found["best_of"]["fast_p"] == {"0": 0.5, "1": 0.25, "1.2": 0.25, "1.5": 0.0, "2": 0.0}
    assert found["groups"]["level"]["two"]["fast_p"]["0"] == 0.0
    assert found["fast_p_compile"] == {"0": 0.375, "1": 0.0, "1.2": 0.0, "1.5": 0.0, "2": 0.0}
    assert found["failed"] == {"c": "mismatch: off by one", "d": "no get_inputs"}
    text = "\n".join(lines({**found, "run": "runs/x"}))
    assert "25.0%" in text and "failed: d: no get_inputs" in text and "level two" in text
    json.dumps(found, allow_nan=False)


def test_a_task_that_was_never_played_is_right_nowhere() -> None:
    found = summarise([Problem("a", Path("a"), {})], [Episode(task=episode("a").task)], [], {}, Request(Path("x")))
    assert found["fast_p"]["0"] == 0.0 and "cannot be captured" in found["failed"]["a"]


def test_the_winner_is_the_fastest_right_turn() -> None:
    turns = tries(episode("a", [1.1, None, 1.5, 1.2]))[0]
    best = winner(turns)
    assert best is turns[2] and winner(turns[1:2]) is None
