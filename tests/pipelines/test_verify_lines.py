"""Baselines of `dvk verify`: each line of PyTorch is judged once a reference, and rows without a figure say why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dvk.pipelines.verify.jobs import VerifyRequest
from dvk.pipelines.verify.lines import BaselineLines, ratio
from dvk.records import Interval, Status, Task, Timing, Verdict


class Folder:
    """A run's folder in memory."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def read(self, _: str) -> list[dict[str, Any]]:
        return self.rows

    def append(self, _: str, row: dict[str, Any]) -> None:
        self.rows.append(row)


def task(name: str, **fields: Any) -> Task:
    return Task(id=name, name=name, source="class M: pass", entry="M", kind="module", **fields)


def timed(speedup: float, regime: Any = "end_to_end") -> Verdict:
    interval = Interval(value=speedup, lo=speedup / 1.03, hi=speedup * 1.03)
    timing = Timing(
        candidate_ms=6 / speedup,
        reference_ms=6.0,
        speedup=interval,
        num_pairs=9,
        seconds=1.0,
        regime=regime,
    )
    return Verdict(status=Status.OK, tier="search", stage="done", timing=timing)


def lines(folder: Folder, *baselines: str, **fields: Any) -> BaselineLines:
    request = VerifyRequest(jobs=(), name="v", baselines=baselines, **fields)
    return BaselineLines(request, folder)  # type: ignore[arg-type]


def test_a_line_is_judged_once_a_reference_however_many_candidates_there_are() -> None:
    folder, one, other = Folder(), task("one"), task("other")
    mine = lines(folder, "compile", "max-autotune")
    jobs = mine.jobs([one, other, one, one])
    assert [place for place, _, _ in jobs] == [
        (t, b) for t in ("one", "other") for b in ("compile", "max-autotune")
    ]
    assert all(candidate.line for _, _, candidate in jobs)
    mine.add(("one", "compile"), timed(2.0))
    assert ("one", "compile") not in [place for place, _, _ in mine.jobs([one])]
    again = lines(folder, "compile", resume=True)
    assert again.jobs([one]) == [], "a resumed run has it"
    assert lines(folder, "compile", resume=True, tier="claim").jobs([one]), "of another tier"


def test_speedups_over_a_baseline_are_over_eager_in_both() -> None:
    mine = lines(Folder(), "compile")
    mine.add(("one", "compile"), timed(2.0))
    verdict = mine.beside(timed(3.0), task("one"))
    assert verdict.timing is not None and verdict.timing.baselines_ms == {"compile": 3.0}
    over = verdict.timing.baselines["compile"]
    assert over.value == pytest.approx(1.5) and over.hi / over.value == pytest.approx(
        1.0427, abs=1e-3
    )
    assert verdict.baselines_left_out == {}


def test_a_ratio_is_as_uncertain_as_both_and_unknown_if_one_is() -> None:
    exact, wide = Interval(value=2, lo=2, hi=2), Interval(value=4, lo=2, hi=5)
    assert ratio(exact, exact) == Interval(value=1, lo=1, hi=1)
    found = ratio(exact, wide)
    assert (found.lo, found.value, found.hi) == (pytest.approx(0.4), 0.5, pytest.approx(1.0))
    assert not ratio(exact, Interval.unknown(2.0)).known


def test_every_row_without_a_figure_says_why() -> None:
    one = task("one")
    mine = lines(Folder(), "compile", "graph", "max-autotune")
    mine.jobs([one])
    mine.add(
        ("one", "compile"),
        Verdict(status=Status.MISMATCH, tier="search", stage="check", error="off by one\nmore"),
    )
    mine.add(("one", "max-autotune"), timed(2.0))
    assert mine.beside(timed(3.0, "device"), one).baselines_left_out == {
        "compile": "mismatch: off by one",
        "graph": "a CUDA graph needs a GPU",
        "max-autotune": "the candidate's launches are timed on the device alone, a baseline from end to end",
    }
    wrong = Verdict(status=Status.MISMATCH, tier="search", stage="check", error="wrong")
    assert set(mine.beside(wrong, one).baselines_left_out) == {"compile", "graph", "max-autotune"}
    smoke = lines(Folder(), "compile", tier="smoke")
    assert smoke.jobs([one]) == []
    right = Verdict(status=Status.OK, tier="smoke", stage="done")
    assert smoke.beside(right, one).baselines_left_out == {
        "compile": "the smoke tier times nothing"
    }
    drawn = lines(Folder(), "compile")
    assert drawn.jobs([task("dropout", stochastic=True)]) == []


@pytest.mark.slow
def test_two_candidates_share_one_compiled_baseline(tmp_path: Path) -> None:
    from dvk.config import Config
    from dvk.pipelines.verify import VerifyJob, verify

    body = "class {}(torch.nn.Module):\n    def forward(self, x):\n        return {}\n"
    (tmp_path / "m.py").write_text(
        "import torch\n"
        + body.format("Model", "torch.tanh(x) * 2")
        + "def get_inputs():\n    return [torch.randn(64, 1024)]\n"
    )
    sources = [
        "import torch\n" + body.format("ModelNew", text)
        for text in ("2 * torch.tanh(x)", "torch.tanh(x) + torch.tanh(x)")
    ]
    request = VerifyRequest(
        jobs=tuple(VerifyJob(str(tmp_path / "m.py"), str(n), s) for n, s in enumerate(sources)),
        name="v",
        device="cpu",
        baselines=("compile", "graph"),
        out=tmp_path / "run",
    )
    rows, folder = verify(request, Config())
    for row in rows:
        timing = row.verdict.timing
        assert timing is not None and set(timing.baselines) == {"compile"}
        assert row.for_programs()["baselines_not_timed"] == {"graph": "a CUDA graph needs a GPU"}
    assert len((folder / "lines.jsonl").read_text().splitlines()) == 1
