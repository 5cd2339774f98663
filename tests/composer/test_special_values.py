"""NaN, infinities, huge and tiny values: C++ drop-ins give them in the same elements as eager, under every schedule, and nowhere else.

Eager itself has several answers to some of these, and each is accepted: the mean of `var_mean` is infinite if the infinity is the row's
last element and NaN otherwise; sums near overflow depend on their order; a maximum of +0 and −0 may be either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

from dvk.composer import applicable
from dvk.composer.lowering.whole_graph import lower
from tests.composer.programs import Program, capture, compiled, drop_in
from tests.composer.special_cases import (
    BINARY,
    COLUMNS,
    LEFT,
    NO_KERNEL,
    ODD,
    ROWS,
    UNARY,
    row_case,
)
from tests.composer.special_inputs import (
    INF,
    NAN,
    Case,
    columns,
    image,
    matrix,
    pairs,
    scalars,
    wrong,
)
from tests.composer.special_modules import ATTENTION, IMAGES, PRODUCTS
from tests.composer.special_options import options

FEW = ("softmax", "log_sum_by_hand", "min_pair", "var_mean", "layer_norm", "cummax")
"""Rows that are tested without the slow mark."""
FEW_OPERATORS = (
    "relu",
    "clamp",
    "gelu",
    "mish",
    "logsigmoid",
    "hardswish",
    "exp",
    "log_softplus",
    "sign",
    "pow-3",
    "round",
)
LONG = 1100
"""Elements of a row of more than one block."""


def own(graph: Any) -> tuple[str, ...]:
    """Every exact recipe."""
    return tuple(applicable(graph, "cpu", "cpp"))


def scheduled(case: Case, most: int) -> list[Program]:
    """The case under each schedule index."""
    first = Program(case.function, *case.args, recipes=own)
    assert first.kernels
    count = min(max(len(options(k)) for k in first.kernels), most)
    return [
        first.under(lambda k, n=n: options(k)[min(n, len(options(k)) - 1)]) for n in range(count)
    ]


def check(cases: Mapping[str, Case], most: int = 99) -> None:
    """Every case under every schedule."""
    made = {name: scheduled(case, most) for name, case in cases.items()}
    compiled(program for programs in made.values() for program in programs)
    found: dict[str, list[str]] = {}
    for name, programs in made.items():
        expected = programs[0].eager()
        for program in programs:
            if text := wrong(program.run(), expected, cases[name]):
                found.setdefault(name, []).append(f"{list(program.schedules.values())}: {text}")
    assert found == {}


def together(functions: Iterable[Callable[..., Any]], args: tuple[torch.Tensor, ...]) -> Case:
    """One program of many functions: one kernel, which is compiled once."""
    given = tuple(functions)
    return Case(lambda *args: tuple(function(*args) for function in given), args, zero=True)


def test_elementwise_operators() -> None:
    unary, binary = (
        [UNARY[name] for name in FEW_OPERATORS],
        [BINARY[name] for name in ("maximum", "bce_logits", "pow", "clamp")],
    )
    check({"unary": together(unary, (scalars(),)), "binary": together(binary, pairs())}, most=1)


@pytest.mark.slow
def test_all_elementwise_operators() -> None:
    check({name: Case(function, (scalars(),), zero=True) for name, function in UNARY.items()})
    check(
        {
            name: Case(function, pairs(), zero=True)
            for name, function in BINARY.items()
            if name not in NO_KERNEL
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_elementwise_operators_of_other_types(dtype: torch.dtype) -> None:
    relative = 0.05 if dtype is torch.bfloat16 else 1e-10
    check(
        {
            name: Case(function, (scalars(dtype),), relative, zero=True)
            for name, function in UNARY.items()
            if name not in ("half", "bfloat16", "log_softplus")
        },
        most=1,
    )


def test_rows_under_every_schedule() -> None:
    check({name: row_case(name, 37) for name in FEW})


@pytest.mark.slow
@pytest.mark.parametrize("length", [37, LONG])
def test_all_rows_under_every_schedule(length: int) -> None:
    check(
        {
            name: row_case(name, length)
            for name in ROWS
            if length == 37 or not name.startswith(("prod", "cumprod"))
        }
    )


def test_columns() -> None:
    check(
        {name: columns(row_case(name, 37)) for name in ("softmax", "amax", "argmin", "layer_norm")},
        most=3,
    )


@pytest.mark.slow
def test_all_columns_under_every_schedule() -> None:
    check({name: columns(row_case(name, 37)) for name in COLUMNS})


def test_max_pooling_under_every_schedule() -> None:
    names = ("max", "max_padded", "max_wide", "max_relu", "adaptive_max", "max1d", "avg_valid")
    check({name: Case(IMAGES[name], (image(),)) for name in names})


@pytest.mark.slow
def test_images_under_every_schedule() -> None:
    check({name: Case(function, (image(),)) for name, function in IMAGES.items()})


def test_products() -> None:
    check(
        {
            name: PRODUCTS[name]
            for name in (
                "linear_zeros",
                "skinny",
                "depthwise",
                "pointwise",
                "transposed_even",
                "collapsed",
            )
        },
        most=2,
    )


@pytest.mark.slow
def test_matmuls_under_every_schedule() -> None:
    check({name: case for name, case in PRODUCTS.items() if name not in LEFT})


def test_an_infinity_next_to_padded_weights_stays_with_torch() -> None:
    for name in LEFT:
        assert not set(own(capture(PRODUCTS[name].function, *PRODUCTS[name].args).graph)) & {
            "own_transposed",
            "own_transposed_finite",
        }


def test_recipes_that_change_the_weights_or_the_order_of_sums() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4)
    norm.running_mean.normal_()  # type: ignore[union-attr]
    norm.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    with torch.no_grad():
        norm.weight[1], norm.weight[2] = 0.0, -1.0

    class Collapsed(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).mean(-1, keepdim=True)

    one_sign = Collapsed(24, 5)
    with torch.no_grad():
        one_sign.weight[:, 0], one_sign.weight[:, -1], one_sign.weight[2, 12] = -0.5, 0.25, 0.0
    made = {
        "fold_batch_norm": (
            nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), norm, nn.ReLU()).eval(),
            image(),
        ),
        "collapse_linear_reduction": (one_sign, matrix(9, 24)),
        "recurrent_sequences": (nn.LSTM(24, 6), matrix(7, 24)[:, None].expand(7, 2, 24).clone()),
        "recurrent_cells": (nn.GRUCell(24, 6), matrix(7, 24)),
    }
    programs = {name: Program(module, x, recipes=own) for name, (module, x) in made.items()}
    compiled(programs.values())
    for name, program in programs.items():
        assert name in program.recipes
        assert wrong(program.run(), program.eager(), Case(nn.Identity(), (), 1e-4)) == "", name


def attention(name: str) -> Program:
    function, masks = ATTENTION[name]
    return Program(function, *ODD["usual"](), *masks, recipes=own)


@pytest.fixture(scope="module")
def attentions() -> dict[str, Program]:
    made = {name: attention(name) for name in ATTENTION}
    compiled(made.values())
    return made


@pytest.mark.parametrize("name", list(ATTENTION))
def test_masked_values_never_matter(name: str, attentions: dict[str, Program]) -> None:
    program = attentions[name]
    assert ("attention" in program.recipes) is (name != "zeroed")
    for case, make in ODD.items():
        args = (*make(), *program.args[3:])
        assert (
            wrong(program.run(*args), program.eager(*args), Case(nn.Identity(), (), 1e-4)) == ""
        ), case


PADDED = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, q, k, v, pad):
        s = (q @ k.transpose(-1, -2)) * 0.25
        return s.masked_fill(pad[:, None, None], float("-inf")).softmax(-1) @ v
"""


