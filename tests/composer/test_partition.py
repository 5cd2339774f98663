"""Fusion: how many kernels known patterns take, of which family, and that every kernel stays legal."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk.composer.fusion.groups import FusionGroup
from dvk.composer.fusion.partition import MAX_MEMBERS
from dvk.composer.ir.nodes import View
from tests.composer.programs import Program, compiled, differences, fused, out_of_bounds


class NormGeluResidual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.gelu(self.norm(x))


def rotary(x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return left * torch.sigmoid(right) + left.tanh()


def turned_heads(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    heads = x.view(5, 3, 8).transpose(0, 1)
    left, right = heads.chunk(2, -1)
    return heads * c + torch.cat((-right, left), -1)


def attention(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    mask = torch.tril(torch.ones(scores.shape[-2:], dtype=torch.bool))
    return scores.masked_fill(~mask, float("-inf")).softmax(-1)


def z_loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target, reduction="none") + 1e-4 * x.logsumexp(-1) ** 2


def r(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def families(kernels: list[Any]) -> str:
    """One letter per kernel: p(ointwise), r(ow), c(olumn)."""
    return "".join(k.family[0] for k in kernels)


PATTERNS: dict[str, tuple[Any, tuple[torch.Tensor, ...], str]] = {
    "activation chain": (lambda x: torch.tanh(F.gelu(x) * 2 + 1), (r(5, 7),), "p"),
    "broadcast bias and scale": (lambda x, b: F.relu(x + b) * b, (r(3, 4, 5), r(5)), "p"),
    "softmax": (lambda x: x.softmax(-1), (r(6, 9),), "r"),
    "softmax of columns": (lambda x: x.softmax(0), (r(6, 9),), "c"),
    "log softmax with a temperature and a mask": (
        lambda x, m: (x / 0.7).masked_fill(m > 0, -1e9).log_softmax(-1),
        (r(6, 9), r(9)),
        "r",
    ),
    "layer norm, gelu, residual": (NormGeluResidual(), (r(5, 24),), "r"),
    "rms norm": (lambda x: F.rms_norm(x, (8,), eps=1e-6) * 2, (r(5, 8),), "r"),
    "group norm and silu": (lambda x: F.silu(F.group_norm(x, 2)), (r(3, 4, 5, 6),), "r"),
    "instance norm": (lambda x: F.instance_norm(x).relu(), (r(3, 4, 5, 6),), "r"),
    "channel norm": (
        lambda x: (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1e-5).sqrt(),
        (r(3, 6, 5, 4),),
        "c",
    ),
    "normalize": (lambda x: F.normalize(x, dim=-1), (r(6, 9),), "r"),
    "cosine similarity": (lambda a, b: 1 - F.cosine_similarity(a, b), (r(6, 9), r(6, 9)), "r"),
    "loss to mean": (lambda x, y: F.mse_loss(torch.sigmoid(x), y), (r(6, 9), r(6, 9)), "r"),
    "cross entropy with z loss": (z_loss, (r(6, 9), torch.arange(6)), "r"),
    "cross entropy to mean": (
        lambda x, target: F.cross_entropy(x, target),
        (r(6, 9), torch.arange(6)),
        "rr",
    ),
    "linear epilogue": (nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Hardtanh()), (r(5, 6),), "p"),
    "linear and softmax": (nn.Sequential(nn.Linear(6, 8), nn.Softmax(-1)), (r(5, 6),), "r"),
    "two linears": (
        nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3), nn.Sigmoid()),
        (r(5, 6),),
        "pp",
    ),
    "masked attention scores": (attention, (r(2, 3, 5, 4), r(2, 3, 5, 4)), "r"),
    "halves of one value": (rotary, (r(5, 8),), "p"),
    "turned heads": (turned_heads, (r(5, 24), r(8)), "p"),
    "merged heads beside others": (
        lambda x, y: torch.cat((x.transpose(0, 1).reshape(3, 40), y), -1) + 1,
        (r(5, 3, 8), r(3, 4)),
        "p",
    ),
    "gates of a computed value": (
        lambda x: (lambda y: y[..., :4] * F.silu(y[..., 4:]))(F.relu(x) + 1),
        (r(5, 8),),
        "p",
    ),
    "transposed operand": (lambda x, y: F.relu(x.t()) + y, (r(5, 6), r(6, 5)), "p"),
    "transpose between": (lambda x: torch.tanh(F.relu(x).permute(2, 0, 1) * 2), (r(3, 4, 5),), "p"),
    "reshape splits a dimension": (
        lambda x: (F.relu(x).reshape(4, 3, 6) * 2).softmax(-1),
        (r(4, 18),),
        "r",
    ),
    "reshape merges dimensions": (
        lambda x: (F.relu(x) * 2).reshape(4, 30).softmax(-1),
        (r(4, 5, 6),),
        "r",
    ),
    "a row value used by its row": (
        lambda x: x * x.abs().amax(-1, keepdim=True).reciprocal(),
        (r(6, 9),),
        "r",
    ),
    "two reductions of one row": (lambda x: x.sum(-1) / x.amax(-1), (r(6, 9),), "r"),
    "reductions over different dimensions": (lambda x: x.sum(-1).softmax(0), (r(6, 9),), "rr"),
    "several outputs": (lambda x: (F.relu(x), F.relu(x) + 1, F.relu(x).sum(-1)), (r(6, 9),), None),
    "full reduction": (lambda x: (x * x).sum().sqrt(), (r(6, 9),), "r"),
    "double": (lambda x: x.double().softmax(-1).float(), (r(6, 9),), "r"),
}


@pytest.fixture(scope="module")
def patterns() -> dict[str, Program]:
    made = {name: Program(model, *args) for name, (model, args, _) in PATTERNS.items()}
    compiled(made.values())
    return made


@pytest.mark.parametrize("name", PATTERNS)
def test_known_patterns_fuse(patterns: dict[str, Program], name: str) -> None:
    program, expected = patterns[name], PATTERNS[name][2]
    if expected is not None:
        assert families(program.kernels) == expected
    assert [text for k in program.kernels for text in out_of_bounds(k)] == []
    assert differences(program.run(), program.eager()) == []


def test_library_calls_are_the_only_calls(patterns: dict[str, Program]) -> None:
    calls = {name: p.externs for name, p in patterns.items() if p.externs}
    assert calls == {
        "merged heads beside others": ["aten.cat.default"],
        "linear epilogue": ["aten.linear.default"],
        "linear and softmax": ["aten.linear.default"],
        "two linears": ["aten.linear.default"] * 2,
        "masked attention scores": ["aten.matmul.default"],
    }


def test_a_call_between_keeps_groups_apart() -> None:
    # Fusing the two pointwise parts would need the call's result before it could run: a cycle.
    program = Program(lambda x: (lambda y: y + y.roll(1, 0))(F.relu(x) * 2) * 3, r(5, 6))
    assert len(program.kernels) == 2 and differences(program.run(), program.eager()) == []


def test_schedule_runs_everything_after_its_operands() -> None:
    composition = fused(
        lambda x: (lambda y: (y.roll(1, 0) + y, (y * 2).flip(0) - y.sum(1, keepdim=True)))(
            x.softmax(0)
        ),
        r(5, 6),
    )
    done: set[int] = set()
    for step in composition.part.schedule:
        members = step.members if isinstance(step, FusionGroup) else [step]
        inside = {id(m) for m in members}
        for member in members:
            for operand in member.operands:
                if isinstance(operand, View) and operand.base.kind != "source":
                    assert id(operand.base) in done | inside
        done |= inside


def test_costly_values_are_not_computed_again_for_every_element_of_a_broadcast() -> None:
    wide = fused(
        lambda b: (
            torch.sin(torch.exp(torch.tanh(torch.erf(b.cos().log1p().expm1().exp2().sigmoid()))))[
                :, None
            ]
            * torch.ones(64)
        ),
        r(50),
    )
    assert len(wide.kernels) == 2
    narrow = fused(lambda b, x: torch.exp(b)[:, None] * x, r(50), r(50, 64))
    assert len(narrow.kernels) == 1


@pytest.mark.parametrize(
    "recipes,expected",
    [
        ((), 0),
        (("fuse_pointwise",), 1),
        (("fuse_rowwise",), 2),
        (("fuse_pointwise", "fuse_rowwise"), 1),
    ],
)
def test_recipes_select_operators_that_may_leave_pytorch(
    recipes: tuple[str, ...], expected: int
) -> None:
    program = Program(lambda x: F.relu(x) * 2 + x.softmax(-1), r(5, 6), recipes=recipes)
    assert len(program.kernels) <= max(expected, 1) if recipes else len(program.kernels) == 0
    assert differences(program.run(), program.eager()) == []


def test_unused_work_is_left_out_and_effects_are_kept() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        torch.softmax(x, -1).cumsum(0)
        torch.dropout(x, 0.5, True)
        return F.relu(x)

    program = Program(forward, r(5, 6))
    assert len(program.kernels) == 1 and program.externs == ["aten.dropout.default"]
    assert "dropout" in program.text and "cumsum" not in program.text


def test_a_long_chain_of_operators_is_one_kernel() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        for n in range(80):
            x = torch.sin(x) + n / 80
        return x

    composition = fused(forward, r(5, 6))
    assert len(composition.kernels) == 1


EMPTY: list[Callable[[torch.Tensor], Any]] = [
    lambda x: F.relu(x) + 1,
    lambda x: x.sum(0),
    lambda x: x[:, 3:3] * 2,
    lambda x: x.softmax(-1),
    lambda x: x.mean(),
]


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_tensors_without_elements_are_left_to_pytorch(shape: tuple[int, ...]) -> None:
    for function in EMPTY:
        program = Program(function, torch.empty(shape))
        assert all(k.num_rows * k.row_length for k in program.kernels)
        assert differences(program.run(), program.eager()) == []


@pytest.mark.parametrize("dtype", [torch.complex64, torch.uint16, torch.float8_e4m3fn])
def test_dtypes_without_registers_are_left_to_pytorch(dtype: torch.dtype) -> None:
    program = Program(lambda x: (x.clone(), x.t(), x.to(dtype).contiguous(), x + 1), r(3, 4))
    assert differences(program.run()[:2], program.eager()[:2]) == []
    other = Program(lambda x: (x.t().contiguous(), x.view(-1)[2:]), torch.ones(3, 4).to(dtype))
    assert (
        all(
            a.dtype == b.dtype and a.stride() == b.stride()
            for a, b in zip(other.run(), other.eager())
        )
        and not other.kernels
    )


VIEWS_OF_VIEWS: list[tuple[Callable[[torch.Tensor], Any], torch.Tensor]] = [
    (lambda x: x.reshape(4, 1, 3) + 1, r(2, 6)),
    (lambda x: x.t().reshape(3, 4) * 2, r(2, 6)),
    (lambda x: x.reshape(5, 3).t().reshape(5, 3) + x.view(5, 3), r(15)),
    (lambda x: x.permute(2, 0, 1).flatten(1).sum(0), r(2, 3, 4)),
    (lambda x: x.flip(0).reshape(3, 4).softmax(0), r(2, 6)),
    (lambda x: x.contiguous(memory_format=torch.channels_last).reshape(2, 4, 9) * 2, r(2, 6, 3, 2)),
    (lambda x: x.expand(3, 4).reshape(2, 6) + 1, r(1, 4)),
    (lambda x: (x * 2).reshape(3, 4).t().reshape(6, 2).cumsum(0) + 1, r(2, 6)),
    (lambda x: x[::2, 1:].select(1, -1) + x[0, 0], r(5, 4)),
    (lambda x: x.unfold(0, 3, 2).softmax(-1), r(9)),
    (lambda x: x.as_strided((2, 3), (1, 2)) * 2, r(9)),
    (lambda x: x.movedim((0, 1), (2, 0)) - 1, r(2, 3, 4)),
    (lambda x: x.narrow(1, 1, 2).mT.reshape(-1)[::3] * 2, r(2, 3, 4)),
    (lambda x: x.squeeze().unsqueeze(0).swapaxes(0, 2) + x.mT.squeeze(0).unsqueeze(-1), r(1, 3, 4)),
    (lambda x: torch.stack(x.unbind(1)).relu() + x.split([1, 3], 1)[1].sum(), r(3, 4)),
    (lambda x: x.diagonal() * 2 + x.sum(0), r(4, 4)),
]


@pytest.mark.slow
def test_chains_of_views_read_the_right_elements() -> None:
    programs = compiled(Program(function, x) for function, x in VIEWS_OF_VIEWS)
    for number, program in enumerate(programs):
        assert [text for k in program.kernels for text in out_of_bounds(k)] == [], number
        assert differences(program.run(), program.eager()) == [], number


@pytest.mark.slow
def test_a_loop_written_out_is_not_one_endless_kernel() -> None:
    """Its state goes through memory every few steps."""

    def scan(x: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
        state, found = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            state = torch.exp(-decay) * state + torch.tanh(x[:, t])
            found.append((state * decay).sum(-1))
        return torch.stack(found, 1)

    (program,) = compiled([Program(scan, r(3, 60, 8), torch.rand(8))])
    sizes = [len(kernel.instrs) for kernel in program.kernels]
    assert 2 <= len(sizes) <= 4 and max(sizes) <= 2 * MAX_MEMBERS, "loads come on top"
    assert differences(program.run(), program.eager()) == []


def test_a_product_at_the_end_of_an_endless_loop_stays_whole() -> None:
    """If apart from their sums, all multiplications of the program would be left to PyTorch."""

    def chain(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        other = x @ x.T
        for _ in range(MAX_MEMBERS - 1):
            x = torch.tanh(x)
        return x @ y, other

    families = {
        k.family
        for k in fused(chain, r(6, 5), r(5, 1), recipes=("fuse_pointwise", "own_matmul")).ordered
    }
    assert families == {"product"}


def test_calls_with_an_effect_keep_their_order_whatever_fuses_around_them() -> None:
    """`g`, its readers and the second draw cannot be one kernel: the first draw reads `g`."""

    def draws(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        g = torch.tanh(x)
        return torch.bernoulli(torch.sigmoid(g)), (g + torch.rand_like(x)) * 2

    def writes(x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x[0])
        x[0].add_(y)
        y = y + torch.tanh(x[1])
        x[1].add_(y)
        return y + x.sum()

    for program in compiled([Program(draws, r(3, 8)), Program(writes, r(3, 8))]):
        x = program.args[0].clone()
        torch.manual_seed(0)
        got = program.run()
        program.args = (x,)
        torch.manual_seed(0)
        assert differences(got, program.eager()) == []
