"""How a search of `dvk optimize` ends: too early, too noisy, stopped, resumed; by a court whose verdicts we make up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dvk import target, tasks
from dvk.agents import TaskContext
from dvk.cli.optimize import command, lines
from dvk.composer import Plan, applicable, compose
from dvk.composer.plan_space import MEASURED
from dvk.config import Config
from dvk.errors import RunFolderError
from dvk.pipelines.optimize import clock, optimize, session
from dvk.pipelines.optimize.credit import credited
from dvk.pipelines.optimize.request import OptimizeRequest
from dvk.records import Status, Verdict
from tests.agents.conftest import make_skill
from tests.pipelines.courts import QUIET, Court, verdict
from tests.pipelines.input_sets import MODEL, captured, imported, loaded


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tasks, "load", loaded)
    monkeypatch.setattr(session, "capture", captured)
    # The number of schedules depends on the processor.
    monkeypatch.setattr(target, "of_machine", lambda device: target.DEFAULT)

    def run(
        court: Court, *, budget_s: float = 120.0, resume: bool = False, quiet: bool = True
    ) -> dict[str, Any]:
        monkeypatch.setattr(session, "open_session", court)
        config = Config()
        config = config.model_copy(
            update={
                "optimize": config.optimize.model_copy(
                    update={"budget_s": budget_s, "own_kernels": True}
                )
            }
        )
        request = OptimizeRequest(
            spec=str(tmp_path / "model.py"),
            out=tmp_path / "run",
            device="cpu",
            quiet=quiet,
            resume=resume,
        )
        return optimize(request, config)

    return run


@pytest.mark.slow
def test_a_search_that_ended_before_its_first_verdict_says_so(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    summary = run(Court(lambda number, tier: None))
    assert (
        summary["status"] == "no_verdict"
        and summary["num_candidates"] == 0
        and summary["best"] is summary["unproven"] is None
    )
    reason = summary["reason"]
    assert (
        reason.startswith("the budget ended before the first verdict, which needs about")
        and "(--budget-s" in reason
    )
    assert lines(summary)[0].startswith(
        "nothing was judged: the budget ended before the first verdict"
    )
    assert (
        "The search ended before its first verdict"
        in (tmp_path / "run" / "report.html").read_text()
    )


def test_a_first_verdict_has_the_time_that_it_is_expected_to_take(
    run: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine more than half a minute, whatever the budget."""
    at_start = clock.at_start
    monkeypatch.setattr(clock, "at_start", lambda *a, **k: replace(at_start(*a, **k), first=40.0))
    court = Court(lambda number, tier: None)
    run(court, budget_s=5.0)
    assert 100 < court.left_s[0] <= 120


