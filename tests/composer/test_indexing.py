"""Reads at computed indices and moved elements, with their neighbours, as C++."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from dvk.composer import applicable
from dvk.composer.codegen import cpp
from dvk.composer.compose import fuse
from dvk.composer.recipes import OWN_FAMILIES
from tests.composer.programs import TASK, Program, capture, check, differences

X = torch.randn(3, 4, 6, 5)
TABLE, WORDS = torch.randn(50, 12), torch.randint(0, 50, (4, 7))
Call = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]

AT_PLACES: dict[str, Call] = {
    "embedding": (lambda t, i: F.embedding(i, t) * 2, (TABLE, WORDS)),
    "32-bit places": (lambda t, i: F.embedding(i, t) * 2, (TABLE, WORDS.int())),
    "embedding before a norm": (
        lambda t, i: F.layer_norm(F.embedding(i, t) + 1, (12,)),
        (TABLE, WORDS),
    ),
    "two embeddings' products": (
        lambda t, i: (F.embedding(i, t) * F.embedding(i + 0, t)).sum(-1),
        (TABLE, WORDS),
    ),
    "computed places": (lambda t, i: F.embedding(49 - i, t) * 2, (TABLE, WORDS)),
    "of a transposed table": (lambda t, i: t.t()[:, 1:][:, i - i] + 1, (TABLE, WORDS)),
    "index_select": (lambda x, i: x.index_select(2, i) + 1, (X, torch.tensor([5, 0, 3]))),
    "gather": (lambda x, i: x.gather(3, i).exp(), (X, torch.randint(0, 5, (3, 4, 6, 2)))),
    "gather of a part": (lambda x, i: x.gather(1, i).exp(), (X, torch.randint(0, 4, (2, 9, 3, 4)))),
    "take_along_dim": (
        lambda x, i: torch.take_along_dim(x, i, 3) + 1,
        (X, torch.randint(0, 5, (3, 4, 6, 2))),
    ),
    "index": (
        lambda x, i, j: x[:, i, j] + 1,
        (X, torch.tensor([[0, -1], [2, 3]]), torch.tensor([1, -2])),
    ),
    "index by rows and columns": (
        lambda x, i, j: x[i, :2].sum(1) + x[0, 0, j, j].sum(),
        (X, torch.tensor([0, -1, 2]), torch.tensor([1, 3])),
    ),
    "halves": (lambda x, i: x.half().index_select(0, i) * 2, (X, torch.tensor([2, 0]))),
    "flags": (lambda x, i: (x > 0).index_select(0, i) & True, (X, torch.tensor([2, 0]))),
    "integers": (lambda x, i: x + i[i - 2][:, None], (X[0, 0, :3], torch.tensor([2, 0, 1]))),
    "reflected": (lambda x: F.pad(x, (1, 2, 2, 0), mode="reflect") * 2, (X,)),
    "replicated": (lambda x: F.pad(x, (1, 2, 2, 0), mode="replicate") * 2, (X,)),
    "circular": (lambda x: F.pad(x, (1, 2, 6, 0), mode="circular") * 2, (X,)),
    "roll": (lambda x: torch.roll(x, (2, -1), (2, 3)) + torch.roll(x, 9, 0), (X,)),
    "roll back": (lambda x: torch.roll(torch.roll(x, 2, 2) * 2, -2, 2) + x, (X,)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2) + F.interpolate(x, size=(12, 10)), (X,)),
    "nearest to any size": (
        lambda x: (
            F.interpolate(x, size=(7, 11)) + F.interpolate(x, size=(7, 11), mode="nearest-exact")
        ),
        (X,),
    ),
    "smaller": (lambda x: F.interpolate(x, scale_factor=0.4) + 1, (X,)),
    "linear": (
        lambda x: F.interpolate(x.view(3, 4, 30), scale_factor=1.7, mode="linear") + 1,
        (X,),
    ),
    "bilinear": (
        lambda x: (
            F.interpolate(x, scale_factor=2, mode="bilinear")
            + F.interpolate(x, size=(12, 10), mode="bilinear")
        ),
        (X,),
    ),
    "to the corners": (
        lambda x: F.interpolate(x, size=(9, 4), mode="bilinear", align_corners=True) + 1,
        (X,),
    ),
    "by a factor that the sizes do not say": (
        lambda x: (
            F.interpolate(x, scale_factor=1.3, mode="bilinear")
            + F.interpolate(x, scale_factor=1.3, mode="nearest-exact")
        ),
        (X,),
    ),
    "to one": (
        lambda x: F.interpolate(x, size=(1, 4), mode="bilinear", align_corners=True) + 1,
        (X,),
    ),
    "bicubic": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic") + 1, (X,)),
    "bicubic to a size": (lambda x: F.interpolate(x, size=(13, 9), mode="bicubic") * 2, (X,)),
    "bicubic, to the corners, smaller": (
        lambda x: F.interpolate(x, size=(4, 9), mode="bicubic", align_corners=True).clamp(-1, 1),
        (X,),
    ),
    "bicubic, by a factor that the sizes do not say": (
        lambda x: F.interpolate(x, scale_factor=(1.3, 0.7), mode="bicubic") + 1,
        (X,),
    ),
    "bicubic to one": (
        lambda x: F.interpolate(x, size=(1, 4), mode="bicubic", align_corners=True) + 1,
        (X,),
    ),
    "trilinear": (lambda x: F.interpolate(x[None], scale_factor=2, mode="trilinear") + 1, (X,)),
}
MOVED: dict[str, Call] = {
    "cat": (lambda x, y: torch.cat([x, y * 2, x], 1).relu(), (X, torch.randn(3, 2, 6, 5))),
    "cat along memory": (
        lambda x, y: torch.cat([x, y * 2, x], -1).relu(),
        (X, torch.randn(3, 4, 6, 1)),
    ),
    "cat before a norm": (
        lambda x, y: F.layer_norm(torch.cat([x, y], -1), (6,)),
        (X, torch.randn(3, 4, 6, 1)),
    ),
    "part of a cat": (lambda x: torch.cat([x.exp(), x], 1)[:, 2:7] + 1, (X,)),
    "cat of a cat": (
        lambda x: torch.cat([torch.cat([x, x + 1], 2), x.repeat(1, 1, 2, 1)], 3) * 2,
        (X,),
    ),
    "stack": (lambda x: torch.stack([x, x * 2], -1) + 1, (X,)),
    "repeat": (lambda x: x.repeat(2, 1, 1, 3) + 1, (X,)),
    "repeat to more dimensions": (lambda x: torch.tile(x, (2, 3, 1, 1, 1)) + 1, (X,)),
    "repeat_interleave": (
        lambda x: x.repeat_interleave(3, 1) * 2 + x.repeat_interleave(3, dim=-3),
        (X,),
    ),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x.sigmoid(), 2) + 1, (X,)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2).relu() + 1, (X[..., :4],)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2) + 1, (X,)),
    "patches": (
        lambda x, w: (
            F.unfold(x, 3, padding=1).view(3, 4, 9, 6, 5) * w.softmax(1).unsqueeze(1)
        ).sum(2),
        (X, torch.randn(3, 9, 6, 5)),
    ),
    "patches with steps": (
        lambda x: F.unfold(x, (2, 3), dilation=(2, 1), padding=(1, 0), stride=(1, 2)).relu(),
        (X,),
    ),
    "patches of a computed value": (lambda x: (x * 2).unfold(2, 2, 3), (X,)),
    "frames": (lambda x: x.unfold(2, 2, 3).exp(), (X,)),
}


@pytest.mark.parametrize("cases", [AT_PLACES, MOVED], ids=["places", "moved"])
@pytest.mark.slow
def test_it_is_one_kernel_with_its_neighbours(cases: dict[str, Call]) -> None:
    made = [(name, Program(forward, *args)) for name, (forward, args) in cases.items()]
    check(made)
    assert {name: program.externs for name, program in made if program.externs} == {}
    several = {"index by rows and columns", "cat of a cat", "patches", "roll back"}
    assert {name for name, program in made if len(program.kernels) > 1} == several & cases.keys()


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16, torch.int32])
def test_types(kind: torch.dtype) -> None:
    x, i = (X * 4).to(kind), torch.tensor([2, 0, 1])
    made = [
        ("gather", Program(lambda x, i: x[i - 3] + x[1:].index_select(0, i[:1] - 1), x, i)),
        ("cat", Program(lambda x: torch.cat([x, x * 2], 1) + x.repeat(1, 2, 1, 1), x)),
    ]
    check(made)


def test_schedules_and_sizes() -> None:
    t, i = torch.randn(1000, 96), torch.randint(0, 1000, (700,))
    programs = [
        Program(lambda t, i: F.layer_norm(F.embedding(i, t), (96,)), t, i),
        Program(lambda t, i: t.t()[:, i].sum(1), t, i),
        Program(lambda t: torch.roll(torch.cat([t, t * 2], 1), 5, 1).softmax(-1), t),
        Program(lambda t, i: t[i].sum(0), t, i),
    ]
    made = []
    for n, program in enumerate(programs):
        for option in cpp.schedules(program.kernels[0]):
            made.append(
                (
                    f"{n} {option}",
                    program.under(
                        lambda k, o=option: o if o in cpp.schedules(k) else cpp.default_schedule(k)
                    ),
                )
            )
    check(made, scale=3.0)


def test_a_place_that_does_not_exist_is_not_read() -> None:
    """PyTorch raises; a kernel reports with NaN, if its type has one, and never reads out of bounds."""
    program = Program(lambda t, i: F.embedding(i, t) * 2, TABLE, WORDS)
    wrong = WORDS.clone()
    wrong[0, 0], wrong[1, 1], wrong[2, 2], wrong[3, 3] = 50, -1, 1 << 40, -(1 << 62)
    with pytest.raises(IndexError):
        program.eager(TABLE, wrong)
    found, bad = program.run(TABLE, wrong), torch.zeros(4, 7, dtype=torch.bool)
    bad[torch.arange(4), torch.arange(4)] = True
    assert found[bad].isnan().all() and torch.equal(found[~bad], 2 * TABLE[wrong[~bad]])
    whole = Program(lambda x, i: x[i] + 1, torch.arange(5), torch.tensor([0, -5]))
    assert whole.run(torch.arange(5), torch.tensor([-6, 5])).tolist() == [1, 1]


def test_unsupported_arguments_stay_calls() -> None:
    calls: list[Call] = [
        (lambda x, i: x[i, :, i], (X, torch.tensor([0, 1]))),
        (lambda x: torch.cat([x] * 9), (X,)),
        (lambda x: F.interpolate(x, size=(3, 3), mode="bicubic", antialias=True), (X,)),
        (lambda x: x.unfold(2, 3, 1) + 0, (X,)),
    ]
    for forward, args in calls:
        captured = capture(forward, *args)
        assert not set(applicable(captured.graph, "cpu", "cpp")) & {"own_gathers", "own_moves"}


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_a_factor_other_than_that_of_the_sizes_stays_a_call(mode: str) -> None:
    """PyTorch's CPU loops ignore the factor there."""
    x = torch.randn(1, 2, 7, 7)
    made = [
        Program(lambda x, by=by: F.interpolate(x, scale_factor=by, mode=mode) + 1, x)
        for by in (1.05, 2.1, 2.0)
    ]
    for program in made:
        assert differences(program.run(), program.eager()) == []
    assert [len(program.externs) for program in made] == [1, 1, 0]


