"""Values that decide what runs or leave the graph: branches, lengths, items, numpy, masks."""

from __future__ import annotations

import torch

from tests.composer.inline_tables import case

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
