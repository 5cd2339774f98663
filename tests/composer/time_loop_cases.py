"""Loops over time steps as models write them; run as a module it prints the errors of their Triton kernels in the interpreter."""

from __future__ import annotations

import json
import linecache
from dataclasses import dataclass
from typing import Any

import torch

from dvk.composer.capture.captured import CapturedGraph
from dvk.composer.capture.export import trace_module

HEAD = """\
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, {names}):
"""
MATRIX = "q k v g"


@dataclass(frozen=True)
class Case:
    """A forward's body; its arguments are [2, steps, 3, 16], the last of `v` is 17 wide, `g` is [2, steps, 3] in (0, 1)."""

    body: str
    names: str = MATRIX
    dtype: str = "float32"
    chunks: bool = False
    error: float = 1e-5


STATE = "S = torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[-1], dtype=q.dtype, device=q.device)\n"
GATED = (
    STATE
    + """\
outs = []
for t in range(q.shape[1]):
    S = S * g[:, t, :, None, None] + k[:, t, :, :, None] * v[:, t, :, None, :]
    outs.append(torch.einsum("bhk,bhkv->bhv", q[:, t], S))
return torch.stack(outs, 1)
"""
)
CASES = {
    "gated": Case(GATED, chunks=True),
    "gated float16": Case(GATED, dtype="float16", chunks=True, error=2e-3),
    "negative decay": Case(
        GATED.replace("S * g[:, t, :, None, None]", "S * (g[:, t, :, None, None] * 2 - 1)"),
        chunks=True,
    ),
    "no decay, last state": Case(
        """\
B, T, H, K = q.shape
S = q.new_zeros(B, H, K, v.shape[-1])
out = torch.empty(B, T, H, v.shape[-1], dtype=q.dtype, device=q.device)
for t in range(T):
    S += k[:, t].unsqueeze(-1) @ v[:, t].unsqueeze(-2)
    out[:, t] = (q[:, t].unsqueeze(-2) @ S).squeeze(-2) * K**-0.5
return out, S
""",
        chunks=True,
    ),
    "retention by head": Case(
        STATE
        + """\
decay = 1 - 2.0 ** (-5 - torch.arange(q.shape[2], device=q.device, dtype=q.dtype))
outs = []
for t in range(q.shape[1]):
    S = decay[None, :, None, None] * S + torch.einsum("bhk,bhv->bhkv", k[:, t], v[:, t])
    outs.append(torch.einsum("bhk,bhkv->bhv", q[:, t], S).unsqueeze(1))
return torch.cat(outs, dim=1)
""",
        chunks=True,
    ),
    "decay by key": Case(
        STATE
        + """\
outs = []
a = torch.sigmoid(k)
for t in range(q.shape[1]):
    S = a[:, t].unsqueeze(-1) * S + k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
    outs.append((S * q[:, t].unsqueeze(-1)).sum(2))
return torch.stack(outs, dim=2)
"""
    ),
    "delta": Case(
        STATE
        + """\
outs = []
for t in range(q.shape[1]):
    kt = F.normalize(k[:, t], dim=-1)
    old = torch.einsum("bhkv,bhk->bhv", S, kt)
    S = S + kt.unsqueeze(-1) * (g[:, t].unsqueeze(-1) * (v[:, t] - old)).unsqueeze(-2)
    outs.append(torch.einsum("bhkv,bhk->bhv", S, q[:, t]))
return torch.stack(outs, 1), S
"""
    ),
    "gated delta, steps first": Case(
        """\
q, k, v, g = (x.transpose(0, 1) for x in (q, k, v, g))
S = torch.zeros(q.shape[1], q.shape[2], q.shape[3], v.shape[-1], dtype=q.dtype, device=q.device)
k = k * 0.2
out = torch.zeros(q.shape[0], q.shape[1], q.shape[2], v.shape[-1], dtype=q.dtype, device=q.device)
for t in range(q.shape[0]):
    S = S * g[t][..., None, None]
    delta = (v[t] - (S * k[t][..., None]).sum(-2)) * g[t][..., None]
    S = S + k[t][..., None] * delta[..., None, :]
    out[t] = (S * q[t][..., None]).sum(-2)
return out.transpose(0, 1)
"""
    ),
    "normalised": Case(
        STATE
        + """\
z = torch.zeros_like(q[:, 0])
q, k = F.elu(q) + 1, F.elu(k) + 1
outs = []
for t in range(q.shape[1]):
    S = S + torch.einsum("bhk,bhv->bhkv", k[:, t], v[:, t])
    z = z + k[:, t]
    outs.append(torch.einsum("bhk,bhkv->bhv", q[:, t], S) / (q[:, t] * z).sum(-1, keepdim=True))
return torch.stack(outs, 1)
"""
    ),
    "selective": Case(
        """\
x, dt, b, c = v[:, :, 0], F.softplus(v[:, :, 1]), k[:, :, 0], q[:, :, 0]
A = -torch.arange(1, b.shape[-1] + 1, device=x.device, dtype=x.dtype).repeat(x.shape[-1], 1)
h = torch.zeros(x.shape[0], x.shape[2], b.shape[-1], dtype=x.dtype, device=x.device)
ys = []
for i in range(x.shape[1]):
    h = torch.exp(dt[:, i].unsqueeze(-1) * A) * h + (dt[:, i] * x[:, i]).unsqueeze(-1) * b[:, i].unsqueeze(1)
    ys.append((h * c[:, i].unsqueeze(1)).sum(dim=-1))
return torch.stack(ys, dim=1) + x
"""
    ),
    "small values of tanh": Case(
        """\
h = torch.zeros_like(v[:, 0])
hs = []
for t in range(v.shape[1]):
    h = torch.tanh(0.5 * h + 1e-4 * v[:, t])
    hs.append(h)
return torch.stack(hs, 1)
"""
    ),
    "projected values": Case(
        """\
S = torch.zeros(q.shape[0], q.shape[2], q.shape[3], q.shape[3], dtype=q.dtype, device=q.device)
w = v[0, :16, 0, :16]
outs = []
for t in range(q.shape[1]):
    u = torch.einsum("bhk,kv->bhv", k[:, t], w)
    S = S * g[:, t, :, None, None] + k[:, t, :, :, None] * u[:, :, None, :]
    outs.append(torch.einsum("bhk,bhkv->bhv", q[:, t], S))
return torch.stack(outs, 1)
"""
    ),
    "backwards": Case(
        """\
h = v[:, -1]
hs = []
for t in range(v.shape[1] - 1, -1, -1):
    h = g[:, t, :, None] * h + torch.tanh(v[:, t])
    hs.append(h)
return torch.stack(hs, 1)
"""
    ),
}
LEFT = {
    "depends on the step": GATED.replace("S * g", "S * (t % 2) * g"),
    "a full matrix of the state": """\
h = q[:, 0]
outs = []
for t in range(q.shape[1]):
    h = torch.tanh(h @ k[0, :16, 0] + q[:, t])
    outs.append(h)
return torch.stack(outs, 1)
""",
    "reads its results": GATED.replace(
        "    outs.append(", "    S = S + (outs[-1].sum() if outs else 0)\n    outs.append("
    ),
    "wraps around": GATED.replace("k[:, t, :, :, None]", "k[:, t - 1, :, :, None]"),
}


