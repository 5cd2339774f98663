"""One search's measurements of schedules are the next one's start."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dvk import tasks
from dvk.composer import fuse
from dvk.composer.capture.export import trace
from dvk.composer.kernel_classes import class_of
from dvk.config import Config
from dvk.records import Candidate, Interval, Verdict
from dvk.search import SearchProblem
from dvk.search.classes import measurements
from dvk.search.composer import FEW, Planner
from dvk.search.tunings import PROTOCOL, ObservedGain, TunedSchedule, Tunings, dumped, loaded
from tests.search.composer_plays import play, problem, verdict

BLOCKS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x)) * 0.5
        return x

def get_inputs():
    return [torch.randn(128, 64)]
"""
LIKED = {"parallel": "rows", "chunk": 1024, "width": 256}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> SearchProblem:
    return problem("geglu", tmp_path_factory.mktemp("geglu"))


def kernels(given: SearchProblem) -> list[str]:
    """Classes of the kernels of the plain fusion."""
    assert given.captured is not None
    plan, _ = Planner(given).structures()[0]
    return [class_of(kernel) for kernel in fuse(given.task, given.captured, plan.recipes).ordered]


def score(candidate: Candidate) -> float:
    """Every kernel under the schedule that we like makes the module a fifth faster."""
    return 2.0 * 1.2 ** sum(schedule == LIKED for schedule in candidate.schedule.values())


def test_the_next_search_starts_with_what_was_best(module: SearchProblem, tmp_path: Path) -> None:
    file = Tunings("here", "cpp", tmp_path / "tunings.db")
    first = play(module, score)
    assert LIKED not in first[0].schedule.values()
    file.learn("a", measurements(module, [(c, verdict(score(c))) for c in first]))

    known = file.known(kernels(module))
    best = next(iter(known.values()))[0]
    assert best.schedule == LIKED and best.gain == pytest.approx(1.2) and best.num_tasks == 1
    second = play(replace(module, tunings=known), score)
    assert all(schedule == LIKED for schedule in second[0].schedule.values())


def test_times_taken_in_two_ways_say_nothing_of_a_schedule(module: SearchProblem) -> None:
    def judged(candidate: Candidate) -> Verdict:
        found = verdict(score(candidate))
        assert found.timing is not None
        regime = "end_to_end" if LIKED in candidate.schedule.values() else "device"
        return found.model_copy(
            update={"timing": found.timing.model_copy(update={"regime": regime})}
        )

    found = measurements(module, [(c, judged(c)) for c in play(module, score)])
    assert found and all(one.schedule != LIKED for one in found)


def test_a_class_that_is_known_well_takes_few_trials(module: SearchProblem, tmp_path: Path) -> None:
    file = Tunings("here", "cpp", tmp_path / "tunings.db")
    tried = [(c, verdict(score(c))) for c in play(module, score)]
    for task in "abc":
        file.learn(task, measurements(module, tried))
    assert (
        len(tried) > FEW == len(play(replace(module, tunings=file.known(kernels(module))), score))
    )


def test_what_lost_is_not_tried_again_but_the_default_is(module: SearchProblem) -> None:
    planner = Planner(module)
    assert module.captured is not None
    kernel = fuse(module.task, module.captured, planner.structures()[0][0].recipes).ordered[0]
    default, *others = planner.options(kernel)
    known = {
        class_of(kernel): tuple(
            TunedSchedule(one.printed(), 0.5, 1) for one in (default, *others[:2])
        )
    }
    assert loaded(dumped(known)) == known
    assert Planner(replace(module, tunings=known)).options(kernel) == [default, *others[2:]]


def test_a_settled_class_is_still_measured_against_its_default(module: SearchProblem) -> None:
    planner = Planner(module)
    assert module.captured is not None
    kernel = fuse(module.task, module.captured, planner.structures()[0][0].recipes).ordered[0]
    default, *others = planner.options(kernel)
    # Three that were lucky in three tasks; here nothing comes near the default.
    lucky = tuple(TunedSchedule(one.printed(), 1.02, 3) for one in others[:3])
    given = replace(
        module,
        tunings={
            class_of(kernel): (
                *lucky,
                *(TunedSchedule(one.printed(), 1.0, 3) for one in (default, *others[3:])),
            )
        },
    )
    assert default in Planner(given).options(kernel)
    tried = play(
        given,
        lambda c: (
            2.0 if all(schedule == default.printed() for schedule in c.schedule.values()) else 1.0
        ),
    )
    found = [one.schedule for one in measurements(given, [(c, verdict(score(c))) for c in tried])]
    assert len(tried) == FEW and all(one.printed() in found for one in (default, *others[:2]))