def test_nothing_is_padded() -> None:
    made = [
        (mode, Program(lambda x, mode=mode: F.pad(x, (0, 0, 0, 0), mode=mode) * 2, X))
        for mode in ("reflect", "replicate", "circular")
    ]
    for _, program in made:
        assert torch.equal(program.run(), X * 2)


def pairs(x: torch.Tensor) -> torch.Tensor:
    """One level of a Hadamard transform."""
    return torch.stack([x[..., 0::2] + x[..., 1::2], x[..., 0::2] - x[..., 1::2]], -2).flatten(-2)


def test_parts_of_joined_parts_seen_through_reshapes() -> None:
    check(
        [
            ("pairs of pairs", Program(lambda x: pairs(pairs(pairs(x))), torch.randn(8, 64))),
            (
                "tiled",
                Program(
                    lambda x: torch.cat([x, x * 2]).tile(1, 2)[1:, :3].unsqueeze(0) + 1,
                    torch.randn(3, 4),
                ),
            ),
        ]
    )


def test_parts_of_parts_of_parts_stay_few() -> None:
    """Each level reads two slices of the previous one: recomputed for each, they would double per level."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        for _ in range(12):
            first, second = x.chunk(2, 1)
            x = torch.cat([first + second, first - second], 1)
        return x

    program = Program(forward, torch.randn(8, 64))
    check([("levels", program)], scale=3.0)
    assert len(program.composition.prims.prims) < 1500 and len(program.kernels) <= 6


def test_values_read_elsewhere_through_a_view_are_not_overwritten() -> None:
    program = Program(
        lambda x, w, i: (lambda y: y + y.flatten()[i])(x @ w),
        torch.randn(4, 4),
        torch.randn(4, 6),
        torch.arange(24).flip(0).view(4, 6),
    )
    assert (
        "inplace_epilogue" in program.recipes and differences(program.run(), program.eager()) == []
    )


def test_only_under_separate_recipes() -> None:
    captured = capture(
        lambda t, i: torch.cat([F.embedding(i, t), F.embedding(i, t) * 2]), TABLE, WORDS
    )
    names = applicable(captured.graph, "cpu", "cpp")
    assert {"own_gathers", "own_moves"} <= set(names) and "own_gathers" not in applicable(
        captured.graph, "cuda", "cuda"
    )
    without = fuse(TASK, captured, tuple(n for n in names if n not in OWN_FAMILIES))
    assert {p.op.split(".")[1] for p in without.part.users if p.kind == "extern"} == {
        "embedding",
        "cat",
    }


def test_a_number_that_is_computed_selects() -> None:
    x = torch.randn(5, 7)
    program = Program(lambda x: x[torch.zeros((), dtype=torch.long) + 2] * 2, x)
    assert torch.equal(program.run(), x[2] * 2) and "aten.select.int" in program.externs


def test_a_resampled_image_is_written_once_before_it_is_concatenated() -> None:
    """Its four corners are not written one by one."""
    x, skip = torch.randn(2, 3, 5, 6), torch.randn(2, 4, 10, 12)
    program = Program(
        lambda x, skip: torch.cat(
            [skip, F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)], 1
        ),
        x,
        skip,
    )
    assert differences(program.run(), program.eager()) == []
    written = sum(b.num_bytes for k in program.kernels for b in k.outputs)
    assert written <= 4 * 2 * (3 + 7) * 120
