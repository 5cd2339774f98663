"""The estimate of an update's memory beside what autograd really keeps."""

from __future__ import annotations

import pytest
import torch

from dvk.config import LearningConfig
from dvk.learn.learner import Learner
from dvk.learn.memory import is_short, update_bytes
from dvk.learn.packs import lay_out
from dvk.learn.rows import TrainingRow
from tests.learn.tiny import tiny


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("vocabulary", [64, 8000])
def test_estimate_is_near_what_the_backward_pass_keeps(again: bool, vocabulary: int) -> None:
    settings = LearningConfig(
        pack_tokens=256, micro_packs=2, precision="fp32", gradient_checkpointing=again
    )
    learner = Learner(tiny(vocabulary), settings, 1)
    rows = [[TrainingRow.answer([1] * 100, [2] * 156)] for _ in range(2)]
    held: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        learner.scorer(lay_out(rows, 256), 1.0)
    weights = {p.untyped_storage().data_ptr() for p in learner.model.parameters()}
    real = sum(size for address, size in held.items() if address not in weights)
    estimate = update_bytes(learner.model, 100, settings)
    fixed = 2 * 4 * (1 << 27)  # one piece of logits, which is not kept
    most = 10 if again else 3  # one layer is computed again, and kept, in the backward pass
    assert 0.8 * real < estimate - fixed < most * real, (estimate - fixed) / real


def test_a_longer_row_needs_more_and_a_cpu_is_never_short() -> None:
    settings = LearningConfig(pack_tokens=256, micro_packs=2)
    model = tiny()
    assert update_bytes(model, 5000, settings) > update_bytes(model, 512, settings)
    assert update_bytes(model, 512, settings) == update_bytes(model, 10, settings)
    assert not is_short(torch.device("cpu"), 1 << 60)
