"""Trials of proposed skills: which arms are asked, how verdicts decide, which skills are admitted."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dvk import tasks
from dvk.agents import trials
from dvk.agents.task_context import TaskContext
from dvk.agents.trials import Proposal, Trial, admit, summary_rewards, try_skills, why_refused
from dvk.backbone import Conversation
from dvk.config import Config
from dvk.harness.queue import JudgeQueue
from dvk.records import Status
from dvk.skills import Library
from dvk.stats.effect_size import Bounded as B
from dvk.stats.effect_size import Gain, OnTask, effect_size
from tests.agents.conftest import QUICK, Said, fenced, ok, source, turn, wrong
from tests.agents.recorded_trials import (
    THREE,
    Recorder,
    asked,
    configured,
    proposal,
    recording,
    skill,
    teachable,
)


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorder]:
    with recording(tmp_path / "verdicts.db") as record:
        yield record


# ------------------------------------------------------------ decisions on verdicts


def test_a_skill_that_helps_everywhere_enters_with_its_evidence(
    library: Library, recorded: Recorder
) -> None:
    speeds = {"own": (1.0, 2.0), "brother": (0.5, 1.1), "cousin": (2.0, 3.8)}
    judging = recorded(
        lambda task, taught: ok(speeds[task.id][taught]) if task.id in speeds else ok(1.0)
    )
    (trial,) = try_skills(
        [proposal("new", sample=3)], THREE, teachable("new"), library, configured(), judging, step=5
    )
    assert (
        trial.admitted
        and trial.gain is not None
        and trial.gain.total is not None
        and trial.lo is not None
    )
    assert (
        trial.gain.total.value == pytest.approx((2.0 * 2.2 * 1.9) ** (1 / 3))
        and 1.7 < trial.lo < 2.0
    )
    assert trial.worth is not None and 0.5 < trial.worth < trial.gain.total.value - 1
    assert summary_rewards([trial]) == {"own": {3: trial.worth}}
    (seen,) = trial.skill.evidence
    assert (
        seen["lo"] == pytest.approx(trial.lo, abs=1e-4)
        and seen["step"] == 5
        and seen["backend"] == "cpp"
        and seen["pairs"] == 9
    )
    assert seen["tasks"]["brother"] == {
        "name": "the brother",
        "gain": 2.2,
        "control": 0.5,
        "treatment": 1.1,
        "pairs": 3,
    }
    assert json.loads(json.dumps(seen)) == seen
    figures = admit(library, [trial], 5)
    assert figures == {"proposed": 1, "tried": 1, "admitted": 1, "best_lower_bound": trial.lo}
    assert library.get("new") == trial.skill
    (event,) = library.events("new")
    assert event.kind == "admitted" and event.step == 5 and event.data["lo"] == seen["lo"]


def test_harmless_junk_earns_nothing(library: Library, recorded: Recorder) -> None:
    judging = recorded(lambda *_: ok(2.0))
    (trial,) = try_skills(
        [proposal("junk")], THREE, teachable("junk"), library, configured(), judging
    )
    assert (
        not trial.admitted and trial.worth == 0 and "1.02×" in trial.why and trial.gain is not None
    )
    admit(library, [trial], 1)
    assert "junk" not in library and [event.kind for event in library.events("junk")] == ["refused"]


def test_what_helps_only_where_it_was_found_is_refused(
    recorded: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    judging = recorded(lambda task, taught: ok(2.0) if taught and task.id == "own" else ok(1.0))
    (trial,) = try_skills(
        [proposal("lucky")], THREE, teachable("lucky"), None, configured(), judging
    )
    assert not trial.admitted and trial.worth is not None and trial.worth < 0.05
    (few,) = try_skills(
        [proposal("lucky")], THREE, teachable("lucky"), None, configured(siblings=0), judging
    )
    assert not few.admitted and few.worth == 0 and few.lo is not None and few.lo > 1.5
    monkeypatch.setattr(trials, "LEAST_PAIRS", 3)
    alone = configured(siblings=0)  # samples of one task are counted then, and it says so
    (trial,) = try_skills([proposal("lucky")], THREE, teachable("lucky"), None, alone, judging)
    assert (
        trial.admitted
        and "samples of one task" in trial.why
        and trial.skill.evidence[0]["over"] == "samples"
    )


def test_a_skill_that_makes_answers_wrong_is_refused(recorded: Recorder) -> None:
    judging = recorded(lambda task, taught: wrong(Status.MISMATCH) if taught else ok(1.0))
    (trial,) = try_skills([proposal("bad")], THREE, teachable("bad"), None, configured(), judging)
    assert (
        trial.gain is not None
        and trial.gain.total is not None
        and trial.gain.total.value == pytest.approx(0.5)
    )
    assert not trial.admitted and trial.worth is not None and trial.worth < 0


def measured(total: B, **gains: tuple[float, float]) -> Gain:
    """By task: upper bound of the gain, speedup with the skill."""
    on = {
        name: OnTask(B(hi, hi / 2, hi), speed / hi, speed, 4) for name, (hi, speed) in gains.items()
    }
    return Gain(total, "tasks", on, 4 * len(on), 1, 2)


def test_a_summary_earns_the_gain_that_its_trial_makes_likely() -> None:
    """Bounds of three tasks seldom exclude 1: useful skills must earn more than useless ones all the same, luck must not."""
    settings = Config().trials
    useful, useless, lucky = B(1.12, 0.98, 1.28), B(1.0, 0.9, 1.1), B(1.5, 0.7, 3.2)
    earned = [trials.credit_of(gain, settings) for gain in (useful, useless, lucky)]
    assert earned[0] > 0.04 and earned[1] == 0 and earned[2] < earned[0]
    assert trials.credit_of(B(3.0, 0.0, float("inf")), settings) == 0, "nothing bounds it"
    assert trials.credit_of(B(0.8, 0.75, 0.85), settings) < 0


@pytest.mark.parametrize("true, least", [(1.1, 0.3), (1.2, 0.8)])
def test_a_trial_sees_a_gain_of_a_tenth(true: float, least: float) -> None:
    """Three tasks of four pairs, a clock of 3 %: skills that truly gain so much are admitted in at least this share of trials."""
    rng, settings, admitted = random.Random(0), Config().trials, 0
    for _ in range(60):
        pairs = {}
        for task in ("own", "a", "b"):
            here = true * math.exp(rng.gauss(0, 0.03))
            pairs[task] = [
                (
                    turn(ok(2 * math.exp(rng.gauss(0, 0.03)))),
                    turn(ok(2 * here * math.exp(rng.gauss(0, 0.03)))),
                )
                for _ in range(4)
            ]
        measured = effect_size(pairs, trials.FAILED, settings.level)
        admitted += not why_refused(measured, "own", settings)
    assert admitted >= least * 60


def test_every_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = B(1.5, 1.3, 1.8)
    assert why_refused(measured(fine, own=(1.5, 2.0), a=(1.1, 1.0)), "own", Config().trials) == ""
    assert "lower bound" in why_refused(
        measured(B(1.5, 1.01, 1.8), own=(1.5, 2.0), a=(1.1, 1.0)), "own", Config().trials
    )
    assert "0.90× of eager" in why_refused(
        measured(fine, own=(1.5, 0.9), a=(1.1, 3.0)), "own", Config().trials
    )
    assert "task a slower" in why_refused(
        measured(fine, own=(1.5, 2.0), a=(0.9, 3.0)), "own", Config().trials
    )
    assert "on the task it came from" in why_refused(
        measured(fine, a=(1.5, 2.0), b=(1.5, 2.0)), "own", Config().trials
    )
    assert "nothing bounds" in why_refused(
        measured(B(1.5, 0.0, float("inf")), own=(1.5, 2.0)), "own", Config().trials
    )
    monkeypatch.setattr(trials, "LEAST_PAIRS", 5)
    few = why_refused(measured(fine, own=(1.5, 2.0)), "own", Config().trials)
    assert few == "4 pairs count, 5 are needed; in 1 others both arms failed, 2 were not measured"


# ------------------------------------------------------------ which are tried, which enter


def test_near_duplicates_are_not_tried(library: Library, recorded: Recorder) -> None:
    library.add(skill("known"))
    backbone = teachable("new")
    lot = [
        proposal("known", sample=0),
        proposal("new", sample=1),
        proposal("new", sample=2),
        proposal("new", "cousin", sample=0),
    ]
    judging = recorded(lambda task, taught: ok(2.0 if taught else 1.0))
    trials = try_skills(lot, THREE, backbone, library, configured(), judging)
    assert [trial.admitted for trial in trials] == [
        False,
        True,
        False,
        False,
    ] and "library" in trials[0].why
    assert [trial.gain is not None for trial in trials] == [False, True, False, False]
    assert len(asked(backbone)) == 3 * 2 * 3
    # The same proposal earns its summaries the same, whichever was first.
    worth = trials[1].worth
    assert worth and summary_rewards(trials) == {
        "own": {0: 0.0, 1: worth, 2: worth},
        "cousin": {0: worth},
    }


def test_so_many_a_task_and_one_enters(recorded: Recorder) -> None:
    lot = [
        proposal("alpha"),
        proposal("beta", sample=1),
        proposal("gamma", sample=2),
        proposal("delta", "cousin"),
    ]
    judging = recorded(lambda task, taught: ok(2.0 if taught else 1.0))
    trials = try_skills(
        lot,
        THREE,
        teachable("alpha", "beta", "gamma", "delta"),
        None,
        configured(per_task=2),
        judging,
    )
    assert [trial.admitted for trial in trials] == [True, False, False, True]
    assert (
        trials[1].why == "alpha, of the same task, does better"
        and trials[1].worth == trials[0].worth
    )
    assert trials[2].gain is None and trials[2].worth is None and "2 of its task" in trials[2].why
    assert (
        summary_rewards(trials)["own"][2] is None and summary_rewards(trials)["own"][1] is not None
    )
    nothing = try_skills(lot, THREE, Said(lambda _: ""), None, configured(per_task=0))
    assert not any(trial.admitted or trial.gain for trial in nothing)


def test_the_better_of_two_enters_whichever_is_first() -> None:
    from dvk.agents.trials import _one_a_task

    def trial(name: str, lo: float) -> Trial:
        return Trial(
            proposal(name),
            skill(name),
            True,
            "",
            lo - 1,
            measured(B(lo + 0.1, lo, lo + 0.2), own=(2.0, 2.0)),
        )

    for order in ((1.3, 1.5, 1.4), (1.5, 1.4, 1.3), (1.3, 1.4, 1.5)):
        found = {n: trial(f"s{lo}".replace(".", "_"), lo) for n, lo in enumerate(order)}
        _one_a_task(found)
        assert [t.lo for t in found.values() if t.admitted] == [1.5]


def test_a_summary_earns_what_its_best_skill_is_worth() -> None:
    def trial(name: str, sample: int, worth: float | None) -> Trial:
        return Trial(proposal(name, sample=sample), skill(name), False, "", worth)

    assert summary_rewards(
        [
            trial("a", 0, 0.2),
            trial("b", 0, 0.5),
            trial("c", 0, None),
            trial("d", 1, None),
            trial("e", 2, 0.0),
        ]
    ) == {"own": {0: 0.5, 1: None, 2: 0.0}}


# ------------------------------------------------------------ for real


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_real_trial(tmp_path: Path, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real kernels, real judge: with the skill one fused loop, without it the same compiled without optimisation."""
    subjects, kernels = {}, {}
    for factor in (2, 3):
        reference = tmp_path / f"affine_{factor}.py"
        reference.write_text(
            (Path(__file__).parent.parent / "harness" / "files" / "affine.py")
            .read_text()
            .replace("* 2", f"* {factor}")
        )
        task = tasks.load(str(reference))
        subjects[task.id] = TaskContext(task, None, "cpp")
        fast = source("good/cpp_affine").replace("* 2", f"* {factor}")
        slow = fast.replace("-O3", "-O0").replace("#pragma omp parallel for simd", "")
        kernels[f"* {factor} + 1"] = (fenced(slow), fenced(fast))

    pending: list[int] = []

    def answer(conversation: Conversation) -> str:
        pending.append(judging.num_pending)
        text = conversation.messages[-1]["content"]
        (pair,) = [pair for formula, pair in kernels.items() if formula in text]
        return pair["one_sweep" in text]

    own, sibling = subjects
    backbone = Said(answer)
    one = Proposal(skill("one_sweep"), own, 0)
    monkeypatch.setattr(trials, "LEAST_PAIRS", 1)
    config = configured(samples=2).model_copy(
        update={"rollout": QUICK.rollout.model_copy(update={"batch": 2})}
    )
    with JudgeQueue[Any](1, QUICK) as judging:
        (trial,) = try_skills([one], subjects, backbone, library, config, judging)
        assert judging.num_pending == 0
    assert len(backbone.calls) == 4 and max(pending) > 0  # it writes while others are judged
    assert (
        len(asked(backbone)) == 2 * 2 * 2
        and sum("one_sweep" in text for text in asked(backbone)) == 4
    )
    assert trial.gain is not None and set(trial.gain.tasks) == {own, sibling}, trial.why
    assert trial.gain.num_pairs == 4 and trial.gain.num_failed == trial.gain.num_unmeasured == 0
    (seen,) = trial.skill.evidence
    assert seen["machine"] and set(seen["tasks"]) == {own, sibling} and trial.why
