"""Values drawn inside forward: under equal seeds a drop-in draws what eager draws, in its order, and leaves the generator where it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.composer.programs import Function, Program, compiled, differences, drop_in

Draw = Callable[..., Any]


def unread(x: torch.Tensor) -> torch.Tensor:
    torch.rand_like(x)
    x.clone().normal_()
    F.dropout(x, 0.5)
    return torch.rand(3, 4) + x


def interleaved(x: torch.Tensor) -> torch.Tensor:
    late = torch.tanh(x) * 2 + 1
    first = torch.randn(3, 4)
    second = F.dropout(late, 0.3)
    third = torch.rand_like(x)
    return first * third + second.exp() - late.sum(-1, keepdim=True)


def on_views(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x)
    y[:, :2].normal_()
    y[0].uniform_(-1, 1)
    y.t()[3].random_(5)
    return y * 2 + x


def repeated(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.5) + F.dropout(x, 0.5) * 2


def of_layout(x: torch.Tensor) -> torch.Tensor:
    return torch.rand_like((x.t() * 2).exp()) + F.dropout(x.t() + 1, 0.4)


def without_training(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(torch.sigmoid(x), 0.5, training=False) + F.rrelu(x) + torch.rand_like(x)


DRAWS: dict[str, Draw] = {
    "rand_like": lambda x: torch.rand_like(x) * x + 1,
    "randn": lambda x: torch.randn(x.shape) + torch.exp(x),
    "randint": lambda x: x + torch.randint(0, 9, x.shape),
    "randint_like": lambda x: x * torch.randint_like(x, 3),
    "normal": lambda x: torch.normal(x, 2.0) + torch.normal(0.0, 1.0, (3, 4)),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()) * x,
    "bernoulli of a number": lambda x: torch.bernoulli(x, 0.3) * x.exp(),
    "bernoulli_": lambda x: torch.empty_like(x).bernoulli_(0.4) * x,
    "exponential_": lambda x: -torch.empty_like(x).exponential_().log() + x,
    "geometric_": lambda x: torch.empty_like(x).geometric_(0.4) + x,
    "cauchy_ log_normal_": lambda x: (
        torch.empty_like(x).cauchy_().atan() + torch.empty_like(x).log_normal_()
    ),
    "poisson": lambda x: torch.poisson(x.abs()) * 2 + x,
    "binomial": lambda x: torch.binomial(x.abs().round(), x.sigmoid()) + x,
    "multinomial": lambda x: torch.multinomial(torch.softmax(x, -1), 2) + 1,
    "randperm": lambda x: x[torch.randperm(3)] * 2,
    "rrelu": lambda x: F.rrelu(x, training=True) * 2,
    "dropout": lambda x: F.dropout(x * 2, 0.3) + 1,
    "dropout in place": lambda x: F.dropout(x * 2, 0.3, inplace=True) + 1,
    "dropout1d": lambda x: F.dropout1d(x[None], 0.5) + x,
    "dropout2d": lambda x: F.dropout2d(x[None, None].expand(2, 3, 3, 4) * 2, 0.5) + 1,
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, True) * 2,
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x[None], 0.5, True) * 2,
    "gumbel_softmax": lambda x: F.gumbel_softmax(x * 2, tau=0.7),
    "gumbel_softmax hard": lambda x: F.gumbel_softmax(x, hard=True) * 2,
    "attention": lambda x: (
        F.scaled_dot_product_attention(
            x[None, None], x[None, None], x[None, None] + 1, dropout_p=0.3
        )
        * 2
    ),
    "fractional_max_pool": lambda x: (
        F.fractional_max_pool2d(x[None, None], 2, output_size=(2, 2)) + 1
    ),
    "unread": unread,
    "interleaved": interleaved,
    "on views": on_views,
    "repeated": repeated,
    "of layout": of_layout,
    "without training": without_training,
}
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(4, 5, 2, dropout=0.4),
    "rnn": lambda: nn.RNN(4, 5, 3, dropout=0.4, nonlinearity="relu"),
    "encoder": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3),
    "dropouts": lambda: nn.Sequential(
        nn.Linear(4, 4), nn.Dropout(0.3), nn.GELU(), nn.AlphaDropout(0.2), nn.RReLU()
    ),
}


def drawn(
    function: Callable[..., Any], *args: torch.Tensor
) -> tuple[Any, Any, torch.Tensor, torch.Tensor]:
    """Two calls, their arguments afterwards, and the generator's state."""
    args = tuple(a.clone() for a in args)
    torch.manual_seed(11)
    with torch.no_grad():
        first, second = function(*args), function(*args)
    return first, second, args[0], torch.get_rng_state()


def unlike(
    program: Callable[..., Any], eager: Callable[..., Any], *args: torch.Tensor
) -> list[str]:
    got, want = drawn(program, *args), drawn(eager, *args)
    return differences(got[:3], want[:3]) + (
        [] if torch.equal(got[3], want[3]) else ["the generator's state"]
    )


@pytest.mark.slow
def test_under_equal_seeds_draws_are_eagers() -> None:
    x = torch.randn(3, 4)
    made = {name: Program(Function(draw), x) for name, draw in DRAWS.items()}
    made |= {name: Program(layer().train(), x) for name, layer in LAYERS.items()}
    compiled(made.values())
    wrong = {name: unlike(program.run, program.module, x) for name, program in made.items()}
    assert {name: text for name, text in wrong.items() if text} == {}
    fused = {name for name, program in made.items() if program.kernels}
    assert len(fused) > len(made) * 3 // 4


def test_a_drop_in_draws_for_each_of_its_calls() -> None:
    source = """\
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        noise = torch.randn_like(x)
        return F.dropout(torch.tanh(x) + noise, 0.5, training=True) * 2
"""
    x = torch.randn(8, 16)
    module, model, _ = drop_in(source, x)
    assert unlike(module.ModelNew(), model, x) == []
    torch.manual_seed(11)
    first, second, *_ = drawn(model, x)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    "draw", [lambda x: F.rrelu(x, 0.1, 0.5), lambda x: F.dropout(x, 0.5, training=False) * 2]
)
def test_operators_without_draws_leave_pytorch(draw: Draw) -> None:
    assert Program(Function(draw), torch.randn(3, 4)).externs == []
