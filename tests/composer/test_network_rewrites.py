"""Rewrites for whole networks: biases after convolutions, batch norm in training mode, layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dvk.composer import CapturedGraph
from dvk.composer.capture.batch import capture_many
from dvk.composer.compose import fuse_graph
from dvk.composer.ir.loops import Ref
from dvk.composer.occasion import is_static
from dvk.composer.recipes import applicable
from dvk.composer.rewrites import batch_norm_training, convolution_bias, layout
from dvk.composer.rewrites.edit import packet
from dvk.records import Graph
from tests.composer.batch_models import task
from tests.composer.dropins import Counting
from tests.composer.programs import Function, Program, capture, differences, usual

Rewrite = Callable[[Graph], Graph | None]


def rewritten(model: nn.Module, *inputs: Any, by: tuple[Rewrite, ...]) -> Program:
    """The program of a model after rewrites, each of which must change the graph."""
    captured = capture(model, *inputs)
    graph = captured.graph
    for rewrite in by:
        changed = rewrite(graph)
        assert changed is not None
        graph = changed
    return Program(
        model, *inputs, captured=captured.model_copy(update={"graph": graph}), recipes=usual
    )


def operators(program: Program) -> list[str]:
    return [packet(node) for node in program.graph.nodes if packet(node)]


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def check(program: Program, model: nn.Module, *, scale: float = 3) -> None:
    """Values, and the state that a call leaves, are eager's."""
    before = state(model)
    expected = program.eager()
    after = state(model)
    model.load_state_dict(before)
    got = program.run(*program.args)
    assert differences(got, expected, scale=scale) == []
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, after[name], rtol=1e-5, atol=1e-6, msg=name)


class Stack(nn.Module):
    """Convolutions, norms and activations in a row."""

    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers(x)


NORMS = {
    "conv norm relu": (
        lambda: Stack(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU()),
        (4, 3, 9, 7),
    ),
    "1d": (lambda: Stack(nn.Conv1d(3, 6, 3), nn.BatchNorm1d(6), nn.GELU()), (4, 3, 33)),
    "3d": (
        lambda: Stack(nn.Conv3d(3, 4, 2), nn.BatchNorm3d(4, momentum=0.3), nn.ELU()),
        (2, 3, 4, 5, 6),
    ),
    "rows": (lambda: Stack(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh()), (16, 5)),
    "no weights": (lambda: Stack(nn.BatchNorm2d(3, affine=False), nn.Sigmoid()), (2, 3, 8, 8)),
    "no running": (
        lambda: Stack(nn.BatchNorm2d(3, track_running_stats=False), nn.ReLU()),
        (2, 3, 8, 8),
    ),
    "two": (
        lambda: Stack(
            nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, momentum=0.5), nn.ReLU()
        ),
        (2, 3, 8, 8),
    ),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.slow
def test_batch_norm_in_training(name: str, dtype: torch.dtype) -> None:
    make, shape = NORMS[name]
    torch.manual_seed(1)
    model = make().train()
    for module in model.modules():
        if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)):
            module.to(dtype)
        elif getattr(module, "weight", None) is not None:
            nn.init.normal_(module.weight, 1.0, 0.3)
            nn.init.normal_(module.bias)
    program = rewritten(
        model, torch.randn(shape, dtype=dtype) * 2 + 1, by=(batch_norm_training.rewrite,)
    )
    assert "batch_norm" not in operators(program)
    check(program, model)


def test_a_norm_that_runs_twice_writes_its_statistics_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(torch.relu(self.norm(x)) * 3)

    model = Twice().train()
    program = rewritten(model, torch.randn(2, 3, 6, 6) + 1, by=(batch_norm_training.rewrite,))
    assert operators(program).count("lerp_") == 4
    check(program, model)


@pytest.mark.parametrize("layer", [nn.Conv2d(3, 6, 3), nn.ConvTranspose2d(3, 6, 4, 2, 1)])
def test_a_norm_is_kernels_where_nothing_else_reduces(layer: nn.Module) -> None:
    """The statistics are no call of PyTorch, which takes several times as long for them."""
    graph = capture(Stack(layer, nn.BatchNorm2d(6), nn.ReLU()), torch.randn(4, 3, 9, 7)).graph
    names = applicable(graph, "cuda", "triton")
    assert {"batch_norm_training", "fuse_rowwise"} <= set(names)
    made = fuse_graph(graph, tuple(names), "cuda")
    assert not any("var_mean" in prim.op for prim in made.part.users)


