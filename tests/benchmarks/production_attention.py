"""What production runs beside matrix products, by the device's time: the composer, the library, torch.compile, and the roofline.

    python -m tests.benchmarks.production_attention --families int4,int8,decode,prefill,quantise --compile --seconds 200

A row for each shape, printed as it is measured: JSON with microseconds of the best library call or calls (`library_us`), of the composer's
kernels with the best schedule of each (`dvk_us`), of torch.compile max-autotune (`compile_us`, with `--compile`) and of the roofline.
L2 is flushed before each call. Shapes are layers of public configurations: Llama 3 8B and 70B, Qwen2.5 7B, Gemma 2 9B, Mistral 7B, MPT 7B,
BERT large, Whisper large, T5 large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from tests.benchmarks.production import Row, Tensors, main
from tests.composer.packed_cases import awq, gptq, words

BRAIN, E4M3 = torch.bfloat16, torch.float8_e4m3fn


def _randn(*shape: int, dtype: torch.dtype = BRAIN) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


# ------------------------------------------------------------------ weight-only products

GROUP = 128


def pairs(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Bytes of two along k, symmetric."""
    n, g = s.shape
    low, high = (q & 0xF).to(x.dtype) - 8, (q >> 4).to(x.dtype) - 8
    w = torch.stack((low, high), dim=-1).reshape(n, g, -1)
    return x @ (w * s[..., None]).reshape(n, -1).t()


