"""The assembler text of `codegen.triton.lanes` for Triton's interpreter: a product of matrix units by thread and register."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


class Made:
    """The results of one piece of assembler text."""

    def __init__(self, results: list[Any]):
        self.results = results

    def get_result(self, number: int) -> Any:
        return self.results[number]


def _bf16(bits: np.ndarray) -> torch.Tensor:
    return torch.from_numpy((bits.astype(np.uint32) << 16).view(np.float32).copy())


def _scaled(words: np.ndarray, shift: int, zero: np.ndarray) -> torch.Tensor:
    """Elements of a word at a shift and 16 bits above, less the zero point, times 2⁻⁶: [thread, 2], rounded to bf16."""
    both = np.stack([(words >> shift) & 15, (words >> (shift + 16)) & 15], 1).astype(np.float32)
    made = torch.from_numpy(both) / 64 + _bf16(zero & 0xFFFF)[:, None]
    return made.bfloat16().float()


def multiplied(values: list[np.ndarray]) -> list[np.ndarray]:
    """`c + a · b` of each warp, as the layout of mma.m16n8k16 has it: thread 4 g + t holds lines g and g + 8, columns 2 t and 2 t + 1."""
    c = torch.from_numpy(np.stack(values[:4], 1).astype(np.float32))
    low, high, *x = (v.astype(np.uint32) for v in values[4:10])
    z = [v.astype(np.uint32) for v in values[10:12]]
    # x0 to x3 hold factors of elements 0 and 1, 2 and 3, 4 and 5, 6 and 7.
    factors = [_bf16((x[n // 2] >> (16 * (n % 2))) & 0xFFFF) for n in range(8)]
    for lane in range(0, len(c), 32):
        part = slice(lane, lane + 32)
        for pair in range(4):
            b = torch.stack([factors[pair][part], factors[pair + 4][part]], 1).view(8, 4, 2)
            for half, words in enumerate((low, high)):
                a = _scaled(words[part], 4 * pair, z[half][part]).view(8, 4, 2)
                full = torch.einsum("gtp,ntp->gn", a.double(), b.double()).float()
                c[part, 2 * half : 2 * half + 2] += full.view(8, 4, 2).reshape(32, 2)
    return [c[:, n].numpy().copy() for n in range(4)]


def interpret() -> None:
    """Let Triton's interpreter run the text of `lanes`."""

    def create(
        self: Any, text: str, constraints: str, values: list[Any], kinds: Any, pure: bool, pack: int
    ) -> Made:
        assert "m16n8k16" in text and pack == 1
        given = [v.data for v in values]
        made = multiplied([g.reshape(-1) for g in given])
        return Made([TensorHandle(m, values[0].dtype) for m in made])

    InterpreterBuilder.create_inline_asm = create
