"""A planner that names moves, on answers and verdicts that we make up, and once on the judge's."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from dvk.agents import planning, tools
from dvk.agents.planning import Move
from dvk.agents.reading import MalformedAnswer
from dvk.backbone import Completion, Conversation
from dvk.composer import CannotCompose, CapturedGraph, Plan
from dvk.composer.ir.schedules.cuda import CudaLooped
from dvk.composer.ir.schedules.triton import TritonProduct
from dvk.errors import UsageError
from dvk.harness import JudgeSession
from dvk.records import Candidate, Graph, Node, Status, Task, Trace, Verdict
from dvk.search import SearchProblem, generations, macro
from dvk.search.composer import Planner
from dvk.search.moves import PlanPosition, ProposedPlans, algorithm_of, algorithms_of
from tests.agents.conftest import QUICK, Said, affine, captured, make_skill, ok, wrong
from tests.search.recipe_names import legal, named
from tests.search.writing import asked, fixed, play

ROWS, WIDTH, INNER = 64, 512, 96


def _node(name: str, op: str, shape: tuple[int, ...], *args: object, **fields: object) -> Node:
    strides = (
        tuple(WIDTH if size == ROWS else 1 for size in shape) if shape[-1] == WIDTH else (INNER, 1)
    )
    return Node.model_validate(
        {
            "name": name,
            "op": op,
            "shape": shape,
            "dtype": "float32",
            "strides": strides,
            "args": args,
            **fields,
        }
    )


def ref(name: str) -> dict[str, str]:
    return {"ref": name}


GRAPH = Graph(
    outputs=ref("v2"),
    nodes=(
        _node("x0", "input", (ROWS, INNER), target="x"),
        _node("p0", "param", (WIDTH, INNER), target="weight"),
        _node("v0", "aten.linear.default", (ROWS, WIDTH), ref("x0"), ref("p0")),
        _node("v1", "aten.mul.Tensor", (ROWS, WIDTH), ref("v0"), 2.0),
        _node("v2", "aten.softmax.int", (ROWS, WIDTH), ref("v1"), -1),
    ),
)
"""softmax(2 · linear(x))"""
TASK = Task(id="t", name="t", source="class Model: ...", entry="Model", kind="module")


@pytest.fixture(autouse=True)
def soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "STALL_ROUNDS", 2)


def problem(backbone: Said | None, kept: list[Trace] | None = None) -> SearchProblem:
    keep = kept.append if kept is not None else lambda trace: None
    skills = (
        make_skill(
            "lay",
            recipe="inplace_epilogue",
            body="## When it pays\nOn large results.\n\n## Key Idea\nWrite over them.\n",
        ),
    )
    given = CapturedGraph(graph=GRAPH, arguments=("x",), config_hash="")
    return SearchProblem(TASK, given, "cpp", skills, QUICK, backbone, keep)  # type: ignore[arg-type]  # a test's own backbone


def position(recipes: tuple[str, ...] | None = None) -> PlanPosition:
    planner = Planner(problem(None))
    plan = planner.structures()[0][0] if recipes is None else Plan(recipes)
    return PlanPosition(planner, plan, ProposedPlans())


def told(conversation: Conversation) -> list[str]:
    """A question's text about moves made."""
    return re.findall(r"^- (.*)$", asked(conversation).partition("## Moves made so far")[2], re.M)


def says(*answers: str) -> Said:
    """A planner that gives these answers one after another, then nothing."""
    left = iter(answers)
    return Said(lambda _: next(left, "I am done."))


def questions(model: Said) -> list[Conversation]:
    return [conversation for conversations, _ in model.calls for conversation in conversations]


# ---------------------------------------------------------------- prompts and parsing


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


# ---------------------------------------------------------------- legal moves and their results


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


# ---------------------------------------------------------------- the search


