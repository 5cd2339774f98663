"""The child side: references, inputs and candidates from a `Task`. Everything run here is written here."""

from __future__ import annotations

import inspect
import weakref
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest
import torch

from dvk.errors import TaskError
from dvk.records import ShapeVariant, Task
from dvk.tasks import input_sampler
from dvk.tasks.build import CandidateError, build, build_candidate, same_weights
from dvk.tasks.state import generators, restore, seeded, snapshot

MODEL = """
    import torch, torch.nn as nn

    class Model(nn.Module):
        def __init__(self, width, eps=0.5):
            super().__init__()
            self.linear = nn.Linear(width, width)
            self.norm = nn.BatchNorm1d(width)
            self.eps = eps

        def forward(self, x, y=None):
            return torch.relu(self.norm(self.linear(x))) + self.eps

    def get_inputs():
        return [torch.randn(6, 4)]

    def get_init_inputs():
        return [4]
"""


def task(source: str = MODEL, **fields: Any) -> Task:
    values = {"id": "t", "name": "t", "entry": "Model", "kind": "module", **fields}
    return Task(source=dedent(source), **values)


def candidate(body: str) -> str:
    return dedent(MODEL).replace("class Model(", "class ModelNew(") + "\n" + dedent(body)


def test_equal_seeds_give_equal_weights_and_inputs() -> None:
    first, second, third = build(task(), 3), build(task(), 3), build(task(), 4)
    assert torch.equal(first.model.linear.weight, second.model.linear.weight)
    assert not torch.equal(first.model.linear.weight, third.model.linear.weight)
    assert torch.equal(first.inputs(1)[0][0], second.inputs(1)[0][0])
    assert not torch.equal(first.inputs(1)[0][0], first.inputs(2)[0][0])
    assert first.variants == ("native",)


def test_building_and_drawing_leave_the_generators_alone() -> None:
    before = generators()
    build(task()).inputs(5)
    assert generators() == before


def test_source_can_be_inspected() -> None:
    built = build(task())
    assert inspect.getsource(type(built.model)).startswith("class Model(nn.Module):")
    assert inspect.getsource(built.namespace["get_inputs"]).startswith("def get_inputs")
    assert built.namespace["__name__"] != "__main__"


def test_inputs_are_the_callers_alone() -> None:
    built = build(
        task(
            """
        import torch
        SHARED = torch.randn(3, 4)
        def f(x, y): return x
        def get_inputs(): return [SHARED, SHARED]
    """,
            entry="f",
            kind="function",
        )
    )
    (x, y), _ = built.inputs(0)
    x.zero_()
    assert y.abs().sum() > 0
    assert built.inputs(0)[0][0].abs().sum() > 0


def test_a_function_becomes_a_stateless_module_with_its_signature() -> None:
    built = build(
        task(
            "def f(x, scale=2.0, *, shift): return x * scale + shift\n",
            entry="f",
            kind="function",
            input_specs=("x=float32[2,3]:ones", "shift=1.0"),
        )
    )
    args, kwargs = built.inputs(0)
    assert (args, list(kwargs)) == ([], ["x", "shift"])
    assert torch.equal(built.model(**kwargs), torch.full((2, 3), 3.0))
    assert not built.model.state_dict()
    assert list(inspect.signature(built.model.forward).parameters) == ["x", "scale", "shift"]


def test_specs_draw_what_they_say() -> None:
    built = build(
        task(
            "def f(**tensors): return tensors",
            entry="f",
            kind="function",
            input_specs=(
                "n=float32[4000]",
                "u=float16[4000]:rand",
                "i=int32[4000]<7",
                "b=bool[4000]",
                "o=bf16[2]:ones",
                "s=float64[]",
            ),
        )
    )
    drawn = built.inputs(0)[1]
    assert {k: str(v.dtype).removeprefix("torch.") for k, v in drawn.items()} == {
        "n": "float32",
        "u": "float16",
        "i": "int32",
        "b": "bool",
        "o": "bfloat16",
        "s": "float64",
    }
    assert abs(drawn["n"].std() - 1) < 0.1
    assert 0 <= drawn["u"].min() < 0.1
    assert 0.9 < drawn["u"].max() <= 1
    assert sorted(drawn["i"].unique().tolist()) == list(range(7))
    assert 1800 < int(drawn["b"].sum()) < 2200
    assert drawn["s"].shape == ()


