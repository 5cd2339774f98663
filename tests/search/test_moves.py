"""Moves: how they are read from answers, which are legal, and what each does to a plan."""

from __future__ import annotations

import json
import re

import pytest

from dvk.agents import planning, tools
from dvk.agents.planning import Move
from dvk.agents.reading import MalformedAnswer
from dvk.backbone import Completion
from dvk.composer import Plan
from dvk.composer.ir.schedules.cuda import CudaLooped
from dvk.composer.ir.schedules.triton import TritonProduct
from dvk.search.composer import Planner
from dvk.search.moves import PlanPosition, ProposedPlans, algorithm_of, algorithms_of
from tests.agents.conftest import ok
from tests.search.planning_a_search import problem, questions, says
from tests.search.recipe_names import legal, named
from tests.search.writing import asked, play


def position(recipes: tuple[str, ...] | None = None) -> PlanPosition:
    planner = Planner(problem(None))
    plan = planner.structures()[0][0] if recipes is None else Plan(recipes)
    return PlanPosition(planner, plan, ProposedPlans())


@pytest.mark.parametrize(
    "text",
    [
        named(("row split", "k0")),
        f"<tool_call>\n{named(('row split', 'k0'))}\n</tool_call>",
        f"Rows are few.\n\n```json\n{named(('row split', 'k0'))}\n```",
        "<tool_call>\n<function=plan_moves>\n<parameter=think>\nfew rows\n</parameter>\n<parameter=moves>\n"
        "[{'kind': '`row  split`', 'region': 'k0'}]\n</parameter>\n</function>\n</tool_call>",
    ],
)
def test_moves_are_read_in_every_form_of_a_tool_call(text: str) -> None:
    assert planning.read(Completion(text=text, finish="stop"), 3) == (
        (Move("row split", "k0"),),
        (),
    )


def test_what_a_server_parsed_is_read() -> None:
    call = {
        "function": {
            "name": tools.PLAN,
            "arguments": json.dumps({"moves": [{"kind": "a", "region": "b"}]}),
        }
    }
    assert planning.read(Completion(text="", finish="stop", tool_calls=(call,)), 1).moves == (
        Move("a", "b"),
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("split the rows", "no tool call"),
        (named(), "no move"),
        ('{"name": "advise", "arguments": {"moves": []}}', "instead of `plan_moves`"),
        ('{"name": "plan_moves", "arguments": {"think": ""}}', "`moves` is missing"),
    ],
)
def test_answers_without_a_move_are_malformed(text: str, why: str) -> None:
    with pytest.raises(MalformedAnswer, match=re.escape(why)):
        planning.read(Completion(text=text, finish="stop"), 3)


def test_what_is_no_move_or_too_many_is_refused_one_by_one() -> None:
    arguments = {
        "moves": [
            "row split",
            {"kind": "a", "region": "k0"},
            {"kind": "b"},
            *[{"kind": "c", "region": "k1"}] * 9,
        ]
    }
    found = planning.read(
        Completion(text=json.dumps({"name": "plan_moves", "arguments": arguments}), finish="stop"),
        3,
    )
    assert found.moves == (Move("a", "k0"),)
    first, second, third = found.refused
    assert first == "`row split`: a move is an object with `kind` and `region`" and second.endswith(
        "with `kind` and `region`"
    )
    assert third == "9 more: an answer names at most 3"


def test_the_question_shows_listing_regions_moves_and_skills() -> None:
    model = says()
    list(play("macro", problem(model), lambda _: ok(1.5)))
    first = questions(model)[0]
    text = asked(first)
    assert first.tools == (tools.plan_moves(3),) and "compiler" in first.messages[0]["content"]
    assert (
        "v0 f32[s0,s2] = linear(x0,p0)" in text
        and "1.50× [1.47, 1.53], faster than PyTorch" in text
    )
    assert (
        "left to PyTorch: linear\n" in text
        and "row softmax, 64 rows of 512; computes v1, v2 (" in text
    )
    assert "now `row looped` (chunk 4096, width 512)" in text
    assert (
        "- lay: when On large results: Write over them" in text
        and "inplace_epilogue`: a library call" in text
    )
    assert {
        ("with own_matmul", "graph"),
        ("without fuse_rowwise", "graph"),
        ("row split", "k0"),
        ("row online", "k0"),
    } <= {*legal(first)}


def test_every_legal_move_leads_to_new_programs_and_then_is_legal_no_more() -> None:
    at = position()
    proposed = set()
    while legal := at.legal:
        move = Move(next(iter(next(iter(legal.values())))), next(iter(legal)))
        assert at.refusal(move) == ""
        for attempt in at.attempts(move, 100):
            assert (
                attempt.candidate.id not in proposed
                and Plan.of(attempt.candidate).schedules == attempt.plan.schedules
            )
            proposed.add(attempt.candidate.id)
        assert "legal" in at.refusal(move) or "nothing is left" in at.refusal(move)
    assert len(proposed) > 10


def test_a_recipe_is_put_on_and_taken_off_and_kernels_keep_their_schedules() -> None:
    at = position()
    kernel = at.kernels[0]
    split = algorithms_of(at.planner, kernel)["row split"][0]
    at = PlanPosition(at.planner, Plan(at.plan.recipes, {kernel.name: split}), at.proposed)
    (added,) = at.attempts(Move("with inplace_epilogue", "graph"), 1)
    assert set(added.candidate.recipes) - set(at.plan.recipes) <= {
        "inplace_epilogue",
        "split_reduction",
    }
    assert added.plan.schedules[kernel.name] == split
    after = PlanPosition(at.planner, added.plan, at.proposed)
    assert (
        "without inplace_epilogue" in after._toggled
        and "with inplace_epilogue" not in after._toggled
    )


def test_ways_of_families_without_named_algorithms_have_names() -> None:
    planner = Planner(problem(None))
    product = next(k for k in planner.fused((*planner.order,)).ordered if k.family == "product")
    assert {"product dot", "product outer"} & set(algorithms_of(planner, product))
    tiled = TritonProduct(
        rows=64, columns=64, depth=32, warps=4, stages=3, group=8, splits=4, programs=132
    )
    assert algorithm_of(product, tiled, "triton") == "product split persistent"
    row = planner.fused(planner.structures()[0][0].recipes).ordered[0]
    assert (
        algorithm_of(row, CudaLooped(lanes=256, rows=1, vector=4, online=True), "cuda")
        == "row looped online"
    )


@pytest.mark.parametrize(
    ("move", "why"),
    [
        (Move("row split", "k9"), "there is no such region; there are graph, k0"),
        (Move("with own_scans", "graph"), "legal are `"),
        (Move("row split", "graph"), "legal are `"),
        (Move("grid stride", "k0"), "legal are `row "),
    ],
)
def test_what_is_not_legal_is_refused_with_what_is(move: Move, why: str) -> None:
    assert why in position().refusal(move)