def test_the_mean_of_a_norm_needs_no_variance() -> None:
    """Triton 3.6 does not compile a kernel whose mean depends on its second sum; an infinite element still makes the mean NaN."""
    graph = capture(Stack(nn.BatchNorm2d(6), nn.ReLU()), torch.randn(4, 6, 9, 7)).graph
    (kernel,) = fuse_graph(graph, tuple(applicable(graph, "cuda", "triton")), "cuda").ordered
    sums: dict[int, set[int]] = {}
    for instr in kernel.instrs:
        own = {instr.id} if instr.op == "reduce_sum" else set()
        sums[instr.id] = own.union(*(sums[a.id] for a in instr.args if isinstance(a, Ref)))
    # The mean and the running one; the running variance and the result.
    assert sorted(len(sums[store.value]) for store in kernel.stores) == [1, 1, 2, 2]


def test_a_norm_in_eval_mode_stays() -> None:
    model = Stack(nn.BatchNorm2d(3)).eval()
    assert batch_norm_training.rewrite(capture(model, torch.randn(2, 3, 6, 6)).graph) is None


BIASES = {
    "2d": (lambda: Stack(nn.Conv2d(4, 6, 3, padding=1), nn.ReLU()), (2, 4, 7, 9)),
    "1d": (lambda: Stack(nn.Conv1d(4, 6, 3), nn.GLU(1)), (2, 4, 19)),
    "3d": (lambda: Stack(nn.Conv3d(2, 4, 2), nn.Tanh()), (2, 2, 4, 5, 6)),
    "transposed": (lambda: Stack(nn.ConvTranspose2d(4, 6, 4, 2, 1), nn.Tanh()), (2, 4, 5, 6)),
    "returned": (lambda: Stack(nn.Conv2d(4, 6, 3)), (2, 4, 7, 9)),
    "grouped": (lambda: Stack(nn.Conv2d(4, 8, 3, groups=2), nn.ReLU()), (2, 4, 7, 9)),
}


@pytest.mark.parametrize("name", BIASES)
def test_biases_are_added_after_convolutions(name: str) -> None:
    make, shape = BIASES[name]
    torch.manual_seed(1)
    model = make()
    program = rewritten(model, torch.randn(shape), by=(convolution_bias.rewrite,))
    assert "add" in operators(program)
    check(program, model)


def test_convolutions_whose_bias_stays() -> None:
    x = torch.randn(2, 4, 7, 7)
    assert convolution_bias.rewrite(capture(Stack(nn.Conv2d(4, 6, 3, bias=False)), x).graph) is None
    assert convolution_bias.rewrite(capture(Stack(nn.Conv2d(4, 6, 3)), x[0]).graph) is None


def test_the_bias_of_a_folded_batch_norm_is_added_after_the_convolution() -> None:
    model = Stack(nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6), nn.GELU()).eval()
    graph = capture(model, torch.randn(2, 4, 7, 9)).graph
    assert "convolution_bias" in applicable(graph, "cuda", "triton")
    assert "convolution_bias" not in applicable(
        graph, "cuda", "triton", but=("fold_batch_norm", "fold_batch_norm_finite")
    )


