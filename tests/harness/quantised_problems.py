"""Quantised references as people write them, each with right and wrong programs. Programs take the reference's module and its arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from dvk.harness.checking.case_keys import plan
from dvk.harness.checking.cases import Cases
from dvk.harness.transport.calls import call
from dvk.tasks.build import build
from dvk.tasks.precision import PrecisionMode, classify
from dvk.tasks.trees import named_tensors
from tests.harness.problems import HEAD, task_of

Program = Callable[..., Any]
Tensor = torch.Tensor


@dataclass(frozen=True)
class QuantisedProblem:
    """A reference file, and programs."""

    source: str
    honest: dict[str, Program]
    wrong: dict[str, Program] = field(default_factory=dict)


def cases_in_its_class(source: str, seed: int, tier: str = "search") -> Cases:
    """The input sets of a reference, in the precision class that examining it finds."""
    built = build(task_of(source))
    args, kwargs = built.inputs(0)
    watch = PrecisionMode()
    with watch:
        result = call(built.model, args, kwargs, 0)
    precision = classify(watch, [t for _, t in named_tensors(result)])
    task = task_of(source, precision=precision)
    return Cases(build(task), plan(task, tier, 2, seed), seed)


def in_groups(m: Any, scale: Tensor) -> Tensor:
    """The dequantised weight of `int4_in_int8`."""
    return (m.q.view(96, 4, 64).float() * scale[..., None]).reshape(96, 256)


def rounded_rows(x: Tensor) -> Tensor:
    """Activations quantised to int8 by row, and back."""
    scale = x.abs().amax(1, keepdim=True) / 127
    return (x / scale).round() * scale


INT4_IN_INT8 = QuantisedProblem(
    HEAD
    + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("q", torch.randint(-8, 8, (96, 256), dtype=torch.int8))
        self.register_buffer("s", (torch.rand(96, 4) * 0.01 + 0.005).bfloat16())

    def forward(self, x):
        w = self.q.view(96, 4, 64).to(torch.bfloat16) * self.s.unsqueeze(-1)
        return F.linear(x, w.reshape(96, 256))


def get_inputs():
    return [torch.randn(32, 256, dtype=torch.bfloat16)]
""",
    {
        "in float32": lambda m, x: (x.float() @ in_groups(m, m.s.float()).t()).bfloat16(),
        "scales sums": lambda m, x: (
            (
                torch.einsum("mgk,ngk->mng", x.float().view(-1, 4, 64), m.q.float().view(96, 4, 64))
                * m.s.float()
            )
            .sum(-1)
            .bfloat16()
        ),
    },
    {
        "one scale": lambda m, x: F.linear(x, m.q.bfloat16() * m.s.float().mean().bfloat16()),
        "skips small groups": lambda m, x: F.linear(
            x, in_groups(m, torch.where(m.s < 0.05 * m.s.amax(), 0.0, m.s.float())).bfloat16()
        ),
        "quantises activations": lambda m, x: (
            rounded_rows(x.float()) @ in_groups(m, m.s.float()).t()
        ).bfloat16(),
    },
)


def from_table(m: Any, absmax: Tensor) -> Tensor:
    """The dequantised weight of `codebook`."""
    values = torch.stack([m.table[(m.packed >> 4).long()], m.table[(m.packed & 15).long()]], 1)
    return (values.view(-1, 64) * absmax).view(64, 256)


