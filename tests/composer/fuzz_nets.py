"""Random small networks: convolutions, linears, norms, pools and residuals, where graph recipes apply and interact."""

from __future__ import annotations

import random

import torch

from tests.composer.programs import run_source

ACTIVATIONS = (
    "F.relu({})",
    "F.silu({})",
    "F.gelu({})",
    "F.hardtanh({})",
    "torch.sigmoid({})",
    "F.leaky_relu({}, 0.1)",
    "{} * 1",
    "{} + 0",
    "F.dropout({}, 0.3, self.training)",
    "F.relu(F.relu({}))",
    "torch.abs({}).relu()",
    "{} / 2",
    "F.hardswish({})",
)
TAILS = (
    "{}.mean((2, 3))",
    "{}.flatten(1)",
    "F.max_pool2d({}, 2)",
    "F.adaptive_avg_pool2d({}, 1)",
    "{}.permute(0, 2, 3, 1)",
    "F.group_norm({}, 1)",
    "{}.chunk(2, 1)[0]",
    "{}.softmax(1)",
    "{}.view({}.shape[0], {}.shape[1], -1)",
    "{} * {}.mean((2, 3), keepdim=True).sigmoid()",
    "{}.amax(1, keepdim=True)",
)

HEAD = """import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
"""
BUFFERS = """        drawn = torch.Generator().manual_seed(0)
        for buffer in self.buffers():
            if buffer.is_floating_point():
                buffer.uniform_(0.5, 1.5, generator=drawn)
"""


class NetGenerator:
    """Writes one network in eval or train mode; `args` are its example arguments."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.layers: list[str] = []
        self.lines: list[str] = []
        torch.manual_seed(seed)
        rng = self.rng
        image = rng.random() < 0.65
        shape = (
            (
                rng.choice((1, 2, 5)),
                rng.choice((1, 3, 4, 8)),
                rng.choice((4, 7, 8)),
                rng.choice((4, 6, 9)),
            )
            if image
            else (rng.choice((1, 3, 16)), rng.choice((1, 6, 16)))
        )
        x = torch.randn(shape)
        self.args = [
            x.contiguous(memory_format=torch.channels_last) if image and rng.random() < 0.3 else x
        ]
        self.training = rng.random() < 0.2

    def write(self) -> NetGenerator:
        """Generate the layers; a line that does not fit is dropped."""
        names = ["x"]
        for _ in range(self.rng.randint(3, 9)):
            mark = len(self.layers)
            line = self._line(names[-1], names)
            self.lines.append(f"h{len(self.lines)} = {line}")
            try:
                value = self._value(f"h{len(self.lines) - 1}")
                fits = value.numel() > 0 and bool(torch.isfinite(value).all())
            except (RuntimeError, IndexError, ValueError, TypeError):
                fits = False
            if fits:
                names.append(f"h{len(self.lines) - 1}")
            else:
                self.lines.pop()
                del self.layers[mark:]
        # A norm over the few elements of one batch divides by nearly 0: no two programs agree on that.
        self.training = self.training and not any("BatchNorm" in text for text in self.layers)
        return self

    def _line(self, a: str, names: list[str]) -> str:
        rng = self.rng
        shape = self._value(a).shape
        image = len(shape) == 4
        kind = rng.choice(
            ("layer",) * 4 + ("norm",) * 3 + ("activation",) * 4 + ("residual", "tail", "sum")
        )
        if kind == "activation" or not shape:
            return rng.choice(ACTIVATIONS).format(a)
        if kind == "residual":
            return f"{a} + {rng.choice(names)}"
        if kind == "sum":
            return f"{a}.{rng.choice(('sum', 'mean'))}(-1, keepdim={rng.random() < 0.5})"
        if kind == "tail":
            text = rng.choice(TAILS)
            return text.format(*[a] * text.count("{}"))
        name = f"l{len(self.layers)}"
        width = shape[1 if image else -1]
        if kind == "norm":
            self.layers.append(
                f"self.{name} = nn.BatchNorm{'2d' if image else '1d'}({width}, affine={rng.random() < 0.8})"
            )
        elif image:
            groups = rng.choice((1, 1, width))
            self.layers.append(
                f"self.{name} = nn.Conv2d({width}, {groups * rng.choice((1, 2, 4))}, {rng.choice((1, 2, 3))}, "
                f"padding={rng.choice((0, 1))}, groups={groups}, stride={rng.choice((1, 1, 2))}, bias={rng.random() < 0.6})"
            )
        else:
            self.layers.append(
                f"self.{name} = nn.Linear({width}, {rng.choice((1, 5, 16))}, bias={rng.random() < 0.7})"
            )
        return f"self.{name}({a})"

    def _value(self, name: str) -> torch.Tensor:
        """Value of the name in the network so far."""
        with torch.no_grad():
            return run_source(self.source(name)).Model()(*self.args)

    def source(self, result: str | None = None) -> str:
        """The network as a file's text; the returned name is random by default."""
        last = f"h{len(self.lines) - 1}" if self.lines else "x"
        if result is None:
            several = self.lines and self.rng.random() < 0.4
            result = f"({last}, h{self.rng.randrange(len(self.lines))})" if several else last
        layers = "".join(f"        {text}\n" for text in self.layers)
        lines = "".join(f"        {line}\n" for line in self.lines)
        mode = "" if self.training else "        self.eval()\n"
        return f"{HEAD}{layers}{BUFFERS}{mode}\n    def forward(self, x):\n{lines}        return {result}\n"