def test_a_drop_in_looks_at_its_operands_and_a_gpu_is_not_asked_to() -> None:
    pad = torch.zeros(2, 16, dtype=torch.bool)
    pad[:, 12:] = True
    q, k, v = (torch.randn(2, 4, 16, 16) for _ in range(3))
    found, model, candidate = drop_in(
        PADDED, q, k, v, pad, recipes=("attention", "fuse_pointwise", "fuse_rowwise")
    )
    assert "dvk_finite(" in candidate.source
    new = found.ModelNew()
    for value in (0.0, NAN, INF):
        k[:, :, 13] = value
        with torch.no_grad():
            assert not new(q, k, v, pad).isnan().any()
            torch.testing.assert_close(new(q, k, v, pad), model(q, k, v, pad))
    graph = capture(model, q, k, v, pad).graph
    assert not any(name.startswith("attention") for name in applicable(graph, "cuda", "triton"))
    assert "attention_finite" in applicable(graph, "cuda", "triton", inexact=True)


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.transpose(-1, -2) * 0.25).softmax(-1) @ v


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_scores_in_float16_overflow_so_that_a_gpu_keeps_them_unless_asked(
    dtype: torch.dtype,
) -> None:
    """The library's scores in float32 are finite where eager's are not."""
    q = torch.full((1, 2, 16, 16), 90.0, dtype=dtype)
    graph = capture(by_hand, q, q, q).graph
    assert by_hand(q, q, q).isnan().all() == (dtype is torch.float16)
    assert not nn.functional.scaled_dot_product_attention(q, q, q, scale=0.25).isnan().any()
    usual = [n for n in applicable(graph, "cuda", "triton") if n.startswith("attention")]
    assert usual == ([] if dtype is torch.float16 else ["attention"])
    assert "attention_finite" in applicable(graph, "cuda", "triton", inexact=True)
    assert "attention" in applicable(graph, "cpu", "cpp")


