"""Which results the sweep of traced tasks takes for right."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from torch import nn

from tests.composer.traced_tasks import refused


def encoder(seed: int) -> tuple[nn.Module, list[Any]]:
    torch.manual_seed(seed)
    layer = nn.TransformerEncoderLayer(16, 2, 64, 0.0, "gelu", batch_first=True)
    return nn.Sequential(layer, nn.LayerNorm(16)).eval(), [torch.randn(2, 10, 16)]


@torch.no_grad()
def test_results_are_held_to_the_class_of_the_task() -> None:
    model, args = encoder(0)
    same = model(*args)
    noise = 1e-4 * torch.randn_like(same)
    assert refused(same + 1e-7, model, args, "fp32") == []
    assert refused(same + noise, model, args, "tf32") == []
    assert re.search("#0", " ".join(refused(same + noise, model, args, "fp32")))
    assert refused(same + 100 * noise, model, args, "tf32")
    assert refused(same.transpose(0, 1).contiguous().transpose(0, 1), model, args, "tf32")


@torch.no_grad()
def test_the_truth_is_what_the_layers_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU PyTorch's function for encoder layers computes GELU by tanh, in float64 too."""
    model, args = encoder(1)
    exact = model(*args)

    def by_tanh(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        layer = copy.deepcopy(model[0]).to(x.dtype)  # type: ignore[index]
        layer.activation, layer.activation_relu_or_gelu = nn.GELU("tanh"), 0
        return layer(x)

    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", by_tanh)
    assert float((model(*args) - exact).abs().max()) > 1e-5
    assert refused(exact, model, args, "fp32") == []
    assert refused(exact + 1e-3, model, args, "fp32")