def test_too_noisy_is_a_status_with_a_hint_and_the_best_is_kept(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    court = Court(
        lambda number, tier: verdict(
            tier, (1.1, 3.0, 8.0) if tier == "search" else (0.5, 2.4, 11.0), (0.4, 0.9, 2.0)
        )
    )
    summary = run(court)
    assert (
        summary["status"] == "too_noisy"
        and summary["best"] is None
        and "too noisy to tell" in summary["reason"]
    )
    assert "itself" in summary["noise"] and "judge.claim_pairs=200" in summary["hint"]
    assert (
        summary["unproven"] == str(tmp_path / "run" / "unproven.py")
        and not (tmp_path / "run" / "best.py").exists()
    )
    assert hasattr(imported(summary["unproven"]), "ModelNew") and Path(
        summary["unproven"]
    ).read_text().startswith("# Unproven")
    told = "\n".join(lines(summary))
    assert "unproven.py" in told and "does not exceed" not in told and "did not hold" not in told
    for name in ("report.md", "report.html"):
        text = (tmp_path / "run" / name).read_text()
        assert "Too noisy to tell whether anything is faster" in text and "unproven.py" in text


def test_a_candidate_refused_when_judged_again_is_not_kept_as_the_best(
    run: Callable[..., dict[str, Any]],
) -> None:
    wrong = Verdict(status=Status.MISMATCH, tier="claim", stage="check", error="output 0 differs")
    summary = run(
        Court(lambda number, tier: verdict(tier, (1.4, 1.5, 1.6)) if tier == "search" else wrong)
    )
    assert (
        summary["status"] == "no_speedup"
        and "refused when it was judged again: output 0 differs" in summary["reason"]
    )
    assert summary["unproven"] is None


@pytest.mark.slow
def test_a_wide_interval_has_its_lower_end_as_the_headline(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    court = Court(
        lambda number, tier: verdict(
            tier, (10.7, 31.1, 90.0), (0.34, 0.83, 1.99) if tier == "claim" else QUIET, holds=True
        )
    )
    summary = run(court)
    assert (summary["status"], summary["headline"]) == ("faster", "at least 10×")
    assert (summary["speedup"], summary["speedup_lo"], summary["speedup_hi"]) == (
        31.1,
        10.7,
        90.0,
    ), "programs get the raw figures"
    assert summary["control"] == {"value": 0.83, "lo": 0.34, "hi": 1.99}
    told = lines(summary)
    assert told[0].startswith("at least 10× faster than eager (the interval [10.7, 90.0] is wide)")
    assert any("too busy" in one for one in told)
    page = (tmp_path / "run" / "report.html").read_text()
    assert (
        "at least 10× faster than eager PyTorch" in page
        and "31.1× faster" not in page
        and "too busy" in page
    )


@pytest.mark.slow
def test_a_finished_run_goes_on_with_a_larger_budget(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    first = Court(
        lambda number, tier: (
            verdict(tier, (1.4, 1.5, 1.6)) if tier == "claim" or number < 2 else None
        )
    )  # cut at its third
    before = run(first, budget_s=5)
    assert before["status"] == "faster" and len(first.of("search")) == 3
    idle = Court(lambda number, tier: AssertionError("nothing is judged"))
    assert run(idle, budget_s=5, resume=True) == before
    with pytest.raises(RunFolderError, match="another optimize.budget_s") as refused:
        run(idle, budget_s=4, resume=True)
    assert "larger budget_s" in refused.value.hint
    second = Court(
        lambda number, tier: verdict(
            tier, (1.9, 2.0, 2.1) if tier == "search" else (0.9, 1.0, 1.05)
        )
    )
    after = run(second, budget_s=50, resume=True)
    assert second.of("search")[0] == first.of("search")[2] and not set(second.of("search")) & set(
        first.of("search")[:2]
    )
    assert after["status"] == "faster" and after["speedup"] == 1.5, (
        "what was confirmed before stays when nothing better is"
    )
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (
        manifest["status"] == "done"
        and manifest["config"]["optimize"]["budget_s"] == 50
        and len(manifest["resumed"]) == 1
    )
    assert run(idle, budget_s=50, resume=True) == after


@pytest.mark.slow
def test_ctrl_c_confirms_and_a_second_one_ends(
    run: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    stopped = KeyboardInterrupt()
    court = Court(lambda number, tier: stopped if number == 2 else verdict(tier, (1.4, 1.5, 1.6)))
    summary = run(court, quiet=False)
    told = capsys.readouterr().err
    assert "confirming the best so far, about" in told and "Ctrl-C once more ends at once" in told
    assert "expected: up to 120 s of search" in told
    assert (
        summary["status"] == "faster"
        and summary["reason"] is None
        and [tier for tier, _ in court.asked] == ["search"] * 3 + ["claim"]
    )
    again = Court(
        lambda number, tier: stopped
    )  # the search resumes, and is stopped again, and once more
    summary = run(again, resume=True)
    assert summary["status"] == "faster", "what was confirmed is not asked for again"
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"


def test_ctrl_c_before_anything_was_judged(run: Callable[..., dict[str, Any]]) -> None:
    summary = run(Court(lambda number, tier: KeyboardInterrupt()))
    assert (summary["status"], summary["reason"]) == (
        "no_verdict",
        "stopped before the first verdict",
    )


# ---------------------------------------------------------------- the clock


def test_the_expected_time_is_said_with_what_the_budget_does_not_cover() -> None:
    judge = Config().judge
    found = clock.at_start(4.0, 20.0, judge, 0)
    assert (
        found.total == pytest.approx(found.load + found.capture + 20 + found.confirm)
        and found.confirm >= clock.LEAST_CONFIRM_S
    )
    assert "up to 20 s of search" in str(found) and f"about {found.fixed:.0f} s for loading" in str(
        found
    )
    small = clock.at_start(8.0, 5.0, judge, 0)
    assert small.total == pytest.approx(
        small.fixed + 17.6
    ) and "the first verdict alone takes about 18 s" in str(small)
    assert clock.at_start(4.0, 20.0, judge, 1).confirm >= found.confirm + clock.COMPILE_S, (
        "a baseline is compiled"
    )
    assert clock.at_start(4.0, 20.0, judge, 0, 3).confirm == 3 * found.confirm, (
        "each set of inputs is confirmed"
    )


@pytest.mark.parametrize(
    "stages, claim_s",
    [
        (
            {"setup": 4.1, "prepare": 6.8, "check": 1.1, "time": 1.7},
            39.0,
        ),  # rmsnorm_swiglu next to six busy processes, 10 sets
        ({"setup": 4.3, "prepare": 4.1, "check": 0.6, "time": 1.7}, 34.8),  # geglu, 10 sets
        ({"setup": 3.3, "prepare": 2.2, "check": 0.7, "time": 1.9}, 21.1),  # conv_bn_relu, 5 sets
        (
            {"setup": 8.9, "prepare": 8.7, "check": 1.2, "time": 2.4},
            54.1,
        ),  # rmsnorm_swiglu, 10 sets
    ],
)
def test_the_estimate_after_the_first_verdict_on_recorded_runs(
    stages: dict[str, float], claim_s: float
) -> None:
    judge = Config().judge
    first = verdict("search", (1.4, 1.5, 1.6)).model_copy(
        update={"stages_s": stages, "seconds": sum(stages.values())}
    )
    found = clock.corrected(clock.at_start(5.0, 20.0, judge, 0), 3.0, first, judge, 0)
    assert (
        found.corrected
        and found.first == first.seconds
        and 0.5 * claim_s < found.confirm < 2 * claim_s
    )


def test_a_first_verdict_that_was_cut_needs_half_as_much_again() -> None:
    assert [clock.needed_s(spent) for spent in (20.0, 30.0, 41.0)] == [30, 50, 70]


def test_the_help_names_the_default_budget() -> None:
    option = command.__annotations__["budget_s"]
    assert f"default: {Config().optimize.budget_s:g}" in str(option)


# ---------------------------------------------------------------- what each came to


def test_a_search_that_found_nothing_says_what_each_proposer_came_to(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    wrong = Verdict(
        status=Status.MISMATCH,
        tier="search",
        stage="check",
        error="output 0 differs by 3e-2\nand more",
    )
    summary = run(
        Court(lambda number, tier: wrong if number == 1 else verdict(tier, (0.90, 0.93, 0.96)))
    )
    (arm,) = summary["arms"]
    assert (
        summary["status"] == "no_speedup" and arm["name"] == "composer" and arm["speedup"] == 0.93
    )
    assert (
        arm["verdicts"]["mismatch"] == 1
        and sum(arm["verdicts"].values()) == summary["num_candidates"]
    )
    (line,) = [one for one in lines(summary) if one.startswith("composer: ")]
    assert (
        "1 mismatch" in line
        and "measured 0.930× [0.900, 0.960]" in line
        and "refused most often for mismatch: output 0 differs" in line
    )
    assert "and more" not in line
    assert "refused most often for mismatch" in (tmp_path / "run" / "report.md").read_text()


def test_a_search_in_which_all_were_refused_says_why(run: Callable[..., dict[str, Any]]) -> None:
    summary = run(
        Court(
            lambda number, tier: Verdict(
                status=Status.COMPILE_ERROR, tier="search", stage="compile", error="no such header"
            )
        )
    )
    assert summary["status"] == "failed" and summary["arms"][0]["speedup"] is None
    assert any(
        "refused most often for compile error: no such header" in one for one in lines(summary)
    )


@pytest.mark.slow
def test_skills_are_credited_where_their_recipe_is_in_the_winner(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    task = loaded(
        str(tmp_path / "model.py"),
        inputs=(),
        init=(),
        eval_mode=False,
        dtype=None,
        device="cpu",
        limits=Config().limits,
    )
    graph = captured(task, Config().limits)
    recipes = tuple(name for name in applicable(graph.graph, "cpu", "cpp") if name not in MEASURED)
    whole = compose(task, graph, Plan(recipes), "cpp").source
    works = [
        one
        for one in recipes
        if compose(task, graph, Plan(tuple(r for r in recipes if r != one)), "cpp").source != whole
    ]
    skills = [make_skill("works", recipe=works[0]), make_skill("idle", recipe="pack_linears")]
    both = (*recipes, "pack_linears")  # there are no linear layers to pack
    made = compose(task, graph, Plan(both), "cpp", skills=("works", "idle"))
    subject = TaskContext(task, graph, "cpp")
    assert credited(subject, skills, made) == ["works"]
    written = made.model_copy(update={"proposer": "a model"})
    assert credited(subject, skills, written) == ["works", "idle"], "a model's text is its own"
