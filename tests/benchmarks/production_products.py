"""Matrix products as production runs them: bf16, fp8, int8, gated, quantised on the way, and mixtures of experts (`production`).

    python -m tests.benchmarks.production_products --families bf16,gate,fp8,int8,quantise --compile --seconds 200

Shapes are layers of public configurations: Llama 3 8B and 70B, Qwen2.5 7B, Qwen3 30B-A3B, Mixtral 8x7B, DeepSeek V3. In `blocks` and
`block_weights` the library has the operands in bf16 beforehand; `dequantised_us` dequantises at each call, `scaled_mm_us` is its own fp8
product with scales of blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F

from tests.benchmarks.production import Row, Tensors, main

BRAIN, E4M3 = torch.bfloat16, torch.float8_e4m3fn


def _randn(*shape: int, dtype: torch.dtype = BRAIN) -> torch.Tensor:
    return (torch.randn(*shape, device="cuda", dtype=BRAIN) * 0.1).to(dtype)


def _codes(*shape: int) -> torch.Tensor:
    return torch.randint(-127, 128, shape, device="cuda", dtype=torch.int8)


def _scales(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, device="cuda") * 0.1 + 0.01


def _bf16() -> Iterator[Row]:
    shapes = {
        "4096 cubed": (4096, 4096, 4096),
        "Llama 3 8B up, 4096 tokens": (4096, 4096, 14336),
        "GPT-2 XL head, 512 tokens": (512, 1600, 50257),
        "Whisper large v3 head, 448 tokens": (448, 1280, 51866),
        "Llama 3 8B qkv, 777 tokens": (777, 4096, 6144),
        "Llama 3 8B up, 16 tokens": (16, 4096, 14336),
    }
    for name, (m, k, n) in shapes.items():
        yield Row(
            "bf16",
            name,
            F.linear,
            lambda m=m, k=k, n=n: [_randn(m, k), _randn(n, k)],
            2.0 * m * k * n,
        )


def gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """The first half of a gated MLP."""
    return F.silu(F.linear(x, gate)) * F.linear(x, up)


def _gate() -> Iterator[Row]:
    for model, k, n in (("Llama 3 8B", 4096, 14336), ("Qwen2.5 7B", 3584, 18944)):
        for m in (1, 16, 64, 4096):
            yield Row(
                "gate",
                f"{model}, {m} tokens",
                gated,
                lambda m=m, k=k, n=n: [_randn(m, k), _randn(n, k), _randn(n, k)],
                4.0 * m * k * n,
            )


def scaled(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """An fp8 product with scales of rows and columns."""
    return torch._scaled_mm(x, w.t(), s, t, out_dtype=BRAIN, use_fast_accum=True)


def quantised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of fp8 with their scales."""
    wide = x.float()
    scale = wide.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448.0
    return (wide / scale).clamp(-448.0, 448.0).to(E4M3), scale


