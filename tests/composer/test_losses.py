"""Losses against PyTorch: per element, per row, weighted, of unequal dtypes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.composer.agreement import WIDE, Made, check
from tests.composer.programs import Program, differences

REDUCTIONS = ("none", "mean", "sum")


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.slow
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
@pytest.mark.slow
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
