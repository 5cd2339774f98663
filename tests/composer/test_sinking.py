"""Computed values that are read at computed indices: computed where they are read, and never written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.composer.programs import Program, check

INF, NAN = float("inf"), float("nan")
ROWS, CHOSEN = torch.randn(8, 300), torch.tensor([3, 0, 299, 7, 7, 20, 100, 1])
ROWS[0, 3], ROWS[1, 5], ROWS[2, 299], ROWS[3, 0] = NAN, INF, -INF, -INF
GRID, GAIN = torch.randn(2, 4, 6, 25), torch.randn(25)
ORDER = torch.tensor([7, 0, 3])


@dataclass(frozen=True)
class Reads:
    """A function and the bytes that its kernels may read and write."""

    function: Callable[..., Any]
    args: tuple[torch.Tensor, ...]
    num_bytes: int
    kernels: int = 1


def windows(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    moved = torch.roll(F.layer_norm(x, (25,), gain, gain), (-1, -2), (1, 2))
    return moved.view(2, 2, 2, 3, 2, 25).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 25)


def preference(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    p = F.log_softmax(x, -1)
    return p.gather(1, i[:, None]) - p.gather(1, j[:, None])


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


ONCE = ROWS.nbytes
READS: dict[str, Reads] = {
    "chosen log-probability": Reads(
        lambda x, i: F.log_softmax(x, -1).gather(1, i[:, None]).squeeze(1),
        (ROWS, CHOSEN),
        ONCE + 8 * 8 + 8 * 4,
    ),
    "of shifted tokens": Reads(
        lambda x, i: F.log_softmax(x[:, :-1], -1).gather(2, i[:, 1:, None]).sum(1),
        (ROWS.view(2, 4, 300), CHOSEN.view(2, 4)),
        # The gathered log-probabilities of a row are summed by another kernel.
        ONCE + 8 * 8 + 2 * 6 * 4 + 2 * 4,
        2,
    ),
    "two choices": Reads(
        preference, (ROWS, CHOSEN, CHOSEN.flip(0).contiguous()), ONCE + 2 * 8 * 8 + 8 * 4
    ),
    "halves": Reads(
        lambda x, i: F.log_softmax(x, -1).gather(1, i[:, None]) * 2,
        (ROWS.bfloat16(), CHOSEN),
        ONCE // 2 + 8 * 8 + 8 * 2,
    ),
    "columns of a softmax": Reads(
        lambda x, i: torch.softmax(x, -1)[:, i],
        (ROWS, ORDER),
        # The second kernel reads the columns and what is left of each row: its maximum and its sum.
        ONCE * 2 + 4 * 8 * 4 + 3 * 8 + 3 * 8 * 4,
        2,
    ),
    "rolled rows": Reads(lambda x: torch.roll(scaled(x), 3, 0), (ROWS,), 2 * ONCE),
    "rolled along the row": Reads(lambda x: torch.roll(scaled(x), 3, 1), (ROWS,), 2 * ONCE),
    "flipped rows": Reads(lambda x: torch.softmax(x, -1).flip(0), (ROWS,), 2 * ONCE),
    "selected rows": Reads(
        lambda x, i: F.layer_norm(x, (300,)).index_select(0, i),
        (ROWS, ORDER),
        ONCE + 3 * 8 + 3 * 300 * 4,
    ),
    "rows of a table": Reads(
        lambda x, i: F.embedding(i, torch.softmax(x, -1)), (ROWS, ORDER), ONCE + 3 * 8 + 3 * 300 * 4
    ),
    "rows counted from the end": Reads(
        lambda x, i: F.layer_norm(x, (300,))[i - 8] + 1, (ROWS, ORDER), ONCE + 3 * 8 + 3 * 300 * 4
    ),
    "shifted windows": Reads(windows, (GRID, GAIN), 2 * GRID.nbytes + GAIN.nbytes),
    "elements of a sum": Reads(
        lambda x, i: (x.exp() + x).take_along_dim(i[:, None], 1),
        (ROWS, CHOSEN),
        ONCE + 8 * 8 + 8 * 4,
    ),
}


@pytest.fixture(scope="module")
def programs() -> dict[str, Program]:
    made = {name: Program(reads.function, *reads.args) for name, reads in READS.items()}
    check([*made.items()])
    return made


@pytest.mark.parametrize("name", READS)
def test_the_value_is_not_written(programs: dict[str, Program], name: str) -> None:
    kernels = programs[name].kernels
    found = len(kernels), sum(k.num_bytes for k in kernels)
    assert found == (READS[name].kernels, READS[name].num_bytes)


def test_a_value_that_is_needed_elsewhere_is_read() -> None:
    """The whole is written once, and the read costs what it reads."""
    calls: dict[str, Callable[..., Any]] = {
        "result": lambda x, i: (p := F.log_softmax(x, -1), p.gather(1, i[:, None])),
        "rolled twice": lambda x, i: (p := scaled(x)).roll(1, 0) + p.roll(2, 0),
        "more than there is": lambda x, i: F.layer_norm(x, (300,))[torch.cat([i, i]) % 8].exp(),
    }
    both = [(name, Program(function, ROWS, CHOSEN)) for name, function in calls.items()]
    check(both)
    for name, program in both:
        written = [b.prim for k in program.kernels[:-1] for b in k.outputs]
        assert any(p.shape == ROWS.shape for p in written), name


def test_an_index_that_does_not_exist_gives_nan_in_its_element_alone(
    programs: dict[str, Program],
) -> None:
    """PyTorch raises; a kernel cannot. Rows beyond the others are not read either."""
    wrong = CHOSEN.clone()
    wrong[4], wrong[5], wrong[6] = -1, 300, 1 << 40
    x = torch.randn(8, 300)
    program = programs["chosen log-probability"]
    with pytest.raises((IndexError, RuntimeError)):
        program.eager(x, wrong)
    assert program.run(x, wrong).isnan().nonzero().flatten().tolist() == [4, 5, 6]
    found = programs["selected rows"].run(x, torch.tensor([8, 0, -1]))
    assert found.isnan().all(1).tolist() == [True, False, True] and not found[1].isnan().any()