def dynamic(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Activations quantised row by row, then multiplied."""
    codes, scale = quantised(x)
    return torch._scaled_mm(codes, w.t(), scale, t, out_dtype=BRAIN, use_fast_accum=True)


SHAPES = (
    ("Llama 3 8B up, 16 tokens", 16, 4096, 14336),
    ("Llama 3 8B up, 4096 tokens", 4096, 4096, 14336),
    ("Llama 3 8B down, 4096 tokens", 4096, 14336, 4096),
    ("Qwen2.5 7B up, 64 tokens", 64, 3584, 18944),
    ("Llama 3 70B qkv, 2048 tokens", 2048, 8192, 10240),
    ("Qwen2.5 7B qkv, 1000 tokens", 1000, 3584, 4608),
)


def _fp8() -> Iterator[Row]:
    for name, m, k, n in SHAPES:
        yield Row(
            "fp8",
            name,
            scaled,
            lambda m=m, k=k, n=n: [
                _randn(m, k, dtype=E4M3),
                _randn(n, k, dtype=E4M3),
                _scales(m, 1),
                _scales(1, n),
            ],
            2.0 * m * k * n,
            "byte",
        )


def whole_numbers(
    x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, t: torch.Tensor
) -> torch.Tensor:
    """An int8 product with scales of rows and columns."""
    return (torch._int_mm(x, w.t()).float() * s * t).to(BRAIN)


def _int8() -> Iterator[Row]:
    for name, m, k, n in SHAPES[1:]:
        yield Row(
            "int8",
            name,
            whole_numbers,
            lambda m=m, k=k, n=n: [_codes(m, k), _codes(n, k), _scales(m, 1), _scales(1, n)],
            2.0 * m * k * n,
            "byte",
        )


def _quantise() -> Iterator[Row]:
    for m, n in (
        (16, 4096),
        (4096, 4096),
        (4096, 14336),
        (2048, 8192),
        (8192, 5120),
        (4096, 18944),
    ):
        yield Row("quantise", f"{m} rows of {n}", quantised, lambda m=m, n=n: [_randn(m, n)])


def _dynamic() -> Iterator[Row]:
    for name, m, k, n in SHAPES[:2]:
        yield Row(
            "dynamic",
            name,
            dynamic,
            lambda m=m, k=k, n=n: [_randn(m, k), _randn(n, k, dtype=E4M3), _scales(1, n)],
            2.0 * m * k * n,
            "byte",
        )


def by_blocks(w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """A weight as its codes and scales of blocks of 128 × 128 say, in bf16."""
    (n, k), (p, q) = w.shape, s.shape
    return (w.float().view(p, n // p, q, k // q) * s[:, None, :, None]).view(n, k).to(BRAIN)


def rows_by_blocks(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Rows as their codes and scales of blocks of 128 say, in bf16."""
    return (x.float().view(*t.shape, -1) * t.unsqueeze(-1)).view(x.shape).to(BRAIN)


def scaled_blocks(
    x: torch.Tensor, t: torch.Tensor, w: torch.Tensor, s: torch.Tensor
) -> torch.Tensor:
    """An fp8 product with scales of blocks in both operands."""
    return F.linear(rows_by_blocks(x, t), by_blocks(w, s))


def scaled_weight(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """A bf16 activation times an fp8 weight with scales of blocks."""
    return F.linear(x, by_blocks(w, s))


def _blockwise(args: Tensors) -> tuple[Callable[..., torch.Tensor], Tensors]:
    """PyTorch's own product with scales of blocks, where the version has it; it wants scales of rows column by column."""
    x, t, w, s = args
    made = partial(torch._scaled_mm, out_dtype=BRAIN)
    return made, [x, w.t(), t.t().contiguous().t(), s.t()]


BLOCK_SHAPES = (
    ("DeepSeek V3 expert gate or up", 7168, 2048),
    ("DeepSeek V3 expert down", 2048, 7168),
    ("Llama 3 8B up", 4096, 14336),
)


def _block_sizes() -> Iterator[tuple[str, int, int, int]]:
    """Title, m, k and n of each product with scales of blocks."""
    for name, k, n in BLOCK_SHAPES:
        for m in (1, 16, 64, 4096):
            yield f"{name}, {m} tokens", m, k, n


def _blocks() -> Iterator[Row]:
    for title, m, k, n in _block_sizes():
        yield Row(
            "blocks",
            title,
            scaled_blocks,
            lambda m=m, k=k, n=n: [
                _randn(m, k, dtype=E4M3),
                _scales(m, k // 128),
                _randn(n, k, dtype=E4M3),
                _scales(n // 128, k // 128),
            ],
            2.0 * m * k * n,
            "byte",
            prepared=lambda a: (F.linear, [rows_by_blocks(*a[:2]), by_blocks(*a[2:])]),
            beside={"dequantised_us": lambda a: (scaled_blocks, a), "scaled_mm_us": _blockwise},
        )


def _block_weights() -> Iterator[Row]:
    for title, m, k, n in _block_sizes():
        yield Row(
            "block_weights",
            title,
            scaled_weight,
            lambda m=m, k=k, n=n: [
                _randn(m, k),
                _randn(n, k, dtype=E4M3),
                _scales(n // 128, k // 128),
            ],
            2.0 * m * k * n,
            prepared=lambda a: (F.linear, [a[0], by_blocks(*a[1:])]),
            beside={"dequantised_us": lambda a: (scaled_weight, a)},
        )


def few_tokens(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    chosen: torch.Tensor,
    shares: torch.Tensor,
) -> torch.Tensor:
    """Experts of a few tokens: each token reads the weights that it chose."""
    inner = F.silu(torch.einsum("ti,taoi->tao", x, gate[chosen]))
    inner = inner * torch.einsum("ti,taoi->tao", x, up[chosen])
    each = torch.einsum("tao,taio->tai", inner, down[chosen])
    return torch.einsum("tai,ta->ti", each, shares)


def few_by_calls(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    chosen: torch.Tensor,
    shares: torch.Tensor,
) -> torch.Tensor:
    """The same as library calls on each chosen expert, as if the host knew the choice."""
    rows = []
    for t in range(len(x)):
        one = x[t : t + 1]
        made = [
            F.linear(F.silu(F.linear(one, gate[n])) * F.linear(one, up[n]), down[n])
            for n in range(chosen.shape[1])
        ]
        rows.append((torch.cat(made) * shares[t, :, None]).sum(0))
    return torch.stack(rows)


def grouped(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    tokens: torch.Tensor,
    expert: torch.Tensor,
) -> torch.Tensor:
    """The gated product of tokens sorted by expert, in blocks of one expert each."""
    rows = x[tokens].view(len(expert), -1, x.shape[1])
    made = F.silu(torch.bmm(rows, gate[expert].transpose(1, 2)))
    return made * torch.bmm(rows, up[expert].transpose(1, 2))


def grouped_by_calls(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    tokens: torch.Tensor,
    expert: torch.Tensor,
) -> torch.Tensor:
    """The same as library calls for each expert, of equal shares of the rows."""
    rows = x[tokens].chunk(len(gate))
    return torch.cat(
        [F.silu(F.linear(r, g)) * F.linear(r, u) for r, g, u in zip(rows, gate, up, strict=True)]
    ).view(len(expert), -1, gate.shape[1])


def mixture(
    x: torch.Tensor, router: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """A mixture of experts as models write it: a loop over experts, each with the tokens that chose it."""
    shares, chosen = torch.topk(torch.softmax(F.linear(x, router).float(), -1), 2, -1)
    shares = (shares / shares.sum(-1, keepdim=True)).to(x.dtype)
    out = torch.zeros_like(x)
    for n in range(len(gate)):
        token, pick = torch.where(chosen == n)
        rows = x[token]
        made = F.linear(F.silu(F.linear(rows, gate[n])) * F.linear(rows, up[n]), down[n])
        out.index_add_(0, token, made * shares[token, pick, None])
    return out


def _mixture() -> Iterator[Row]:
    for tokens in (4096, 64, 512):
        for model, e, k, n in (
            ("Mixtral 8x7B", 8, 4096, 14336),
            ("Qwen3 30B-A3B with 16 experts", 16, 2048, 768),
        ):
            yield Row(
                "mixture",
                f"{model}, {tokens} tokens",
                mixture,
                lambda t=tokens, e=e, k=k, n=n: [
                    _randn(t, k),
                    _randn(e, k),
                    _randn(e, n, k),
                    _randn(e, n, k),
                    _randn(e, k, n),
                ],
                12.0 * tokens * k * n,
                waits=True,
            )


EXPERTS = (("Mixtral 8x7B", 8, 2, 4096, 14336), ("Qwen3 30B-A3B", 128, 8, 2048, 768))


def _few() -> Iterator[Row]:
    for tokens in (1, 4, 16):
        for model, count, top, k, n in EXPERTS:
            yield Row(
                "few",
                f"{model}, {tokens} tokens",
                few_tokens,
                lambda t=tokens, e=count, a=top, k=k, n=n: [
                    _randn(t, k),
                    _randn(e, n, k),
                    _randn(e, n, k),
                    _randn(e, k, n),
                    torch.stack([torch.randperm(e, device="cuda")[:a] for _ in range(t)]),
                    _randn(t, a).abs(),
                ],
                6.0 * tokens * top * k * n,
                library=few_by_calls,
                read=2.0 * min(count, tokens * top) * 3 * k * n,
            )


def _grouped() -> Iterator[Row]:
    for tokens, block in ((4096, 128), (512, 64), (64, 16)):
        for model, count, top, k, n in EXPERTS:
            blocks = count * max(1, -(-tokens * top // count // block))
            yield Row(
                "grouped",
                f"{model}, {tokens} tokens",
                grouped,
                lambda t=tokens, e=count, b=blocks, r=block, k=k, n=n: [
                    _randn(t, k),
                    _randn(e, n, k),
                    _randn(e, n, k),
                    torch.randint(t, (b * r,), device="cuda"),
                    torch.arange(e, device="cuda").repeat_interleave(b // e),
                ],
                4.0 * blocks * block * k * n,
                library=grouped_by_calls,
            )


FAMILIES: dict[str, Callable[[], Iterator[Row]]] = {
    "bf16": _bf16,
    "gate": _gate,
    "fp8": _fp8,
    "blocks": _blocks,
    "block_weights": _block_weights,
    "int8": _int8,
    "quantise": _quantise,
    "dynamic": _dynamic,
    "mixture": _mixture,
    "few": _few,
    "grouped": _grouped,
}

if __name__ == "__main__":
    main(__doc__, FAMILIES)