SCATTERS: dict[str, Callable[..., torch.Tensor]] = {
    "scatter": lambda x, i, s: (
        torch.scatter(x * 2, 1, i.clamp(max=0) + torch.arange(6).expand_as(i), s.exp()) + 1
    ),
    "scatter_add": lambda x, i, s: torch.scatter_add(x * 2, 1, i, s.exp() * 0.5).relu() + 1,
    "index_add": lambda x, i, s: torch.index_add(x * 2, 0, i[:, 0], s.exp() * 0.5).relu() + 1,
    "index_reduce": lambda x, i, s: (
        torch.index_reduce(x * 2, 0, i[:, 0], s.exp() * 0.5, "amin").relu() + 1
    ),
    **{
        f"scatter_reduce {how}": lambda x, i, s, how=how: (
            torch.scatter_reduce(x * 2, 1, i, s.exp() * 0.5, how).relu() + 1
        )
        for how in ("sum", "prod", "amax", "amin", "mean")
    },
}


@pytest.mark.slow
def test_sums_by_index_stay_with_pytorch_and_their_neighbours_fuse() -> None:
    torch.manual_seed(0)
    x, at, source = torch.randn(4, 6), torch.randint(0, 4, (4, 6)), torch.randn(4, 6)
    source[0, 0], source[1, 3], x[2, 2], x[3, 0] = NAN, INF, -INF, NAN
    programs = {name: Program(function, x, at, source) for name, function in SCATTERS.items()}
    compiled(programs.values())
    for name, program in programs.items():
        assert len(program.externs) == 1 and len(program.kernels) >= 2, name
        assert wrong(program.run(), program.eager(), Case(nn.Identity(), (), 1e-5)) == "", name


def test_an_infinity_in_a_row_of_rms_norm_matches_the_device() -> None:
    """PyTorch's GPU kernels update the mean, which turns the row into NaN, if they cannot read four elements at once."""
    for length, dtype, follows in (
        (37, torch.float32, True),
        (64, torch.float32, False),
        (64, torch.float64, True),
    ):
        graph = capture(
            lambda x: nn.functional.rms_norm(x, x.shape[1:]), torch.randn(3, length, dtype=dtype)
        ).graph
        for device in ("cpu", "cuda"):
            sums = [p for p in lower(graph, device=device).prims if p.kind == "reduce"]
            assert len(sums) == (2 if follows and device == "cuda" else 1)