def test_modes_and_dtypes() -> None:
    assert build(task()).model.training
    built = build(task(eval_mode=True, dtype="bfloat16"))
    assert not built.model.norm.training
    assert built.model.linear.weight.dtype == built.inputs(0)[0][0].dtype == torch.bfloat16


def test_variants_are_joined_from_fresh_draws_in_the_native_layout() -> None:
    source = """
        import torch
        def f(x, i): return x[i]
        def get_inputs(): return [torch.randn(5, 4).t(), torch.arange(5)]
    """
    variants = (
        ShapeVariant(name="batch=1", changes=(("i", 0, 1),)),
        ShapeVariant(name="wide", changes=(("x", 1, 12), ("i", 0, 12))),
        ShapeVariant(name="both", changes=(("x", 0, 3), ("x", 1, 7))),
    )
    built = build(task(source, entry="f", kind="function", shape_variants=variants))
    assert built.variants == ("native", "batch=1", "wide", "both")
    (x, i), _ = built.inputs(7)
    (wide, index), _ = built.inputs(7, "wide")
    assert (wide.shape, wide.stride()) == ((4, 12), (1, 4))
    assert torch.equal(wide[:, :5], x)
    assert wide.unique().numel() == 48  # no value is repeated
    assert index.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    assert built.inputs(7, "batch=1")[0][1].tolist() == [0]
    assert built.inputs(7, "both")[0][0].shape == (3, 7)
    assert torch.equal(built.inputs(7, "wide")[0][0], wide)
    with pytest.raises(KeyError):
        built.inputs(7, "none")


def test_candidate_gets_the_references_weights() -> None:
    built = build(task())
    with torch.no_grad():
        built.model.linear.weight.add_(1)
        built.model.norm.running_mean.add_(2)
    model = build_candidate(candidate(""), built.task, built, seed=99)
    assert same_weights(model, built.model)
    assert torch.equal(model.linear.weight, built.model.linear.weight)
    assert torch.equal(model.norm.running_mean, built.model.norm.running_mean)
    assert model.linear.weight.data_ptr() != built.model.linear.weight.data_ptr()


def test_candidate_with_renamed_weights_gets_the_same_seed() -> None:
    built = build(task(), seed=5)
    model = build_candidate(
        candidate("").replace("self.linear", "self.projection"), built.task, built, seed=5
    )
    assert not same_weights(model, built.model)
    assert torch.equal(model.projection.weight, built.model.linear.weight)


def test_candidate_follows_mode_and_dtype() -> None:
    built = build(task(eval_mode=True, dtype="float64"))
    model = build_candidate(candidate(""), built.task, built)
    assert not model.training
    assert model.linear.weight.dtype == torch.float64
    (x,), _ = built.inputs(1)
    assert torch.equal(model(x), built.model(x))


def test_candidate_of_a_function() -> None:
    built = build(
        task("def f(x): return x * 2", entry="f", kind="function", input_specs=("x=float32[3]",))
    )
    model = build_candidate(
        "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x + x\n",
        built.task,
        built,
    )
    assert torch.equal(model(torch.ones(3)), torch.full((3,), 2.0))


def test_two_candidates_of_equal_text_are_two_modules() -> None:
    built = build(task())
    first, second = (build_candidate(candidate("COUNT = []"), built.task, built) for _ in range(2))
    assert type(first) is not type(second)
    assert inspect.getsource(type(second)).startswith("class ModelNew")


