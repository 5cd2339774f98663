"""Tokens a second of a small decoder: Llama 3 8B cut to a few layers, without its head, one sequence, random weights in bf16 or int4.

    python -m tests.benchmarks.production_decoder --layers 4 --cache 4096 --compile

A row for each kind of weights, as JSON: eager, torch.compile (with `--compile`), and the blocks composed by dvk. A step of all layers is
replayed as one CUDA graph in each arm, so that the host's time is in none. The cache is contiguous; its write is PyTorch's in each arm.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.benchmarks.production import Composed, Tensors, error

HIDDEN, INNER, HEADS, KEYS, WIDTH, GROUP = 4096, 14336, 32, 8, 128, 128
Linear = Callable[..., torch.Tensor]
STEPS = 20


def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """RMSNorm as Llama has it."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * w


def dense(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A product with a weight in bf16."""
    return F.linear(x, w)


def packed(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """A product with a weight of four bits in words of eight, with scales and zero points of groups."""
    shifts = torch.arange(0, 32, 4, device=q.device, dtype=torch.int32)
    w = ((q.unsqueeze(-1) >> shifts) & 0xF).reshape(*s.shape, -1).to(x.dtype)
    w = (w - z.unsqueeze(-1)) * s.unsqueeze(-1)
    return F.linear(x, w.reshape(s.shape[0], -1))


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding."""
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


def blocks(linear: Linear, held: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The two halves of a layer around the write of the cache; a weight of `linear` is so many tensors."""

    def before(
        x: torch.Tensor, w: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *qkv: Any
    ) -> Any:
        y = linear(norm(x, w), *qkv)
        q, k, v = y.view(-1, WIDTH).split([HEADS, KEYS, KEYS])
        return turned(q, cos, sin), turned(k, cos, sin), v

    def after(
        x: torch.Tensor,
        q: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        length: torch.Tensor,
        w: torch.Tensor,
        *weights: Any,
    ) -> torch.Tensor:
        out, gate, up, down = (weights[n * held : (n + 1) * held] for n in range(4))
        grouped = q.view(KEYS, HEADS // KEYS, WIDTH)
        scores = torch.matmul(grouped, keys.transpose(-1, -2)).float() * WIDTH**-0.5
        places = torch.arange(keys.shape[1], device=q.device)
        scores = scores.masked_fill(places >= length, float("-inf"))
        mixed = torch.matmul(torch.softmax(scores, -1).to(q.dtype), values)
        x = x + linear(mixed.view(1, HIDDEN), *out)
        y = norm(x, w)
        return x + linear(F.silu(linear(y, *gate)) * linear(y, *up), *down)

    return before, after


def _weight(n: int, k: int, four: bool) -> Tensors:
    if not four:
        return [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) * k**-0.5]
    words = torch.randint(-(2**31), 2**31 - 1, (n, k // 8), device="cuda", dtype=torch.int32)
    scale = torch.full((n, k // GROUP), 0.2 * k**-0.5, device="cuda", dtype=torch.bfloat16)
    return [words, scale, torch.full_like(scale, 7.5)]


class Decoder:
    """Weights and caches, and a step in place."""

    def __init__(self, layers: int, cache: int, four: bool):
        brain = {"device": "cuda", "dtype": torch.bfloat16}
        self.x = torch.randn(1, HIDDEN, **brain)
        self.cos, self.sin = torch.rand(2, WIDTH, **brain)
        self.length = torch.tensor([cache - 3], device="cuda")
        self.place = self.length - 1
        self.layers = [
            {
                "norms": [torch.ones(HIDDEN, **brain) for _ in range(2)],
                "qkv": _weight((HEADS + 2 * KEYS) * WIDTH, HIDDEN, four),
                "rest": [
                    *_weight(HIDDEN, HIDDEN, four),
                    *_weight(INNER, HIDDEN, four),
                    *_weight(INNER, HIDDEN, four),
                    *_weight(HIDDEN, INNER, four),
                ],
                "cache": [torch.randn(KEYS, cache, WIDTH, **brain) for _ in range(2)],
            }
            for _ in range(layers)
        ]

    def step(self, before: Callable[..., Any], after: Callable[..., Any]) -> torch.Tensor:
        """One token through all layers."""
        x = self.x
        for layer in self.layers:
            q, k, v = before(x, *self.first(layer))
            for kept, new in zip(layer["cache"], (k, v), strict=True):
                kept.index_copy_(1, self.place, new[:, None])
            x = after(x, q, *self.second(layer))
        return x

    def first(self, layer: dict[str, Tensors]) -> Tensors:
        return [layer["norms"][0], self.cos, self.sin, *layer["qkv"]]

    def second(self, layer: dict[str, Tensors]) -> Tensors:
        return [*layer["cache"], self.length, layer["norms"][1], *layer["rest"]]


def tokens_per_second(step: Callable[[], torch.Tensor]) -> float:
    """Steps a second as a CUDA graph, the best of four times."""
    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    best = float("inf")
    for _ in range(4):
        start.record()
        for _ in range(STEPS):
            graph.replay()
        stop.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(stop) / STEPS)
    return round(1e3 / best, 1)


def measured(layers: int, cache: int, four: bool, most: int, compiles: bool) -> dict[str, Any]:
    """One row."""
    torch.manual_seed(0)
    model = Decoder(layers, cache, four)
    before, after = blocks(packed if four else dense, 3 if four else 1)
    found: dict[str, Any] = {
        "family": "decoder",
        "shape": f"Llama 3 8B, {layers} layers, {cache} cached",
        "weights": "int4" if four else "bf16",
        "eager_per_s": tokens_per_second(lambda: model.step(before, after)),
    }
    want = model.step(before, after).clone()
    layer = model.layers[0]
    one = [model.x, *model.first(layer)]
    two = [model.x, before(*one)[0], *model.second(layer)]
    until = time.monotonic() + 60
    made = [Composed(f, a, "cuda") for f, a in ((before, one), (after, two))]
    found["kernels"] = [k.family for part in made for k in part.kernels.values()]
    first, second = (part.tuned(most, until)[0] for part in made)
    found["dvk_per_s"] = tokens_per_second(lambda: model.step(first, second))
    found["error"] = error(model.step(first, second), want)
    print(json.dumps(found), flush=True)
    if compiles:
        torch._dynamo.reset()
        mode = "max-autotune-no-cudagraphs"
        first, second = (torch.compile(f, mode=mode, dynamic=False) for f in (before, after))
        found["compile_per_s"] = tokens_per_second(lambda: model.step(first, second))
    return found


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--cache", type=int, default=4096)
    parser.add_argument("--schedules", type=int, default=6, help="schedules tried of each kernel")
    parser.add_argument("--compile", action="store_true", help="time torch.compile, too")
    asked = parser.parse_args()
    for four in (False, True):
        row = measured(asked.layers, asked.cache, four, asked.schedules, asked.compile)
        print(json.dumps(row), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
