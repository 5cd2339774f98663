"""The composer's strategy on verdicts that we make up: it is deterministic and follows the numbers."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk import tasks
from dvk.composer.capture.export import trace
from dvk.composer.plan_space import MEASURED
from dvk.composer.recipes import RECIPES
from dvk.config import Config
from dvk.records import Candidate, Interval, Skill, Status, Timing, Verdict
from dvk.registry import resolve
from dvk.search import ASK_A_MODEL, STRATEGIES, SearchProblem
from dvk.search.composer import Planner, search
from tests.agents.conftest import Said, fenced
from tests.search.composer_plays import play, problem, verdict
from tests.search.recipe_names import legal, named


@pytest.fixture(scope="module")
def conv(tmp_path_factory):
    return problem("conv_bn_relu", tmp_path_factory.mktemp("conv"))


def test_same_verdicts_same_proposals(conv):
    first = [c.id for c in play(conv, lambda c: 1.0)]
    assert first == [c.id for c in play(conv, lambda c: 1.0)]
    assert len(first) > 3


def test_one_program_is_one_candidate_under_any_title(conv):
    planner = Planner(conv)
    plan, _ = planner.structures()[0]
    first, second = (planner.candidate(plan, title) for title in ("one", "two"))
    assert first.id == second.id and (first.title, second.title) == ("one", "two")


def test_a_measured_recipe_is_kept_only_where_it_won(conv):
    def slower_in_channels_last(candidate: Candidate) -> float:
        return 0.5 if "channels_last" in candidate.recipes else 2.0

    def faster_in_channels_last(candidate: Candidate) -> float:
        return 3.0 if "channels_last" in candidate.recipes else 2.0

    assert "channels_last" not in play(conv, slower_in_channels_last)[-1].recipes
    assert "channels_last" in play(conv, faster_in_channels_last)[-1].recipes


@pytest.mark.parametrize("gains", [True, False])
def test_the_layout_is_decided_first_and_the_others_are_tried_upon_it(conv, gains):
    """Few candidates are often all there are: none of them goes to a recipe in the slower layout."""
    proposals = search(conv)
    assert ["channels_last" in c.recipes for c in next(proposals)] == [False, True]
    others = proposals.send([verdict(1.0), verdict(2.0 if gains else 0.5)])
    # It came with packed weights, and may gain without them.
    others = [c for c in others if c.title != "with channels_last"]
    assert others and all(("channels_last" in c.recipes) is gains for c in others)
    assert all(("channels_last" in c.title) is gains for c in others)


def test_what_lost_in_the_better_layout_is_not_taken_for_a_gain(conv):
    """It is compared with the layout alone, not with the first candidate."""
    found = play(
        conv,
        lambda c: 1.0 + ("channels_last" in c.recipes) - 0.5 * ("inplace_epilogue" in c.recipes),
    )
    assert {"channels_last", "inplace_epilogue"} <= {r for c in found for r in c.recipes}
    assert "inplace_epilogue" not in found[-1].recipes


def written(text: str, tmp_path: Path) -> SearchProblem:
    file = tmp_path / "task.py"
    file.write_text(
        f"import torch\nimport torch.nn.functional as F\n\n\ndef f(x):\n    return {text}\n\n\ndef get_inputs():\n"
        "    return [torch.randn(2, 3, 8, 8)]\n",
        encoding="utf-8",
    )
    task = tasks.load(f"{file}:f")
    return SearchProblem(task, trace(task), "cpp", (), Config())


@pytest.mark.slow
def test_what_stands_in_for_a_library_call_is_measured_against_it(tmp_path):
    fused = written("torch.sigmoid(F.max_pool2d(torch.relu(x), 2).cumsum(1)) * 2", tmp_path)
    first, *others = next(search(fused))
    assert not {"own_windows", "own_scans"} & set(first.recipes)
    assert {r for c in others for r in c.recipes} >= {"own_windows", "own_scans"}

    def better(candidate: Candidate) -> float:
        return 1.0 + ("own_windows" in candidate.recipes) - 0.5 * ("own_scans" in candidate.recipes)

    assert {"own_windows"} == {r for r in play(fused, better)[-1].recipes if r.startswith("own_")}


@pytest.mark.slow
def test_what_is_exact_for_finite_values_alone_is_used_only_where_it_was_asked_for(tmp_path):
    file = tmp_path / "task.py"
    file.write_text(
        "import torch\nimport torch.nn.functional as F\n\n\ndef f(x, w):\n"
        "    return torch.relu(F.conv_transpose2d(x, w, stride=2))\n\n\n"
        "def get_inputs():\n    return [torch.randn(2, 3, 8, 8), torch.randn(3, 2, 3, 3)]\n",
        encoding="utf-8",
    )
    task = tasks.load(f"{file}:f")
    given = SearchProblem(task, trace(task), "cpp", (), Config())
    asked = replace(given, config=Config(optimize={"inexact": True}))
    names = [
        {r for c in play(problem, lambda c: 1.0 + 0.1 * len(c.recipes)) for r in c.recipes}
        for problem in (given, asked)
    ]
    assert ["own_transposed_finite" in found for found in names] == [False, True]


def test_the_first_try_is_a_kernel_where_torch_would_do_it_all(tmp_path):
    first, *_ = next(search(written("F.max_pool2d(x, 2)", tmp_path)))
    assert "own_windows" in first.recipes and first.schedule


def test_where_only_own_kernels_are_written_the_library_is_tried_replayed(tmp_path):
    given = written("F.max_pool2d(x, 2)", tmp_path)
    on_gpu = replace(given, task=given.task.model_copy(update={"device": "cuda"}), backend="triton")
    found = play(on_gpu, lambda c: 1.2 if c.recipes == ("cuda_graph",) else 0.6)
    assert "own_windows" in found[0].recipes and [
        c for c in found if c.recipes == ("cuda_graph",) and not c.schedule
    ]
    assert any({"own_windows", "cuda_graph"} <= set(c.recipes) for c in found)


@pytest.mark.slow
def test_on_a_gpu_families_that_save_memory_traffic_come_first(tmp_path):
    """41 of 42 measured changes to them gained; the plain fusion is still tried, and kept where it is faster."""
    text = "torch.sigmoid(F.max_pool2d(torch.relu(x), 2).cumsum(1)) * 2"
    given = written(text, tmp_path)
    on_gpu = replace(given, task=given.task.model_copy(update={"device": "cuda"}), backend="triton")
    own = {"own_windows", "own_scans"}
    first, *_, last = next(search(on_gpu))
    assert own <= set(first.recipes) and not own & set(last.recipes)
    for wins in (True, False):
        found = play(
            on_gpu, lambda c, wins=wins: 2.0 if bool(own & set(c.recipes)) is wins else 1.5
        )
        assert bool(own & set(found[-1].recipes)) is wins


def test_a_library_call_is_tried_in_another_layout_before_a_kernel_in_its_place_is(tmp_path):
    file = tmp_path / "task.py"
    file.write_text(
        "import torch\nimport torch.nn.functional as F\n\n\ndef f(x, w):\n"
        "    return F.conv2d(x, w, padding=1, groups=2)\n\n\n"
        "def get_inputs():\n    return [torch.randn(2, 16, 8, 8), torch.randn(16, 8, 3, 3)]\n",
        encoding="utf-8",
    )
    task = tasks.load(f"{file}:f")
    given = SearchProblem(task, trace(task), "triton", (), Config())
    found = next(search(replace(given, task=task.model_copy(update={"device": "cuda"}))))
    assert found[0].recipes == ("channels_last",) and "conv2d" in found[0].source
    assert "own_convolution" in found[1].recipes
    assert found[2].recipes == ()  # the model itself


@pytest.mark.parametrize("gain", [0.6, 1.2])
@pytest.mark.slow
def test_where_nothing_gains_the_model_is_an_answer_too(tmp_path, gain):
    found = play(written("F.max_pool2d(x, 2)", tmp_path), lambda c: gain if c.recipes else 1.0)
    assert ("as it is" in [c.title for c in found]) is (gain < 1)
    assert all(c.title != "as it is" or "dvk_facts" not in c.source for c in found)
    assert len(found) > 3, "schedules are tried all the same"


def test_what_rounds_otherwise_is_left_out_where_it_is_refused(conv):
    proposals = search(conv)
    batch = next(proposals)
    assert "fold_batch_norm" in batch[0].recipes
    bad = Verdict(status=Status.MISMATCH, tier="search", stage="check", error="wrong")
    following = proposals.send([bad] * len(batch))
    assert following and not any("fold_batch_norm" in candidate.recipes for candidate in following)


def test_recipes_come_in_the_order_of_the_retrieved_skills(tmp_path):
    skills = tuple(
        Skill(name=f"s_{r}", description="d", body="b", recipe=r)
        for r in ("fuse_pointwise", "fuse_rowwise")
    )
    planner = Planner(problem("layernorm_gelu_residual", tmp_path, skills))
    assert planner.order[:2] == ["fuse_pointwise", "fuse_rowwise"]
    assert set(planner.order) == set(planner.applicable)
    candidate = planner.candidate(*planner.structures()[0])
    assert set(candidate.skills) == {"s_fuse_pointwise", "s_fuse_rowwise"}


def test_a_skill_whose_recipe_is_not_used_is_not_named(tmp_path):
    skill = Skill(name="graphs", description="d", body="b", recipe="cuda_graph")
    planner = Planner(problem("layernorm_gelu_residual", tmp_path, (skill,)))
    assert "cuda_graph" not in planner.order
    assert planner.candidate(*planner.structures()[0]).skills == ()


@pytest.mark.parametrize(
    "text",
    [
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.sort(x, dim=-1).values\n",
        "def Model(x):\n    return torch.sort(x, dim=-1).values\n",
    ],
)
def test_where_all_is_left_to_torch_the_model_stays_as_it_is(tmp_path, text):
    """Guards around the same calls could only lose to them."""
    path = tmp_path / "sorts.py"
    path.write_text(
        f"import torch\n\n\n{text}\n\ndef get_inputs():\n    return [torch.rand(4, 9)]\n"
    )
    task = tasks.load(str(path))
    planner = Planner(SearchProblem(task, trace(task), "cpp", (), Config()))
    candidate = planner.candidate(*planner.structures()[0])
    assert candidate.recipes == () and "dvk_plain" not in candidate.source
    made: dict[str, Any] = {"__name__": "sorts"}
    exec(candidate.source, made)
    x = torch.rand(4, 9)
    assert torch.equal(made["ModelNew"]()(x), x.sort(-1).values)
    assert torch.equal(
        made["replace"](made["ModelNew"]() if task.kind == "function" else made["Model"]())(x),
        x.sort(-1).values,
    )


def test_a_broken_batch_ends_in_no_choice(conv):
    proposals = search(conv)
    batch = next(proposals)
    bad = Verdict(status=Status.MISMATCH, tier="search", stage="check", error="wrong")
    later: list[Candidate] = []
    try:
        while True:
            later += batch
            batch = proposals.send([bad] * len(batch))
    except StopIteration:
        pass
    assert later


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_keeps_the_contract(name, conv):
    numbers = iter(range(1000))
    model = Said(
        lambda asked: (
            named(legal(asked)[0])
            if name == "macro"
            else fenced(f"class ModelNew: number = {next(numbers)}\n")
        )
    )
    proposals = resolve(name, STRATEGIES, "strategy")(
        replace(conv, backbone=model if name in ASK_A_MODEL else None)
    )
    batch = next(proposals)
    assert batch and all(isinstance(c, Candidate) and "ModelNew" in c.source for c in batch)
    assert all(set(c.recipes) <= set(RECIPES) for c in batch)
    following = proposals.send([verdict(1.0)] * len(batch))
    assert isinstance(following, list)
    with suppress(StopIteration):  # time is over: it may end, and must not fail
        assert isinstance(proposals.send([None] * len(following)), list)


def test_measured_recipes_exist():
    assert set(MEASURED) <= set(RECIPES)


def timed(speedup: float, regime: str, eager_ms: float) -> Verdict:
    exact = Interval(value=speedup, lo=speedup, hi=speedup)
    timing = Timing(
        candidate_ms=eager_ms / speedup,
        reference_ms=eager_ms,
        speedup=exact,
        num_pairs=9,
        seconds=0.1,
        regime=regime,
    )
    return Verdict(status=Status.OK, tier="search", stage="done", timing=timing)


def replaying(score, tmp_path: Path, regime=lambda c: "end_to_end") -> list[Candidate]:
    """The search's proposals for a softmax on a GPU, of which eager takes 0.1 ms there."""
    given = written("torch.softmax(torch.tanh(x), -1) * 2", tmp_path)
    given = replace(given, task=given.task.model_copy(update={"device": "cuda"}), backend="triton")
    proposals = search(given)
    batch, seen = next(proposals), []
    with suppress(StopIteration):
        while True:
            seen += batch
            batch = proposals.send(
                [
                    timed(score(c), regime(c), 0.3 if regime(c) == "end_to_end" else 0.1)
                    for c in batch
                ]
            )
    return seen


