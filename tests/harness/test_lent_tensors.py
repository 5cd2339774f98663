"""Copies of lent tensors look from outside as what they were made of."""

from __future__ import annotations

import pytest
import torch

from dvk.harness.transport.lent_tensors import Board, copied, flat, layout_of, memory_of, values_of

X = torch.arange(24.0).reshape(4, 6)
SHAPES = {
    "expanded": X[:, :1].expand(4, 6),
    "apart": X[:, ::2],
    "transposed": X.t(),
    "overlapping": X.reshape(-1).unfold(0, 4, 2),
    "empty": X[:, :0],
    "scalar": X[1, 2],
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_copy_keeps_strides_and_values(name: str) -> None:
    copy = copied(SHAPES[name])
    assert copy.stride() == SHAPES[name].stride() and torch.equal(copy, SHAPES[name])
    assert not copy.numel() or copy.data_ptr() != SHAPES[name].data_ptr()


SPECTRUM = torch.complex(X, X + 1)
BITS = {
    "plain": X,
    "conj": SPECTRUM.conj(),
    "neg": SPECTRUM.conj().imag,
    "both": torch._neg_view(SPECTRUM.t().conj()),
}


@pytest.mark.parametrize("name", BITS)
def test_memory_and_layout_give_the_values(name: str) -> None:
    tensor = BITS[name]
    memory = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    flat(memory).copy_(flat(memory_of(tensor)))
    assert torch.equal(values_of(memory, layout_of(tensor)), tensor) and (
        name == "plain"
    ) == torch.equal(memory, tensor)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_what_is_put_on_a_board_is_there_for_a_process_that_our_stream_does_not_order() -> None:
    values = torch.randn(1 << 20, device="cuda")
    board = Board([layout_of(values)], "cuda")
    torch.cuda._sleep(200_000_000)  # a tenth of a second that the copy waits for
    board.put([values])
    assert torch.cuda.current_stream().query()
    board.close()
