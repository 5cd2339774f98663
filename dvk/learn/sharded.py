"""A model's weights, gradients and optimizer sharded over the processes (FSDP), for models that one GPU cannot train.

The trained copy is in float32, a shard of it in each process; the sampling model stays whole, in the type it was loaded in, and
takes over the trained weights after every step. So an update below bfloat16's resolution is not lost, and eight GPUs need for a
model of P parameters 2 P bytes each for sampling and 16 P / 8 for training.
"""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import torch

from dvk.backbone.decoding.forward import unwrapped
from dvk.learn.scoring import Scorer

FOLDER = "learner"
"""In a checkpoint: the shards, which other numbers of processes can also read."""


def shard(model: Any, *, half: bool, on_gpu: bool) -> Scorer:
    """A scorer around a sharded copy of the model; parameters are gathered a layer at a time.

    Args:
        model: of transformers or peft, the same in all processes; it is not changed.
        half: compute in bfloat16, add up gradients in float32.
        on_gpu: whether the shards are on the GPU.
    """
    from torch.distributed import get_world_size
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    scorer = Scorer(copy.deepcopy(model))
    mesh = init_device_mesh("cuda" if on_gpu else "cpu", (get_world_size(),))
    policy = (
        MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        if half
        else MixedPrecisionPolicy()
    )
    for layer in unwrapped(scorer.model).get_decoder().layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(scorer, mesh=mesh, mp_policy=policy)
    return scorer.float()


@torch.no_grad()
def publish(scorer: Scorer, model: Any) -> None:
    """Copy the trained weights into the whole model, rounded to its type; all processes together."""
    for whole, piece in zip(model.parameters(), scorer.parameters(), strict=True):
        if piece.requires_grad:
            whole.copy_(piece.full_tensor())  # type: ignore[attr-defined]  # a DTensor's


def save(scorer: Scorer, optimizer: Any, folder: Path) -> None:
    """Write the shards; all processes together, each its own."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict

    weights, state = get_state_dict(scorer, optimizer)
    checkpoint.save({"weights": weights, "optimizer": state}, checkpoint_id=str(folder / FOLDER))


def restore(scorer: Scorer, optimizer: Any, folder: Path) -> None:
    """Load what `save` wrote; all processes together."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    weights, state = get_state_dict(scorer, optimizer)
    found: dict[str, Any] = {"weights": weights, "optimizer": state}
    checkpoint.load(found, checkpoint_id=str(folder / FOLDER))
    set_state_dict(
        scorer, optimizer, model_state_dict=found["weights"], optim_state_dict=found["optimizer"]
    )


def forget(folder: Path) -> None:
    """Remove the shards from a checkpoint; its whole weights stay."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