@pytest.mark.parametrize(
    ("source", "stage", "status", "says"),
    [
        ("def f(:\n", "static", "rejected", "not Python"),
        ("x = '\0'", "static", "rejected", "not Python"),
        ("x = 1\n", "static", "rejected", "defines no `ModelNew`"),
        (
            "def ModelNew(*args): return None\n",
            "compile",
            "launch_error",
            "it returned NoneType, not an nn.Module",
        ),
        ("import torch\nraise ValueError('no')\n", "compile", "compile_error", "ValueError: no\n"),
        ("import sys\nsys.exit(0)\n", "compile", "compile_error", "SystemExit"),
        ("import no_such_package_x\n", "compile", "compile_error", "no_such_package_x"),
        (
            candidate("").replace("self.eps = eps", "self.eps = epsilon"),
            "compile",
            "launch_error",
            "NameError",
        ),
        (
            candidate("").replace("width, eps=0.5", "width, depth, eps=0.5"),
            "compile",
            "launch_error",
            "depth",
        ),
        (
            candidate("").replace("def forward(self, x, y=None)", "def forward(self, x, y)"),
            "static",
            "rejected",
            "'y'",
        ),
    ],
)
def test_candidate_errors(source: str, stage: str, status: str, says: str) -> None:
    built = build(task())
    with pytest.raises(CandidateError) as caught:
        build_candidate(source, built.task, built)
    assert (caught.value.stage, caught.value.status) == (stage, status)
    assert says in caught.value.message


def test_reference_errors_are_task_errors() -> None:
    with pytest.raises(TaskError, match="could not be constructed"):
        build(task(init_args=("1", "2", "3")))
    with pytest.raises(TaskError, match="not Python"):
        build(task("def f(:"))


def test_state_is_put_back_including_what_forward_replaced() -> None:
    built = build(task())
    model = built.model
    mean = model.norm.running_mean
    state = snapshot(model)
    kept = {k: v.clone() for k, v in model.state_dict().items()}
    model(built.inputs(0)[0][0])
    model.norm.running_mean = torch.full((4,), 9.0)
    assert not torch.equal(model.norm.running_mean, kept["norm.running_mean"])
    restore(model, state)
    assert model.norm.running_mean is mean
    assert all(torch.equal(v, kept[k]) for k, v in model.state_dict().items())


def test_seeded_covers_torch_numpy_and_random() -> None:
    import random

    import numpy

    def draw() -> tuple[float, float, float]:
        return float(torch.rand(())), float(numpy.random.rand()), random.random()

    with seeded(1):
        first = draw()
    with seeded(1):
        second = draw()
    assert first == second
    assert len(set(first)) == 3


def test_a_smaller_shape_does_not_keep_the_whole_draw() -> None:
    """A view of it would take the native size of memory for every shape and every pool of values."""
    source = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
        "def get_inputs():\n    return [torch.randn(64, 8)]\n"
    )
    (x,), _ = build(task(source)).inputs(0, ShapeVariant(name="batch=1", changes=(("x", 0, 1),)))
    assert x.shape == (1, 8) and x.untyped_storage().nbytes() == x.nbytes


def test_a_draw_without_memory_stays_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that once found the GPU full would draw on the CPU from then on: minutes for gigabytes."""
    drawer = input_sampler.Drawer(
        task(device="cuda", input_specs=("input=float32[2]",)),
        ModuleType("t"),
        torch.nn.ReLU().forward,
    )
    drawn = [torch.OutOfMemoryError("CUDA out of memory"), ([torch.ones(2)], {})]

    def draw(self: input_sampler.Drawer, seed: int, variant: object) -> input_sampler.Call:
        assert self._on_device
        if isinstance(found := drawn.pop(0), Exception):
            raise found
        return found

    monkeypatch.setattr(input_sampler.Drawer, "_draw", draw)
    assert len(drawer.draw(0)[0]) == 1 and drawer._on_device
    left: list[weakref.ref[torch.Tensor]] = []

    def partly(self: input_sampler.Drawer, seed: int, variant: object) -> input_sampler.Call:
        if left:
            assert left[0]() is None, "what the first try had drawn leaves no room for the second"
            return [torch.ones(2)], {}
        large = torch.ones(8)
        left.append(weakref.ref(large))
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(input_sampler.Drawer, "_draw", partly)
        assert len(drawer.draw(0)[0]) == 1
    drawn[:] = [torch.OutOfMemoryError("CUDA out of memory")] * 2
    with pytest.raises(TaskError, match="out of memory"):
        input_sampler.guarded(drawer, 1)
    assert drawer._on_device
