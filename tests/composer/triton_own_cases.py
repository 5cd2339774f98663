"""Small modules for the kernel families that replace library calls: windows, computed indices, arg reductions, scans, matmuls, convolutions
and transposed convolutions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.composer.implicit_cases import IMPLICIT_CASES
from tests.composer.narrow_cases import NARROW_CASES
from tests.composer.place_cases import PLACE_CASES
from tests.composer.triton_cases import HALF, Case, kinds, rand


def ties(*shape: int) -> torch.Tensor:
    return torch.randint(-2, 3, shape).float()


def pair(x: torch.Tensor, dim: int) -> Any:
    largest, where = torch.relu(x).max(dim)
    return largest * 2, where


def extremes(x: torch.Tensor) -> Any:
    value, where = torch.cummax(x, 1)
    return value, where


def back(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.flip(dim).cumsum(dim).flip(dim)


def odd(x: torch.Tensor) -> torch.Tensor:
    """NaN and infinities here and there."""
    x[0, 1], x[1, 0], x[1, 2], x[2, 3] = float("nan"), float("-inf"), float("nan"), float("inf")
    return x


def weights(gates: int, inputs: int, hidden: int) -> list[torch.Tensor]:
    """Weights and biases of a recurrent cell."""
    rows = gates * hidden
    return [rand(rows, inputs), rand(rows, hidden), rand(rows), rand(rows)]


OWN_CASES: dict[str, Case] = {
    # windows
    "max_pool": Case(
        lambda x: F.max_pool2d(x, 3, 2, 1), lambda: [rand(1, 2, 7, 9)], kinds=kinds("window")
    ),
    "pool_after_relu": Case(
        lambda x: F.max_pool2d(F.relu(x), 3, 2, 1) * 2 + 1, lambda: [rand(2, 1, 5, 70)]
    ),
    "dilated_ceil": Case(
        lambda x: F.max_pool2d(x, 2, 2, 1, dilation=3, ceil_mode=True), lambda: [rand(1, 2, 6, 9)]
    ),
    "average_inside": Case(
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), lambda: [rand(1, 2, 6, 7)]
    ),
    "average_ceil": Case(
        lambda x: F.avg_pool2d(x, 2, 3, 1, ceil_mode=True), lambda: [rand(1, 2, 6, 7)]
    ),
    "average_long": Case(
        lambda x: F.avg_pool1d(x, 40, 3, 20),
        lambda: [rand(2, 90)],
        kinds=kinds("window", "persistent"),
    ),
    "huge_window": Case(lambda x: F.max_pool2d(x, 18, 2, 9), lambda: [rand(1, 20, 20)]),
    "adaptive": Case(
        lambda x: F.adaptive_avg_pool2d(x, (3, 2)) + F.adaptive_max_pool2d(x, (3, 2)),
        lambda: [rand(2, 2, 6, 8)],
    ),
    "pool_3d": Case(lambda x: F.max_pool3d(x, 2, 2, 1), lambda: [rand(1, 3, 4, 5)]),
    "pool_half": Case(lambda x: F.avg_pool2d(x, 2, 2), lambda: [rand(2, 4, 6, dtype=HALF)], 2e-3),
    "channels_last": Case(
        lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda: [rand(2, 8, 5, 6).to(memory_format=torch.channels_last)],
    ),
    "padded": Case(
        lambda x: F.pad(torch.exp(x), (1, 2, -1, 3), value=2.0) * 2, lambda: [rand(3, 5, 9)]
    ),
    "padded_integers": Case(lambda x: F.pad(x, (1, 2)), lambda: [torch.arange(12).view(3, 4)]),
    "padded_flags": Case(lambda x: F.pad(x > 0, (1, 2), value=True), lambda: [rand(3, 4)]),
    # computed places, and elements put elsewhere
    "places_of_one": Case(lambda x, i: x[i] + 1, lambda: [rand(1), torch.zeros(70).long()]),
    "embedded": Case(
        lambda t, i: F.layer_norm(F.embedding(i, t) + 1, (12,)),
        lambda: [rand(50, 12), torch.randint(0, 50, (4, 7))],
    ),
    "embedded_products": Case(
        lambda t, i: (F.embedding(i, t).unsqueeze(1) * t[:3]).sum(-1),
        lambda: [rand(9, 70, dtype=HALF), torch.randint(0, 9, (5,))],
        2e-3,
    ),
    "gathered": Case(
        lambda x, i: torch.exp(x.gather(2, i)),
        lambda: [rand(3, 5, 9), torch.randint(0, 9, (3, 5, 70))],
    ),
    "indexed": Case(
        lambda x, i, j: x[:, i, j] + 1,
        lambda: [rand(3, 6, 5), torch.tensor([[0, -1, 2]]), torch.tensor([[1], [-2]])],
    ),
    "one_a_row": Case(
        lambda x, i: x.gather(1, i) * 0.9 - x.mean(1, keepdim=True),
        lambda: [rand(40, 300), torch.randint(0, 300, (40, 1))],
    ),
    "selected": Case(
        lambda x, i: (x * 2).index_select(1, i).sum(2),
        lambda: [rand(3, 6, 5), torch.tensor([5, 0, 0, 3])],
    ),
    "selected_flags": Case(
        lambda x, i: x.index_select(0, i) & True,
        lambda: [rand(6, 5) > 0, torch.tensor([5, 0, 0, 3])],
    ),
    "mirrored": Case(
        lambda x: F.pad(x, (1, 2, 2, 0), mode="reflect") * F.pad(x, (1, 2, 2, 0), mode="replicate"),
        lambda: [rand(2, 3, 5, 6)],
    ),
    "circular": Case(lambda x: F.pad(x, (1, 2), mode="circular") * 2, lambda: [rand(2, 3, 6)]),
    "nearest": Case(lambda x: F.interpolate(x, size=(7, 11)) + 1, lambda: [rand(2, 3, 5, 4)]),
    "bilinear": Case(
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear") + 1, lambda: [rand(2, 3, 5, 4)]
    ),
    "corners": Case(
        lambda x: F.interpolate(x, size=(3, 9), mode="bilinear", align_corners=True) + 1,
        lambda: [rand(2, 3, 5, 4)],
    ),
    "joined": Case(
        lambda x, y: torch.relu(torch.cat([x, y * 2, x], 1)), lambda: [rand(2, 3, 5), rand(2, 4, 5)]
    ),
    "joined_expanded": Case(
        lambda x, y, b, c: torch.relu(
            torch.cat([b[:, :, None, None].expand(2, 2, 8, 128), x, c.expand(2, 2, 8, 128)], 1) + y
        ),
        lambda: [rand(2, 3, 8, 128), rand(2, 7, 8, 128), rand(2, 2), rand(2, 2, 1, 128)],
        kinds=kinds("flat", "tile"),
    ),
    "joined_loss": Case(
        lambda x, b, t: F.cross_entropy(torch.cat([x, b[:, None].expand(6, 100)], 1) * 2, t),
        lambda: [rand(6, 50), rand(6), torch.arange(6) * 20],
    ),
    "padded_loss": Case(
        lambda x, t: F.cross_entropy(F.pad(x, (2, 1500)), t),
        lambda: [rand(6, 50), torch.arange(6) * 9],
    ),
    "gathered_loss": Case(
        lambda x, i, t: F.cross_entropy(x[:, i], t),
        lambda: [rand(6, 50), torch.arange(40) % 7, torch.arange(6) * 3],
    ),
    "joined_norm": Case(
        lambda x, y: F.layer_norm(torch.cat([x, y], -1), (70,)), lambda: [rand(3, 30), rand(3, 40)]
    ),
    "stacked": Case(lambda x: torch.stack([x, x * 2, -x], -1) + 1, lambda: [rand(3, 5)]),
    "scattered": Case(
        lambda x, i: (x * 2).scatter(1, i, float("-inf")).amax(1),
        lambda: [rand(4, 19), torch.randint(0, 19, (4, 1))],
    ),
    "scattered_classes": Case(
        lambda x, i: torch.zeros_like(x).scatter_(1, i, 1.0) * x + x.scatter_add(1, i[:, :1], x),
        lambda: [rand(4, 19), torch.randint(0, 19, (4, 3))],
    ),
    "chosen": Case(
        lambda x, i: F.log_softmax(x, -1).gather(1, i),
        lambda: [rand(5, 70), torch.randint(0, 70, (5, 1))],
        1e-5,
    ),
    "rows_moved": Case(
        lambda x, w: torch.roll(F.layer_norm(x, (19,), w), (1, -1), (0, 1)).transpose(0, 1) + 0,
        lambda: [rand(3, 4, 19), rand(19)],
        1e-5,
    ),
    "rows_turned": Case(lambda x: torch.softmax(x, -1).flip(0, 1), lambda: [rand(5, 70)], 1e-5),
    "rolled": Case(lambda x: torch.roll(x, (2, -1), (1, 2)) + 1, lambda: [rand(2, 5, 6)]),
    "repeated": Case(
        lambda x: torch.exp(x.repeat(2, 1, 3)) + x.repeat_interleave(2, 0).repeat(1, 1, 3),
        lambda: [rand(3, 2, 5)],
    ),
    "shuffled": Case(lambda x: F.pixel_shuffle(x, 2) + 1, lambda: [rand(2, 8, 3, 4)]),
    "unshuffled": Case(
        lambda x: F.channel_shuffle(F.pixel_unshuffle(x, 2), 3) + 1, lambda: [rand(2, 3, 6, 4)]
    ),
    "patches": Case(
        lambda x, w: (F.unfold(x, 3, padding=1).view(2, 4, 9, 30) * w).sum(2),
        lambda: [rand(2, 4, 6, 5), rand(2, 1, 9, 30)],
    ),
    # positions
    "argmax": Case(
        lambda x: (x.argmax(1), x.argmin(1, keepdim=True)),
        lambda: [ties(9, 30)],
        kinds=kinds("persistent"),
    ),
    "argmax_of_all": Case(lambda x: x.t().argmax(), lambda: [ties(5, 7)]),
    "argmax_long": Case(
        lambda x: x.argmax(1), lambda: [rand(2, 9000)], kinds=kinds("split", "looped")
    ),
    "max_with_positions": Case(lambda x: pair(x, 1), lambda: [ties(4, 20)]),
    "max_across": Case(lambda x: pair(x, 0), lambda: [ties(20, 6)]),
    "argmin_integers": Case(
        lambda x: x.argmin(1), lambda: [torch.randint(-3, 3, (4, 20), dtype=torch.int32)]
    ),
    "argmax_half": Case(lambda x: (x * 0.01 + 1).argmax(1), lambda: [rand(4, 40, dtype=HALF)]),
    "argmax_special": Case(lambda x: (x.argmax(1), x.argmin(1)), lambda: [odd(ties(4, 7))]),
    # scans
    "cumsum": Case(lambda x: (x * 2).cumsum(1) - x, lambda: [rand(5, 50)], 4e-6, kinds("scan")),
    "cumsum_back": Case(lambda x: back(torch.relu(x), 1) * 2, lambda: [rand(5, 50)], 4e-6),
    "cumsum_long": Case(
        lambda x: x.cumsum(1),
        lambda: [rand(2, 5000)],
        2e-5,
        kinds("scan", "scan_loop", "scan_split"),
    ),
    "cumsum_long_back": Case(
        lambda x: back(x, 1),
        lambda: [rand(1, 5000)],
        2e-5,
        kinds("scan", "scan_loop", "scan_split"),
    ),
    "cumsum_across": Case(
        lambda x: x.cumsum(0) * 2, lambda: [rand(60, 40)], 4e-6, kinds("scan_walk", "scan_loop")
    ),
    "cumsum_across_back": Case(
        lambda x: back(x, 1), lambda: [rand(2, 50, 33)], 4e-6, kinds("scan_walk", "scan_loop")
    ),
    "cumprod": Case(lambda x: (1 + x * 0.01).cumprod(1) + x.cumsum(1), lambda: [rand(3, 40)], 4e-6),
    "cumsum_of_ones": Case(lambda x: torch.ones_like(x).cumsum(1) * x, lambda: [rand(3, 30)]),
    "cumsum_half": Case(lambda x: x.cumsum(-1), lambda: [rand(3, 30, dtype=HALF)], 2e-3),
    "cumsum_integers": Case(
        lambda x: x.cumsum(1), lambda: [torch.randint(-3, 3, (3, 40), dtype=torch.int32)]
    ),
    "cummax": Case(extremes, lambda: [ties(4, 30)]),
    "cummax_alone": Case(
        lambda x: torch.cummax(x, 1)[0] + torch.cummin(x, 1)[0], lambda: [rand(3, 30)]
    ),
    # products
    "product": Case(
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        lambda: [rand(37, 50), rand(45, 50), rand(45)],
        4e-6,
        kinds("product"),
    ),
    "product_half": Case(
        lambda x, w: torch.relu(x @ w),
        lambda: [rand(37, 48, dtype=HALF), rand(48, 45, dtype=HALF)],
        2e-3,
        kinds("product"),
    ),
    "product_split": Case(
        lambda x, w: x @ w + 1, lambda: [rand(33, 900), rand(900, 20)], 4e-6, kinds("product")
    ),
    "product_double": Case(
        lambda x, w: x @ w, lambda: [rand(20, 33).double(), rand(33, 24).double()], 1e-14
    ),
    "one_row": Case(
        lambda x, w, b: F.linear(x, w, b) * 2,
        lambda: [rand(1, 300), rand(45, 300), rand(45)],
        4e-6,
        kinds("skinny"),
    ),
    "few_rows_split": Case(
        lambda x, w: torch.tanh(F.linear(x, w)),
        lambda: [rand(3, 1500), rand(5, 1500)],
        4e-6,
        kinds("skinny"),
    ),
    "one_column": Case(
        lambda x, w: torch.sigmoid(x @ w),
        lambda: [rand(130, 70), rand(70, 1)],
        4e-6,
        kinds("skinny"),
    ),
    "batched": Case(
        lambda x, y: torch.bmm(x, y.transpose(1, 2)) * 0.5,
        lambda: [rand(3, 20, 33), rand(3, 18, 33)],
        4e-6,
    ),
    "gate": Case(
        lambda x, w, v: F.silu(x @ w) * (x @ v),
        lambda: [rand(20, 33), rand(33, 24), rand(33, 24)],
        4e-6,
    ),
    "masked_operand": Case(
        lambda x, w: torch.tril(x) @ w + 1, lambda: [rand(33, 33), rand(33, 24)], 4e-6
    ),
    "attention_scores": Case(
        lambda q, k: torch.einsum("bshd,bthd->bhst", q, k),
        lambda: [rand(2, 9, 3, 16), rand(2, 11, 3, 16)],
        4e-6,
    ),
    # convolutions
    "depthwise": Case(
        lambda x, w, b: F.relu6(F.conv2d(x, w, b, 1, 1, 1, 3)) + x,
        lambda: [rand(2, 3, 6, 9), rand(3, 1, 3, 3), rand(3)],
        4e-6,
        kinds("window"),
    ),
    "depthwise_strided": Case(
        lambda x, w: F.conv2d(torch.exp(x), w, None, (2, 1), (0, 2), (1, 2), 2),
        lambda: [rand(1, 2, 7, 9), rand(4, 1, 3, 2)],
        4e-6,
    ),
    "depthwise_1d_half": Case(
        lambda x, w: F.silu(F.conv1d(x, w, None, 1, 3, 1, 4)),
        lambda: [rand(2, 4, 20, dtype=HALF), rand(4, 1, 4, dtype=HALF)],
        2e-3,
    ),
    "pointwise": Case(
        lambda x, w, b: F.relu(F.conv2d(x, w, b)),
        lambda: [rand(2, 20, 5, 7), rand(18, 20, 1, 1), rand(18)],
        4e-6,
        kinds("product"),
    ),
    "stem": Case(
        lambda x, w, b: F.relu(F.conv2d(x, w, b, 2, 3)),
        lambda: [rand(2, 3, 9, 11), rand(17, 3, 7, 7), rand(17)],
        4e-6,
        kinds("product"),
    ),
    "stem_half": Case(
        lambda x, w: F.conv2d(x, w, None, 1, 1),
        lambda: [rand(1, 3, 6, 7, dtype=HALF), rand(16, 3, 3, 3, dtype=HALF)],
        2e-3,
    ),
    "few_channels_grouped": Case(
        lambda x, w: torch.tanh(F.conv2d(x, w, None, 1, 1, 1, 3)),
        lambda: [rand(2, 6, 5, 7), rand(12, 2, 3, 3)],
        4e-6,
    ),
    "channels_last_convolution": Case(
        lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 8),
        lambda: [rand(2, 8, 5, 6).to(memory_format=torch.channels_last), rand(8, 1, 3, 3)],
        4e-6,
    ),
    "transposed": Case(
        lambda x, w, b: F.relu(F.conv_transpose2d(x, w, b, 2, 1)),
        lambda: [rand(2, 5, 4, 5), rand(5, 3, 4, 4), rand(3)],
        4e-6,
        kinds("product"),
    ),
    "transposed_without_overlap": Case(
        lambda x, w, b: F.silu(F.conv_transpose2d(x, w, b, 2)),
        lambda: [rand(1, 9, 5, 6), rand(9, 4, 2, 2), rand(4)],
        4e-6,
        kinds("product"),
    ),
    "transposed_cut_off": Case(
        lambda x, w: F.conv_transpose2d(x, w, None, 2, 1),
        lambda: [rand(1, 3, 4, 5, dtype=HALF), rand(3, 4, 3, 3, dtype=HALF)],
        2e-3,
    ),
    "transposed_depthwise": Case(
        lambda x, w: torch.tanh(F.conv_transpose1d(x, w, None, 4, 2, 0, 6)),
        lambda: [rand(2, 6, 9), rand(6, 1, 8)],
        4e-6,
        kinds("window"),
    ),
    "transposed_dilated": Case(
        lambda x, w: F.conv_transpose1d(x, w, None, 1, 2, 0, 1, 3),
        lambda: [rand(2, 4, 9), rand(4, 3, 3)],
        4e-6,
    ),
    "added": Case(
        lambda c, x, y: torch.addmm(c, x, y, beta=0.5, alpha=2),
        lambda: [rand(24), rand(33, 20), rand(20, 24)],
        4e-6,
    ),
    "experts_of_blocks": Case(
        lambda x, w, token, expert: torch.tanh(
            torch.bmm(x[token].view(5, 16, 40), w[expert].transpose(1, 2))
        ),
        lambda: [
            rand(20, 40),
            rand(4, 48, 40),
            torch.randint(20, (80,)),
            torch.randint(-4, 4, (5,)),
        ],
        4e-6,
        kinds("product"),
    ),
    **IMPLICIT_CASES,
    **PLACE_CASES,
    **NARROW_CASES,
    # recurrent cells, taken apart
    "lstm_cell": Case(
        lambda x, h, c, *w: torch.lstm_cell(x, (h, c), *w),
        lambda: [rand(5, 7), *(rand(5, 9) for _ in range(2)), *weights(4, 7, 9)],
        4e-6,
    ),
    "gru_cell": Case(
        lambda x, h, *w: F.silu(torch.gru_cell(x, h, *w)) + h,
        lambda: [rand(5, 7), rand(5, 9), *weights(3, 7, 9)],
        4e-6,
    ),
    "rnn_cell_from_zeros": Case(
        lambda x, *w: torch.rnn_relu_cell(x, x.new_zeros(5, 9), *w),
        lambda: [rand(5, 7), *weights(1, 7, 9)],
        4e-6,
    ),
}