def bytewise(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """int8 with a scale a result."""
    return F.linear(x, q.to(x.dtype)) * s


def _word(*shape: int) -> torch.Tensor:
    return torch.randint(-(2**31), 2**31 - 1, shape, device="cuda", dtype=torch.int32)


def _scale(*shape: int, dtype: torch.dtype = BRAIN) -> torch.Tensor:
    return (torch.rand(*shape, device="cuda") * 0.01 + 0.001).to(dtype)


def _words_args(m: int, k: int, n: int) -> Tensors:
    zeros = torch.randint(0, 16, (n, k // GROUP), device="cuda").to(BRAIN)
    return [_randn(m, k), _word(n, k // 8), _scale(n, k // GROUP), zeros]


def _pairs_args(m: int, k: int, n: int) -> Tensors:
    codes = torch.randint(0, 256, (n, k // 2), device="cuda", dtype=torch.uint8)
    return [_randn(m, k), codes, _scale(n, k // GROUP)]


def _gptq_args(m: int, k: int, n: int) -> Tensors:
    half = torch.float16
    s = _scale(k // GROUP, n, dtype=half)
    return [_randn(m, k, dtype=half), _word(k // 8, n), _word(k // GROUP, n // 8), s]


def _awq_args(m: int, k: int, n: int) -> Tensors:
    half = torch.float16
    s = _scale(k // GROUP, n, dtype=half)
    return [_randn(m, k, dtype=half), _word(k, n // 8), _word(k // GROUP, n // 8), s]


def _tinygemm(args: Tensors) -> tuple[Callable[..., Any], Tensors]:
    """PyTorch's own int4 product, with weights of the same size in its layout."""
    x, q, s, *_ = args
    n, k = q.shape[0], q.shape[1] * (8 if q.dtype == torch.int32 else 2)
    codes = torch.randint(0, 256, (n, k // 2), device="cuda", dtype=torch.uint8)
    packed = torch._convert_weight_to_int4pack(codes, 8)
    both = torch.stack((s, torch.zeros_like(s)), -1).transpose(0, 1).contiguous()
    run = torch._weight_int4pack_mm
    return lambda a, w, t: run(a, w, GROUP, t), [x, packed, both]


def _dense(args: Tensors) -> tuple[Callable[..., Any], Tensors]:
    """The product with a weight of the activations' type: what is run without quantisation."""
    x, q, *_ = args
    n = args[-1].shape[-1] if q.shape[0] != args[-1].shape[0] else q.shape[0]
    return F.linear, [x, _randn(n, x.shape[1], dtype=x.dtype)]


LAYERS = (
    ("Llama 3 8B up", 4096, 14336),
    ("Llama 3 8B down", 14336, 4096),
    ("Llama 3 8B qkv", 4096, 6144),
    ("Qwen2.5 7B up", 3584, 18944),
    ("Llama 3 70B down", 28672, 8192),
    ("Mistral 7B out", 4096, 4096),
)


def _int4() -> Iterator[Row]:
    for name, k, n in LAYERS:
        yield Row(
            "int4",
            f"words, {name}",
            words,
            lambda k=k, n=n: _words_args(1, k, n),
            prepared=_tinygemm,
        )
    for kind, forward, args, library in (
        ("pairs", pairs, _pairs_args, _tinygemm),
        ("gptq", gptq, _gptq_args, _dense),
        ("awq", awq, _awq_args, _dense),
    ):
        for m, (name, k, n) in ((1, LAYERS[0]), (1, LAYERS[1]), (4, LAYERS[0])):
            yield Row(
                "int4",
                f"{kind}, {name}, {m} rows",
                forward,
                lambda k=k, n=n, m=m, args=args: args(m, k, n),
                prepared=library,
            )
    yield Row(
        "int4",
        "words, Llama 3 8B up, 4 rows",
        words,
        lambda: _words_args(4, 4096, 14336),
        prepared=_tinygemm,
    )


def _int8() -> Iterator[Row]:
    for name, k, n in LAYERS:
        yield Row(
            "int8",
            name,
            bytewise,
            lambda k=k, n=n: [
                _randn(1, k),
                torch.randint(-128, 128, (n, k), device="cuda", dtype=torch.int8),
                _scale(n),
            ],
            prepared=_dense,
        )


# ------------------------------------------------------------------ attention


@dataclass(frozen=True)
class Heads:
    """Sizes of one decoding step."""

    batch: int
    queries: int
    keys: int
    length: int
    width: int


def decode(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """One query a sequence over a cache with lengths, as it is written by hand; grouped queries."""
    b, h, d = q.shape
    groups = k.shape[1]
    grouped = q.view(b, groups, h // groups, d)
    scores = torch.matmul(grouped, k.transpose(-1, -2)).float() / math.sqrt(d)
    places = torch.arange(k.shape[2], device=q.device)
    scores = scores.masked_fill(places >= lengths[:, None, None, None], float("-inf"))
    return torch.matmul(torch.softmax(scores, -1).to(v.dtype), v).view(b, h, d)


def capped(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """The same with a soft cap and a sliding window."""
    b, h, d = q.shape
    groups = k.shape[1]
    grouped = q.view(b, groups, h // groups, d)
    scores = torch.matmul(grouped, k.transpose(-1, -2)).float() / math.sqrt(d)
    scores = 50.0 * torch.tanh(scores / 50.0)
    places = torch.arange(k.shape[2], device=q.device)
    ends = lengths[:, None, None, None]
    outside = (places >= ends) | (places < ends - 4096)
    return torch.matmul(
        torch.softmax(scores.masked_fill(outside, float("-inf")), -1).to(v.dtype), v
    ).view(b, h, d)


def _cache(h: Heads) -> Tensors:
    keys = _randn(h.batch, h.keys, h.length, h.width)
    lengths = torch.full((h.batch,), h.length, device="cuda", dtype=torch.int64)
    return [_randn(h.batch, h.queries, h.width), keys, torch.randn_like(keys), lengths]


def _sdpa(args: Tensors) -> tuple[Callable[..., Any], Tensors]:
    """The library's call, with the mask already made."""
    q, k, v, lengths = args
    mask = (torch.arange(k.shape[2], device=q.device) < lengths[:, None])[:, None, None, :]
    call = F.scaled_dot_product_attention
    grouped = q.view(k.shape[0], k.shape[1], -1, q.shape[-1])
    return lambda a, b, c, m: call(a, b, c, m), [grouped, k, v, mask]


def _decode() -> Iterator[Row]:
    for name, forward, heads in (
        ("Llama 3 8B, 8 × 4096", decode, Heads(8, 32, 8, 4096, 128)),
        ("Llama 3 8B, 1 × 16384", decode, Heads(1, 32, 8, 16384, 128)),
        ("Llama 3 70B, 32 × 2048", decode, Heads(32, 64, 8, 2048, 128)),
        ("Qwen2.5 7B, 16 × 8192", decode, Heads(16, 28, 4, 8192, 128)),
        ("Gemma 2 9B capped, 8 × 8192", capped, Heads(8, 16, 8, 8192, 256)),
        ("Mistral 7B, 4 × 32768", decode, Heads(4, 32, 8, 32768, 128)),
    ):
        yield Row("decode", name, forward, lambda heads=heads: _cache(heads), prepared=_sdpa)


# ------------------------------------------------------------------ attention of whole sequences


@dataclass(frozen=True)
class Sequences:
    """Sizes and masks of attention over whole sequences."""

    batch: int
    queries: int
    keys: int
    length: int
    width: int
    causal: bool = True
    window: int = 0
    cap: float = 0.0
    adds: str = ""
    """What is read besides queries, keys and values: `slope` (a linear bias a head), `bias` (of all scores), `lengths`."""

    @property
    def flops(self) -> float:
        n, w = self.length, min(self.window or self.length, self.length)
        seen = (w * (w + 1) / 2 + (n - w) * w) if self.causal else n * n
        return 4.0 * self.batch * self.queries * self.width * seen

    def args(self) -> Tensors:
        b, n, d = self.batch, self.length, self.width
        found = [_randn(b, self.queries, n, d), *(_randn(b, self.keys, n, d) for _ in "kv")]
        if self.adds == "slope":
            found.append(
                2.0 ** (-8.0 * torch.arange(1, self.queries + 1, device="cuda") / self.queries)
            )
        if self.adds == "bias":
            found.append(_randn(1, self.queries, n, n))
        if self.adds == "lengths":
            found.append(torch.randint(n // 2, n + 1, (b,), device="cuda"))
        return found

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *more: torch.Tensor
    ) -> torch.Tensor:
        """As models write it: keys repeated for their queries, scores in memory."""
        b, h, n, d = q.shape
        times = h // k.shape[1]
        if times > 1:
            k, v = (t[:, :, None].expand(-1, -1, times, -1, -1).reshape(b, h, n, d) for t in (k, v))
        scores = torch.matmul(q, k.transpose(2, 3)) * d**-0.5
        if self.cap:
            scores = torch.tanh(scores / self.cap) * self.cap
        places = torch.arange(n, device=q.device)
        i, j = places[:, None], places
        if self.adds == "slope":
            scores = scores + (more[0][:, None, None] * (j - i)).to(scores.dtype)
        if self.adds == "bias":
            scores = scores + more[0]
        hidden = j > i if self.causal else None
        if self.window:
            hidden = (j > i) | (j <= i - self.window)
        if self.adds == "lengths":
            hidden = j >= more[0][:, None, None, None]
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        return torch.matmul(torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype), v)

    def called(self, args: Tensors) -> tuple[Callable[..., Any], Tensors]:
        """The library's best: its attention where it takes the mask, else its compiled one for any scores."""
        attend, gqa = F.scaled_dot_product_attention, self.queries != self.keys
        if self.adds == "bias":
            return lambda q, k, v, m: attend(q, k, v, m), args
        if not (self.adds or self.window or self.cap):
            return lambda q, k, v: attend(q, k, v, is_causal=self.causal, enable_gqa=gqa), args
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        more, n = args[3:], self.length

        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            s = self.cap * torch.tanh(s / self.cap) if self.cap else s
            return s + more[0][h] * (j - i) if self.adds == "slope" else s

        def seen(b: Any, h: Any, i: Any, j: Any) -> Any:
            if self.adds == "lengths":
                return j < more[0][b]
            return (j <= i) & (i - j < (self.window or n))

        block = create_block_mask(seen, self.batch, None, n, n, device=args[0].device)
        run = torch.compile(flex_attention, dynamic=False)
        changes = score if self.cap or self.adds == "slope" else None
        return lambda q, k, v: run(q, k, v, changes, block, enable_gqa=gqa), args[:3]


def bare(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The library's call itself."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _prefill() -> Iterator[Row]:
    for name, forward, of in (
        ("causal, 1 × 16384", bare, Sequences(1, 32, 32, 16384, 128)),
        ("causal, 4 × 4096", bare, Sequences(4, 32, 32, 4096, 128)),
        ("Llama 3 8B, 1 × 8192", None, Sequences(1, 32, 8, 8192, 128)),
        (
            "Gemma 2 9B capped, window 4096, 1 × 8192",
            None,
            Sequences(1, 16, 8, 8192, 256, window=4096, cap=50.0),
        ),
        ("Mistral 7B, window 4096, 1 × 16384", None, Sequences(1, 32, 8, 16384, 128, window=4096)),
        ("MPT 7B slopes, 1 × 4096", None, Sequences(1, 32, 32, 4096, 128, adds="slope")),
        (
            "BERT large lengths, 32 × 512",
            None,
            Sequences(32, 16, 16, 512, 64, causal=False, adds="lengths"),
        ),
        ("Whisper large, 8 × 1500", None, Sequences(8, 20, 20, 1500, 64, causal=False)),
        (
            "T5 large bias, 4 × 2048",
            None,
            Sequences(4, 16, 16, 2048, 64, causal=False, adds="bias"),
        ),
    ):
        yield Row(
            "prefill", name, forward or of.forward, of.args, flops=of.flops, prepared=of.called
        )


# ------------------------------------------------------------------ norms that quantise


def norm_fp8(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm, then rows of fp8 with their scales."""
    wide = x.float()
    y = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w
    scale = y.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / 448.0
    return (y.float() / scale).clamp(-448.0, 448.0).to(E4M3), scale


def gate_int8(gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A gated activation, then rows of int8 with their scales."""
    y = (F.silu(gate) * up).float()
    scale = y.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127.0
    return torch.round(y / scale).clamp(-127, 127).to(torch.int8), scale


def _quantise() -> Iterator[Row]:
    for rows, n in ((4096, 4096), (8192, 8192), (16384, 3584)):
        yield Row(
            "quantise",
            f"RMSNorm to fp8, {rows} × {n}",
            norm_fp8,
            lambda rows=rows, n=n: [_randn(rows, n), _randn(n)],
        )
    for rows, n in ((4096, 14336), (2048, 28672), (4096, 18944)):
        yield Row(
            "quantise",
            f"SiLU gate to int8, {rows} × {n}",
            gate_int8,
            lambda rows=rows, n=n: [_randn(rows, n), _randn(rows, n)],
        )


# ------------------------------------------------------------------ sampling


def chosen(logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Temperature, softmax and a draw by exponential races."""
    probabilities = torch.softmax(logits.float() / 0.7, -1)
    return torch.argmax(probabilities / noise, -1)


def chosen_of_the_best(logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """The same among the 50 best tokens."""
    logits = logits.float() / 0.7
    values, _ = torch.topk(logits, 50)
    logits = logits.masked_fill(logits < values[..., -1:], -math.inf)
    return torch.argmax(torch.softmax(logits, -1) / noise, -1)


def chosen_of_the_nucleus(logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """The same among the most probable tokens that together have nine tenths."""
    logits = logits.float() / 0.7
    ordered, places = torch.sort(logits, descending=True)
    shares = torch.softmax(ordered, -1)
    remove = shares.cumsum(-1) - shares > 0.9
    remove = torch.zeros_like(remove).scatter(-1, places, remove)
    return torch.argmax(torch.softmax(logits.masked_fill(remove, -math.inf), -1) / noise, -1)


DRAWS = {"all": chosen, "top 50": chosen_of_the_best, "top 0.9": chosen_of_the_nucleus}


def _sampling() -> Iterator[Row]:
    for model, rows, size in (
        ("Llama 3", 64, 128256),
        ("Llama 3", 1, 128256),
        ("Qwen2.5", 256, 152064),
        ("Gemma 2", 32, 256000),
        ("Mistral", 128, 32768),
        ("Llama 2", 512, 32000),
    ):
        for name, draw in DRAWS.items():
            yield Row(
                "sampling",
                f"{model}, {rows} × {size}, {name}",
                draw,
                lambda rows=rows, size=size: [
                    _randn(rows, size),
                    torch.empty(rows, size, device="cuda").exponential_(),
                ],
            )


FAMILIES: dict[str, Callable[[], Iterator[Row]]] = {
    "int4": _int4,
    "int8": _int8,
    "decode": _decode,
    "prefill": _prefill,
    "quantise": _quantise,
    "sampling": _sampling,
}


if __name__ == "__main__":
    main(__doc__, FAMILIES)
