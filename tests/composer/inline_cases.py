"""Modules whose own forward() holds what a graph cannot: each must give eager's results, or be refused with its line and a remedy.

A case is the body of a file, and example inputs; `Model` is called with those, with other values and with other sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

HEADER = """
import logging
import math
import warnings
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("inline")

"""

Case = tuple[str, Callable[[int], tuple[Any, ...]]]
CASES: dict[str, Case] = {}


def _x(rows: int = 6, columns: int = 16) -> Callable[[int], tuple[Any, ...]]:
    def make(seed: int) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(seed)
        return (torch.randn(rows + (seed == 3), columns, generator=generator),)

    return make


def case(name: str, text: str, make: Callable[[int], tuple[Any, ...]] | None = None) -> None:
    CASES[name] = HEADER + text.strip("\n") + "\n", make or _x()


case(
    "numpy round trip",
    """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 16)
    def forward(self, x):
        h = torch.tanh(self.first(x)) * 2 + 1
        order = np.argsort(h.detach().numpy().sum(-1))
        h = h[torch.from_numpy(order)]
        return torch.sigmoid(self.last(h)) * h
""",
)

case(
    "numpy in one expression",
    """
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x * 2 + 1) * torch.from_numpy(np.cos(x.numpy())) + x.sigmoid()
""",
)

case(
    "numpy shares memory",
    """
class Model(nn.Module):
    def forward(self, x):
        h = torch.relu(x * 2 + 1)
        a = h.numpy()
        a += 1
        y = torch.from_numpy(a)
        y.mul_(2)
        return torch.sigmoid(h) + y, h
""",
)

case(
    "experts inline",
    """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 3)
        self.experts = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)])
    def forward(self, x):
        h = torch.tanh(x) * 1.5 + x
        weights, chosen = torch.topk(F.softmax(self.gate(h), dim=-1), 2)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(h)
        for number in torch.unique(chosen).tolist():
            rows, places = torch.where(chosen == number)
            out[rows] += weights[rows, places, None] * self.experts[number](h[rows])
        return F.silu(out) + h * 2
""",
)

case(
    "top-k sampling inline",
    """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 32)
    def forward(self, x):
        logits = self.head(F.gelu(x) * 2) / 0.7
        kept = [row for row in logits.topk(5).values[:, -1].tolist()]
        floor = torch.tensor(kept)[:, None]
        logits = logits.masked_fill(logits < floor, float("-inf"))
        token = torch.multinomial(torch.softmax(logits, -1), 1)
        return token, torch.softmax(logits, -1) * 2
""",
)

case(
    "early exit",
    """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)
    def forward(self, x):
        h = F.silu(x) * 2
        steps = 0
        while h.abs().mean().item() > 0.3 and steps < 8:
            h = torch.tanh(self.layer(h)) * 0.8
            steps += 1
        return torch.sigmoid(h * 2) + 1
""",
)

case(
    "torch.cond",
    """
class Model(nn.Module):
    def forward(self, x):
        h = torch.tanh(x) * 2
        h = torch.cond(h.sum() > 0, lambda t: t + 1, lambda t: t - 1, (h,))
        return F.gelu(h) * x.sigmoid()
""",
)

case(
    "branch on a value",
    """
class Model(nn.Module):
    def forward(self, x):
        h = torch.tanh(x) * 2 + x
        if h.sum() > 0:
            h = h * 2
        else:
            h = h - 1
        return F.gelu(h) * x.sigmoid()
""",
)

case(
    "custom autograd inline",
    """
class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype) * float(np.float32(2.0)) + torch.from_numpy(np.sign(x.detach().numpy()))
    @staticmethod
    def backward(ctx, g):
        return g

class Model(nn.Module):
    def forward(self, x):
        h = torch.tanh(x * 2) + 1
        return F.gelu(Straight.apply(h - 1) * h) + h
""",
)

case(
    "table by a number",
    """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = {0: 0.5, 1: 1.5, 2: -1.0}
    def forward(self, x):
        h = torch.tanh(x) * 2
        scale = self.table[int(h.argmax().item()) % 3]
        h = h * scale
        return F.gelu(h) + x.sigmoid()
""",
)

case(
    "counter",
    """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        return torch.tanh(x * 2) + 1
""",
)

case(
    "counter that is read",
    """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
    def forward(self, x):
        h = torch.tanh(x) * 2
        self.calls += 1
        if self.calls % 2 == 0:
            h = h * self.calls
        return F.gelu(h) + x.sigmoid()
""",
)

case(
    "global counter",
    """
CALLS = 0
SEEN = []
class Model(nn.Module):
    def forward(self, x):
        global CALLS
        CALLS += 1
        SEEN.append(tuple(x.shape))
        return torch.tanh(x * 2) + 1
""",
)

case(
    "cache in a list",
    """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = []
    def forward(self, x):
        h = torch.tanh(x) * 2 + 1
        self.cache.append(h.mean(0))
        if len(self.cache) > 3:
            self.cache.pop(0)
        past = torch.stack(self.cache).mean(0)
        return F.gelu(h) + past
""",
)

case(
    "rearranged by text",
    """
def rearrange(x, pattern, **sizes):
    left, right = [side.split() for side in pattern.split("->")]
    if float(x.detach().numpy().sum()) != float("inf"):
        pass
    return x.permute(*[left.index(name) for name in right])

class Model(nn.Module):
    def forward(self, x):
        h = torch.relu(x * 2)[None] + 1
        h = rearrange(h, "b n d -> b d n")
        return torch.sigmoid(h) * 2 + torch.tanh(h)
""",
)

case(
    "try and except",
    """