def test_a_move_that_pays_is_kept_and_the_next_starts_there() -> None:
    def judge(candidate: Candidate) -> Verdict:
        return ok(1.0 + ("own_matmul" in candidate.recipes))

    model = says(named(("with own_matmul", "graph")), named(("without fuse_rowwise", "graph")))
    batches = list(play("macro", problem(model), judge))
    assert [["own_matmul" in c.recipes for c in batch] for batch in batches] == [
        [False],
        [True],
        [True],
    ]
    assert all(c.proposer == "composer" for batch in batches for c in batch)
    (first,) = told(questions(model)[1])
    assert (
        first == "`with own_matmul` on `graph`: 2.00× [1.96, 2.04], 2.00× of the best before; kept"
    )
    assert told(questions(model)[2])[1].endswith("; undone")
    assert "own_matmul" in asked(questions(model)[2]).partition("### graph")[2].partition("\n- ")[0]


def test_device_times_are_not_compared_with_end_to_end_times() -> None:
    def judge(candidate: Candidate) -> Verdict:
        found = ok(1.0 + ("own_matmul" in candidate.recipes))
        assert found.timing is not None
        return (
            found
            if "own_matmul" in candidate.recipes
            else found.model_copy(
                update={"timing": found.timing.model_copy(update={"regime": "device"})}
            )
        )

    model = says(named(("with own_matmul", "graph")))
    list(play("macro", problem(model), judge))
    assert told(questions(model)[1])[0].endswith(
        "2.00× [1.96, 2.04], timed in another way than the best and not comparable; undone"
    )


def test_an_algorithm_is_measured_in_a_few_schedules_and_the_fastest_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speeds = iter([1.0, 1.1, 1.3])
    model = says(named(("row split", "k0")))
    fixed(monkeypatch, macro, SCHEDULES=2)
    opening, split = play("macro", problem(model), lambda _: ok(next(speeds)))
    assert len({c.id for c in (*opening, *split)}) == 3 and all(
        c.schedule["k0"]["parallel"] == "inner" for c in split
    )
    (line,) = told(questions(model)[1])
    assert line.startswith("`row split` on `k0`: 1.30× ") and line.endswith("the best of 2); kept")
    assert (
        PlanPosition(Planner(problem(None)), Plan.of(split[1]), ProposedPlans()).plan.schedules
        == Plan.of(split[1]).schedules
    )


def test_moves_of_one_answer_are_tried_in_turn_and_refused_where_the_plan_has_changed() -> None:
    faster = iter(range(1, 100))
    both = (("without fuse_rowwise", "graph"), ("row split", "k0"))
    kept: list[Trace] = []
    model = says(named(*both))
    batches = list(play("macro", problem(model, kept), lambda _: ok(float(next(faster)))))
    assert [len(batch) for batch in batches] == [1, 1], "there is no row kernel any more"
    assert told(questions(model)[1])[1].startswith(
        "refused: `row split` on `k0`: not legal there; legal are "
    )
    assert kept[0].turns[0].malformed is None, "it was legal when it was named"


def test_illegal_moves_are_reported_and_counted_and_the_others_made() -> None:
    kept: list[Trace] = []
    model = says(named(("row split", "k7"), ("row serial", "k0"), ("fly", "graph")))
    batches = list(play("macro", problem(model, kept), lambda _: ok(1.0)))
    assert [len(batch) for batch in batches] == [1, 1]
    first, second, third = told(questions(model)[1])
    assert (
        first.startswith("refused: `row split` on `k7`: there is no such region")
        and "`fly` on `graph`: not legal" in second
    )
    assert third.startswith("`row serial` on `k0`: 1.000×")
    malformed = kept[0].turns[0].malformed
    assert malformed is not None and "k7" in malformed and "fly" in malformed


def test_unparsable_answers_are_reported_and_end_the_search_after_a_while() -> None:
    kept: list[Trace] = []
    model = says("split the rows", "do it")
    assert len(list(play("macro", problem(model, kept), lambda _: ok(1.0)))) == 1
    assert [trace.turns[0].malformed for trace in kept] == [
        "nothing could be read from your answer: no tool call"
    ] * 2
    assert told(questions(model)[1]) == [
        "refused: nothing could be read from your answer: no tool call"
    ]
    failing = Said(lambda _: Completion(text="", finish="error", error="down"))
    assert (
        len(list(play("macro", problem(failing), lambda _: ok(1.0)))) == 1
        and len(failing.calls) == 2
    )


