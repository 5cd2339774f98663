"""Modules that write an input in place, caches say, are tasks: fresh inputs for each call, and what is left in them is compared."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dvk import tasks
from dvk.composer import Plan, applicable, compose
from dvk.composer.capture.export import trace_call
from dvk.harness import judge
from dvk.records import BackendName, Candidate, Status, Task
from dvk.tasks.build import build, build_candidate
from dvk.tasks.trees import map_tensors, named_tensors
from tests.harness.caches import CACHES, text_of
from tests.harness.conftest import QUICK

RING = """
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.due, self.kept = nn.Parameter(torch.randn(16)), [], None
    def forward(self, x, ring, head):
{body}
def get_inputs():
    return [torch.randn(16), torch.randn(8, 16), torch.tensor([3])]
def get_init_inputs():
    return []
"""
REFERENCE = """
        ring[head] = x * self.scale
        head.add_(1)
        return ring.sum(0), ring
"""
OK = {
    "as the reference": REFERENCE,
    "by other operators, the write last": """
        new = ring.index_copy(0, head, (x * self.scale)[None])
        ring.copy_(new)
        head += 1
        return new.sum(0), ring
""",
    "a copy of what the reference returns itself": REFERENCE.replace(
        "0), ring", "0), ring.clone()"
    ),
}
WRONG = {
    "no write": (
        """
        new = ring.index_copy(0, head, (x * self.scale)[None])
        head.add_(1)
        return new.sum(0), new
""",
        "`input ring after the call` should hold what the reference writes there, and is as it was before",
    ),
    "no count": (REFERENCE.replace("head.add_(1)", ""), "`input head after the call` should hold"),
    "another slot": (
        REFERENCE.replace(
            "return ring.sum(0)",
            "total = ring.sum(0)\n        ring[head - 3] += 1\n        return total",
        ),
        "`1`",
    ),
    "later": (
        """
        for write in self.due:
            write()
        new, value, place = ring.index_copy(0, head, (x * self.scale)[None]), x * self.scale, head.clone()
        self.due = [lambda: ring.index_copy_(0, place, value[None])]
        head.add_(1)
        return new.sum(0), new
""",
        "`input ring after the call` should hold",
    ),
    "stale": (
        """
        self.kept = ring.clone() if self.kept is None else self.kept
        ring.copy_(self.kept)
        ring[head] = x * self.scale
        head.add_(1)
        return ring.sum(0), ring
""",
        "`",
    ),
    "an input that is only read": (
        REFERENCE.replace("head.add_", "x.mul_(2)\n        head.add_"),
        "changes an input in place",
    ),
    "not when timed": (
        """
        import gc
        new = ring.index_copy(0, head, (x * self.scale)[None])
        if gc.isenabled():
            ring.copy_(new)
        head.add_(1)
        return new.sum(0), new
