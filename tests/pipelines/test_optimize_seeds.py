"""`dvk optimize --seed-candidate`, the end at the roofline, and the end at a cap, by a court whose verdicts we make up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dvk import tasks
from dvk.backbone import Completion, Conversation, Sampling, TokenUsage
from dvk.cli.optimize import lines
from dvk.config import Config
from dvk.errors import MachineError, UsageError
from dvk.pipelines.optimize import optimize, reference_bounds, session
from dvk.pipelines.optimize.request import OptimizeRequest
from dvk.records import Status, Verdict
from tests.agents.conftest import fenced
from tests.backbone.serving import serving
from tests.pipelines.courts import Court, verdict
from tests.pipelines.input_sets import MODEL, captured, loaded

Run = Callable[..., dict[str, Any]]
GOOD = MODEL.replace("class Model(", "class ModelNew(")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tasks, "load", loaded)
    monkeypatch.setattr(session, "capture", captured)
    monkeypatch.setattr(reference_bounds, "reference_profile", lambda task, limits: None)

    def run(
        court: Court, *sources: str, settings: dict[str, Any] | None = None, **how: Any
    ) -> dict[str, Any]:
        monkeypatch.setattr(session, "open_session", court)
        paths = [tmp_path / f"seed{number}.py" for number in range(len(sources))]
        for path, source in zip(paths, sources):
            path.write_text(source)
        given = {**Config().model_dump(), **(settings or {})}
        given["optimize"] = {
            **Config().optimize.model_dump(),
            "own_kernels": True,
            **given["optimize"],
        }
        request = OptimizeRequest(
            spec=str(tmp_path / "model.py"),
            out=tmp_path / "run",
            device="cpu",
            quiet=True,
            seeds=tuple(paths),
            **how,
        )
        return optimize(request, Config.model_validate(given))

    return run


def by_text(found: dict[str, Verdict | Exception], other: Verdict | None = None) -> Court:
    """A court that judges texts by a word in them; `other` for all others, None is a cut."""
    court = Court(lambda number, tier: None)

    def judge(number: int, tier: str) -> Any:
        source = court.asked[-1][1]
        known = next((v for word, v in found.items() if word in source), other)
        if tier == "claim" and isinstance(known, Verdict):
            return verdict("claim", (1.9, 2.0, 2.1))
        return known

    court.by = judge
    return court


@pytest.mark.slow
def test_seeds_are_judged_first_and_bad_ones_have_a_verdict(run: Run, tmp_path: Path) -> None:
    broken = Verdict(status=Status.REJECTED, tier="search", stage="static", error="not Python")
    found = {
        "# mine": verdict("search", (1.9, 2.0, 2.1)),
        "# bad": broken,
        "# gpu": MachineError("no CUDA device was found", "use another machine"),
    }
    court = by_text(found, verdict("search", (0.9, 0.95, 1.0)))
    summary = run(court, GOOD + "# mine", "# bad", GOOD + "# gpu", GOOD + "# mine")
    assert ["# mine", "# bad", "# gpu"] == [
        source.split("\n")[-1] for source in court.of("search")[:3]
    ]
    assert summary["status"] == "faster" and summary["winner"] == summary["proposer"] == "seed"
    assert [(row["title"], row["status"]) for row in summary["seeds"]] == [
        ("your seed0.py", "ok"),
        ("your seed1.py", "rejected"),
        ("your seed2.py", "rejected"),
    ]
    told = "\n".join(lines(summary))
    assert "your own candidate is fastest here" in told and "your seed0.py: 2.00×" in told
    assert "your seed1.py: rejected, not Python" in told
    assert "your seed2.py: rejected, no CUDA device was found" in told
    assert (tmp_path / "run" / "best.py").read_text().endswith("# mine")
    assert "your seed1.py" in (tmp_path / "run" / "report.html").read_text()
    assert "seed" in {row["kind"] for row in summary["portfolio"]}


def test_a_resumed_run_keeps_its_seeds(run: Run) -> None:
    """Killed after the first seed: the second is judged by the next process, which does not name them."""
    stopped = by_text({"# one": verdict("search", (1.0, 1.01, 1.02)), "# two": OSError("killed")})
    with pytest.raises(OSError, match="killed"):
        run(stopped, GOOD + "# one", GOOD + "# two")
    again = by_text(
        {"# two": verdict("search", (1.9, 2.0, 2.1))}, verdict("search", (1.0, 1.0, 1.0))
    )
    summary = run(again, resume=True)
    assert again.of("search")[0].endswith("# two"), "the first is not judged again"
    assert [row["status"] for row in summary["seeds"]] == ["ok", "ok"]
    assert run(Court(lambda *_: AssertionError()), resume=True) == summary
    with pytest.raises(UsageError, match="began with other candidates"):
        run(Court(lambda *_: AssertionError()), GOOD + "# three", resume=True)


def test_a_file_that_cannot_be_read_is_refused_before_anything_begins(
    run: Run, tmp_path: Path
) -> None:
    for path, problem in ((tmp_path / "none.py", "cannot read"), (tmp_path, "cannot read")):
        request = OptimizeRequest(
            spec=str(tmp_path / "model.py"), out=tmp_path / "run", device="cpu", seeds=(path,)
        )
        with pytest.raises(UsageError, match=problem):
            optimize(request, Config())
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        optimize(
            OptimizeRequest(
                spec=str(tmp_path / "model.py"),
                out=tmp_path / "run",
                device="cpu",
                seeds=(tmp_path / "binary.py",),
            ),
            Config(),
        )
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------- the roofline


def at(floor_ms: float, speedup: tuple[float, float, float], tier: Any = "search") -> Verdict:
    """A candidate of 1 ms a call, with a roofline."""
    made = verdict(tier, speedup)
    assert made.timing is not None
    timing = made.timing.model_copy(update={"floor_ms": floor_ms})
    return made.model_copy(update={"timing": timing})


def test_a_search_ends_where_nothing_is_left_to_gain(run: Run, tmp_path: Path) -> None:
    court = Court(lambda number, tier: at(0.99 if number == 1 else 0.5, (1.99, 2.0, 2.01), tier))
    summary = run(court)
    assert [tier for tier, _ in court.asked] == ["search"] * 2 + ["claim"]
    why = "nothing is left to gain: "
    assert summary["status"] == "faster" and summary["ended"].startswith(why)
    assert "990 µs on this machine" in summary["ended"]
    assert any(line.startswith(f"ended early: {why}") for line in lines(summary))
    assert "nothing is left to gain" in (tmp_path / "run" / "report.md").read_text()


def test_a_wide_interval_proves_no_time_at_the_roofline(run: Run) -> None:
    wide = (1.5, 2.0, 2.5)
    court = Court(lambda n, tier: at(0.99, wide, tier) if n < 3 or tier == "claim" else None)
    assert run(court)["ended"] is None and len(court.of("search")) == 4


def test_pytorch_at_the_roofline_ends_the_search_after_one_verdict(run: Run) -> None:
    court = Court(lambda number, tier: at(0.5, (0.49, 0.5, 0.51), tier))
    summary = run(court)
    assert len(court.asked) == 1 and summary["status"] == "no_speedup"
    assert "eager PyTorch takes 500 µs a call at most" in summary["ended"]


# ---------------------------------------------------------------- a cap


class Author:
    """Writes 1,500 tokens an answer; four bytes a token."""

    name, dialect = "author", "chat"

    def __init__(self) -> None:
        self.usage, self.asked = TokenUsage(), list[Conversation]()

    def generate(self, conversations: list[Conversation], sampling: Sampling) -> list[Completion]:
        self.asked += conversations
        read = sum(len(c.model_dump_json().encode()) // 4 for c in conversations)
        self.usage.add(read, 1500 * len(conversations), 0.1)
        answer = f"<think>long {'x' * 99}</think>\n{fenced(GOOD + f'# answer {len(self.asked)}')}"
        return [Completion(text=answer, finish="stop") for _ in conversations]


def test_a_search_with_ten_thousand_tokens(run: Run, tmp_path: Path) -> None:
    """One conversation without skills: its first answers are judged, then the cap ends the model's part, and the composer goes on."""
    author = Author()
    court = by_text(
        {"# answer": verdict("search", (1.9, 2.0, 2.1))}, verdict("search", (0.9, 1.0, 1.1))
    )
    with serving(author) as server:  # type: ignore[arg-type]
        settings = {"optimize": {"max_tokens": 10_000}, "backbone": {"endpoint_url": server.url}}
        summary = run(court, settings=settings, backbone="endpoint:tiny", strategy="refine")
    cost = summary["cost"]
    assert 1 <= cost["answers"] <= 3 and cost["prompt_tokens"] + cost["completion_tokens"] <= 10_000
    assert summary["status"] == "faster" and summary["proposer"] == "endpoint:tiny"
    assert "the cap --max-tokens ended the model's part of the search" in summary["ended"]
    assert any("--max-tokens" in line for line in lines(summary))
    kept = [
        json.loads(line) for line in (tmp_path / "run" / "answers.jsonl").read_text().splitlines()
    ]
    assert sum(len(call["completions"]) for call in kept) == cost["answers"]
    if len(author.asked) > 1:
        history = str(author.asked[-1].messages)
        assert "<think>" not in history and "# answer 1" in history
    assert "Where eager PyTorch" in str(author.asked[0].messages) or "Bytes of the largest" in str(
        author.asked[0].messages
    )