def test_wrong_programs_are_reported_and_never_kept() -> None:
    verdicts = iter([ok(1.0), wrong(error="worst at [0, 3]: 1.5 instead of 2")])
    model = says(named(("row serial", "k0")))
    list(play("macro", problem(model), lambda _: next(verdicts)))
    assert told(questions(model)[1]) == ["`row serial` on `k0`: wrong [0, 3] 1.5 not 2; undone"]


def test_search_resumes_from_earlier_plans_until_none_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Said(lambda conversation: named(legal(conversation)[0]))
    seen: list[str] = []

    def judge(candidate: Candidate) -> Verdict:
        seen.append(candidate.id)
        return ok(1.0 + ("fuse_rowwise" not in candidate.recipes))

    fixed(monkeypatch, macro, MOVES=1)
    batches = list(play("macro", problem(model), judge, batches=500))
    assert 10 < len(batches) < 500 and len(seen) == len(set(seen))
    back = [
        "An earlier attempt was faster: 2.00×" in asked(question) for question in questions(model)
    ]
    assert back[-1] and not back[0] and back == sorted(back)
    assert not any("refused" in line for question in questions(model) for line in told(question))


def test_few_regions_and_few_lines_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Said(lambda conversation: named(legal(conversation)[0]))
    fixed(monkeypatch, macro, HISTORY=2, REGIONS=1, MOVES=1)
    list(play("macro", problem(model), lambda _: ok(1.0), batches=6))
    assert (
        told(questions(model)[-1])[0].endswith("earlier ones are left out)")
        and len(told(questions(model)[-1])) == 3
    )


def test_same_answers_and_verdicts_same_proposals_and_questions() -> None:
    def once() -> tuple[list[list[str]], list[str]]:
        model = Said(lambda conversation: named(*legal(conversation)[1:4]))
        batches = [
            [c.id for c in batch]
            for batch in play(
                "macro", problem(model), lambda c: ok(1 + int(c.id[:2], 16) / 256), batches=8
            )
        ]
        return batches, [question.model_dump_json() for question in questions(model)]

    assert once() == once()


@pytest.mark.parametrize(
    "verdicts",
    [[None], [wrong(Status.BROKEN_TASK)], [ok(1.0), None], [ok(1.0), wrong(Status.BROKEN_TASK)]],
)
def test_it_ends_with_the_time_and_with_a_broken_reference(
    verdicts: Sequence[Verdict | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(verdicts)
    model = Said(lambda conversation: named(legal(conversation)[0]))
    fixed(monkeypatch, macro, SCHEDULES=1)
    assert len(list(play("macro", problem(model), lambda _: next(left)))) == len(verdicts)


def test_a_model_without_words_and_a_module_without_a_graph_are_refused() -> None:
    with pytest.raises(
        UsageError, match="`macro` has a planner name moves.*no words for it"
    ) as error:
        list(play("macro", problem(Said(lambda _: "", "compact")), lambda _: ok(1.0)))
    assert "refine, best_of_n, evolve or polca" in str(error.value.hint)
    with pytest.raises(CannotCompose):
        list(play("macro", replace(problem(says()), captured=None), lambda _: ok(1.0)))


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_moves_on_the_real_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program that moves lead to is right, and its measurement reaches the planner."""
    model = Said(lambda conversation: named(legal(conversation)[-1]))
    fixed(monkeypatch, macro, SCHEDULES=1)
    given = replace(problem(model), task=affine(), captured=captured())
    verdicts: list[Verdict | None] = []

    def judged(court: JudgeSession) -> Callable[[Candidate], Verdict | None]:
        def judge(candidate: Candidate) -> Verdict | None:
            verdicts.append(court.judge(candidate, "search"))
            return verdicts[-1]

        return judge

    with JudgeSession(affine(), QUICK) as session:
        list(play("macro", given, judged(session), batches=3))
    assert len(verdicts) == 3 and all(
        verdict is not None and verdict.status is Status.OK for verdict in verdicts
    )
    lines = told(questions(model)[-1])
    figures = re.compile(
        r"on `\w+`: [\d.]+× \[[\d.]+, [\d.]+\], [\d.]+× of the best before.*; (kept|undone)$"
    )
    assert lines and all(figures.search(line) for line in lines)
