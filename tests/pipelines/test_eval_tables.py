"""`dvk eval`: the tables of episodes with known numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dvk import machine
from dvk.cli.eval import lines
from dvk.config import Config
from dvk.harness.timing.roofline import Ceilings, flop_ms
from dvk.pipelines.eval.hygiene import hygiene_flags
from dvk.pipelines.eval.page import profile, render
from dvk.pipelines.eval.playing import eval_config, workers_for
from dvk.pipelines.eval.request import HYGIENE, EvalRequest
from dvk.pipelines.eval.rows import EvalMeasurement, EvalRow, best_of, tries, winner
from dvk.pipelines.eval.tables import of_roofline, summarise
from dvk.records import Claim, Graph, Interval, Node, Task
from dvk.runs import RunFolder
from dvk.stats.fast_p import TaskOutcome
from tests.pipelines.evaluations import episode, on_gpu, rows, verdict

EPISODES = [
    episode("a", [None, 1.3], [1.1, 1.6]),
    episode("b", [0.9, 0.95], [None, None]),
    episode("c", [None, None], [None, None]),
]
AGAIN = {("a", 1): verdict(1.4), ("a", 0): verdict(1.3), ("b", 0): verdict(0.9)}
LEVELS = {"a": "one", "b": "one", "c": "two", "d": "two"}


@pytest.fixture
def found() -> dict[str, Any]:
    return summarise(
        rows(*EPISODES, unplayed={"d": "no get_inputs"}, again=AGAIN, levels=LEVELS),
        baselines=["compile"],
    )


def whole(found: dict[str, Any]) -> dict[str, Any]:
    """With what `evaluate` adds."""
    cost = {
        "wall_s": 100.0,
        "judge_s": 20.0,
        "num_candidates": 12,
        "model_s": 30.0,
        "prompt_tokens": 5000,
        "completion_tokens": 700,
        "tokens_per_task": 175.0,
        "usd": 1.25,
    }
    return {
        **found,
        "policy": "hf:x",
        "samples": 2,
        "turns": 2,
        "iterations": 1,
        "suite": "tasks",
        "cost": cost,
        "run": "runs/x",
    }


def test_the_mean_over_samples(found: dict[str, Any]) -> None:
    assert found["num_tasks"] == 4 and found["num_tries"] == 7
    assert found["fast_p"]["0"] == pytest.approx((1 + 0.5 + 0 + 0) / 4)
    assert found["fast_p"]["0.8"] == pytest.approx((1 + 0.5) / 4)
    assert found["fast_p"]["1"] == found["fast_p"]["1.2"] == pytest.approx(1 / 4)
    assert found["fast_p"]["1.5"] == 0.0, "the winner's second time counts: 1.4, not 1.6"
    assert found["fast_p_compile"] == {
        "0": 0.375,
        "0.8": 0.375,
        "1": 0.0,
        "1.2": 0.0,
        "1.5": 0.0,
        "2": 0.0,
        "3": 0.0,
    }
    assert found["failed"] == {"c": "mismatch: off by one", "d": "no get_inputs"}


def test_the_best_sample_and_the_turns(found: dict[str, Any]) -> None:
    assert found["best_of"]["fast_p"] == {
        "0": 0.5,
        "0.8": 0.5,
        "1": 0.25,
        "1.2": 0.25,
        "1.5": 0.0,
        "2": 0.0,
        "3": 0.0,
    }
    assert found["first_turn"]["fast_p"]["0"] == pytest.approx((0.5 + 0.5 + 0 + 0) / 4), (
        "what could not be loaded failed, too"
    )
    assert found["by_turn"]["2"]["1.5"] == pytest.approx(0.5 / 4)
    assert found["per_turn"]["1"]["1"] == pytest.approx(0.5 / 4) and found["per_turn"]["2"][
        "0"
    ] == pytest.approx((1 + 0.5) / 4)


def test_levels(found: dict[str, Any]) -> None:
    assert set(found["levels"]) == {"one", "two"} and found["levels"]["two"]["fast_p"]["0"] == 0.0
    assert (
        found["levels"]["one"]["fast_p_compile"]["0"] == 0.75
        and found["groups"]["level"] == found["levels"]
    )


def test_the_best_of_single_turns_is_chosen_by_its_first_time_and_counts_with_its_second() -> None:
    found = rows(episode("a", [1.6], [1.5]), again={("a", 0): verdict(1.1)})
    assert [end.speedup for _, end in best_of(found)] == [1.1]
    assert [row.final.speedup for row in found] == [1.6, 1.5], (
        "the mean over samples takes no second time: no winner was chosen"
    )


def test_a_claim_counts_whatever_it_won_against() -> None:
    claimed = verdict(1.4, 1.2)
    assert claimed.timing is not None
    holds = Claim(
        speedup=claimed.timing.speedup,
        level=0.99,
        processes=(1.4, 1.4),
        control=Interval(value=1, lo=1, hi=1),
        margin=0.01,
        holds=True,
    )
    timing = claimed.timing.model_copy(update={"claim": holds})
    again = {
        ("a", 0): claimed.model_copy(update={"tier": "claim", "timing": timing}),
        ("b", 0): verdict(None).model_copy(update={"tier": "claim"}),
    }
    found = summarise(
        rows(episode("a", [1.6]), episode("b", [1.6]), again=again), baselines=["compile"]
    )
    assert found["fast_p"]["0"] == found["fast_p"]["1.2"] == 0.5 and found["fast_p"]["1.5"] == 0.0
    assert (
        found["num_claims"] == 2
        and found["num_held"] == 1
        and found["compile"]["geomean"] == pytest.approx(1.2)
    )
    said = "claims: 1 of 2 winners are faster than eager beyond doubt"
    assert said in lines(whole(found) | {"samples": 1})
    older = {key: value for key, value in found.items() if key not in ("num_claims", "num_held")}
    assert said not in lines(whole(older) | {"samples": 1})


def test_a_second_measurement_that_finds_it_wrong_counts() -> None:
    found = summarise(rows(episode("a", [1.2, 1.3]), again={("a", 0): verdict(None)}))
    assert (
        found["fast_p"]["0"] == 0.0
        and "second" in found["failed"]["a"]
        and found["fast_p_compile"] is None
    )


def test_the_text(found: dict[str, Any]) -> None:
    text = "\n".join(lines(whole(found)))
    for said in (
        "25.0%",
        "failed: d: no get_inputs",
        "level two",
        "best by turn 2",
        "turn 2 alone",
        "over torch.compile",
        "$1.25",
    ):
        assert said in text, said
    json.dumps(whole(found), allow_nan=False)


def test_a_mean_over_a_baseline_counts_losses_as_they_are(found: dict[str, Any]) -> None:
    slower = {**whole(found), "compile": {**found, "geomean": 0.5, "geomean_kept": 1.0}}
    (row,) = (line for line in lines(slower) if line.startswith("over torch.compile"))
    assert row.endswith("0.50×")


def test_a_summary_of_an_older_run_is_still_shown(found: dict[str, Any]) -> None:
    new = (
        "per_turn",
        "levels",
        "roofline",
        "hygiene",
        "cost",
        "iterations",
        "suite",
        "num_untimed",
    )
    assert "25.0%" in "\n".join(
        lines({key: value for key, value in whole(found).items() if key not in new})
    )


def test_the_page(found: dict[str, Any]) -> None:
    all_rows = rows(*EPISODES, unplayed={"d": "<no> get_inputs"}, again=AGAIN, levels=LEVELS)
    text = render(
        all_rows, whole(found), {"argv": "dvk eval tasks", "config": {"seed": 1}, "machine": "here"}
    )
    assert (
        text.count("<svg") == 3
        and "&lt;no&gt;" in text
        and "25.0 % of 4 tasks" in text
        and "<script" not in text
    )
    assert "By level" in text and "Tokens written" in text


def test_one_task_has_no_interval() -> None:
    made = rows(EPISODES[0], again=AGAIN)
    found = whole(summarise(made, baselines=["compile"]))
    text = "\n".join(lines(found))
    assert "intervals over tasks: one task has none" in text and "[" not in text
    assert "interval over tasks" not in render(
        made, found, {"argv": "dvk eval tasks", "machine": "here"}
    )
    json.dumps(found, allow_nan=False)


def test_the_curve_of_fast_p() -> None:
    points = dict(
        profile([TaskOutcome("a", True, 1.3), TaskOutcome("b", True, 0.7), TaskOutcome("c", False)])
    )
    assert (
        points[0.5] == pytest.approx(2 / 3)
        and points[1.25] == pytest.approx(1 / 3)
        and points[1.3] == 0.0
    )


def test_a_task_that_was_never_played_is_right_nowhere() -> None:
    found = summarise(rows(episode("a")))
    assert found["fast_p"]["0"] == 0.0 and "cannot be captured" in found["failed"]["a"]
    json.dumps(found, allow_nan=False)


def test_untimed_is_right_and_nothing_more() -> None:
    row = EvalRow(task="a", turns=(EvalMeasurement(), EvalMeasurement(correct=True)))
    found = summarise([row])
    assert (
        found["fast_p"]["0"] == 1.0 and found["fast_p"]["0.8"] == 0.0 and found["num_untimed"] == 1
    )


def test_the_winner_is_the_fastest_right_turn() -> None:
    turns = tries(episode("a", [1.1, None, 1.5, 1.2]))[0]
    assert winner(turns) is turns[2] and winner(turns[1:2]) is None


def test_times_of_two_kinds_are_counted_and_a_sample_is_chosen_among_its_like() -> None:
    device = on_gpu(episode("a", [2.7]), "device").traces[0]
    graph, slow = (
        on_gpu(episode("a", [2.9]), "end_to_end").traces[0],
        on_gpu(episode("b", [0.9]), "device").traces[0],
    )
    traces = {"a": (device, graph), "b": (slow, graph)}
    made = rows(
        *(episode(name).model_copy(update={"traces": of}) for name, of in traces.items()),
        episode("c", [None]),
    )
    assert [(row.task, row.sample, end.speedup) for row, end in best_of(made)] == [
        ("a", 0, 2.7),
        ("b", 1, 2.9),
        ("c", 0, None),
    ]
    (both,) = rows(on_gpu(episode("a", [2.9, 2.7, 1.5]), "end_to_end", "device", "device"))
    assert (both.best().speedup, both.best(1).speedup) == (2.7, 2.9)
    found = whole(summarise(made))
    said = "figures of 2 samples are of the device alone, of 2 from end to end"
    assert found["regimes"] == {"device": 2, "end_to_end": 2} and said in "\n".join(lines(found))
    assert said in render(made, found, {"argv": "dvk eval tasks"})
    assert "two ways" not in "\n".join(lines(whole(summarise(made[:1])))), (
        "no note if there is one kind"
    )


# ---------------------------------------------------------------- roofline, hygiene, settings


def test_the_roofline_is_what_binds() -> None:
    (bytes_bound,) = rows(episode("a", [2.0], floor_ms=0.25))
    assert of_roofline(bytes_bound, bytes_bound.final) == 0.25
    flop_bound = bytes_bound.model_copy(update={"task": "b", "flop_ms": 0.75})
    found = summarise([bytes_bound, flop_bound, *rows(episode("c", [None]))])["roofline"]
    assert (
        found["num_tasks"] == 2
        and found["mean"] == pytest.approx(0.5)
        and found["over_half"] == 0.5
    )
    assert (
        found["arithmetic_bound"] == 0.5
        and summarise(rows(episode("c", [1.2])))["roofline"]["mean"] is None
    )


def test_flops_are_those_of_products() -> None:
    ceilings = Ceilings(
        device="cuda", copy_gbps=1000, gflops={"fp32": 1.0, "tf32": 10.0, "fp16": 100.0}
    )

    def ref(name: str) -> dict[str, str]:
        return {"ref": name}

    nodes = [
        Node(name="x0", op="input", shape=(4, 8), dtype="float32"),
        Node(name="p0", op="param", shape=(8, 2), dtype="float32"),
        Node(
            name="v0",
            op="aten.mm.default",
            args=(ref("x0"), ref("p0")),
            shape=(4, 2),
            dtype="float32",
        ),
        Node(name="x1", op="input", shape=(1, 3, 5, 5), dtype="float16"),
        Node(name="p1", op="param", shape=(6, 3, 3, 3), dtype="float16"),
        Node(
            name="v1",
            op="aten.convolution.default",
            args=(ref("x1"), ref("p1")),
            shape=(1, 6, 3, 3),
            dtype="float16",
        ),
        Node(
            name="v2",
            op="aten.relu.default",
            args=(ref("v1"),),
            shape=(1, 6, 3, 3),
            dtype="float16",
        ),
    ]
    graph = Graph(nodes=tuple(nodes), outputs=[ref("v0"), ref("v2")])
    task = Task(id="t", name="t", source="", entry="Model", kind="module", device="cuda")
    product, convolution = 2 * 4 * 2 * 8, 2 * (6 * 3 * 3) * (3 * 3 * 3)
    assert flop_ms(graph, task, ceilings) == pytest.approx(
        (product / 1.0 + convolution / 100.0) / 1e6
    )
    exact = task.model_copy(update={"precision": "tf32"})
    assert flop_ms(graph, exact, ceilings) == pytest.approx(
        (product / 10.0 + convolution / 100.0) / 1e6
    )
    assert (
        flop_ms(graph, task, None) is None
        and flop_ms(Graph(nodes=tuple(nodes[:2]), outputs=[]), task, ceilings) is None
    )


def test_totals_with_and_without_the_flagged_tasks(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, {}, -1)
    run.append(HYGIENE, {"name": "a", "reasons": ["output 0 is constant"]})
    run.append(HYGIENE, {"name": "b", "reasons": ["`norm.weight` does not matter"]})
    worthless = episode("c", [1.5], health=("accepts zeros: on every kind of inputs tried",))
    told_apart = episode(
        "d", [1.5], health=("accepts zeros: on native inputs; told apart by zero_mean",)
    )
    made = rows(episode("a", [9.0]), episode("b", [None]), worthless, told_apart)
    which = hygiene_flags(made, run)
    assert set(which) == {"a", "c"}
    found = summarise(made, flagged=which)
    assert (
        found["fast_p"]["1"] == 0.75
        and found["hygiene"]["clean"]["fast_p"]["1"] == 0.5
        and found["hygiene"]["num_flagged"] == 2
    )
    assert "without 2 flagged" in "\n".join(lines(whole(found)))


def test_equal_candidates_cost_the_judge_once() -> None:
    twice = episode("a", [1.5, 1.5], [1.5])
    same = twice.traces[0].turns[0]
    twice = twice.model_copy(
        update={
            "traces": tuple(
                t.model_copy(update={"turns": (same,) * len(t.turns)}) for t in twice.traces
            )
        }
    )
    assert [row.judge_s for row in rows(twice)] == [2.0, 0.0]


def test_every_gpu_has_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "gpu_names", lambda: ("a", "b", "c", "d"))
    monkeypatch.setattr(machine, "num_cores", lambda: 64)
    monkeypatch.setattr(machine, "gpu_free_bytes", lambda: (79 << 30,) * 4)
    request, judges = EvalRequest(suite=Path("x")), 10
    assert (
        workers_for(request, Config(), "cuda") == 4 * judges
        and workers_for(request, Config(), "cpu") == 2
    )
    two = Config.model_validate({"rollout": {"judges": 2}})
    assert workers_for(request, two, "cuda") == 8 and workers_for(request, two, "cpu") == 2
    monkeypatch.setattr(machine, "gpu_free_bytes", lambda: (79 << 30, 13 << 30, 79 << 30, 79 << 30))
    assert workers_for(request, Config(), "cuda") == 3 * judges + 3, "one GPU is in use"
    monkeypatch.setattr(machine, "num_cores", lambda: 6)
    assert workers_for(request, Config(), "cuda") == 4
    assert workers_for(EvalRequest(suite=Path("x"), workers=3), Config(), "cuda") == 3


def test_one_sample_is_greedy_and_several_are_drawn() -> None:
    config = Config()
    assert eval_config(EvalRequest(suite=Path("x")), config).rollout.temperature == 0.0
    several = eval_config(EvalRequest(suite=Path("x"), samples=4, turns=2), config).rollout
    assert several.temperature == config.rollout.temperature and (
        several.rollouts,
        several.turns,
    ) == (4, 2)
    scaled = eval_config(EvalRequest(suite=Path("x"), turns=6, iterations=10, window=5), config)
    assert (scaled.rollout.iterations, scaled.rollout.window) == (
        10,
        5,
    ) and scaled.agents.kept_attempts == 6
