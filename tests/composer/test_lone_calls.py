"""A convolution that is all a module does: its bias added in place by one kernel, its layout changed on the way, and the model itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dvk.composer import Plan
from dvk.composer.plan_space import AS_IT_IS, PlanSpace
from dvk.records import Task
from tests.composer.programs import capture

ALONE = {
    "1d": (lambda: nn.Conv1d(40, 24, 3, padding=2, dilation=2), (2, 40, 65)),
    "2d": (lambda: nn.Conv2d(40, 24, 3, stride=2), (2, 40, 17, 18)),
    "3d": (lambda: nn.Conv3d(40, 24, 3, padding=1), (2, 40, 5, 6, 7)),
    "transposed 1d": (lambda: nn.ConvTranspose1d(40, 24, 8, 4, 2), (2, 40, 33)),
    "transposed 2d": (lambda: nn.ConvTranspose2d(40, 24, 3, 2, 1), (2, 40, 9, 10)),
    "transposed 3d": (lambda: nn.ConvTranspose3d(40, 24, 2, 2), (2, 40, 3, 4, 5)),
    "grouped": (lambda: nn.Conv2d(96, 96, 3, groups=2), (2, 96, 9, 10)),
}


def space(model: nn.Module, *args: torch.Tensor, device: str = "cuda") -> PlanSpace:
    task = Task(
        id="0", name="t", source="", entry="Model", kind="module", device=device, precision="tf32"
    )
    return PlanSpace(task, capture(model, *args), "triton" if device == "cuda" else "cpp")


def program(space: PlanSpace, plan: Plan) -> str:
    text = space.candidate(plan, "").source
    return text[text.index("def _dvk_run") : text.index("dvk_fused = ")]


@pytest.mark.parametrize("name", ALONE)
def test_a_bias_is_one_kernel_in_place(name: str) -> None:
    make, shape = ALONE[name]
    found = space(make(), torch.randn(shape))
    plan, _ = found.proposals()[0]
    assert [len(k.inputs) for k in found.fused(plan.recipes).ordered] == [2]
    text = program(found, plan)
    assert ".add" not in text and "dvk_allocate" not in text


@pytest.mark.parametrize("name", ALONE)
def test_channels_last_moves_every_element_twice_beside_the_library(name: str) -> None:
    """One kernel lays the input out, one adds the bias and lays the result out; PyTorch copies nothing."""
    make, shape = ALONE[name]
    found = space(make(), torch.randn(shape))
    plan = next(plan for plan, _ in found.proposals() if "channels_last" in plan.recipes)
    made = found.fused(plan.recipes)
    into, out = made.ordered
    assert into.outputs[0].strides[1] == 1 and out.inputs[0].strides[1] == 1
    assert out.outputs[0].strides == torch.empty(out.outputs[0].shape).stride()
    text = program(found, plan)
    assert ".add" not in text and ".contiguous" not in text


@pytest.mark.parametrize("name", ALONE)
def test_the_model_itself_is_among_the_first(name: str) -> None:
    make, shape = ALONE[name]
    proposed = space(make(), torch.randn(shape)).proposals()
    assert (Plan(()), AS_IT_IS) in proposed[:4]
    assert len({plan.recipes for plan, _ in proposed}) == len(proposed)


def test_what_follows_a_convolution_is_no_lone_call() -> None:
    proposed = space(nn.Sequential(nn.Conv2d(40, 24, 3), nn.ReLU()), torch.randn(2, 40, 9, 9))
    assert AS_IT_IS not in [title for _, title in proposed.proposals()]


def test_a_lone_call_without_bias() -> None:
    found = space(nn.Conv2d(64, 64, 3, groups=8, bias=False), torch.randn(2, 64, 9, 9))
    titles = [title for _, title in found.proposals()]
    assert AS_IT_IS in titles[:4] and "left to torch, with channels_last" in titles
    plan = found.proposals()[0][0]
    assert plan.recipes == ("channels_last",) and len(found.fused(plan.recipes).ordered) == 2
    assert "dvk_strided(_t2, (" in program(found, plan) and ".contiguous" not in program(
        found, plan
    )


RECURRENT = {
    "lstm": lambda: nn.LSTM(5, 6, bidirectional=True),
    "gru": lambda: nn.GRU(5, 6, num_layers=2),
    "rnn": lambda: nn.RNN(5, 6, batch_first=True),
}


class FirstOf(nn.Module):
    """The states of all steps of a recurrent network."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.slow
def test_a_recurrent_network_of_the_library_is_a_graph_from_the_start(name: str) -> None:
    """The library launches kernels for each of its steps, which takes the host longer than the GPU."""
    plans = space(FirstOf(RECURRENT[name]()), torch.randn(7, 3, 5)).proposals()
    assert plans and all("cuda_graph" in plan.recipes for plan, _ in plans)


@pytest.mark.parametrize(("rows", "own"), [(8, True), (4096, False)])
def test_products_of_few_multiplications_are_kernels_from_the_start(rows: int, own: bool) -> None:
    """The library's start costs more than they do."""
    model = nn.Sequential(nn.Linear(128, 96), nn.GELU(), nn.LayerNorm(96))
    (first, _), *_, (last, title) = space(model, torch.randn(rows, 128)).proposals()
    assert ("own_matmul" in first.recipes) is own
    assert not own or (title == "fused" and "own_matmul" not in last.recipes)
