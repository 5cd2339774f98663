"""Pointwise operators on integers, booleans, mixed dtypes and numbers outside a dtype; tensors made in forward; broadcasts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from dvk.composer.ir.nodes import rounded
from tests.composer.pointwise_operands import INF, INTEGERS, NAN, All, Operator
from tests.composer.programs import Program, compiled, differences

INTEGER: dict[str, Operator] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "x + 2": lambda x: x + 2,
    "x * 3": lambda x: x * 3,
    "7 - x": lambda x: 7 - x,
    "x + 0.5": lambda x: x + 0.5,
    "x / 3": lambda x: x / 3,
    "x < 2": lambda x: x < 2,
    "x == 1.5": lambda x: x == 1.5,
    "x >= 2": lambda x: x >= 2,
    "clamp": lambda x: x.clamp(1, 3),
    "square": torch.square,
    "not": torch.logical_not,
    "where": lambda x: torch.where(x > 1, x, 0),
    "to float": lambda x: x.to(torch.float32) * 0.5,
    "to half": lambda x: x.to(torch.float16),
    "to bool": lambda x: x.bool(),
    "to int64": lambda x: x.long(),
    "to int32": lambda x: x.int(),
    "sqrt": torch.sqrt,
    "exp": torch.exp,
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "relu": F.relu,
    "masked_fill": lambda x: x.masked_fill(x > 2, 1),
    "sign": torch.sign,
    "add alpha": lambda x: torch.add(x, x, alpha=3),
    "clone": torch.clone,
    "tril": torch.tril,
    "triu": lambda x: torch.triu(x, 1),
    "pow": lambda x: x**2,
    "x % 3": lambda x: x % 3,
    "fmod 3": lambda x: torch.fmod(x, 3),
    "x // 3": lambda x: x // 3,
    "div trunc": lambda x: torch.div(x, 4, rounding_mode="trunc"),
    "x & 6": lambda x: x & 6,
    "x | y": lambda x: x | x.flip(0),
    "x ^ 5": lambda x: x ^ 5,
    "~x": lambda x: ~x,
    "x << 2": lambda x: x << 2,
    "x >> 1": lambda x: x >> 1,
    "x << y": lambda x: x << x.flip(0),
    "x >> y": lambda x: x >> x.flip(0),
    "x >> 70": lambda x: torch.bitwise_right_shift(x, 70),
    "signbit": torch.signbit,
    "logical_xor": lambda x: torch.logical_xor(x, x.flip(0)),
    "sin": torch.sin,
    "fmax": lambda x: torch.fmax(x, x.flip(0)),
    "any": lambda x: (x > 4).any(1),
    "all": lambda x: (x > -2).all(0),
    "count_nonzero": lambda x: torch.count_nonzero(x, 1),
}
BOOLEAN: dict[str, Operator] = {
    "not": lambda x: ~x,
    "and": lambda x: x & x.flip(0),
    "or": lambda x: x | x.flip(0),
    "logical_not": torch.logical_not,
    "x == 2": lambda x: x == 2,
    "x < 2": lambda x: x < 2,
    "x + x": lambda x: x + x,
    "x * x": lambda x: x * x.flip(0),
    "x * 2": lambda x: x * 2,
    "x + 0.5": lambda x: x + 0.5,
    "to float": lambda x: x.float(),
    "where": lambda x: torch.where(x, 1.5, -1.5),
    "x == True": lambda x: torch.eq(x, True),
    "tril": torch.tril,
    "to int64": lambda x: x.long() - 1,
    "masked_fill": lambda x: x.masked_fill(x.flip(0), True),
    "xor": lambda x: x ^ x.flip(0),
    "logical_xor": lambda x: torch.logical_xor(x, x.flip(0)),
    "any": lambda x: x.any(1, keepdim=True),
    "all": lambda x: x.all(),
    "count_nonzero": torch.count_nonzero,
    "signbit": torch.signbit,
    "ones_like": torch.ones_like,
}


@pytest.mark.slow
def test_integers_and_booleans() -> None:
    made = []
    for dtype in (*INTEGERS, torch.bool):
        table = BOOLEAN if dtype is torch.bool else INTEGER
        low = 0 if dtype in (torch.uint8, torch.bool) else -3
        x = torch.randint(low, 2 if dtype is torch.bool else 6, (5, 6)).to(dtype)
        made.append((dtype, table, Program(All(list(table.values())), x)))
    compiled(p for _, _, p in made)
    for dtype, table, program in made:
        assert [
            op for op in program.externs if op.split(".")[1] not in ("sign", "flip", "pow")
        ] == [], dtype
        for name, got, want in zip(table, program.run(), program.eager()):
            assert differences(got, want) == [], (name, dtype)


MIXED = [
    (torch.float32, torch.float64),
    (torch.float16, torch.bfloat16),
    (torch.float16, torch.float32),
    (torch.int64, torch.float16),
    (torch.uint8, torch.int8),
    (torch.int32, torch.int64),
    (torch.bool, torch.int64),
    (torch.bool, torch.float32),
    (torch.uint8, torch.int16),
    (torch.int8, torch.int32),
]


@pytest.mark.slow
def test_operands_of_different_dtypes_promote_as_in_pytorch() -> None:
    functions = [
        torch.add,
        torch.mul,
        torch.eq,
        torch.lt,
        lambda x, y: torch.where(x > y, x, y),
        lambda x, y: x + y.flatten()[0],
        torch.logical_or,
        torch.maximum,
    ]
    made = []
    for a, b in MIXED:
        x, y = (
            torch.tensor([0, 1, 2, 100, 200, 3]).to(a),
            torch.tensor([0, 1, 3, -56, 127, 3]).to(b),
        )
        made.append(Program(All(functions), x, y))
    for program, pair in zip(compiled(made), MIXED):
        for number, (got, want) in enumerate(zip(program.run(), program.eager())):
            assert differences(got, want) == [], (pair, number)


BEYOND: list[Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]] = [
    lambda x, t, big: torch.where(x > 0, big, x) / big,
    lambda x, t, big: torch.where(x > 0, x, -big) / big,
    lambda x, t, big: torch.where(x > 0, t, x) / big,
    lambda x, t, big: torch.where(x > 0, torch.tensor(big), x) / big,
    lambda x, t, big: torch.maximum(x, t) / big,
    lambda x, t, big: torch.max(x, t) / big,
    lambda x, t, big: x.clamp(t) / big,
    lambda x, t, big: torch.nan_to_num(x / 0, 0, big, -big) / big,
    lambda x, t, big: torch.nan_to_num(x / 0 * 0, big) / big,
    lambda x, t, big: (torch.scalar_tensor(big, dtype=x.dtype) + x) / big,
    lambda x, t, big: torch.pow(big, x - 1) / big,
    lambda x, t, big: torch.where(x > 0, 0.3, x) * 1024,
    lambda x, t, big: (torch.full_like(x, 1e-60) + x) / torch.full_like(x, 1e-60),
    lambda x, t, big: (x * torch.inf) ** -1e-60,
    lambda x, t, big: x / 0 > t,
    lambda x, t, big: x + 1024 >= torch.arange(1024, 1030),
]
"""With numbers outside fp16, which eager rounds to the nearest fp16 value, and to infinity if too large."""


@pytest.mark.parametrize("dtype, big", [(torch.float16, 1e6), (torch.bfloat16, 3.4e38)])
@pytest.mark.slow
def test_numbers_outside_fp16_match_eager(dtype: torch.dtype, big: float) -> None:
    x = torch.tensor([-2.0, -0.5, 0.0, 0.5, 1.0, 2.0]).to(dtype)
    made = [
        Program(lambda x, t, f=f: f(x, t, big), x, torch.tensor(big, dtype=torch.float64))
        for f in BEYOND
    ]
    for number, program in enumerate(compiled(made)):
        assert differences(program.run(), program.eager()) == [], number
        assert not program.externs


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clamp(min=torch.nan),
        lambda x: x.clamp(max=torch.nan),
        lambda x: x**torch.inf,
        lambda x: x**-torch.inf,
        lambda x: x**torch.nan,
        lambda x: torch.pow(torch.inf, x),
    ],
)
def test_non_finite_numbers_match_eager(function: Operator) -> None:
    program = Program(lambda x: function(x) + 1, torch.tensor([-2.0, -0.5, 0.0, 1.0, 2.0]))
    assert differences(program.run(), program.eager()) == []


MADE: list[Operator] = [
    lambda x: x + torch.arange(6),
    lambda x: x * torch.arange(2, 14, 2),
    lambda x: x + torch.arange(6, dtype=torch.float32) / 6,
    lambda x: x + torch.full((6,), 2.5),
    lambda x: x + torch.zeros(4, 1) + torch.ones(6),
    lambda x: x.masked_fill(torch.ones(4, 6, dtype=torch.bool).triu(1), -INF),
    lambda x: x + x.new_full((6,), 3),
    lambda x: x * torch.tensor(2.0),
    lambda x: x * torch.tensor([1.0, -INF, NAN, 0.0, 1.0, 2.0]),
    lambda x: torch.where(torch.arange(6) % 2 == 0, x, 0.0),
    lambda x: x + torch.tensor([[1], [2], [3], [4]]),
    lambda x: x + torch.linspace(0, 1, 6),
]


def test_tensors_made_in_forward() -> None:
    x = torch.randn(4, 6)
    for number, program in enumerate(compiled(Program(f, x) for f in MADE)):
        for _ in range(2):
            assert differences(program.run(), program.eager()) == [], number


BROADCASTS = [
    ((4, 5), (5,)),
    ((4, 1), (1, 5)),
    ((2, 1, 3), (4, 1)),
    ((1,), (3, 4)),
    ((), (3, 4)),
    ((3, 1, 1), (1, 4, 1)),
    ((5, 1, 4), (5, 3, 1)),
]


def test_every_kind_of_broadcast() -> None:
    made = [
        Program(lambda a, b: (a * b + a, torch.maximum(b, a).sin()), torch.randn(a), torch.randn(b))
        for a, b in BROADCASTS
    ]
    for program, shapes in zip(compiled(made), BROADCASTS):
        assert differences(program.run(), program.eager()) == [], shapes


def test_large_tensors_run_in_threads_and_slices() -> None:
    made = [
        Program(lambda x: F.gelu(x) * 2, torch.randn(shape))
        for shape in ((100_003,), (37, 1009), (3, 5, 8191))
    ]
    for program in compiled(made):
        assert differences(program.run(), program.eager()) == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rounded_is_the_dtypes_own_rounding(dtype: torch.dtype) -> None:
    values = [
        0.1,
        0.3,
        1 / 3,
        -0.7,
        1e-3,
        6e-8,
        1e-9,
        65519.0,
        1.0,
        0.0,
        -2.5,
        3e38 if dtype is torch.bfloat16 else 6e4,
        INF,
        -INF,
        1e39,
        -1e39,
    ]
    for value in values:
        assert (
            rounded(value, str(dtype).removeprefix("torch."))
            == torch.tensor(value, dtype=torch.float64).to(torch.float32).to(dtype).item()
        )
    assert rounded(0.1, "float32") == 0.1 and rounded(NAN, "float16") != rounded(NAN, "float16")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_values_compare_equal_to_themselves_after_a_trip_through_memory(
    dtype: torch.dtype,
) -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 1.1
        peak = y.flip(0).amax(0, keepdim=True)
        return y == peak, y >= peak, y.round(), y.to(torch.int32), torch.where(y < peak, y, 0.0)

    program = Program(forward, torch.randn(64, 33).to(dtype))
    got = program.run()
    assert differences(got, program.eager()) == [] and got[0].any(0).all()


def test_equal_products_cancel_exactly() -> None:
    x = torch.rand(10_000)
    program = Program(
        lambda x, y: (torch.sqrt(x * x - y * y), torch.addcmul(x, y, y) - x), x, x.clone()
    )
    assert not program.run()[0].any() and differences(program.run(), program.eager()) == []
