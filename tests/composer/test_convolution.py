"""Convolutions as kernels: arguments, layouts, types and neighbours agree with PyTorch; without the recipes nothing changes."""

from __future__ import annotations

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
from dvk.composer.kernel_classes import class_of, group_equal_kernels
from dvk.composer.lowering.convolution import DEPTHWISE, DIRECT, POINTWISE
from dvk.composer.recipes import OWN_FAMILIES
from dvk.nanolang import structures
from tests.composer.convolutions import FLOATS, check, drawn, own, randn
from tests.composer.programs import TASK, Program, capture

RECIPES = {DEPTHWISE, POINTWISE, DIRECT}
NAN, INF = float("nan"), float("inf")


@pytest.mark.slow
def test_random_convolutions_agree_with_torch() -> None:
    made = drawn(3, 16)
    check(made)
    assert {s.printed().get("form") for p in made.values() for s in p.schedules.values()} >= {
        "direct",
        "outer",
        None,
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_random_convolutions_agree_with_torch(seed: int) -> None:
    check(drawn(100 + seed, 75))


BLOCKS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "depthwise": (nn.Conv2d(12, 12, 3, 1, 1, groups=12, bias=False), (2, 12, 11, 14)),
    "depthwise with a stride": (nn.Conv2d(12, 24, 5, 2, 2, groups=12), (2, 12, 21, 40)),
    "depthwise, wide and low": (nn.Conv2d(2, 2, 3, 1, 1, groups=2), (1, 2, 3, 700)),
    "depthwise, a large window": (nn.Conv2d(3, 3, 21, 1, 10, groups=3), (1, 3, 24, 24)),
    "depthwise, causal": (nn.Conv1d(8, 8, 4, 1, 3, groups=8), (2, 8, 600)),
    "pointwise": (nn.Conv2d(40, 33, 1), (2, 40, 9, 13)),
    "stem": (nn.Conv2d(3, 16, 7, 2, 3, bias=False), (2, 3, 33, 40)),
    "patches": (nn.Conv2d(3, 10, 4, 4), (2, 3, 16, 32)),
    "groups": (nn.Conv2d(12, 18, 3, 1, 1, 1, 6), (1, 12, 9, 20)),
}
ALIKE = {"depthwise", "depthwise, wide and low", "depthwise, causal", "patches"}
"""Forms that others of them take, too."""


def block(name: str) -> Program:
    conv, shape = BLOCKS[name]
    norm: nn.Module = (
        nn.BatchNorm2d(conv.out_channels) if len(shape) == 4 else nn.BatchNorm1d(conv.out_channels)
    )
    for value in (*norm.parameters(), norm.running_mean, norm.running_var):
        nn.init.uniform_(value, 0.5, 2.0)
    return own(nn.Sequential(nn.ReLU(), conv, norm, nn.Hardswish()).eval(), randn(shape))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in ALIKE else n for n in BLOCKS]
)
@pytest.mark.slow
def test_every_schedule_of_a_block_agrees_and_is_one_kernel(name: str) -> None:
    first = block(name)
    *before, kernel = first.kernels
    assert len(before) == ("large" in name), (
        "what every element would be made for hundreds of times is made once"
    )
    assert kernel.family == ("window" if name.startswith("depthwise") else "product")
    options = cpp.schedules(kernel)
    assert isinstance(options[0], CppDirect)
    check(
        {
            f"{o}": first.under(
                lambda k, o=o: o if k.family == kernel.family else cpp.default_schedule(k)
            )
            for o in options
        }
    )


@pytest.mark.slow
def test_types_layouts_and_special_values() -> None:
    x, w, stem = randn(2, 6, 9, 10), randn(6, 1, 3, 3), randn(5, 3, 3, 3)

    def forward(x: torch.Tensor, w: torch.Tensor, stem: torch.Tensor) -> Any:
        return (
            F.conv2d(x, w, None, 1, 1, 1, 6) * 2,
            F.conv2d(x[:, :3], stem, None, 2, 1),
            F.conv2d(x, w.expand(6, 6, 3, 3)[..., :1, :1]),
        )

    odd = x.clone()
    odd[0, 0, 0, 0], odd[0, 1, 3, 4], odd[1, 2, -1, -1] = NAN, INF, -INF
    made = {str(kind): own(forward, *(v.to(kind) for v in (x, w, stem))) for kind in FLOATS}
    made["special"] = own(forward, odd, w, stem)
    made["channels last"] = own(forward, x.to(memory_format=torch.channels_last), w, stem)
    wide = randn(2, 6, 9, 20)
    made["doubles behind"] = own(
        lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 6).double() * 2, wide, w
    )
    made["a residual of doubles"] = own(
        lambda x, p, d: F.conv2d(x, p) + d, wide, randn(8, 6, 1, 1), randn(2, 8, 9, 20).double()
    )
    made["expanded"] = own(forward, randn(2, 6, 1, 10).expand(2, 6, 9, 10), w, stem)
    check(made)


