"""Records survive JSON unchanged, refuse what they do not know, and cannot contradict themselves."""

from __future__ import annotations

import inspect

import pytest
from pydantic import BaseModel, ValidationError

from dvk import records
from dvk.records import (
    Candidate,
    Episode,
    Graph,
    Interval,
    Node,
    Record,
    Skill,
    Status,
    Task,
    TensorSpec,
    Timing,
    Tokens,
    Trace,
    Turn,
    Verdict,
    content_hash,
)

X = TensorSpec(name="x", dtype="float32", shape=(8, 16), strides=(16, 1))
TASK = Task(
    id="0" * 16, name="relu", source="class Model: ...", entry="Model", kind="module", inputs=(X,)
)
CANDIDATE = Candidate(
    source="class ModelNew: ...",
    backend="cpp",
    schedule={"k0": {"width": 8}},
    skills=("vector_io",),
)
TIMING = Timing(
    candidate_ms=0.5,
    reference_ms=1.0,
    speedup=Interval(value=2.0, lo=1.9, hi=2.1),
    baselines={"compile": Interval(value=1.1, lo=1.0, hi=1.2)},
    num_pairs=30,
    seconds=0.1,
)
VERDICT = Verdict(
    status=Status.OK, tier="search", stage="done", timing=TIMING, num_checks=9, shapes=("native",)
)
SKILL = Skill(
    name="vector_io",
    description="Load four at once.",
    body="# Why\n",
    relations={"refines": ("fusion",)},
)
TRACE = Trace(
    role="policy", turns=(Turn(candidate=CANDIDATE, verdict=VERDICT, reward_terms={"speed": 1.0}),)
)
GRAPH = Graph(
    nodes=(
        Node(name="x0", op="input", shape=(8, 16), dtype="float32", strides=(16, 1), target="x"),
        Node(
            name="v0", op="aten.relu.default", args=({"ref": "x0"},), shape=(8, 16), dtype="float32"
        ),
        Node(
            name="v1",
            op="aten.sum.dim_IntList",
            args=({"ref": "v0"}, [1]),
            kwargs={"keepdim": True},
            shape=(8, 1),
        ),
    ),
    outputs=[{"ref": "v1"}],
)
EPISODE = Episode(task=TASK, traces=(TRACE,), proposed_skills=(SKILL,))


EXAMPLES = [X, TASK, CANDIDATE, TIMING, VERDICT, SKILL, TRACE, GRAPH, EPISODE]


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_round_trip(record: Record) -> None:
    assert type(record).model_validate_json(record.model_dump_json()) == record
    assert type(record).model_validate(record.model_dump(mode="json")) == record


def every_record() -> list[type[BaseModel]]:
    found = [value for _, value in inspect.getmembers(records, inspect.isclass)]
    return [value for value in found if issubclass(value, Record) and value is not Record]


@pytest.mark.parametrize("kind", every_record(), ids=lambda k: k.__name__)
def test_frozen_closed_and_documented(kind: type[BaseModel]) -> None:
    assert kind.model_config.get("frozen") and kind.model_config.get("extra") == "forbid"
    assert kind.__doc__
    assert not [name for name, field in kind.model_fields.items() if not field.description]


def test_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError):
        Candidate.model_validate({"source": "", "backend": "cpp", "colour": "red"})


def test_tokens_of_an_older_dvk_are_read() -> None:
    """Log-probabilities among listed answers only are no log-probabilities of sampling from all tokens."""
    row = {"prompt": [1], "completion": [2, 3], "logprobs": [-0.5, -0.1]}
    assert Tokens.model_validate({**row, "allowed": []}).logprobs == (-0.5, -0.1)
    assert Tokens.model_validate({**row, "allowed": [[2, 4], []]}).logprobs == ()


def test_a_fact_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        CANDIDATE.source = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    "contradiction",
    [
        {"status": "mismatch", "stage": "check", "error": "off by 2", "timing": TIMING},
        {"status": "ok", "stage": "done", "timing": TIMING, "error": "but no"},
        {"status": "mismatch", "stage": "check"},
        {"status": "ok", "stage": "done"},
    ],
    ids=["timed but wrong", "ok with error", "wrong without reason", "untimed without reason"],
)
def test_contradictory_verdicts_are_refused(contradiction: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Verdict.model_validate({"tier": "search", **contradiction})


def test_untimed_verdicts_that_say_why() -> None:
    assert not Verdict(status=Status.OK, tier="smoke", stage="done").faster
    assert not Verdict(status=Status.OK, tier="claim", stage="done", untimed_reason="no GPU").faster


@pytest.mark.parametrize("lo, faster", [(1.01, True), (1.0, False), (0.9, False)])
def test_faster_is_decided_by_the_lower_bound(lo: float, faster: bool) -> None:
    timing = TIMING.model_copy(update={"speedup": Interval(value=1.5, lo=lo, hi=2.0)})
    assert VERDICT.model_copy(update={"timing": timing}).faster is faster


@pytest.mark.parametrize(
    "bounds", [(2.0, 2.1, 3.0), (2.0, 1.0, 1.5), (1.0, 0.0, 2.0), (1.0, 0.5, float("inf"))]
)
def test_an_interval_holds_its_estimate(bounds: tuple[float, float, float]) -> None:
    value, lo, hi = bounds
    with pytest.raises(ValidationError):
        Interval(value=value, lo=lo, hi=hi)


def test_listing_and_signature() -> None:
    assert GRAPH.listing().splitlines() == [
        "x0: float32[8,16] = input",
        "v0: float32[8,16] = relu(x0)",
        "v1: None[8,1] = sum.dim_IntList(v0, [1], keepdim=True)",
        "return [v1]",
    ]
    assert GRAPH.signature() == ("relu", "sum")


def test_content_hash_separates_its_parts() -> None:
    assert content_hash("ab", "c") != content_hash("a", "bc")
    assert content_hash("ab", "c") == content_hash("ab", "c")
    assert len(content_hash("")) == 16


@pytest.mark.parametrize("name", ["", "Has_Capital", "has space", "_first", "ünder"])
def test_skill_names_are_snake_case(name: str) -> None:
    with pytest.raises(ValidationError):
        Skill(name=name, description="", body="")
