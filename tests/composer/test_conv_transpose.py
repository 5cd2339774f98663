"""Transposed convolutions as kernels: arguments, layouts, types and neighbours agree with PyTorch; other ones stay calls."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk.composer import applicable
from dvk.composer.codegen import cpp
from dvk.composer.compose import fuse
from dvk.composer.ir.conv_form import direct_form
from dvk.composer.ir.schedules.cpp import CppDirect
from dvk.composer.kernel_classes import class_of
from dvk.composer.lowering.convolution import TRANSPOSED
from dvk.composer.recipes import OWN_FAMILIES
from dvk.nanolang import structures
from tests.composer.convolutions import FLOATS, Drawn, check, drawn, own
from tests.composer.programs import TASK, Program, capture

randn = torch.randn


class Transposed(nn.Module):
    """A transposed convolution with random arguments that the family covers, with a prologue and an epilogue."""

    def __init__(self, rng: random.Random):
        super().__init__()
        dims = rng.choice((1, 2, 2, 2, 3))
        channels, groups, outputs = rng.choice(
            (
                (1, rng.randint(2, 6), rng.randint(1, 3)),
                (rng.randint(1, 9), 1, rng.randint(1, 9)),
                (rng.randint(1, 3), rng.randint(2, 3), rng.randint(1, 4)),
            )
        )
        size, stride = (
            [rng.randint(1, 5) for _ in range(dims)],
            [rng.choice((1, 2, 2, 3, 4)) for _ in range(dims)],
        )
        gap = [
            rng.choice((1, 2, 3)) if s == 1 or k == 1 else 1
            for k, s in zip(size, stride, strict=True)
        ]
        padding = []
        for k, s, d in zip(size, stride, gap, strict=True):
            most = d * (k - 1) if s == 1 else s * (-(-k // s) - 1)
            padding.append(
                rng.choice([p for p in range(most + s) if p // s * s <= most and 2 * p % s == 0])
            )
        more = [rng.randint(0, max(s, d) - 1) for s, d in zip(stride, gap, strict=True)]
        length = [rng.randint(3, 5 if dims == 3 else 20) for _ in range(dims)]
        length = [
            max(n, (2 * p + s) // s + 1) for n, p, s in zip(length, padding, stride, strict=True)
        ]
        kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 1]
        bias = rng.random() < 0.5
        self.conv = kind(
            channels * groups,
            outputs * groups,
            size,
            stride,
            padding,
            more,
            groups,
            bias=bias,
            dilation=gap,
        )
        self.before, self.behind = rng.choice(list(Drawn.BEFORE)), rng.choice(list(Drawn.BEHIND))
        self.scale = nn.Parameter(randn(outputs * groups, *(1 for _ in range(dims))))
        many = [] if rng.random() < 0.1 else [rng.randint(1, 3)]
        self.x = randn(*many, channels * groups, *length)
        if rng.random() < 0.2:
            self.x = randn(*many, *length, channels * groups).movedim(-1, len(many))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Drawn.BEHIND[self.behind](self.conv(Drawn.BEFORE[self.before](x)) * self.scale)

    def __str__(self) -> str:
        return (
            f"{self.before} → {self.conv} → {self.behind} of {list(self.x.shape)} {self.x.stride()}"
        )


@pytest.mark.slow
def test_random_ones_agree_with_torch() -> None:
    made = drawn(5, 16, Transposed)
    check(made)
    assert {s.printed().get("form") for p in made.values() for s in p.schedules.values()} >= {
        "direct",
        "outer",
        None,
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_random_ones_agree_with_torch(seed: int) -> None:
    check(drawn(200 + seed, 75, Transposed))


BLOCKS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "doubled": (nn.ConvTranspose2d(12, 7, 2, 2), (2, 12, 9, 40)),
    "overlapping": (nn.ConvTranspose2d(12, 7, 4, 2, 1, bias=False), (2, 12, 9, 40)),
    "odd window": (nn.ConvTranspose2d(5, 6, 3, 2, 1, 1), (1, 5, 8, 17)),
    "depthwise": (nn.ConvTranspose2d(6, 6, 4, 2, 1, groups=6), (2, 6, 9, 14)),
    "vocoder": (nn.ConvTranspose1d(9, 4, 16, 8, 4), (2, 9, 50)),
    "no stride": (nn.ConvTranspose2d(4, 6, 3, 1, 1, dilation=2), (2, 4, 11, 12)),
    "volume": (nn.ConvTranspose3d(3, 5, 2, 2), (1, 3, 3, 5, 9)),
}
ALIKE = {"overlapping", "vocoder", "no stride"}
"""Forms that others of them take, too."""


def block(name: str) -> Program:
    conv, shape = BLOCKS[name]
    return own(nn.Sequential(nn.ReLU(), conv, nn.Hardswish()).eval(), randn(shape))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in ALIKE else n for n in BLOCKS]
)
@pytest.mark.slow
def test_every_schedule_of_a_block_agrees_and_is_one_kernel(name: str) -> None:
    first = block(name)
    (kernel,) = first.kernels
    assert kernel.family == ("window" if name == "depthwise" else "product")
    options = cpp.schedules(kernel)
    assert isinstance(options[0], CppDirect)
    check({f"{o}": first.under(lambda k, o=o: o) for o in options})


def test_the_form_has_phases_next_to_the_window() -> None:
    doubled, half = (
        direct_form(block("doubled").kernels[0]),
        direct_form(block("odd window").kernels[0]),
    )
    assert doubled is not None and half is not None and half.band is not None
    assert (doubled.lane.var.size, doubled.lane.places, doubled.num_free) == (40, 1, 12)
    assert doubled.outputs is not None and doubled.outputs.size == 2, (
        "both phases of a row share what is loaded"
    )
    assert (half.lane.var.size, half.lane.places, half.band.places, half.num_free) == (17, 2, 2, 5)
    names = {name: class_of(block(name).kernels[0]) for name in BLOCKS}
    assert all("convolution" in text for text in names.values())


@pytest.mark.slow
def test_types_layouts_and_neighbours() -> None:
    x, w, dw = randn(2, 6, 7, 9), randn(6, 5, 4, 4), randn(6, 1, 3, 3)

    def forward(x: torch.Tensor, w: torch.Tensor, dw: torch.Tensor) -> Any:
        return (
            F.conv_transpose2d(x, w, None, 2, 1) * 2,
            F.conv_transpose2d(x, dw, None, 2, 1, 1, 6),
            F.conv_transpose2d(x, w[..., :1, :1]),
        )

    def crossed(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.relu(F.conv_transpose2d(x, w, None, 2, 1)), y], 1).sum(1)

    made = {str(kind): own(forward, *(v.to(kind) for v in (x, w, dw))) for kind in FLOATS}
    made["channels last"] = own(forward, x.to(memory_format=torch.channels_last), w, dw)
    made["expanded"] = own(forward, randn(2, 6, 1, 9).expand(2, 6, 7, 9), w, dw)
    made["a slice of the result"] = own(
        lambda x, w: F.conv_transpose2d(x, w, None, 2, 1)[:, :3, :, :-1].tanh(), x, w
    )
    made["a residual"] = own(
        lambda x, w, y: F.conv_transpose2d(x, w, None, 2, 1) + y, x, w, randn(2, 5, 14, 18)
    )
    made["one of another"] = own(
        lambda x, w, v: F.conv_transpose2d(F.conv_transpose2d(x, w, None, 2, 1).relu(), v, None, 2),
        x,
        w,
        randn(5, 3, 2, 2),
    )
    made["a convolution of it"] = own(
        lambda x, w, v: F.conv2d(F.conv_transpose2d(x, w, None, 2, 1), v, None, 1, 1, 1, 5),
        x,
        w,
        randn(5, 1, 3, 3),
    )
    made["cut off"] = own(
        lambda x, w: F.conv_transpose2d(x, w, None, 2, 1), x, dw.repeat(1, 4, 1, 1)
    )
    check(made)
    check({"a concatenation": own(crossed, x, w, randn(2, 3, 14, 18))}, left=("aten.cat.default",))


LEFT: dict[str, nn.Module] = {
    "a third of a stride left over": nn.ConvTranspose2d(4, 4, 3, 3, 1),
    "dilation and stride": nn.ConvTranspose2d(4, 4, 3, 2, 1, 1, dilation=2),
    "more padding than window": nn.ConvTranspose2d(4, 4, 2, 2, 2),
}


def test_nothing_leaves_torch_without_the_recipe_and_texts_that_a_model_learns_have_none_of_it() -> (
    None
):
    x = randn(1, 4, 9, 9)
    for name, conv in {"covered": nn.ConvTranspose2d(4, 4, 2, 2), **LEFT}.items():
        captured = capture(nn.Sequential(conv, nn.ReLU()).eval(), x)
        names = applicable(captured.graph, "cpu", "cpp")
        assert (TRANSPOSED in names) is (name == "covered"), name
        assert TRANSPOSED not in applicable(captured.graph, "cuda", "cuda")
        kept = tuple(n for n in names if n not in (TRANSPOSED, "channels_last"))
        without = fuse(TASK, captured, kept)
        assert [p.op for p in without.part.users if p.kind == "extern"] == [
            "aten.conv_transpose2d.input"
        ]
        assert not any(set(words) & set(OWN_FAMILIES) for words in structures(captured, "cpp"))
