"""Which way was fastest: the winner's name, and a row for each way."""

from __future__ import annotations

from dvk.cli.optimize import fastest
from dvk.pipelines.optimize import portfolio
from dvk.records import Candidate, Interval, Timing, Turn, Verdict


def turn(source: str, speedup: float | None, *, line: str = "", tier: str = "search") -> Turn:
    timing = speedup and Timing(
        reference_ms=2.0,
        candidate_ms=2.0 / speedup,
        speedup=Interval(value=speedup, lo=speedup * 0.99, hi=speedup * 1.01),
        num_pairs=30,
        seconds=1.0,
        regime="end_to_end",
    )
    verdict = Verdict(
        status="ok" if speedup else "mismatch",
        tier=tier,  # type: ignore[arg-type]
        stage="done" if speedup else "check",
        timing=timing or None,
        error=None if speedup else "off by 1\nmore",
        seconds=1.0,
    )
    candidate = Candidate(
        source=source,
        backend="cpp",
        proposer="pytorch" if line else "composer",
        title=line or "fused",
        line=line,
        recipes=() if line else ("fuse_pointwise",),
    )
    return Turn(candidate=candidate, verdict=verdict)


TURNS = [
    turn("own", 1.47),
    turn("compiled", 2.2, line="torch.compile"),
    turn("tuned", None, line="torch.compile(mode='max-autotune')"),
    turn("compiled", 2.31, line="torch.compile", tier="claim"),
]


def test_each_way_has_a_row_with_its_best_figure_or_the_reason():
    rows = {
        row["name"]: row for row in portfolio.rows(TURNS, {"channels_last": "the budget ended"})
    }
    assert [*rows] == [
        "eager",
        "torch.compile",
        "torch.compile(mode='max-autotune')",
        "channels_last",
        "dvk's own kernels",
    ]
    assert rows["torch.compile"]["speedup"] == 2.31 and rows["torch.compile"]["tier"] == "claim"
    assert rows["torch.compile(mode='max-autotune')"]["reason"] == "off by 1"
    assert rows["channels_last"]["status"] == "left_out"
    assert rows["dvk's own kernels"]["speedup"] == 1.47 and rows["eager"]["ms"] == 2.0


def test_the_terminal_names_the_winner_and_the_best_of_the_others():
    own = portfolio.best_own(TURNS)
    assert portfolio.winner(TURNS[-1], True) == "torch.compile"
    assert portfolio.winner(TURNS[0], True) == "dvk" and portfolio.winner(TURNS[0], False) is None
    summary = {"winner": "torch.compile", "speedup": 2.31, "own": own}
    assert fastest(summary) == [
        "torch.compile is fastest here, 2.31×; the best of dvk's own kernels 1.47×"
    ]
    rows = portfolio.rows(TURNS[:2], {})
    assert (
        "best line of PyTorch is torch.compile, 2.20×"
        in fastest({"winner": "dvk", "portfolio": rows})[0]
    )
    of_the_device = {"winner": "dvk", "regime": "device", "portfolio": rows}
    assert not fastest(of_the_device), "the line was timed from end to end"
