"""Reductions, softmax, norms and losses against PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.composer.programs import Program, compiled, differences

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
DTYPES = [
    pytest.param(
        dtype,
        marks=pytest.mark.slow if dtype in (torch.float64, torch.bfloat16) else (),
        id=str(dtype),
    )
    for dtype in FLOATS
]
WIDE = [
    pytest.param(dtype, marks=pytest.mark.slow if dtype is not torch.float32 else (), id=str(dtype))
    for dtype in FLOATS
]
INF, NAN = float("inf"), float("nan")
Made = list[tuple[str, Program]]


def check(made: Made, *, scale: float = 1.0, externs: frozenset[str] = frozenset()) -> None:
    """All programs agree with eager, and only `externs` stayed PyTorch calls."""
    compiled(program for _, program in made)
    wrong = {}
    for name, program in made:
        found = differences(
            program.run(),
            program.eager(),
            scale=scale,
            precision=program.args[0].dtype if program.args[0].is_floating_point() else None,
        )
        found += [
            f"stayed a call: {op}" for op in program.externs if op.split(".")[1] not in externs
        ]
        if found:
            wrong[name] = found
    assert wrong == {}


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


def test_norms_in_train_mode_stay_with_pytorch_and_agree() -> None:
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
    check(made, externs=frozenset({"batch_norm", "add_"}))


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


REDUCTIONS = ("none", "mean", "sum")


@pytest.mark.parametrize("dtype", WIDE)
def test_elementwise_losses(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    a, b, p = (
        torch.randn(6, 10).to(dtype),
        torch.randn(6, 10).to(dtype),
        torch.rand(6, 10).to(dtype),
    )
    q = torch.rand(6, 10).softmax(-1).to(dtype)
    w = torch.rand(10).to(dtype)
    p[0, :2], q[0, 0] = torch.tensor([0.0, 1.0]), 0
    made: Made = []
    for r in REDUCTIONS:
        k = {"reduction": r}
        made += [
            (
                f"{r} distance",
                Program(
                    lambda a, b, k=k: (
                        F.mse_loss(a, b, **k),
                        F.l1_loss(a, b, **k),
                        F.smooth_l1_loss(a, b, **k),
                        F.smooth_l1_loss(a, b, beta=0.3, **k),
                        F.huber_loss(a, b, **k),
                        F.huber_loss(a, b, delta=0.4, **k),
                        F.soft_margin_loss(a, b.sign(), **k),
                        F.mse_loss(a, b[:1], **k),
                    ),
                    a,
                    b,
                ),
            ),
            (
                f"{r} bce",
                Program(
                    lambda a, p, w, k=k: (
                        F.binary_cross_entropy_with_logits(a, p, **k),
                        F.binary_cross_entropy_with_logits(a, p, weight=w, **k),
                        F.binary_cross_entropy_with_logits(a, p, pos_weight=w, **k),
                        F.binary_cross_entropy(p, p * 0.5, **k),
                        F.binary_cross_entropy(p, p, weight=w, **k),
                    ),
                    a,
                    p,
                    w,
                ),
            ),
            (
                f"{r} made of others",
                Program(
                    lambda a, b, p, k=k: (
                        F.triplet_margin_loss(a, b, p, **k),
                        F.triplet_margin_loss(a, b, p, margin=0.3, swap=True, **k),
                        F.cosine_embedding_loss(a, b, b[:, 0].sign(), margin=0.1, **k),
                        F.hinge_embedding_loss(a, b.sign(), **k),
                        F.margin_ranking_loss(a, b, p - 0.5, margin=0.2, **k),
                        F.poisson_nll_loss(a, p, full=True, **k),
                        F.poisson_nll_loss(p + 0.1, p, log_input=False, **k),
                    ),
                    a,
                    b,
                    p,
                ),
            ),
            (
                f"{r} kl",
                Program(
                    lambda a, q, k=k: (F.kl_div(a, q, **k), F.kl_div(a, a, log_target=True, **k)),
                    a.log_softmax(-1),
                    q,
                ),
            ),
        ]
    made.append(
        (
            "batchmean",
            Program(lambda a, q: F.kl_div(a, q, reduction="batchmean"), a.log_softmax(-1), q),
        )
    )
    made.append(
        (
            "distances",
            Program(
                lambda a, b: (
                    F.cosine_similarity(a, b),
                    F.cosine_similarity(a, b, dim=0, eps=0.5),
                    F.pairwise_distance(a, b),
                    F.pairwise_distance(a, b, p=1, keepdim=True),
                    F.normalize(a, dim=0),
                    F.normalize(a, p=1),
                    torch.outer(input=a[0], vec2=b[:, 1]),
                    torch.kron(a, b[:2, :3]),
                    torch.poisson_nll_loss(
                        input=a, target=b.abs(), log_input=True, full=False, eps=1e-8, reduction=1
                    ),
                ),
                a,
                b,
            ),
        )
    )
    check(made, scale=2)


@pytest.mark.parametrize("dtype", WIDE)
def test_cross_entropy(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    x, image = torch.randn(6, 10).to(dtype), torch.randn(2, 5, 4, 3).to(dtype)
    target, targets = torch.randint(0, 10, (6,)), torch.randint(0, 5, (2, 4, 3))
    target[2], target[3], targets[0, 0, 0] = 3, -100, -100
    soft = torch.rand(6, 10).softmax(-1).to(dtype)
    made: Made = []
    for r in REDUCTIONS:
        k = {"reduction": r}
        made += [
            (
                f"{r} classes",
                Program(
                    lambda x, t, k=k: (
                        F.cross_entropy(x, t, **k),
                        F.cross_entropy(x, t, label_smoothing=0.1, **k),
                        F.nll_loss(x, t, **k),
                        F.nll_loss(x.log_softmax(-1), t, **k),
                    ),
                    x,
                    target,
                ),
            ),
            (
                f"{r} ignore_index",
                Program(
                    lambda x, t, k=k: (
                        F.cross_entropy(x, t, ignore_index=3, label_smoothing=0.2, **k),
                        F.nll_loss(x, t, ignore_index=3, **k),
                    ),
                    x,
                    target.clamp(min=0),
                ),
            ),
            (
                f"{r} image",
                Program(
                    lambda x, t, k=k: (
                        F.cross_entropy(x, t, **k),
                        F.cross_entropy(x, t, label_smoothing=0.1, **k),
                        F.nll_loss(x, t, **k),
                    ),
                    image,
                    targets,
                ),
            ),
            (
                f"{r} soft",
                Program(
                    lambda x, t, k=k: (
                        F.cross_entropy(x, t, **k),
                        F.cross_entropy(x, t, label_smoothing=0.3, **k),
                    ),
                    x,
                    soft,
                ),
            ),
        ]
    made.append(
        ("nothing counted", Program(lambda x, t: F.cross_entropy(x, t), x, torch.full((6,), -100)))
    )
    check(made, scale=2)


def test_weighted_cross_entropy_stays_with_pytorch() -> None:
    check(
        [
            (
                "weight",
                Program(
                    lambda x, t: F.cross_entropy(x, t, weight=torch.ones(10)) * 2,
                    torch.randn(6, 10),
                    torch.arange(6),
                ),
            )
        ],
        externs=frozenset({"cross_entropy_loss"}),
    )


def test_losses_of_unequal_dtypes_have_eagers_dtype() -> None:
    a, b = torch.randn(4, 5), torch.randn(4, 5).to(torch.bfloat16)
    check(
        [("mse", Program(lambda a, b: (F.mse_loss(a, b), F.l1_loss(a, b, reduction="none")), a, b))]
    )
    program = Program(lambda a, b: F.huber_loss(a, b, reduction="none"), a, b)
    assert differences(program.run(), program.eager()) == []