def test_a_graph_is_proposed_last_where_the_device_is_timed(tmp_path) -> None:
    """The host hides nothing there: the graph has the best schedules, and takes no turn from them."""
    faster = itertools.count(20)
    seen = replaying(
        lambda c: 1.5 if "cuda_graph" in c.recipes else next(faster) / 10,
        tmp_path,
        lambda c: "end_to_end" if "cuda_graph" in c.recipes else "device",
    )
    (graph,) = (c for c in seen if "cuda_graph" in c.recipes)
    assert graph is seen[-1] and graph.schedule == seen[-2].schedule != seen[0].schedule


def test_schedules_are_tried_in_the_graph_where_only_there_they_show(tmp_path):
    """As in dvk optimize, with all timed from end to end: without the graph every schedule takes the host's time."""
    usual = next(c for c in replaying(lambda c: 1.0, tmp_path)).schedule

    def score(candidate: Candidate) -> float:
        return (
            1.0
            if "cuda_graph" not in candidate.recipes
            else 1.5
            if candidate.schedule == usual
            else 2.0
        )

    found = replaying(score, tmp_path)
    assert any("cuda_graph" in c.recipes and c.schedule not in ({}, usual) for c in found)


def test_what_was_timed_in_another_way_is_not_taken_for_better(tmp_path):
    """A schedule whose launches no plan can stand for is timed from end to end; else its graph would be tried."""
    first = replaying(lambda c: 1.0, tmp_path)[0].schedule

    def regime(candidate: Candidate) -> str:
        return (
            "device"
            if candidate.schedule == first and "cuda_graph" not in candidate.recipes
            else "end_to_end"
        )

    found = replaying(lambda c: 1.0 if c.schedule == first else 3.0, tmp_path, regime)
    assert {regime(c) for c in found} == {"device", "end_to_end"} and len(
        [c for c in found if "cuda_graph" in c.recipes]
    ) == 1


