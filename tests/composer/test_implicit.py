"""Convolutions as implicit matmuls, layouts between kernels, windows into another layout, and short functions for fp16 and bf16."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytest.importorskip("triton")

from dvk.composer.capture.export import trace_module
from dvk.composer.codegen import triton as renderer
from dvk.composer.codegen.analysis.tiles import needs_int64
from dvk.composer.codegen.triton.matmul_schedule import whole_depth
from dvk.composer.codegen.triton.scalar import HELPERS
from dvk.composer.compose import Composition, fuse_graph
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.triton import TritonProduct, TritonWindowTile
from dvk.composer.recipes import applicable

USUAL = ("fold_batch_norm", "convolution_bias", "fuse_pointwise", "fuse_epilogue", "fuse_rowwise")


def fused(module: nn.Module, *args: torch.Tensor, names: tuple[str, ...]) -> Composition:
    with torch.no_grad():
        captured = trace_module(module, [*args], [f"x{n}" for n in range(len(args))])
    return fuse_graph(captured.graph, (*USUAL, *names), "cuda", tf32=True)


def text_of(kernel: Kernel) -> str:
    return renderer.render(kernel, renderer.default_schedule(kernel))


def calls(made: Composition) -> list[str]:
    return [p.op for p in made.part.users if p.kind == "extern" and p.op.startswith("aten.")]


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: torch.Tensor) -> Any:
        return F.relu(self.second(F.relu(self.norm(self.first(x)))) + x)


def images(*shape: int) -> torch.Tensor:
    return torch.empty(shape).to(memory_format=torch.channels_last)


def test_a_block_is_two_implicit_matmuls_with_what_follows_them() -> None:
    names = ("channels_last", "own_convolution")
    made = fused(Block(32).eval(), images(2, 32, 28, 28), names=names)
    assert not calls(made) and [k.family for k in made.ordered] == ["product"] * 2
    for kernel in made.ordered:
        assert [v.size for v in kernel.reduced] == [3, 3, 32], "channels are innermost"
        assert kernel.outputs[0].strides == (32 * 784, 1, 28 * 32, 32), "written as it is read"
        texts = [renderer.render(kernel, option) for option in renderer.schedules(kernel)]
        assert any("place = r0 // 32" in text for text in texts)
        assert not any("int64" in text for text in texts)
        assert "max" in kernel.summary, "the activation is in the epilogue"


def test_it_is_tried_on_gpus_alone_and_together_with_its_layout() -> None:
    from dvk.composer.plan_space import PlanSpace
    from dvk.records import Task

    with torch.no_grad():
        captured = trace_module(Block(8).eval(), [images(1, 8, 9, 9)], ["x"])
    assert "own_convolution" in applicable(captured.graph, "cuda", "triton")
    assert "own_convolution" not in applicable(captured.graph, "cpu", "triton")
    task = Task(id="0" * 16, name="t", source="", entry="Model", kind="module", device="cuda")
    titles = {title: plan for plan, title in PlanSpace(task, captured, "triton").structures()}
    plan = titles["with channels_last and own_convolution"]
    assert {"channels_last", "own_convolution"} <= {*plan.recipes}


def test_convolutions_of_many_channels_stay_with_the_library() -> None:
    made = fused(Block(64).eval(), images(1, 64, 9, 9), names=("channels_last", "own_convolution"))
    assert len(calls(made)) == 2


def test_its_input_is_stored_once_and_not_recomputed_for_every_place() -> None:
    module = nn.Sequential(nn.Hardswish(), nn.Conv2d(32, 32, 3, padding=1)).eval()
    made = fused(module, images(1, 32, 9, 9), names=("channels_last", "own_convolution"))
    assert [k.family for k in made.ordered] == ["pointwise", "product"]
    assert made.ordered[0].outputs[0].shape == (1, 32, 9, 9), "without its padding"


@pytest.mark.parametrize(
    ("depth", "channels", "expected"),
    [(64, 64, 64), (64, 96, 32), (32, 48, 16), (32, 40, 16), (32, 20, 32), (64, 512, 64)],
)
def test_blocks_keep_to_one_place_if_little_is_padding(
    depth: int, channels: int, expected: int
) -> None:
    assert whole_depth(depth, channels) == expected


def test_large_convolutions_count_in_32_bits_as_long_as_tensors_do() -> None:
    def kernel(batch: int) -> Kernel:
        x = torch.empty((), device="meta").expand(batch, 32, 56, 56)
        with torch.device("meta"):
            x = x.contiguous(memory_format=torch.channels_last)
            module = nn.Conv2d(32, 32, 3, padding=1).eval()
        made = fused(module, x, names=("channels_last", "own_convolution"))
        return next(k for k in made.ordered if k.family == "product")

    usual, huge = kernel(128), kernel(24000)
    assert usual.num_rows * usual.row_length > 2**31 and not needs_int64(usual)
    assert needs_int64(huge)
    splits = [
        o.splits for o in renderer.schedules(huge) if isinstance(o, TritonProduct) and o.splits > 1
    ]
    assert not splits, "their slices would have too many elements"


def test_windows_into_another_layout_are_tiles_of_both() -> None:
    module = nn.Conv2d(64, 64, 3, padding=1, groups=64).eval()
    names = ("own_depthwise", "own_pointwise")
    both = nn.Sequential(module, nn.Hardswish(), nn.Conv2d(64, 64, 1)).eval()
    (kernel, _) = fused(both, torch.empty(8, 64, 56, 56), names=names).ordered
    option = renderer.default_schedule(kernel)
    assert isinstance(option, TritonWindowTile)
    channels, lane = renderer.schedule.axes(kernel, option)[1:3]
    assert [v.size for v in channels.vars] == [64] and [v.size for v in lane.vars] == [56]
    assert "tl.store(o0 + (z * 3584 + y + x * 64)" in text_of(kernel), "channels are contiguous"


def test_windows_of_a_concatenation_read_its_parts() -> None:
    class Joined(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return F.max_pool2d(torch.cat([x.relu(), y], 1), 3, 2)

    made = fused(
        Joined(),
        torch.empty(2, 8, 9, 9),
        torch.empty(2, 4, 9, 9),
        names=("own_moves", "own_windows"),
    )
    assert [k.family for k in made.ordered] == ["window"], "no kernel writes indices"


def test_values_between_kernels_stay_in_channels_last() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)

    names = ("batch_norm_training", "channels_last", "own_windows")
    made = fused(Pooled().train(), images(2, 8, 12, 12), names=names)
    (between,) = [b for k in made.ordered for b in k.outputs if len(b.shape) == 6]
    assert between.shape == (2, 16, 6, 6, 2, 2)
    assert between.strides == (2304, 1, 384, 32, 192, 16), "that of the convolution's result"


# ---------------------------------------------------------------- fp16 and bf16


def short(name: str) -> Any:
    """A helper on torch's tensors."""
    tl = SimpleNamespace(
        where=torch.where,
        abs=torch.abs,
        exp=torch.exp,
        fma=lambda a, b, c: (a.double() * b + c).float(),  # one rounding
    )
    made: dict[str, Any] = {"tl": tl, "triton": SimpleNamespace(jit=lambda f: f)}
    exec(HELPERS[name], made)
    return made[name]