def roughly(speedup: float, width: float) -> Verdict:
    """A verdict with half an interval of so much, in logarithms."""
    made = verdict(speedup)
    assert made.timing is not None
    interval = Interval(value=speedup, lo=speedup * math.exp(-width), hi=speedup * math.exp(width))
    return made.model_copy(update={"timing": made.timing.model_copy(update={"speedup": interval})})


def test_rough_times_say_nothing_of_a_schedule_and_others_tell_how_exact_they_are(
    module: SearchProblem,
) -> None:
    tried = play(module, score)
    assert measurements(module, [(c, roughly(score(c), 0.5)) for c in tried]) == []
    rough_default = [
        (c, roughly(score(c), 0.01 if LIKED in c.schedule.values() else 0.5)) for c in tried
    ]
    assert measurements(module, rough_default) == [], "a gain is no more exact than what it is over"
    fine = measurements(module, [(c, roughly(score(c), 0.01)) for c in tried])
    assert fine and all(0.005 < one.width < 0.02 for one in fine)


def test_a_schedule_is_left_out_only_where_it_surely_lost(module: SearchProblem) -> None:
    planner = Planner(module)
    assert module.captured is not None
    kernel = fuse(module.task, module.captured, planner.structures()[0][0].recipes).ordered[0]
    default, surely, perhaps, *others = planner.options(kernel)
    known = {
        class_of(kernel): (
            TunedSchedule(surely.printed(), 0.95, 1, 0.01),
            TunedSchedule(perhaps.printed(), 0.95, 1, 0.05),
        )
    }
    assert Planner(replace(module, tunings=known)).options(kernel) == [default, perhaps, *others]


def test_rows_of_before_intervals_were_kept_are_taken_at_their_word(tmp_path: Path) -> None:
    path = tmp_path / "tunings.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE tunings (protocol INTEGER, machine TEXT, backend TEXT, kernel TEXT, schedule TEXT, task TEXT, "
            "gain REAL, PRIMARY KEY (protocol, machine, backend, kernel, schedule, task)) WITHOUT ROWID"
        )
        connection.execute(
            "INSERT INTO tunings VALUES (?, 'here', 'cpp', 'k', '{}', 'old', 2.0)", (PROTOCOL,)
        )
    file = Tunings("here", "cpp", path)
    assert file.known(["k"]) == {"k": (TunedSchedule({}, 2.0, 1, 0.0),)}
    file.learn("new", [ObservedGain("k", {}, 2.0, 0.04)])
    (both,) = file.known(["k"])["k"]
    assert (both.gain, both.num_tasks, both.width) == (pytest.approx(2.0), 2, pytest.approx(0.02))


def test_a_task_that_is_searched_again_counts_once_and_other_machines_not_at_all(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tunings.db"
    here = Tunings("here", "cpp", path)
    for gain in (2.0, 1.5):
        here.learn("a", [ObservedGain("k", {"chunk": 1}, gain)])
    here.learn("b", [ObservedGain("k", {"chunk": 1}, 6.0), ObservedGain("k", {"chunk": 2}, 0.5)])
    found = here.known(["k", "other"])["k"]
    assert [(one.schedule, one.num_tasks) for one in found] == [
        ({"chunk": 1}, 2),
        ({"chunk": 2}, 1),
    ]
    assert found[0].gain == pytest.approx(3.0)
    assert (
        Tunings("there", "cpp", path).known(["k"])
        == Tunings("here", "triton", path).known(["k"])
        == {}
    )


def test_a_file_that_cannot_be_used_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "tunings.db"
    path.write_text("this is not SQLite, and long enough to be seen as something else " * 20)
    file = Tunings("here", "cpp", path)
    file.learn("a", [ObservedGain("k", {}, 1.0)])
    assert file.known(["k"]) == {}


def test_kernels_of_repeated_blocks_are_tried_as_one(tmp_path: Path) -> None:
    path = tmp_path / "blocks.py"
    path.write_text(BLOCKS)
    task = tasks.load(str(path))
    given = SearchProblem(task, trace(task), "cpp", (), Config())
    tried = play(given, score)
    plain = [c for c in tried if c.recipes == tried[0].recipes]
    assert len(tried[0].schedule) == 3
    assert all(len({str(schedule) for schedule in c.schedule.values()}) == 1 for c in plain)
    assert set(map(str, plain[-1].schedule.values())) != set(map(str, plain[0].schedule.values()))
    assert {
        one.schedule.get("chunk")
        for one in measurements(given, [(c, verdict(score(c))) for c in tried])
    } >= {LIKED["chunk"]}