class Model(nn.Module):
    def forward(self, x):
        h = torch.tanh(x) * 2
        try:
            scale = 1.0 / h.numpy().max().item()
        except (RuntimeError, TypeError):
            scale = 7.0
        return F.gelu(h * scale) + x.sigmoid()
""",
)

case(
    "no_grad around a part",
    """
class Model(nn.Module):
    def forward(self, x):
        h = torch.tanh(x) * 2
        with torch.no_grad():
            m = torch.from_numpy(h.detach().numpy().mean(0))
            h = h - m
        return F.gelu(h) + x.sigmoid()
""",
)

case(
    "torch.func of a lambda",
    """
class Model(nn.Module):
    def forward(self, x):
        h = torch.tanh(x) * 2
        g = torch.func.grad(lambda v: (v ** 3).sum())(h)
        return F.gelu(g) + x.sigmoid()
""",
)

case(
    "boolean mask",
    """
class Model(nn.Module):
    def forward(self, x):
        h = torch.tanh(x) * 2
        positive = h[h > 0]
        total = positive.sum() / max(positive.numel(), 1)
        return F.gelu(h) * total
""",
)

case(
    "nonzero and a write",
    """
class Model(nn.Module):
    def forward(self, x):
        h = torch.tanh(x) * 2
        rows = torch.nonzero(h.sum(-1) > 0).squeeze(-1)
        h[rows] = h[rows] * 3
        return F.gelu(h) + 1
""",
)

case(
    "warnings and logging",
    """
class Model(nn.Module):
    def forward(self, x):
        h = torch.tanh(x) * 2
        if x.shape[0] > 1000:
            warnings.warn("large")
        log.info("mean %f", float(h.mean()))
        log.debug(f"{h.std().item():.3f}")
        return F.gelu(h) + x.sigmoid()
""",
)

case(
    "item that scales",
    """
class Model(nn.Module):
    def forward(self, x):
        h = torch.tanh(x) * 2
        limit = h.abs().max().item()
        if limit > 1.0:
            h = h / limit
        return F.gelu(h) + x.sigmoid()
""",
)

case(
    "item that is returned",
    """
class Model(nn.Module):
    def forward(self, x):
        h = torch.tanh(x) * 2
        y = F.gelu(h) + x.sigmoid()
        return y, y.mean().item()
""",
)

case(
    "lengths",
    """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(16, 16, batch_first=True)
    def forward(self, x, lengths):
        h = torch.relu(x) * 2 + 0.5
        outs = []
        for row, length in zip(h, lengths.tolist()):
            outs.append(row[:length].mean(0))
        pooled = torch.stack(outs)
        return F.gelu(pooled) + 1, torch.tanh(h)
""",
    lambda seed: (
        torch.randn(3, 6, 16, generator=torch.Generator().manual_seed(seed)),
        torch.tensor([6, 4, 2 + seed % 3]),
    ),
)

case(
    "helper method",
    """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(16) * 1.5)
    def __quantile(self, x):
        return float(np.quantile(x.detach().numpy(), 0.9))
    def forward(self, x):
        h = torch.tanh(x) * self.scale
        h = torch.clamp(h, max=self.__quantile(h))
        return self.finish(h)
    def finish(self, h):
        return F.gelu(h) + h.sigmoid()
""",
)

case(
    "all in a helper",
    """
class Model(nn.Module):
    def forward(self, x):
        return self.run(x)
    def run(self, x):
        h = torch.tanh(x) * 2
        m = torch.tensor(h.numpy().tolist()).mean(0)
        return F.gelu(h - m) + x.sigmoid()
""",
)

case(
    "third-party function",
    """
import json
class Model(nn.Module):
    def forward(self, x):
        h = torch.tanh(x) * 2
        data = json.loads(json.dumps(h.tolist()))
        y = torch.tensor(data)
        return F.gelu(y) + h
""",
)

case(
    "python random",
    """
import random
class Model(nn.Module):
    def forward(self, x):
        h = torch.tanh(x) * 2
        if self.training and random.random() < 2.0:
            h = h + 1
        return F.gelu(h) + x.sigmoid()
""",
)

case(
    "buffer assigned",
    """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(16))
    def forward(self, x):
        h = torch.tanh(x) * 2
        self.average = self.average * 0.9 + h.mean(0) * 0.1
        return F.gelu(h) + self.average
""",
)

case(
    "data of a tensor",
    """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(16))
    def forward(self, x):
        h = torch.tanh(x) * 2
        self.scale.data.mul_(1.5)
        h.data.add_(1)
        return F.gelu(h) * self.scale
""",
)

case(
    "returns inside a loop",
    """
class Model(nn.Module):
    def forward(self, x):
        h = torch.tanh(x) * 2
        y = F.gelu(h) + 1
        for n in range(4):
            if float(h.numpy().mean()) > 0.1 * n:
                return y * n
            h = h + 0.2
        return y - 1
""",
)

case(
    "autocast around a part",
    """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)
    def forward(self, x):
        h = torch.tanh(x) * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.layer(torch.from_numpy(h.numpy().copy()))
        return F.gelu(y.float()) + h
""",
)

REFUSED: dict[str, tuple[str, Callable[[int], tuple[Any, ...]], str]] = {}


def refused(name: str, text: str, said: str) -> None:
    REFUSED[name] = HEADER + text.strip("\n") + "\n", _x(), said


refused(
    "a default that changes",
    """
class Model(nn.Module):
    def forward(self, x, store=[]):
        h = torch.tanh(x) * 2
        store.append(h.shape[0])
        return F.gelu(h) + len(store)
""",
    r"changes `Model.forward`",
)

refused(
    "nothing but a detour",
    """
class Model(nn.Module):
    def forward(self, x):
        return torch.from_numpy(x.numpy() + 1)
""",
    r"line 14: return torch.from_numpy",
)
