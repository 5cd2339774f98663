"""Python that no graph can hold: state, control flow, helpers, other libraries."""

from __future__ import annotations

from tests.composer.inline_tables import case, refused

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
