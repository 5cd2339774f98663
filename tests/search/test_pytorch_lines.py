"""PyTorch's own lines beside a strategy: their order, and what is said of those that were not judged."""

from __future__ import annotations

from typing import Any

import pytest

from dvk.config import Config
from dvk.records import Candidate, Task, TensorSpec, Verdict
from dvk.search import SearchProblem
from dvk.search.pytorch_lines import beside, lines_of

SOURCE = "import torch\nclass Model(torch.nn.Module):\n    conv = None\n    def forward(self, x):\n        return x\n"
IMAGE = TensorSpec(name="x", dtype="float32", shape=(2, 3, 8, 8), strides=(192, 64, 8, 1))
RIGHT = Verdict(status="ok", tier="smoke", stage="done", seconds=0.1)


def task(**changes: Any) -> Task:
    return Task(
        id="0", name="m", source=SOURCE, entry="Model", kind="module", inputs=(IMAGE,), **changes
    )


def own(number: int) -> Candidate:
    return Candidate(source=f"own {number}", backend="cpp", title=f"own {number}")


def played(subject: Task, strategy: Any, left: Any) -> tuple[list[str], dict[str, str]]:
    """Titles in the order in which they were proposed, and the reasons for those that were not."""
    why: dict[str, str] = {}
    problem = SearchProblem(
        subject, None, "cpp", (), Config(), left=left, leave_out=why.__setitem__
    )
    proposals, titles = beside(strategy)(problem), []
    batch = next(proposals, None)
    while batch is not None:
        titles += [one.title for one in batch]
        try:
            batch = proposals.send([RIGHT] * len(batch))
        except StopIteration:
            break
    return titles, why


def two(problem: SearchProblem) -> Any:
    yield [own(1)]
    yield [own(2)]


def test_cheap_lines_follow_the_first_batch_and_compiled_ones_the_strategy():
    titles, why = played(task(), two, lambda: 100.0)
    assert titles == [
        "own 1",
        "channels_last",
        "own 2",
        "torch.compile",
        "torch.compile(mode='max-autotune')",
    ]
    assert why == {}


def test_compiled_lines_have_the_second_half_of_the_budget():
    titles, _ = played(task(), two, iter([50.0, 50.0, 50.0, 40.0, 35.0]).__next__)
    assert titles.index("torch.compile") < titles.index("own 2")


def test_a_budget_that_is_too_short_says_so():
    titles, why = played(task(), two, lambda: 5.0)
    assert titles == ["own 1", "channels_last", "own 2"]
    assert all("budget" in reason for reason in why.values()) and len(why) == 2


def test_a_training_task_has_the_lines_whose_backward_is_compiled():
    for device, modes in (("cpu", 1), ("cuda", 2)):
        found = [line for line, why in lines_of(task(train=True, device=device), True)]
        assert [line.run for line in found] == ["compile"] * modes
        assert not any(line.channels_last or line.mode == "reduce-overhead" for line in found)


def test_a_module_that_draws_has_only_lines_that_draw_alike():
    titles, why = played(task(stochastic=True), two, lambda: 100.0)
    assert titles == ["own 1", "own 2"] and all("random" in reason for reason in why.values())
    on_gpu = {one.text: why for one, why in lines_of(task(stochastic=True, device="cuda"), False)}
    assert on_gpu.pop("CUDA graph of the module") is None and all(on_gpu.values())


def test_a_strategy_that_fails_leaves_the_lines():
    def broken(problem: SearchProblem) -> Any:
        yield [own(1)]
        raise ValueError("a rule failed")

    seen: list[str] = []

    def left() -> float:
        seen.append("asked")
        return 100.0

    with pytest.raises(ValueError, match="a rule failed"):
        played(task(), broken, left)
    assert len(seen) >= 2, "lines were proposed after the failure"
