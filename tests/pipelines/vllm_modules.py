"""Modules that compute vLLM's operators, with the `--op` that says so."""

from __future__ import annotations

from tests.pipelines.proven_runs import NORM

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n\n\n"

ADD_NORM = NORM.replace("def forward(self, x):", "def forward(self, x, residual):").replace(
    "        return x * torch.rsqrt(x.pow(2)",
    "        x = x + residual\n        return x * torch.rsqrt(x.pow(2)",
)
ADD_NORM = ADD_NORM.replace("* self.weight\n", "* self.weight, x\n").replace(
    "[torch.randn(6, 32)]", "[torch.randn(6, 32), torch.randn(6, 32)]"
)


def gated(expression: str) -> str:
    """A module of two halves of its input."""
    return (
        HEAD
        + f"class Model(nn.Module):\n    def forward(self, x):\n        a, b = x.chunk(2, -1)\n        return {expression}\n\n\n"
        "def get_inputs():\n    return [torch.randn(6, 64)]\n\n\ndef get_init_inputs():\n    return []\n"
    )


ROTARY = (
    HEAD
    + """class Model(nn.Module):
    def __init__(self, size, length):
        super().__init__()
        angles = torch.outer(torch.arange(length).float(), 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size))
        self.register_buffer("cos_sin", torch.cat([angles.cos(), angles.sin()], -1))
        self.size = size

    def turned(self, x, cos, sin):
        x = x.view(x.shape[0], -1, self.size)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape[0], -1)

    def forward(self, positions, query, key):
        cos, sin = self.cos_sin[positions].unsqueeze(1).chunk(2, -1)
        return self.turned(query, cos, sin), self.turned(key, cos, sin)


def get_inputs():
    return [torch.randint(0, 50, (6,)), torch.randn(6, 64), torch.randn(6, 32)]


def get_init_inputs():
    return [16, 50]
"""
)

FP8 = (
    HEAD
    + """class Model(nn.Module):
    def forward(self, x, scale):
        return (x.float() * scale.reciprocal()).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


def get_inputs():
    return [torch.randn(6, 64), torch.tensor([0.02])]


def get_init_inputs():
    return []
"""
)

MODULES = {
    "rms": (NORM, "rms_norm(epsilon=1e-6)"),
    "add_rms": (ADD_NORM, "fused_add_rms_norm(epsilon=1e-6)"),
    "silu": (gated("F.silu(a) * b"), "silu_and_mul"),
    "mul_silu": (gated("a * F.silu(b)"), "mul_and_silu"),
    "gelu": (gated("F.gelu(a) * b"), "gelu_and_mul(approximate='none')"),
    "gelu_tanh": (gated("F.gelu(a, approximate='tanh') * b"), "gelu_and_mul(approximate='tanh')"),
    "relu2": (gated("torch.cat([F.relu(a) ** 2, F.relu(b) ** 2], -1)"), "relu2"),
    "rotary": (ROTARY, "rotary_embedding(head_size=16, rotary_dim=16, is_neox_style=True)"),
    "fp8": (FP8, "quant_fp8(static=True, group_shape=(-1, -1))"),
}
"""By name: the model file, and the operator."""