def source_of(name: str) -> str:
    """A file with the module of a case."""
    body = CASES[name].body if name in CASES else LEFT[name]
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return HEAD.format(names=", ".join(MATRIX.split())) + lines


def args_of(name: str, steps: int) -> list[torch.Tensor]:
    """Its arguments."""
    torch.manual_seed(0)
    shapes = (16, 16, 17)
    args = [torch.randn(2, steps, 3, n) * 0.5 for n in shapes] + [torch.rand(2, steps, 3)]
    return [a.to(getattr(torch, CASES[name].dtype if name in CASES else "float32")) for a in args]


def model_of(name: str) -> Any:
    """Its module; a capture can read its text."""
    from tests.composer.programs import run_source

    source = source_of(name)
    model = run_source(source, "reference").Model()
    file = type(model).forward.__code__.co_filename
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    return model


def captured_of(name: str, steps: int) -> CapturedGraph:
    return trace_module(model_of(name), args_of(name, steps), MATRIX.split())


def error(name: str, steps: int, backend: str, chunked: bool = False) -> float:
    """Largest error of a drop-in without other recipes, relative to the largest result in float64."""
    from dvk.composer import Plan, compose
    from dvk.composer.rewrites import chunked_steps
    from dvk.records import Task
    from tests.composer.programs import run_source

    args, captured = args_of(name, steps), captured_of(name, steps)
    if chunked:
        graph = chunked_steps.rewrite(captured.graph)
        assert graph is not None
        captured = captured.model_copy(update={"graph": graph})
    task = Task(
        id="test", name="test", source=source_of(name), entry="Model", kind="module", device="cpu"
    )
    made = run_source(compose(task, captured, Plan(("fuse_pointwise",)), backend).source).ModelNew()
    with torch.no_grad():
        got, want = made(*args), model_of(name)(*(a.double() for a in args))
        assert made.why(*args) == "the kernels run"
    pairs = zip(*(v if isinstance(v, tuple) else (v,) for v in (got, want)), strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def errors() -> dict[str, float]:
    """Errors of the Triton kernels."""
    steps = {name: error(name, 21, "triton") for name in CASES}
    wide = {n for n, case in CASES.items() if case.chunks}
    return steps | {f"{name} chunked": error(name, 150, "triton", True) for name in sorted(wide)}


if __name__ == "__main__":
    print(json.dumps(errors()))