def test_where_the_first_plan_fails_the_search_goes_on_from_one_that_is_right(tmp_path):
    """The families that save traffic come first on a GPU; a fused plan that gains little is still the one to tune."""
    given = written("torch.sigmoid(F.max_pool2d(torch.relu(x), 2)) * 2", tmp_path)
    given = replace(given, task=given.task.model_copy(update={"device": "cuda"}), backend="triton")
    failed = Verdict(status=Status.MISMATCH, tier="search", stage="check", error="off by 3")
    proposals, tuned = search(given), []
    batch = next(proposals)
    assert "own_windows" in batch[0].recipes and batch[-1].title == "fused"
    with suppress(StopIteration):
        while True:
            said = [failed if "own_windows" in c.recipes else verdict(0.99) for c in batch]
            batch = proposals.send(said)
            tuned += batch
    assert tuned and not any("own_windows" in c.recipes for c in tuned)


def test_a_network_of_many_calls_is_tried_as_graphs(tmp_path):
    """Only there it shows what a recipe gains; if its graph fails, without one."""
    chain = "x"
    for _ in range(12):
        chain = f"torch.relu(F.conv2d({chain}, torch.ones(3, 3, 1, 1)))"
    given = written(chain, tmp_path)
    given = replace(given, task=given.task.model_copy(update={"device": "cuda"}), backend="triton")
    proposals = search(given)
    first = next(proposals)
    assert len(first) > 1 and all("cuda_graph" in c.recipes for c in first)
    assert {c.title for c in first[:2]} == {
        "fused, as a CUDA graph",
        "with channels_last, as a CUDA graph",
    }
    failed = Verdict(status=Status.LAUNCH_ERROR, tier="search", stage="check", error="no capture")
    again = proposals.send([failed for _ in first])
    assert again and not any("cuda_graph" in c.recipes for c in again)