@pytest.mark.parametrize(
    ("name", "exact", "low", "high"),
    [
        ("dvk_log1p_unit_half", torch.log1p, 0.0, 1.0),
        ("dvk_expm1_half", torch.expm1, -30.0, 80.0),
        ("dvk_tanh_half", torch.tanh, -60.0, 60.0),
    ],
)
def test_short_functions_are_closer_than_half_types_can_tell(
    name: str, exact: Any, low: float, high: float
) -> None:
    x = torch.cat([torch.linspace(low, high, 100001), torch.linspace(max(low, -0.2), 0.2, 10001)])
    x = torch.cat([x, x.double().mul(1e-4).float()])
    wide = exact(x.double())
    off = ((short(name)(x).double() - wide).abs() / wide.abs().clamp(min=1e-30)).max()
    assert off < 2**-14
    special = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0])
    if "log1p" not in name:
        torch.testing.assert_close(short(name)(special), exact(special), equal_nan=True)
    assert short(name)(special[:1]).isnan()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_only_halves_are_computed_by_short_functions(dtype: torch.dtype) -> None:
    for function in (F.softplus, F.logsigmoid, torch.tanh, F.elu):

        class Applied(nn.Module):
            def forward(self, x: torch.Tensor, function: Any = function) -> torch.Tensor:
                return function(x) * 2

        (kernel,) = fused(Applied(), torch.empty(64, 64, dtype=dtype), names=()).ordered
        assert ("_half(" in text_of(kernel)) == (dtype is torch.bfloat16)
        assert ("_half(" in renderer.prelude([kernel])) == (dtype is torch.bfloat16)
