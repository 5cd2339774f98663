"""Programs that write their inputs in place: name → (text without the head, entry)."""

from __future__ import annotations

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"

CACHES: dict[str, tuple[str, str]] = {
    "attention, position in a tensor": (
        """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96)
    def forward(self, x, keys, values, position):
        q, k, v = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        keys.index_copy_(2, position, k)
        values.index_copy_(2, position, v)
        mask = torch.arange(keys.shape[2], device=x.device)[None, :] <= position
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
def get_inputs():
    return [torch.randn(3, 1, 32), torch.randn(3, 2, 40, 16), torch.randn(3, 2, 40, 16), torch.tensor([21])]
""",
        "Model",
    ),
    "attention, position as a number, caches in a dict": (
        """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.norm = nn.Linear(32, 96), nn.LayerNorm(32)
    def forward(self, x, cache, position: int):
        q, k, v = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        end = position + x.shape[1]
        cache["k"][:, :, position:end] = k
        cache["v"][:, :, position:end] = v
        scores = (q * 0.25) @ cache["k"][:, :, :end].transpose(-1, -2)
        return x + (scores.softmax(-1) @ cache["v"][:, :, :end]).transpose(1, 2).flatten(2)
def get_inputs():
    return [torch.randn(3, 2, 32), {"k": torch.zeros(3, 2, 40, 16), "v": torch.zeros(3, 2, 40, 16)}, 12]
""",
        "Model",
    ),
    "a window that rolls": (
        """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.taps = nn.Parameter(torch.randn(16, 8))
    def forward(self, x, window):
        window.copy_(torch.roll(window, -1, dims=-1))
        window[:, :, -1] = x
        return F.silu((window * self.taps).sum(-1))
def get_inputs():
    return [torch.randn(24, 16), torch.randn(24, 16, 8)]
""",
        "Model",
    ),
    "a step of an optimizer, which returns nothing": (
        """
def step(params, grads, momenta, lr: float = 0.1, decay: float = 0.9):
    for p, g, m in zip(params, grads, momenta):
        m.mul_(decay).add_(g)
        p.add_(m, alpha=-lr)
def get_inputs():
    sizes = [(24, 16), (24,), (8, 24)]
    return [[torch.randn(s) for s in sizes], [torch.randn(s) for s in sizes], [torch.randn(s) for s in sizes]]
""",
        "step",
    ),
    "moving averages and a counter": (
        """
class Model(nn.Module):
    def forward(self, x, mean, variance, count):
        count.add_(1)
        mean.lerp_(x.mean(0), 0.01)
        variance.mul_(0.99).add_((x - mean).square().mean(0), alpha=0.01)
        return (x - mean) * (variance + 1e-5).rsqrt()
def get_inputs():
    return [torch.randn(32, 24), torch.zeros(24), torch.ones(24), torch.tensor(5)]
""",
        "Model",
    ),
    "rows added to a table": (
        """
class Model(nn.Module):
    def forward(self, table, rows, updates):
        table.index_add_(0, rows, updates)
        return table.relu().sum(-1)
def get_inputs():
    return [torch.randn(20, 16), torch.randint(0, 20, (50,)), torch.randn(50, 16)]
""",
        "Model",
    ),
    "slots that are scattered into and returned": (
        """
class Model(nn.Module):
    def forward(self, x, slots):
        best, place = x.max(-1, keepdim=True)
        slots.scatter_(1, place, best.tanh())
        return slots
def get_inputs():
    return [torch.randn(24, 16), torch.zeros(24, 16)]
""",
        "Model",
    ),
    "halves of a state through views": (
        """
class Model(nn.Module):
    def forward(self, state, x):
        left, right = state.chunk(2, dim=-1)
        left.add_(x.sigmoid())
        right.t().mul_(0.5)
        return left * right
def get_inputs():
    return [torch.randn(24, 32), torch.randn(24, 16)]
""",
        "Model",
    ),
    "memory for the result": (
        """
class Model(nn.Module):
    def forward(self, x, y, out):
        torch.add(x, y, out=out)
        out.mul_(F.gelu(x))
        return out
def get_inputs():
    return [torch.randn(24, 16), torch.randn(24, 16), torch.zeros(24, 16)]
""",
        "Model",
    ),
    "a list of pairs, written by layers": (
        """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)
    def forward(self, x, kept):
        kept[0].copy_(kept[1])
        kept[1].copy_(x)
        return F.gelu(self.linear(x) + kept[0])
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))
    def forward(self, x, caches):
        for layer, kept in zip(self.layers, caches):
            x = layer(x, kept)
        return x
def get_inputs():
    return [torch.randn(24, 16), [(torch.randn(24, 16), torch.randn(24, 16)) for _ in range(2)]]
""",
        "Model",
    ),
    "a ring and its head": (
        """
class Model(nn.Module):
    def forward(self, x, ring, head):
        ring[head.remainder(8)] = x
        head.add_(1)
        return ring.mean(0) - x
def get_inputs():
    return [torch.randn(16), torch.randn(8, 16), torch.tensor([3])]
""",
        "Model",
    ),
    "an activation in place": (
        """
class Model(nn.Module):
    def forward(self, x):
        return F.relu(x, inplace=True) * 2 + 1
def get_inputs():
    return [torch.randn(24, 16)]
""",
        "Model",
    ),
    "a state of half precision and counters": (
        """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.rand(16))
    def forward(self, state, x, steps):
        gate = self.gate.to(state.dtype)
        state.copy_(state * gate + x.to(state.dtype) * (1 - gate))
        steps += 1
        return torch.tanh(state.float()), steps
def get_inputs():
    return [torch.randn(24, 16).bfloat16(), torch.randn(24, 16), torch.zeros(24, dtype=torch.int32)]
""",
        "Model",
    ),
    "a state that doubles": (
        """
class Model(nn.Module):
    def forward(self, state, x):
        state.mul_(2).add_(x)
        return state.exp().sum(-1)
def get_inputs():
    return [torch.randn(24, 16), torch.randn(24, 16)]
""",
        "Model",
    ),
}


def text_of(name: str) -> str:
    """The whole file."""
    return HEAD + CACHES[name][0] + "def get_init_inputs():\n    return []\n"
