"""Episodes and verdicts whose numbers are known, for the tests of `dvk eval`."""

from __future__ import annotations

from pathlib import Path

from dvk.pipelines.eval.request import EPISODES, ROWS, SUMMARY, Unplayed
from dvk.pipelines.eval.rows import EvalRow, rows_for
from dvk.records import Candidate, Episode, Interval, Status, Task, Timing, Trace, Turn, Verdict
from dvk.runs import RunFolder


def verdict(
    speedup: float | None,
    over_compile: float | None = 1.0,
    floor_ms: float | None = None,
    **more: object,
) -> Verdict:
    """Right and timed, a candidate's call taking a millisecond, or wrong."""
    if speedup is None:
        return Verdict(
            status=Status.MISMATCH,
            tier="search",
            stage="check",
            error="off by one\nand more",
            **more,
        )  # type: ignore[arg-type]
    baselines = (
        {"compile": Interval(value=over_compile, lo=over_compile, hi=over_compile)}
        if over_compile
        else {}
    )
    timing = Timing(
        candidate_ms=1,
        reference_ms=speedup,
        speedup=Interval(value=speedup, lo=speedup * 0.9, hi=speedup * 1.1),
        baselines=baselines,
        baselines_ms={name: i.value for name, i in baselines.items()},
        num_pairs=9,
        seconds=0,
        floor_ms=floor_ms,
    )
    return Verdict(
        status=Status.OK,
        tier="search",
        stage="done",
        timing=timing,
        num_checks=10,
        seconds=2.0,
        **more,
    )  # type: ignore[arg-type]


def episode(
    name: str, *samples: list[float | None], over_compile: float | None = 1.0, **more: object
) -> Episode:
    """Speedups by turn, a list a sample."""
    traces = [
        Trace(
            role="policy",
            rollout=number,
            turns=tuple(
                Turn(
                    candidate=Candidate(source=f"{name} {number} {turn}", backend="cpp"),
                    verdict=verdict(speedup, over_compile, **more),
                )
                for turn, speedup in enumerate(speedups)
            ),
        )
        for number, speedups in enumerate(samples)
    ]
    return Episode(
        task=Task(id=f"id-{name}", name=name, source="", entry="Model", kind="module"),
        traces=tuple(traces),
    )


def on_gpu(one: Episode, *regimes: str) -> Episode:
    """Its only sample, each turn timed in its way."""
    turns = tuple(
        t.model_copy(
            update={
                "verdict": t.verdict.model_copy(
                    update={  # type: ignore[union-attr]
                        "timing": t.verdict.timing.model_copy(update={"regime": regime})
                    }
                )
            }
        )
        for t, regime in zip(one.traces[0].turns, regimes)
    )  # type: ignore[union-attr]
    return one.model_copy(
        update={
            "traces": (one.traces[0].model_copy(update={"turns": turns}),),
            "task": one.task.model_copy(update={"device": "cuda"}),
        }
    )


def rows(
    *episodes: Episode,
    unplayed: dict[str, str] | None = None,
    again: dict[tuple[str, int], Verdict] | None = None,
    levels: dict[str, str] | None = None,
) -> list[EvalRow]:
    """As an evaluation makes them."""
    missing = [Unplayed(name=name, error=why) for name, why in (unplayed or {}).items()]
    return rows_for(
        episodes,
        missing,
        again or {},
        {name: {"level": level} for name, level in (levels or {}).items()},
    )


def finished(path: Path, found: list[EvalRow], policy: str = "composer") -> Path:
    """A run folder with such results."""
    run = RunFolder(path, {}, -1)
    run.write_text(ROWS, "".join(row.model_dump_json() + "\n" for row in found))
    run.append(SUMMARY, {"policy": policy})
    return path


def unfinished(path: Path, *episodes: Episode) -> Path:
    """A run folder with episodes and nothing more."""
    run = RunFolder(path, {}, -1)
    for one in episodes:
        run.append(EPISODES, one)
    return path