class Net(nn.Module):
    """A residual, a transposed convolution, a concatenation and pools between convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.up = nn.BatchNorm2d(8), nn.ConvTranspose2d(8, 8, 2, 2)
        self.last = nn.Conv2d(16, 4, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.relu(self.first(x))
        y = torch.relu(self.norm(self.second(x)) + x)
        z = self.up(nn.functional.max_pool2d(y, 2))
        out = self.last(torch.cat([y, z], 1))
        return out, nn.functional.avg_pool2d(out, 2).mean((2, 3))


@pytest.mark.parametrize(
    "by", [(), (batch_norm_training.rewrite, convolution_bias.rewrite)], ids=len
)
def test_a_network_stays_in_channels_last(by: tuple[Rewrite, ...]) -> None:
    """From the first convolution to the output, which is laid out as before, no value is laid out again."""
    torch.manual_seed(1)
    model = Net().train()
    program = rewritten(model, torch.randn(2, 3, 8, 8), by=(*by, layout.rewrite))
    check(program, model)
    names = operators(program)
    assert names.count("contiguous") == (
        1 if by else 2
    )  # a bias is added where the result is laid out


def test_volumes_are_laid_out_too() -> None:
    torch.manual_seed(1)
    model = Stack(nn.Conv3d(2, 4, 3, padding=1), nn.ReLU(), nn.ConvTranspose3d(4, 3, 2, 2))
    program = rewritten(model, torch.randn(2, 2, 4, 5, 6), by=(layout.rewrite,))
    check(program, model)
    assert operators(program).count("contiguous") == 2


ROWS = {
    "a stack": lambda: Stack(
        nn.Conv1d(4, 8, 3, padding=2, dilation=2),
        nn.SiLU(),
        nn.Conv1d(8, 6, 4, 2, bias=False),
        nn.GELU(),
        nn.ConvTranspose1d(6, 4, 5, 3, 1, 1),
    ),
    "grouped": lambda: Stack(nn.Conv1d(4, 8, 3, groups=2), nn.Tanh()),
    "turned": lambda: Stack(nn.ConvTranspose1d(4, 6, 4, 2, 1, groups=2, dilation=2)),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_images_of_one_row(name: str) -> None:
    torch.manual_seed(1)
    model = ROWS[name]()
    program = rewritten(model, torch.randn(2, 4, 23), by=(convolution_bias.rewrite, layout.rewrite))
    check(program, model)
    names = operators(program)
    assert names.count("contiguous") == 1 + (names[-1] == "contiguous")
    assert not {"conv1d", "conv_transpose1d"} & {*names}


def test_rows_that_stay_rows() -> None:
    x = torch.randn(2, 4, 23)
    for model, given in (
        (nn.Conv1d(4, 4, 3, padding="same"), x),
        (nn.Conv1d(4, 4, 3), x[0]),
        (nn.ConvTranspose1d(4, 4, 3), x[0]),
    ):
        assert layout.rewrite(capture(Stack(model), given).graph) is None
    assert layout.rewrite(capture(Stack(nn.Conv1d(4, 4, 3)), x).graph, "cpu") is None


def test_only_writes_into_arguments_keep_a_graph_from_being_replayed() -> None:
    x = torch.randn(2, 3, 6, 6)
    assert is_static(capture(Stack(nn.BatchNorm2d(3)), x).graph)
    assert not is_static(capture(Function(lambda x: x.add_(1) * 2), x).graph)
    assert not is_static(capture(Stack(nn.Dropout(0.5)), x).graph)


NORM = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(4, 3, 9, 9)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
def test_weights_of_fake_modules_are_apart() -> None:
    """Captured without memory, too, weights of a module in training mode share nothing."""
    ((_, captured),) = capture_many([task(NORM)])
    assert isinstance(captured, CapturedGraph)
    held = [n for n in captured.graph.nodes if n.op in ("param", "buffer")]
    assert len(held) == 7 and all(n.args == () for n in held)


def test_a_drop_in_in_training_mode_prepares_itself_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters and running statistics that it writes itself are no reason to examine the module again."""
    x = torch.randn(4, 3, 9, 9)
    case = Counting(NORM, x, training=True)
    prepared: list[int] = []
    original = case.module.ModelNew._dvk_prepare
    monkeypatch.setattr(
        case.module.ModelNew, "_dvk_prepare", lambda self: prepared.append(1) or original(self)
    )
    with torch.no_grad():
        for _ in range(3):
            fused, result = case.fused(x)
            assert fused
            torch.testing.assert_close(result, case.reference(x), rtol=1e-4, atol=1e-5)
    assert len(prepared) == 1
    for name, value in case.reference.state_dict().items():
        torch.testing.assert_close(case.new.state_dict()[name], value, rtol=1e-4, atol=1e-5)


def test_an_argument_in_the_memory_of_a_written_weight_runs_the_original() -> None:
    x = torch.randn(4, 3, 9, 9)
    case = Counting(NORM, x, training=True)
    memory = torch.zeros(x.numel() + 4)
    with torch.no_grad():
        case.new.norm.running_mean = memory[:4]
        inside = memory[4:].view(x.shape).copy_(x)
        assert not case.fused(inside)[0]
        assert case.fused(x)[0]
