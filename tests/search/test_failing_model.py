"""A model server that fails, at once or midway: the composer's part of a search continues, and the results so far stay. Real HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dvk.backbone.endpoint import EndpointBackbone
from dvk.backbone.recorded import FILE, TRACEBACK, RecordedBackbone
from dvk.config import Config
from dvk.errors import ModelError
from dvk.runs import RunFolder
from dvk.search import Proposals, SearchProblem, auto, composer, refine
from tests.agents.conftest import Said, configured, fenced, make_skill
from tests.backbone.failing import FAILURES, failing
from tests.search.auto_plays import play, took
from tests.search.refining import CAPTURED, TASK

RAISED = {"refuses", "401", "hangs up"}
"""Failures that end the model's part at once; the others are answers without code."""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    with RunFolder.open(
        tmp_path / "run", command="optimize", name="m", argv=[], config=Config(), resume=False
    ) as made:
        yield made


@pytest.fixture(autouse=True)
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dvk.backbone.endpoint.RETRIES", 0)


def problem(backbone: RecordedBackbone, warned: list[ModelError]) -> SearchProblem:
    config = configured(schemes=0, rollouts=2, turns=2)
    return SearchProblem(
        TASK,
        CAPTURED,
        "cpp",
        (make_skill("a"),),
        config,
        backbone,
        lambda trace: None,
        warned.append,
    )


def endpoint(url: str, run: RunFolder, timeout_s: float = 5.0) -> RecordedBackbone:
    settings = Config().backbone.model_copy(update={"endpoint_url": url, "timeout_s": timeout_s})
    return RecordedBackbone(
        EndpointBackbone("m", Config().model_copy(update={"backbone": settings})), run
    )


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.slow
def test_the_composer_goes_on_where_a_server_fails(failure: str, two: list, run: RunFolder) -> None:
    warned: list[ModelError] = []
    with failing(failure) as url:
        model = endpoint(url, run, timeout_s=0.3)
        assert play(auto.search(problem(model, warned)), lambda _: took(1.0), 50) == [
            "c1",
            "c2",
            "c3",
            "c4",
            "c5",
        ]
    if failure in RAISED or failure == "hangs":
        assert len(warned) == 1 and warned[0].hint
    else:
        assert not warned and all(
            one.finish == "error" and one.error for call in model.calls for one in call.completions
        )
    assert not run.read(FILE), "a run that goes on later asks again"


@pytest.mark.parametrize("failure", ("401", "hangs up", "500"))
@pytest.mark.slow
def test_a_server_that_dies_midway_leaves_what_it_wrote(
    failure: str, two: list, run: RunFolder
) -> None:
    warned: list[ModelError] = []
    answers = tuple(fenced(f"class ModelNew: m = {number}\n") for number in range(2))
    with failing(failure, answers) as url:
        order = play(auto.search(problem(endpoint(url, run), warned)), lambda _: took(1.0), 50)
    assert [one for one in order if one[0] == "c" and one[1:].isdigit()] == [
        "c1",
        "c2",
        "c3",
        "c4",
        "c5",
    ]
    assert len(warned) == (failure in RAISED) and len(run.read(FILE)) == 1, (
        "what it answered is recorded"
    )


def test_a_model_in_this_process_that_raises_leaves_a_traceback(two: list, run: RunFolder) -> None:
    def fail(conversation: object) -> str:
        raise RuntimeError("CUDA error: an illegal memory access\nand more")

    warned: list[ModelError] = []
    order = play(
        auto.search(problem(RecordedBackbone(Said(fail), run), warned)), lambda _: took(1.0), 50
    )
    assert order == ["c1", "c2", "c3", "c4", "c5"]
    assert (
        "RuntimeError: CUDA error: an illegal memory access" in warned[0].message
        and "and more" not in warned[0].message
    )
    assert "Traceback" in (run.path / TRACEBACK).read_text()


@pytest.mark.slow
def test_a_server_on_this_machine_that_hangs_leaves_half_of_the_time(
    two: list, run: RunFolder
) -> None:
    with failing("hangs") as url:
        model = endpoint(url, run, timeout_s=60)
        end = time.monotonic() + 2.5
        model.left = lambda: end - time.monotonic()
        order = play(auto.search(problem(model, [])), lambda _: took(1.0), 4)
    assert order == ["c1", "c2", "c3", "c4"]
    for thread in threading.enumerate():
        if thread.name in ("proposing", "asking", "endpoint"):
            thread.join(10)


def test_without_the_composer_the_failure_is_an_error(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(problem: SearchProblem) -> Proposals:
        yield from ()

    monkeypatch.setattr(composer, "search", none)
    with failing("refuses") as url, pytest.raises(ModelError, match="cannot be reached"):
        next(refine.search(problem(endpoint(url, run), [])))
