"""Values for which eager PyTorch raises: a drop-in raises as well, or gives NaN (0 in types without) in their elements alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.composer.programs import Function, Program, compiled

X = torch.linspace(0.1, 0.9, 12).reshape(3, 4)
CLASSES = torch.tensor([0, 3, 1])
BEYOND = torch.tensor([0, 4, 1])
RAISING: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "one_hot": (lambda x, t: F.one_hot(t, 4) * x + 1, (X, CLASSES), (X, BEYOND)),
    "integer division": (
        lambda x, n: x + (n // (n + 1)) * 2,
        (X, torch.arange(4)),
        (X, torch.arange(-1, 3)),
    ),
    "integer remainder": (
        lambda x, n: x + (n % (n + 1)) * 2,
        (X, torch.arange(4)),
        (X, torch.arange(-1, 3)),
    ),
    "multinomial": (lambda x: torch.multinomial(x * 2, 2) + 1, (X,), (X - 0.5,)),
    "bernoulli": (lambda x: torch.bernoulli(x) * 2 + x, (X,), (X + 0.5,)),
    "assertion": (
        lambda x: torch._assert_async((x > 0).all(), "positive") or x.log() * 2,
        (X,),
        (X - 0.5,),
    ),
}
GIVING_NAN: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...], list[int]]] = {
    "cross_entropy": (
        lambda x, t: F.cross_entropy(x, t, reduction="none") * 2,
        (X, CLASSES),
        (X, BEYOND),
        [1],
    ),
    "negative class": (
        lambda x, t: F.cross_entropy(x, t, reduction="none") * 2,
        (X, CLASSES),
        (X, torch.tensor([-1, 0, -100])),
        [0],
    ),
    "nll_loss": (
        lambda x, t: F.nll_loss(x, t, reduction="none") * 2,
        (X, CLASSES),
        (X, BEYOND),
        [1],
    ),
    "binary_cross_entropy": (
        lambda x, t: F.binary_cross_entropy(x, t, reduction="none") * 2,
        (X, X.flip(1)),
        (X, torch.tensor([0.0, 1.0, 1.01, -0.01]).expand(3, 4).contiguous()),
        [2, 3, 6, 7, 10, 11],
    ),
    "of no probability": (
        lambda x, t: F.binary_cross_entropy(x, t, reduction="none") * 2,
        (X, X.flip(1)),
        (torch.tensor([0.0, 1.0, 1.01, -0.01]).expand(3, 4).contiguous(), X),
        [2, 3, 6, 7, 10, 11],
    ),
    "gaussian_nll_loss": (
        lambda x, t, v: F.gaussian_nll_loss(x, t, v, reduction="none") * 2,
        (X, X.flip(1), X),
        (X, X.flip(1), torch.tensor([1.0, -1.0, 0.5, 0.0]).expand(3, 4).contiguous()),
        [1, 5, 9],
    ),
    "embedding": (
        lambda i, w: F.embedding(i, w)[:, 0] * 2,
        (CLASSES, X.t().contiguous()),
        (BEYOND, X.t().contiguous()),
        [1],
    ),
    "gather": (
        lambda x, i: torch.gather(x, 1, i)[:, 0] * 2,
        (X, CLASSES[:, None]),
        (X, BEYOND[:, None]),
        [1],
    ),
    "index_select": (
        lambda x, i: torch.index_select(x, 1, i)[0] * 2,
        (X, CLASSES),
        (X, BEYOND),
        [1],
    ),
    "index": (lambda x, i: x[:, i][0] * 2, (X, CLASSES), (X, BEYOND), [1]),
}


def made(table: dict[str, Any]) -> dict[str, Program]:
    found = {name: Program(Function(row[0]), *row[1]) for name, row in table.items()}
    compiled(found.values())
    return found


@pytest.fixture(scope="module")
def raising() -> dict[str, Program]:
    return made(RAISING)


@pytest.fixture(scope="module")
def giving() -> dict[str, Program]:
    return made(GIVING_NAN)


@pytest.mark.parametrize("name", RAISING)
@pytest.mark.slow
def test_calls_that_eager_refuses_are_refused(raising: dict[str, Program], name: str) -> None:
    program, bad = raising[name], RAISING[name][2]
    assert program.kernels
    program.run()
    with pytest.raises(RuntimeError):
        program.eager(*bad)
    with pytest.raises(RuntimeError):
        program.run(*bad)


@pytest.mark.parametrize("name", GIVING_NAN)
def test_where_a_kernel_cannot_raise_there_is_nan_and_nowhere_else(
    giving: dict[str, Program], name: str
) -> None:
    program, (_, good, bad, at) = giving[name], GIVING_NAN[name]
    assert program.kernels and not program.externs
    torch.testing.assert_close(program.run(*good), program.eager(*good))
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        program.eager(*bad)
    assert program.run(*bad).flatten().isnan().nonzero().flatten().tolist() == at
