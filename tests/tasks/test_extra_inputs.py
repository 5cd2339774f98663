"""`--extra-input`: a set of inputs told by what differs from the first, and drawn as the first is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dvk import tasks
from dvk.errors import TaskError
from dvk.records import TensorSpec
from dvk.tasks import extra_inputs
from dvk.tasks.build import build

INPUTS = (
    TensorSpec(name="x", dtype="float32", shape=(64, 8), strides=(8, 1)),
    TensorSpec(name="i", dtype="int64", shape=(64,), strides=(1,)),
)
GIVEN = ("x=float32[64,8]:rand", "i=int64[64]<8", "scale=2.0")
MODEL = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(8))
    def forward(self, x, i, scale=1.0, bias=None):
        y = (x * self.gain).index_select(0, i) * scale
        return y if bias is None else y + bias
def get_inputs():
    return [torch.rand(16, 8), torch.randint(0, 16, (5,)), 3.0]
"""


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        ("x=float32[32,8]", GIVEN, ("x=float32[32,8]:rand", "i=int64[64]<8", "scale=2.0")),
        (
            "i=int32[3]; x=float32[32,8]:ones",
            GIVEN,
            ("x=float32[32,8]:ones", "i=int32[3]<8", "scale=2.0"),
        ),
        (
            "float32[32,8]; int64[9]<4; 1.0",
            GIVEN,
            ("x=float32[32,8]:rand", "i=int64[9]<4", "scale=1.0"),
        ),
        ("x=float32[32,8]", (), ("x=float32[32,8]:like", "i=int64[64]:like")),
        ("float32[2,8]; int64[9]<4", (), ("x=float32[2,8]:like", "i=int64[9]<4")),
        ("mode='a;b'; i=float32[4]", (), ("x=float32[64,8]:like", "i=float32[4]", "mode='a;b'")),
    ],
)
def test_what_is_left_out_is_as_in_the_first_set(
    text: str, given: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert extra_inputs.specs(text, given, INPUTS) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (" ; ", "describes no input"),
        ("float32[32,8]", "1 of the inputs `x`, `i`"),
        ("x=float32[32,8]; int64[3]", "`int64[3]` has no name"),
        ("x=float32[32,8]; x=float32[3,8]", "twice"),
        ("x=float32[32;8]", "`8]` has no name"),
    ],
)
def test_mistakes_are_named(text: str, says: str) -> None:
    with pytest.raises(TaskError) as caught:
        extra_inputs.specs(text, (), INPUTS)
    assert says in caught.value.message and caught.value.hint


def loaded(folder: Path, text: str) -> tasks.Task:
    (folder / "model.py").write_text(MODEL)
    first = tasks.load(str(folder / "model.py"))
    return tasks.load(str(folder / "model.py"), inputs=extra_inputs.specs(text, (), first.inputs))


def test_larger_inputs_are_drawn_as_the_file_draws_them(tmp_path: Path) -> None:
    built = build(loaded(tmp_path, "x=float32[40,8]; i=int64[200]"))
    (x, i, scale), kwargs = built.inputs(0)
    assert (x.shape, x.stride(), i.shape, scale, kwargs) == ((40, 8), (8, 1), (200,), 3.0, {})
    assert x.min() >= 0 and x.max() <= 1 and len(torch.unique(x)) > 310, "uniform, and no row twice"
    assert i.max() == 15 and i.min() == 0, "an index stays in the domain of the file's own"
    assert torch.equal(x, built.inputs(0)[0][0]) and not torch.equal(x, built.inputs(1)[0][0])


def test_dtypes_values_and_further_arguments_may_differ(tmp_path: Path) -> None:
    built = build(loaded(tmp_path, "x=float64[4,8]; i=int64[7]<4; scale=1.5; bias=float64[8]"))
    (x, i, scale), kwargs = built.inputs(0)
    assert (x.dtype, x.shape, i.shape, scale) == (torch.float64, (4, 8), (7,), 1.5)
    assert kwargs["bias"].shape == (8,) and x.max() <= 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x=float32[4,8,2]", "[4, 8, 2] cannot be made"),
        ("x=float32[4,9]", "size of tensor"),
        ("y=float32[4]", "no parameter `y`"),
    ],
)
def test_what_the_module_does_not_take_is_an_error(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TaskError) as caught:
        loaded(tmp_path, text)
    assert says in caught.value.message


def test_like_needs_something_to_be_like(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("def f(x):\n    return x * 2\n")
    with pytest.raises(TaskError, match="no get_inputs"):
        tasks.load(str(tmp_path / "f.py"), inputs=["x=float32[4]:like"])