@pytest.mark.slow
def test_neighbours_share_the_kernel_or_stay_separate() -> None:
    x, w, p = randn(2, 6, 8, 8), randn(6, 1, 3, 3), randn(10, 6, 1, 1)
    fused = {
        "a residual": own(lambda x, w: x + F.conv2d(x, w, None, 1, 1, 1, 6), x, w),
        "padding of another number": own(
            lambda x, w: F.conv2d(F.pad(x, (1, 1, 1, 1), value=2.0), w, None, 1, 1, 1, 6), x, w
        ),
        "a slice of the result": own(
            lambda x, w: F.conv2d(x, w, None, 1, 3, 1, 6)[:, :, :, :-1].tanh(), x, w
        ),
        "a shuffle of channels": own(
            lambda x, p: (
                F.relu(F.conv2d(x, p)).view(2, 2, 5, 8, 8).transpose(1, 2).reshape(2, 10, 8, 8)
            ),
            x,
            p,
        ),
        "one place of one channel": own(
            lambda x, w: torch.relu(F.conv2d(x, w[:, :, :1, :1], None, 1, 0, 1, 6)), x, w
        ),
    }
    check(fused)
    assert {name: len(p.kernels) for name, p in fused.items()} == dict.fromkeys(fused, 1)
    apart = {
        "inverted bottleneck": own(
            lambda x, w, p: F.conv2d(F.relu6(F.conv2d(F.relu6(x), w, None, 1, 1, 1, 6)), p), x, w, p
        ),
        "costly work before overlapping windows": own(
            lambda x, w: F.conv2d(F.gelu(x), w, None, 1, 1, 1, 6), x, w
        ),
        "a pool": own(lambda x, w: F.max_pool2d(F.conv2d(x, w, None, 1, 1, 1, 6), 2), x, w),
        "a norm": own(lambda x, p: F.group_norm(F.conv2d(x, p), 2), x, p),
        "one of another": own(
            lambda x, w: F.conv2d(F.conv2d(x, w, None, 1, 1, 1, 6), w, None, 1, 1, 1, 6), x, w
        ),
    }
    check(apart)
    assert {name: len(p.kernels) for name, p in apart.items()} == dict.fromkeys(apart, 2)


def test_a_padded_one_of_a_padded_one_that_multiplied_channels() -> None:
    def forward(x: torch.Tensor, p: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(F.conv2d(x, p, None, 1, (0, 1), 1, 6), w, None, 2, 1, 1, 24)

    check({"": own(forward, randn(2, 6, 8, 8), randn(24, 1, 1, 1), randn(24, 1, 3, 3))})


def test_kernels_of_other_layouts_are_not_tuned_as_one() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> Any:
        return F.conv2d(x, w, None, 1, 1, 1, 8), F.conv2d(y, v, None, 1, 1, 1, 8)

    x, w, v = randn(2, 8, 8, 8), randn(8, 1, 3, 3), randn(8, 1, 3, 3)
    twice = own(forward, x, x.to(memory_format=torch.channels_last), w, v)
    assert [len(group) for group in group_equal_kernels(twice.kernels)] == [1, 1]
    assert [
        len(group)
        for group in group_equal_kernels(own(forward, x, randn(2, 8, 8, 8), w, v).kernels)
    ] == [2]


@pytest.mark.slow
def test_the_form_names_the_window_variables() -> None:
    form = direct_form(block("stem").kernels[0])
    assert form is not None and form.band is not None and form.outputs is not None
    assert (
        (form.lane.stride, form.lane.dilation, form.lane.places)
        == (2, 1, 7)
        == (form.band.stride, form.band.dilation, form.band.places)
    )
    assert (form.outputs.size, form.num_free, [v.size for v in form.outer]) == (16, 3, [2])
    point = direct_form(block("pointwise").kernels[0])
    assert (
        point is not None
        and point.band is None
        and (point.lane.places, point.lane.var.size, point.num_free) == (1, 9 * 13, 40)
    )
    turned = own(
        lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 6),
        randn(2, 6, 8, 8).to(memory_format=torch.channels_last),
        randn(6, 1, 3, 3),
    )
    assert direct_form(turned.kernels[0]) is None, "channels walk memory fastest"
    names = {name: class_of(block(name).kernels[0]) for name in ("depthwise", "stem", "pointwise")}
    assert len(set(names.values())) == 3 and all("convolution" in text for text in names.values())


def test_nothing_leaves_torch_without_the_recipes_and_texts_that_a_model_learns_have_none_of_it() -> (
    None
):
    x = randn(1, 8, 9, 9)
    found: dict[str, set[str]] = {}
    for name, conv in {
        "depthwise": nn.Conv2d(8, 8, 3, groups=8),
        "pointwise": nn.Conv2d(8, 4, 1),
        "few": nn.Conv2d(8, 8, 3, groups=2),
        "many": nn.Conv2d(8, 4, 3),
        "strided": nn.Conv2d(8, 4, 1, 2),
    }.items():
        captured = capture(nn.Sequential(conv, nn.ReLU()).eval(), x)
        names = applicable(captured.graph, "cpu", "cpp")
        found[name] = RECIPES & set(names)
        assert not RECIPES & set(applicable(captured.graph, "cuda", "cuda"))
        without = fuse(
            TASK, captured, tuple(n for n in names if n not in {*RECIPES, "channels_last"})
        )
        assert [p.op for p in without.part.users if p.kind == "extern"] == ["aten.conv2d.default"]
        assert not any(set(words) & set(OWN_FAMILIES) for words in structures(captured, "cpp"))
    assert found == {
        "depthwise": {DEPTHWISE},
        "pointwise": {POINTWISE},
        "few": {DIRECT},
        "many": set(),
        "strided": set(),
    }