CODEBOOK = QuantisedProblem(
    HEAD
    + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.linspace(-1, 1, 16) ** 3)
        self.register_buffer("packed", torch.randint(0, 256, (64 * 256 // 2,), dtype=torch.uint8))
        self.register_buffer("absmax", torch.rand(256) * 0.02 + 0.05)

    def forward(self, x):
        high = torch.bitwise_right_shift(self.packed, 4).long()
        low = torch.bitwise_and(self.packed, 15).long()
        w = torch.stack([self.table[high], self.table[low]], dim=1).view(-1, 64)
        return x @ (w * self.absmax[:, None]).view(64, 256).T


def get_inputs():
    return [torch.randn(32, 256)]
""",
    {"in double": lambda m, x: (x.double() @ from_table(m, m.absmax[:, None]).double().T).float()},
    {"one scale": lambda m, x: x @ from_table(m, m.absmax.mean()).T},
)


def by_blocks(
    x: Tensor,
    w: Tensor,
    scale: Tensor,
    inverse: bool = False,
    truncates: bool = False,
    sums: torch.dtype = torch.float32,
) -> Tensor:
    """The product of `FP8_BLOCKS`, block by block."""
    y = torch.zeros(x.shape[0], w.shape[0], dtype=sums)
    for k in range(0, x.shape[1], 128):
        block = x[:, k : k + 128].float()
        most = block.abs().amax(1, keepdim=True).clamp(1e-4)
        v = block * (448.0 / most) if inverse else block / (most / 448.0)
        v = (v.view(torch.int32) & ~0xFFFFF).view(torch.float32) if truncates else v
        part = v.to(torch.float8_e4m3fn).float() @ w[:, k : k + 128].float().T
        y += (part * (most / 448.0) * scale[:, k // 128].repeat_interleave(128)).to(sums)
    return y.bfloat16()


FP8_BLOCKS = QuantisedProblem(
    HEAD
    + """
class Model(nn.Module):
    def forward(self, x, w, scale):
        rows, width = x.shape
        blocks = x.float().view(rows, width // 128, 128)
        s = blocks.abs().amax(-1, keepdim=True).clamp(1e-4) / 448.0
        codes = (blocks / s).to(torch.float8_e4m3fn)
        wide = (codes.to(torch.float32) * s).view(rows, width)
        weight = w.to(torch.float32) * scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
        return (wide @ weight.T).to(torch.bfloat16)


def get_inputs():
    w = (torch.randn(256, 512) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
    return [torch.randn(16, 512, dtype=torch.bfloat16), w, torch.rand(2, 4) * 1e-4 + 1e-4]
""",
    {
        "by block": lambda m, *given: by_blocks(*given),
        "by reciprocal": lambda m, *given: by_blocks(*given, inverse=True),
    },
    {
        "sums in bfloat16": lambda m, *given: by_blocks(*given, sums=torch.bfloat16),
        "truncates": lambda m, *given: by_blocks(*given, truncates=True),
        "one scale a row": lambda m, x, w, s: by_blocks(x, w, s[:, :1].expand_as(s)),
    },
)


def tensorwise(m: Any, x: Tensor, step: int = 128, sums: torch.dtype = torch.float32) -> Tensor:
    """The product of `SCALED_MM`."""
    scale = x.abs().max() / 448
    codes = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float()
    y = torch.zeros(x.shape[0], m.w.shape[0], dtype=sums)
    for k in range(0, x.shape[1], step):
        y += (codes[:, k : k + step] @ m.w[:, k : k + step].float().t()).to(sums)
    return (y.float() * (scale * m.ws)).bfloat16()


SCALED_MM = QuantisedProblem(
    HEAD
    + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        w = torch.randn(64, 128)
        self.register_buffer("ws", (w.abs().max() / 448).reshape(()))
        self.register_buffer("w", (w / self.ws).to(torch.float8_e4m3fn))

    def forward(self, x):
        xs = x.abs().max().float() / 448
        xq = (x / xs).clamp(-448, 448).to(torch.float8_e4m3fn)
        return torch._scaled_mm(xq, self.w.t(), scale_a=xs, scale_b=self.ws, out_dtype=torch.bfloat16)


def get_inputs():
    return [torch.randn(32, 128)]
""",
    {"own product": tensorwise},
    {
        "sums in bfloat16": lambda m, x: tensorwise(m, x, 8, torch.bfloat16),
        "does not quantise": lambda m, x: ((x @ m.w.float().t()) * m.ws).bfloat16(),
    },
)


def quantised_norm(
    m: Any,
    x: Tensor,
    r: Tensor,
    rounds: Callable[[Tensor], Tensor] = torch.round,
    half: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The result of `NORM_TO_INT8`."""
    h = x + r
    wide = h.float()
    n = wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * m.g.float()
    n = n.bfloat16().float() if half else n
    most = n.abs().amax(-1, keepdim=True)
    return rounds(n * (127.0 / most)).clamp(-127, 127).to(torch.int8), (most / 127).squeeze(-1), h


NORM_TO_INT8 = QuantisedProblem(
    HEAD
    + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.g = nn.Parameter(torch.rand(256) + 0.5)

    def forward(self, x, r):
        h = x + r
        n = F.rms_norm(h.float(), (256,), self.g.float(), 1e-5)
        s = n.abs().amax(-1, keepdim=True) / 127.0
        return torch.clamp(torch.round(n / s), -127, 127).to(torch.int8), s.squeeze(-1), h


def get_inputs():
    return [torch.randn(64, 256).bfloat16(), torch.randn(64, 256).bfloat16()]
""",
    {"by reciprocal": quantised_norm},
    {
        "truncates": lambda m, x, r: quantised_norm(m, x, r, torch.trunc),
        "rounds the norm to bfloat16": lambda m, x, r: quantised_norm(m, x, r, half=True),
        "rounds up early": lambda m, x, r: quantised_norm(m, x, r, lambda t: (t + 0.02).round()),
    },
)

UINT8_ZEROS = QuantisedProblem(
    HEAD
    + """
class Model(nn.Module):
    def forward(self, x, wq, scale, zp, bias):
        w = (wq.to(torch.int32) - zp.to(torch.int32)[:, None]).to(x.dtype) * scale[:, None]
        return torch.relu(x @ w.t() + bias)


def get_inputs():
    wq = torch.randint(0, 256, (64, 128), dtype=torch.uint8)
    zeros = torch.full((64,), 128, dtype=torch.uint8)
    return [torch.randn(32, 128), wq, torch.full((64,), 0.01), zeros, torch.zeros(64)]
""",
    {
        "zero outside": lambda m, x, w, s, z, b: torch.relu(
            (x @ w.float().t() - x.sum(1, keepdim=True) * z.float()) * s + b
        )
    },
    {
        "zero is 128": lambda m, x, w, s, z, b: torch.relu(
            x @ ((w.float() - 128) * s[:, None]).t() + b
        ),
        "one scale": lambda m, x, w, s, z, b: torch.relu(
            x @ ((w.float() - z.float()[:, None]) * s[0]).t() + b
        ),
    },
)

INT8_TABLE = QuantisedProblem(
    HEAD
    + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randint(-127, 128, (100, 64), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(100) * 0.001 + 0.01)

    def forward(self, ids):
        return self.table[ids].float() * self.scales[ids].unsqueeze(-1)


def get_inputs():
    return [torch.randint(0, 100, (32, 8))]
""",
    {"whole table": lambda m, ids: (m.table.float() * m.scales[:, None])[ids]},
    {"one scale": lambda m, ids: m.table[ids].float() * m.scales.mean()},
)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention in float32 with a result of 16 bits."""
    return F.scaled_dot_product_attention(q.float(), k.float(), v.float()).bfloat16()


E5M2_CACHE = QuantisedProblem(
    HEAD
    + """
class Model(nn.Module):
    def forward(self, q, k, v, ks, vs):
        return F.scaled_dot_product_attention(q, k.to(torch.bfloat16) * ks, v.to(torch.bfloat16) * vs)


def get_inputs():
    cache = [torch.randn(1, 4, 64, 64).to(torch.float8_e5m2) for _ in range(2)]
    one = torch.tensor(1.0).bfloat16()
    return [torch.randn(1, 4, 16, 64).bfloat16(), *cache, one, one.clone()]
""",
    {
        "in float32": lambda m, q, k, v, ks, vs: attention(
            q, k.float() * ks.float(), v.float() * vs.float()
        )
    },
    {
        "scale of values is 1": lambda m, q, k, v, ks, vs: attention(q, k.float() * ks, v.float()),
        "values as e4m3": lambda m, q, k, v, ks, vs: attention(
            q, k.float() * ks.float(), v.float().to(torch.float8_e4m3fn).float() * vs.float()
        ),
    },
)

QUICK = {"UINT8_ZEROS": UINT8_ZEROS, "INT8_TABLE": INT8_TABLE}
PROBLEMS = {
    **QUICK,
    "INT4_IN_INT8": INT4_IN_INT8,
    "CODEBOOK": CODEBOOK,
    "FP8_BLOCKS": FP8_BLOCKS,
    "SCALED_MM": SCALED_MM,
    "NORM_TO_INT8": NORM_TO_INT8,
    "E5M2_CACHE": E5M2_CACHE,
}
