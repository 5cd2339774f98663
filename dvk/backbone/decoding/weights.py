"""A decoder's weights: layers that read one input stacked to one matrix, LoRA merged or separate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


class Stack:
    """One or several linear layers with the same input, applied as one: y = x Wᵀ + b, outputs concatenated."""

    def __init__(self, modules: Sequence[Any], dtype: torch.dtype, copied: bool):
        self.modules, self.dtype, self.copied = tuple(modules), dtype, copied
        # A CPU streams a matrix up to twice as fast when its longer side is contiguous and one row multiplies it.
        first, outputs = modules[0].weight, sum(module.weight.shape[0] for module in modules)
        self.upright = first.device.type != "cpu" or first.shape[1] > outputs
        self.parts: list[tuple[Tensor, Tensor | None, list[tuple[Tensor, Tensor]]]] = []
        self.refresh()

    @property
    def width(self) -> int:
        """Outputs."""
        return sum(weight.shape[0] for weight, _, _ in self.parts)

    def refresh(self) -> None:
        """Copy the current weights, in place if buffers exist: captured graphs hold their addresses."""
        fresh = [self._part(module) for module in self.modules]
        if self.copied:
            weight = torch.cat([_merged(weight, lora) for weight, _, lora in fresh]).to(self.dtype)
            biases = [bias for _, bias, _ in fresh]
            bias = (
                torch.cat([b for b in biases if b is not None]).to(self.dtype)
                if biases[0] is not None
                else None
            )
            fresh = [(weight if self.upright else weight.t().contiguous().t(), bias, [])]
        if not self.parts:
            self.parts = [(w.clone() if self.copied else w, b, lora) for w, b, lora in fresh]
            return
        for (weight, bias, lora), (new_weight, new_bias, new_lora) in zip(self.parts, fresh):
            for old, new in [
                (weight, new_weight),
                (bias, new_bias),
                *zip(_flat(lora), _flat(new_lora)),
            ]:
                if old is not None and new is not None and old.data_ptr() != new.data_ptr():
                    old.copy_(new)

    def _part(self, module: Any) -> tuple[Tensor, Tensor | None, list[tuple[Tensor, Tensor]]]:
        base = getattr(module, "base_layer", module)
        dtype = torch.float32 if self.copied else self.dtype
        lora = []
        if base is not module and not module.disable_adapters:
            for name in module.active_adapters:
                down, up = module.lora_A[name].weight.detach(), module.lora_B[name].weight.detach()
                lora.append((down.to(dtype), (up * module.scaling[name]).to(dtype)))
        weight = base.weight.detach()
        bias = getattr(base, "bias", None)
        return (
            (weight if self.copied else weight.to(self.dtype)),
            None if bias is None else bias.detach(),
            lora,
        )

    def __call__(self, x: Tensor) -> Tensor:
        outputs = []
        for weight, bias, lora in self.parts:
            y = F.linear(x, weight, bias)
            for down, up in lora:
                y = y + F.linear(F.linear(x, down), up)
            outputs.append(y)
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)


def _merged(weight: Tensor, lora: list[tuple[Tensor, Tensor]]) -> Tensor:
    if not lora:
        return weight
    return weight.float() + sum(
        (up @ down for down, up in lora), torch.zeros((), device=weight.device)
    )


def _flat(pairs: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    return [tensor for pair in pairs for tensor in pair]


CacheView = tuple[Tensor, Tensor, Tensor, Tensor]
"""Keys and values as flat rows [slots × kv heads × capacity, head size], to write, and as [b × kv heads, length, head size], to read."""


@dataclass
class LayerWeights:
    """One block's weights."""

    before_attention: Tensor
    qkv: Stack
    head_norm: (
        Tensor | None
    )  # [query heads + key heads, head size]: Qwen3's norms over each head of q and k
    output: Stack
    before_mlp: Tensor
    gate_up: Stack
    down: Stack
