"""`dvk optimize --extra-input`: a search for each set of inputs and one drop-in, by a court whose clock we make up."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk import target, tasks
from dvk.config import Config
from dvk.errors import DvkError
from dvk.pipelines.optimize import confirming, optimize, session
from dvk.pipelines.optimize.request import OptimizeRequest
from dvk.records import Candidate, Claim, Interval, Status, Task, Timing, Verdict
from tests.pipelines.input_sets import MODEL, captured, imported, loaded

OTHER = "x=float32[8,64]"
Clock = Callable[[int, Candidate, str], float]
"""Rows of the inputs, candidate and tier → speedup."""


class Killed(BaseException):
    """Not caught anywhere."""


class Made:
    """Judge sessions without judging: every candidate is right and as fast as the clock says. Requests are recorded."""

    def __init__(self, clock: Clock, last: float = float("inf")):
        self.clock, self.last = clock, last
        self.asked: list[tuple[int, str, str]] = []

    def __call__(self, task: Task, config: Config, *_: Any) -> _Court:
        return _Court(self, task.inputs[0].shape[0])


class _Court:
    def __init__(self, made: Made, rows: int):
        self.made, self.rows = made, rows

    def __enter__(self) -> _Court:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def judge(
        self,
        candidate: Candidate,
        tier: Any = "search",
        baselines: Any = (),
        deadline: float | None = None,
    ) -> Verdict:
        if len(self.made.asked) >= self.made.last:
            raise Killed
        self.made.asked.append((self.rows, candidate.source, tier))
        speedup = self.made.clock(self.rows, candidate, tier)
        exact = Interval(value=speedup, lo=speedup, hi=speedup)
        claim = Claim(
            speedup=exact,
            processes=(speedup,),
            control=Interval(value=1, lo=1, hi=1),
            margin=0.01,
            holds=speedup > 1.01,
        )
        timing = Timing(
            candidate_ms=1.0,
            reference_ms=speedup,
            speedup=exact,
            num_pairs=9,
            seconds=0.1,
            claim=claim if tier == "claim" else None,
        )
        return Verdict(status=Status.OK, tier=tier, stage="done", timing=timing)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tasks, "load", loaded)
    monkeypatch.setattr(session, "capture", captured)
    monkeypatch.setattr(target, "of_machine", lambda device: target.DEFAULT)

    def run(made: Made, *also: str, **options: Any) -> dict[str, Any]:
        monkeypatch.setattr(session, "open_session", made)
        asked = OptimizeRequest(
            spec=str(tmp_path / "model.py"),
            also=also,
            out=tmp_path / "run",
            device="cpu",
            quiet=True,
            **options,
        )
        return optimize(asked, Config.model_validate({"optimize": {"own_kernels": True}}))

    return run


def claims(made: Made) -> list[tuple[int, int]]:
    """(rows, number of programs) of confirmed candidates, in order."""
    return [
        (rows, len(re.findall(r"def _dvk_run", source)))
        for rows, source, tier in made.asked
        if tier == "claim"
    ]


@pytest.mark.slow
def test_one_drop_in_is_confirmed_with_every_set(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    made = Made(lambda rows, candidate, tier: 2.0 if rows == 32 else 3.0)
    summary = run(made, OTHER)
    assert claims(made) == [(32, 2), (8, 2)]
    best = Path(summary["best"]).read_text()
    assert {source for _, source, tier in made.asked if tier == "claim"} == {best}
    assert [
        (row["inputs"], row["status"], row["speedup"], row["ms"]) for row in summary["shapes"]
    ] == [("x float32[32, 64]", "faster", 2.0, 1.0), ("x float32[8, 64]", "faster", 3.0, 1.0)]
    assert summary["speedup"] == 2.0, "the headline is the first set"
    module = imported(summary["best"])
    new, old = module.ModelNew(), module.Model()
    with torch.no_grad():
        for rows, fits in ((32, [True, False]), (8, [False, True]), (9, [False, False])):
            x = torch.rand(rows, 64)
            assert torch.allclose(new(x), old(x), atol=1e-6)
            assert [new._dvk_fits(x), new._dvk_fits_2(x)] == fits
    report = (tmp_path / "run" / "report.md").read_text()
    assert re.search(r"x float32\[8, 64\] +\| +3 ms \| +1 ms \| +3.00× \[3.00, 3.00\]", report), (
        report[:900]
    )
    page = (tmp_path / "run" / "report.html").read_text()
    assert "x float32[8, 64]" in page and "3.00× [3.00, 3.00]" in page
    episodes = [
        json.loads(line)
        for line in (tmp_path / "run" / "episodes" / "optimize.jsonl").read_text().splitlines()
    ]
    assert [one["task"]["inputs"][0]["shape"] for one in episodes] == [[32, 64], [8, 64]]


@pytest.mark.slow
def test_a_set_for_which_nothing_holds_keeps_the_original(
    run: Callable[..., dict[str, Any]],
) -> None:
    made = Made(
        lambda rows, candidate, tier: 2.0 if rows == 32 else 1.5 if tier == "search" else 1.0
    )
    summary = run(made, OTHER)
    assert claims(made) == [(32, 2), (8, 2)] * 3 + [(32, 1)], (
        "three candidates are tried for it; the rest is judged again"
    )
    first, second = summary["shapes"]
    assert (first["status"], second["status"]) == (
        "faster",
        "no_speedup",
    ) and "no difference" in second["reason"]
    assert [s for _, s, t in made.asked if t == "claim"][-1] == Path(summary["best"]).read_text()


@pytest.mark.slow
def test_sets_that_fall_in_turns_are_given_up_after_as_many_drop_ins_as_a_set_has_candidates(
    run: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []
    said: list[str] = []
    monkeypatch.setattr(session.SearchView, "stage", lambda self, text: said.append(text))

    def clock(rows: int, candidate: Candidate, tier: str) -> float:
        if tier == "search":
            return 2.0
        if candidate.source not in texts:
            texts.append(candidate.source)
        return 1.0 if (len(texts) % 2 == 0) == (rows == 8) else 2.0

    made = Made(clock)
    summary = run(made, OTHER)
    assert claims(made) == [(32, 2), (8, 2)] * confirming.NUM_CONFIRMED + [(8, 1)]
    assert [row["status"] for row in summary["shapes"]] == ["no_speedup", "no_speedup"]
    assert any(
        text.startswith(
            "confirming drop-in 1 of at most 4 with set 2 of 2, x float32[8, 64], in fresh processes"
        )
        for text in said
    )


@pytest.mark.slow
def test_the_headline_is_the_first_set_that_is_faster(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    summary = run(Made(lambda rows, candidate, tier: 0.9 if rows == 32 else 2.5), OTHER)
    assert summary["status"] == "faster" and summary["speedup"] == 2.5
    assert [row["status"] for row in summary["shapes"]] == ["no_speedup", "faster"]
    assert "with x float32[8, 64]" in (tmp_path / "run" / "report.md").read_text().splitlines()[0]


def test_nothing_faster_for_any_set(run: Callable[..., dict[str, Any]]) -> None:
    """The model itself, which a noisy clock may find faster than itself, is not waited for."""
    made = Made(lambda rows, candidate, tier: 0.9 if candidate.recipes else 1.3)
    summary = run(made, OTHER)
    assert summary["status"] == "no_speedup" and summary["best"] is None and not claims(made)
    assert any("dvk_" not in source for _, source, _ in made.asked)


@pytest.mark.slow
def test_another_set_starts_with_the_schedule_that_was_best(
    run: Callable[..., dict[str, Any]],
) -> None:
    liked = {"parallel": "rows", "chunk": 4096, "width": 256}
    proposed: list[tuple[int, Any]] = []

    def clock(rows: int, candidate: Candidate, tier: str) -> float:
        proposed.append((rows, candidate.schedule["k0"]))
        return 2.0 if candidate.schedule["k0"] == liked else 1.5

    run(Made(clock), "x=float32[2048,64]")
    first = [schedule for rows, schedule in proposed if rows == 32]
    assert first[0] != liked and liked in first
    assert next(schedule for rows, schedule in proposed if rows == 2048) == liked, (
        "of a class that no search had met"
    )


@pytest.mark.slow
def test_equal_kernels_are_listed_once(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import torch\ndef f(x):\n    return torch.tanh(x) * 2\n")
    summary = run(
        Made(lambda rows, candidate, tier: 2.0), "x=float32[64,32]", inputs=("x=float32[32,64]",)
    )
    assert [row["same_kernels_as"] for row in summary["shapes"]] == [None, "x float32[32, 64]"]
    assert "the kernels of x float32[32, 64]" in (tmp_path / "run" / "report.md").read_text()


def clock(rows: int, candidate: Candidate, tier: str) -> float:
    return 2.0 + len(candidate.source) % 7 / 10


@pytest.mark.slow
def test_a_killed_run_goes_on_wherever_it_was(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    whole = Made(clock)
    want = run(whole, OTHER)
    for last in (1, len(whole.asked) // 2, len(whole.asked) - 1):
        for path in sorted((tmp_path / "run").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (tmp_path / "home" / "tunings.db").unlink()
        killed, rest = Made(clock, last), Made(clock)
        with pytest.raises(Killed):
            run(killed, OTHER)
        got = run(rest, OTHER, resume=True)
        assert max(Counter([*killed.asked, *rest.asked]).values()) == 1, "nothing is judged twice"
        assert killed.asked + rest.asked == whole.asked
        assert [row["speedup"] for row in got["shapes"]] == [
            row["speedup"] for row in want["shapes"]
        ]
    assert run(Made(clock, 0), OTHER, resume=True) == got, "a finished one judges nothing"
    with pytest.raises(DvkError, match="other sets of inputs"):
        run(Made(clock, 0), resume=True)


@pytest.mark.slow
def test_a_resumed_search_lists_schedules_for_the_device_it_began_on(
    run: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = target.Target(cpu=replace(target.DEFAULT.cpu, vector_bits=256))
    monkeypatch.setattr(target, "of_machine", lambda device: narrow)
    killed, rest = Made(clock, 2), Made(clock)
    with pytest.raises(Killed):
        run(killed)
    monkeypatch.setattr(target, "of_machine", lambda device: target.DEFAULT)
    run(rest, resume=True)
    assert rest.asked and not set(killed.asked) & set(rest.asked)
    assert all(
        "prefer-vector-width=256" in text for _, text, _ in rest.asked if "#pragma omp" in text
    )


@pytest.mark.slow
def test_ctrl_c_while_confirming_keeps_what_one_search_found(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    def stopped(rows: int, candidate: Candidate, tier: str) -> float:
        if tier == "claim" and rows == 8:
            raise KeyboardInterrupt
        return 2.0

    made = Made(stopped)
    summary = run(made, OTHER)
    assert summary["status"] == "faster" and "stopped before" in summary["reason"]
    assert (32, Path(summary["best"]).read_text(), "search") in made.asked, (
        "no text that was never judged"
    )
    assert [row["status"] for row in summary["shapes"]] == ["faster", "no_speedup"]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"
    again = run(Made(clock), OTHER, resume=True)
    assert [row["status"] for row in again["shapes"]] == ["faster", "faster"]


@pytest.mark.parametrize(
    ("also", "options", "says"),
    [
        (("x=float32[8,63]",), {}, "--extra-input `x=float32[8,63]`: Model failed"),
        (("y=float32[8,64]",), {}, "no parameter `y`"),
        ((OTHER, "float32[8,64]"), {}, "given already: x float32[8, 64]"),
        (("x=float32[32,64]",), {}, "given already"),
        ((OTHER,), {"backbone": "nano"}, "composer"),
    ],
)
@pytest.mark.slow
def test_mistakes_leave_nothing_behind(
    run: Callable[..., dict[str, Any]],
    tmp_path: Path,
    also: tuple[str, ...],
    options: dict[str, Any],
    says: str,
) -> None:
    with pytest.raises(DvkError) as caught:
        run(Made(clock, 0), *also, **options)
    assert says in caught.value.message and caught.value.hint
    assert not (tmp_path / "run").exists()
