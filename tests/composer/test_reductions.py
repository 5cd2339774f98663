"""Reductions, softmax, norms and losses against PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.composer.agreement import FLOATS, WIDE, Made, check
from tests.composer.programs import Program, compiled

DTYPES = [
    pytest.param(
        dtype,
        marks=pytest.mark.slow if dtype in (torch.float64, torch.bfloat16) else (),
        id=str(dtype),
    )
    for dtype in FLOATS
]
INF, NAN = float("inf"), float("nan")


def dims_of(rank: int) -> Iterator[tuple[list[int], bool]]:
    for count in range(rank + 1):
        for dims in itertools.combinations(range(rank), count):
            for keepdim in (False, True):
                yield list(dims), keepdim


def reduce_all(dims: list[int], keepdim: bool) -> Callable[[torch.Tensor], Any]:
    some = dims or None
    every = dims or [0, 1, 2]

    def forward(x: torch.Tensor) -> Any:
        found = [
            x.sum(some, keepdim),
            x.mean(some, keepdim),
            x.amax(dims, keepdim),
            x.amin(dims, keepdim),
            x.std(some, keepdim=keepdim),
            torch.linalg.vector_norm(x, 2, some, keepdim),
            torch.logsumexp(x, every, keepdim),
            x.abs().sum(every, keepdim),
        ]
        return (*found, x.prod(dims[0], keepdim)) if len(dims) == 1 else tuple(found)

    return forward


@pytest.mark.slow
def test_every_combination_of_dimensions_with_and_without_keepdim() -> None:
    x = torch.randn(3, 4, 3)
    check(
        [
            (f"{dims} {keepdim}", Program(reduce_all(dims, keepdim), x))
            for dims, keepdim in dims_of(3)
        ]
    )


LAYOUTS: list[tuple[str, Callable[[], torch.Tensor]]] = [
    ("transposed", lambda: torch.randn(4, 3, 2).permute(2, 1, 0)),
    ("sliced", lambda: torch.randn(4, 6, 5)[::2, 1:]),
    ("expanded", lambda: torch.randn(4, 1, 5).expand(4, 3, 5)),
    ("ones", lambda: torch.randn(1, 3, 1)),
    ("all ones", lambda: torch.randn(1, 1, 1)),
    ("long row", lambda: torch.randn(2, 70_001)),
    ("tall", lambda: torch.randn(5000, 3)),
    ("many", lambda: torch.randn(300, 40)),
    ("vector", lambda: torch.randn(9000)),
    ("5-D", lambda: torch.randn(2, 3, 2, 3, 2)),
]


@pytest.mark.slow
def test_layouts_and_sizes() -> None:
    made: Made = []
    for name, make in LAYOUTS:
        x = make()
        for dims in {(0,), (x.dim() - 1,), tuple(range(x.dim()))}:
            made.append(
                (
                    f"{name} {dims}",
                    Program(
                        lambda x, dims=dims: (
                            x.sum(dims),
                            x.amax(dims, True),
                            x.var(dims, correction=0),
                            x.mean(dims) * 2,
                        ),
                        x,
                    ),
                )
            )
    check(made)


@pytest.mark.slow
def test_whole_tensor_forms_and_other_signatures() -> None:
    made: Made = []
    for dtype in FLOATS:
        x = torch.randn(3, 4, 5).to(dtype)
        made.append(
            (
                str(dtype),
                Program(
                    lambda x: (
                        x.sum(),
                        x.mean(),
                        x.max(),
                        x.min(),
                        x.std(),
                        x.var(),
                        x.prod(),
                        x.norm(),
                        x.norm(p=1),
                        x.norm(p=INF),
                        x.norm(dim=1),
                        torch.norm(x, 2, (0, 2)),
                        x.var(1, correction=2),
                        x.std((0, 1), correction=0),
                        x.var(0, unbiased=False),
                        torch.var_mean(x, dim=-1),
                        torch.std_mean(x, dim=(0, 2), correction=0, keepdim=True),
                        x.max(-1).values,
                        x.min(0, keepdim=True)[0],
                        x.sum(-1, dtype=torch.float64),
                        x.mean((0, 1), dtype=torch.float32),
                        x.softmax(-1, dtype=torch.float32),
                        x[:, :1].expand(3, 4, 5).prod(1),
                        x[:, :1].expand(3, 4, 5).sum(1),
                        x[:, :, :1].expand(3, 4, 5).amax(2),
                        x.sum(-2).sum(-1),
                    ),
                    x,
                ),
            )
        )
    check(made)


def test_positions_of_a_maximum_stay_with_pytorch_without_a_recipe_for_them() -> None:
    both = Program(
        lambda x: (x.max(1)[0] * 2, x.max(1)[1]),
        torch.randn(3, 4),
        recipes=("fuse_pointwise", "fuse_rowwise"),
    )
    check([("both", both)], externs=frozenset({"max"}))


def test_integers_and_booleans() -> None:
    made: Made = []
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool):
        x = torch.randint(0, 2 if dtype is torch.bool else 90, (5, 6)).to(dtype)
        made.append(
            (
                str(dtype),
                Program(
                    lambda x: (
                        x.sum(),
                        x.sum(-1),
                        x.sum(0, True),
                        x.sum(1, dtype=torch.float32),
                        x.float().mean(0),
                        (x > 0).sum(1),
                        (x == 1).float().mean(),
                    ),
                    x,
                ),
            )
        )
    check(made)


def special(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(4, 6, 5).to(dtype)
    some_nan, some_inf, rows = x.clone(), x.clone(), x.clone()
    some_nan[torch.rand_like(x) < 0.1] = NAN
    some_inf[torch.rand_like(x) < 0.3] = -INF
    rows[0, 0], rows[1, 1], rows[2, 2] = -INF, INF, NAN
    large = x * {torch.float16: 6e3, torch.bfloat16: 1e30}.get(dtype, 1e30)
    return {
        "nan": some_nan,
        "-inf": some_inf,
        "rows": rows,
        "large": large,
        "zero": x * 0,
        "equal": x * 0 + 3,
        "small": x * 1e-3,
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.slow
def test_special_values(dtype: torch.dtype) -> None:
    made: Made = []
    for name, x in special(dtype).items():
        made.append(
            (
                name,
                Program(
                    lambda x: (
                        x.sum(-1),
                        x.amax(-1),
                        x.amin(1),
                        x.softmax(-1),
                        x.log_softmax(1),
                        x.logsumexp(-1),
                        x.logsumexp((1, 2)),
                        x.max(),
                        x.amax(0),
                    ),
                    x,
                ),
            )
        )
        if name != "large" and not (
            name == "zero" and dtype is torch.float16
        ):  # eager's ε of 1e-12 is 0 in float16
            made.append(
                (
                    f"{name} spread",
                    Program(
                        lambda x: (
                            x.std(-1),
                            x.var(0, correction=0),
                            F.layer_norm(x, (5,)),
                            F.normalize(x, dim=1),
                            x.mean((0, 2)),
                        ),
                        x,
                    ),
                )
            )
    check(made, scale=2)


def test_softmax_along_every_dimension() -> None:
    made: Made = []
    for dtype in FLOATS:
        x = torch.randn(3, 4, 5, 2).to(dtype)
        made.append(
            (
                str(dtype),
                Program(
                    lambda x: (
                        *(x.softmax(d) for d in range(4)),
                        *(x.log_softmax(d) for d in range(-4, 0)),
                        F.softmin(x, -1),
                    ),
                    x,
                ),
            )
        )
    check(made)


NORMS: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (lambda: nn.LayerNorm(4), (3, 6, 5, 4)),
    (lambda: nn.LayerNorm((5, 4)), (3, 6, 5, 4)),
    (lambda: nn.LayerNorm(4, elementwise_affine=False), (3, 6, 4)),
    (lambda: nn.LayerNorm(4, bias=False, eps=0.1), (7, 4)),
    (lambda: nn.RMSNorm(4, eps=1e-6), (3, 6, 4)),
    (lambda: nn.RMSNorm(4), (3, 6, 4)),
    (lambda: nn.RMSNorm((6, 4), elementwise_affine=False), (3, 6, 4)),
    (lambda: nn.GroupNorm(3, 6), (3, 6, 5, 4)),
    (lambda: nn.GroupNorm(6, 6), (3, 6, 5, 4)),
    (lambda: nn.GroupNorm(1, 6, affine=False), (3, 6, 5, 4)),
    (lambda: nn.GroupNorm(3, 6), (3, 6)),
    (lambda: nn.GroupNorm(6, 6), (3, 6)),
    (lambda: nn.GroupNorm(2, 6), (2, 6, 7)),
    (lambda: nn.InstanceNorm2d(6), (3, 6, 5, 4)),
    (lambda: nn.InstanceNorm1d(6, affine=True), (3, 6, 5)),
    (lambda: nn.InstanceNorm2d(6, track_running_stats=True).eval(), (3, 6, 5, 4)),
    (lambda: nn.BatchNorm2d(6).eval(), (3, 6, 5, 4)),
    (lambda: nn.BatchNorm1d(6, affine=False).eval(), (3, 6)),
    (lambda: nn.BatchNorm3d(6, eps=0.1).eval(), (2, 6, 2, 3, 2)),
]


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.slow
def test_norms_in_every_layout(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    made: Made = []
    for make, shape in NORMS:
        module = make().to(dtype)
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if tensor.is_floating_point():
                nn.init.uniform_(tensor, 0.5, 2.0) if "var" in name else nn.init.normal_(tensor)
        x = (torch.randn(shape) * 2 + 1).to(dtype)
        made.append((f"{module} {shape}", Program(module, x)))
        if len(shape) == 4:
            made.append(
                (
                    f"{module} {shape} channels last",
                    Program(module, x.contiguous(memory_format=torch.channels_last)),
                )
            )
    check(made, scale=2)


def test_batch_norms_by_the_batch_are_kernels_and_agree() -> None:
    made: Made = [
        ("batch", Program(nn.Sequential(nn.BatchNorm1d(4), nn.ReLU()), torch.randn(6, 4))),
        (
            "no statistics",
            Program(
                nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False).eval(), nn.ReLU()),
                torch.randn(6, 4),
            ),
        ),
    ]
    check(made, externs=frozenset({"_foreach_lerp_", "_foreach_add_"}))


def test_variance_keeps_its_digits_far_from_zero() -> None:
    x = torch.randn(8, 4096) + 1000
    program = Program(lambda x: (x.var(-1), x.std(0), F.layer_norm(x, (4096,))), x)
    for got, want in zip(program.run(), program.eager(x.double())):
        # The mean rounds by 6e-5 at each of a few steps; squares that lost the digits would be off by 0.06.
        assert (got.double() - want).abs().max() <= 5e-4 * want.pow(2).mean().sqrt()


def test_sums_of_long_rows_keep_their_digits() -> None:
    x = torch.rand(1, 3_000_000)
    program = Program(lambda x: (x.sum(-1), x.mean(), (x * x).sum()), x)
    for got, want in zip(program.run(), program.eager(x.double())):
        assert torch.allclose(got.double(), want, rtol=1e-6)


def test_cosine_similarity_of_rows_whose_norm_overflows_is_zero_as_in_pytorch() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(2, 6, 9)
    program = Program(F.cosine_similarity, a, b)
    compiled([program])
    for x, y in ((a, b), (a * 1e19, b * 1e19), (a * 1e30, b), (a * torch.nan, b), (a / 0, b)):
        torch.testing.assert_close(
            program.run(x, y), F.cosine_similarity(x, y), atol=1e-6, rtol=1e-5, equal_nan=True
        )