""",
        "in a timed call: `input ring after the call`",
    ),
}


def ring(name: str, body: str) -> str:
    return "import torch\nimport torch.nn as nn\n" + RING.format(name=name, body=body.strip("\n"))


def load(folder: Path, text: str, entry: str = "Model", **how: object) -> Task:
    path = folder / "reference.py"
    path.write_text(text)
    return tasks.load(f"{path}:{entry}", **how)


SOON = ("by other operators, the write last", "no write", "another slot", "not when timed")


@pytest.mark.parametrize(
    "names", [SOON, pytest.param(tuple({**OK, **WRONG}.keys() - set(SOON)), marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_what_a_call_leaves_in_the_inputs_that_the_reference_writes_is_compared(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    task = load(tmp_path, ring("Model", REFERENCE))
    assert task.written_inputs == ("ring", "head")
    texts = {name: ring("ModelNew", OK.get(name) or WRONG[name][0]) for name in names}
    found = judge(
        task,
        [Candidate(source=text, backend="cpp") for text in texts.values()],
        tier="search",
        config=QUICK,
    )
    for name, verdict in zip(texts, found, strict=True):
        assert verdict.written_inputs == ("ring", "head")
        if name in OK:
            assert verdict.status is Status.OK and verdict.timing is not None, (
                f"{name}: {verdict.error}"
            )
        else:
            assert verdict.status is Status.MISMATCH, f"{name}: {verdict.status} {verdict.error}"
            assert WRONG[name][1] in (verdict.error or ""), f"{name}: {verdict.error}"


@pytest.mark.slow
def test_programs_that_return_nothing_and_growing_values_are_judged(tmp_path: Path) -> None:
    for name in ("a step of an optimizer, which returns nothing", "a state that doubles"):
        text, entry = text_of(name), CACHES[name][1]
        task = load(tmp_path, text, entry)
        same = text + (
            f"ModelNew = {entry}\n"
            if entry == "Model"
            else f"class ModelNew(nn.Module):\n    def forward(self, *args):\n        return {entry}(*args)\n"
        )
        idle = (
            text
            + "class ModelNew(nn.Module):\n    def forward(self, *args):\n        return Model()(*map(torch.clone, args))\n"
        )
        given = [same] + ([idle] if entry == "Model" else [])
        found = judge(
            task,
            [Candidate(source=source, backend="cpp") for source in given],
            tier="search",
            config=QUICK,
        )
        assert found[0].status is Status.OK and found[0].precision == "fp32", (name, found[0].error)
        assert all(
            verdict.status is Status.MISMATCH and "`input state after" in (verdict.error or "")
            for verdict in found[1:]
        ), found


def drop_in(task: Task, backend: BackendName) -> Candidate:
    """Under all recipes that apply."""
    built = build(task)
    args, kwargs = built.inputs(0)
    captured = trace_call(built.model, args, kwargs, built.input_names(args), built.namespace)
    return compose(task, captured, Plan(applicable(captured.graph, task.device, backend)), backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", CACHES)
def test_a_drop_in_writes_the_callers_memory_and_is_accepted(tmp_path: Path, name: str) -> None:
    task = load(tmp_path, text_of(name), CACHES[name][1])
    candidate = drop_in(task, "cpp")
    built = build(task)
    model = build_candidate(candidate.source, task, built)
    args, kwargs = built.inputs(5)
    mine = map_tensors(torch.clone, (args, kwargs))
    with torch.no_grad():
        for _ in range(2):  # the second call finds what the first has left
            wanted, got = built.model(*args, **kwargs), model(*mine[0], **mine[1])
    for (path, a), (_, b) in zip(
        named_tensors((args, kwargs, wanted)), named_tensors((*mine, got)), strict=True
    ):
        coarse = (
            {"rtol": 2e-2, "atol": 2e-2}
            if torch.bfloat16 in {t.dtype for _, t in named_tensors(args)}
            else {}
        )
        torch.testing.assert_close(b, a, msg=path, **coarse)
    (found,) = judge(task, [candidate], tier="search", config=QUICK)
    assert found.status is Status.OK, found.error


@pytest.mark.slow
def test_other_arms_and_gradients_are_taken_on_fresh_inputs_too(tmp_path: Path) -> None:
    task = load(tmp_path, ring("Model", REFERENCE))
    given = [Candidate(source=ring("ModelNew", REFERENCE), backend="cpp")]
    (found,) = judge(task, given, tier="search", config=QUICK, baselines=("compile",))
    assert (
        found.status is Status.OK
        and found.timing is not None
        and "compile" in found.timing.baselines
    ), found.error
    text = text_of("a window that rolls")
    given = [Candidate(source=text + "ModelNew = Model\n", backend="cpp")]
    (found,) = judge(load(tmp_path, text), given, tier="smoke", config=QUICK, backward=True)
    assert found.status is Status.OK, found.error


@pytest.mark.gpu
@pytest.mark.parametrize("name", CACHES)
def test_a_drop_in_is_accepted_on_a_gpu(tmp_path: Path, name: str) -> None:
    task = load(tmp_path, text_of(name), CACHES[name][1], device="cuda")
    given = [drop_in(task, "triton"), drop_in(task, "cuda")]
    for verdict in judge(
        task, given, tier="search", config=QUICK, baselines=("graph",), contract="auto"
    ):
        assert (
            verdict.status is Status.OK
            and verdict.contract == "module"
            and verdict.timing is not None
        ), verdict.error


@pytest.mark.gpu
def test_what_is_left_in_written_inputs_is_compared_on_a_gpu(tmp_path: Path) -> None:
    task = load(tmp_path, ring("Model", REFERENCE), device="cuda")
    given = [*OK.values(), *(body for body, _ in WRONG.values())]
    found = judge(
        task,
        [Candidate(source=ring("ModelNew", body), backend="cuda") for body in given],
        tier="search",
        config=QUICK,
    )
    assert [verdict.status for verdict in found] == [Status.OK] * len(OK) + [Status.MISMATCH] * len(
        WRONG
    ), [v.error for v in found]
