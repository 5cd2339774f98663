"""Functions that read one place of a sorted line, rows that are hard to order, and a child that runs them in Triton's interpreter."""

from __future__ import annotations

import json
from typing import Any

import torch

INF, NAN = float("inf"), float("nan")


def hard(columns: int, dtype: torch.dtype = torch.float32, least: int = -44) -> torch.Tensor:
    """Rows with ties, zeros of both signs, infinities, NaN, tiny values from 10 to the `least` on, and huge ones."""
    x = torch.randn(10, columns)
    x[1] = torch.randint(-2, 3, (columns,)).float()
    x[2] = torch.where(torch.arange(columns) % 2 == 0, 0.0, -0.0)
    x[3], x[4] = -INF, INF
    x[5, ::3], x[5, 1::3] = -INF, INF
    x[6, :2], x[7, :-1], x[8] = NAN, NAN, NAN
    x[9] = x[9] * torch.logspace(least, 37, columns)
    return x.to(dtype)


def below(x: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    return x.masked_fill(x < least, -INF)


def filters(x: torch.Tensor, k: int) -> tuple[torch.Tensor, ...]:
    """Top-k filters as people write them."""
    values, _ = torch.topk(x, k)
    pivot = torch.topk(x, k).values.select(-1, -1).unsqueeze(-1)
    return (
        below(x, values[..., -1:]),
        torch.where(x < pivot, -INF, x),
        below(x, torch.topk(x, k)[0][..., -1, None]),
    )


def written(x: torch.Tensor, k: int = 5) -> torch.Tensor:
    """As nanoGPT writes it."""
    x = x / 0.8
    values, _ = torch.topk(x, min(k, x.size(-1)))
    x[x < values[:, [-1]]] = -float("Inf")
    return x


def places(x: torch.Tensor, k: int) -> tuple[torch.Tensor, ...]:
    """The same place from the other end, in other operators, and in the middle."""
    return (
        x.topk(k, largest=False)[0][:, -1],
        x.kthvalue(k)[0],
        x.kthvalue(k, -1, True).values * 2,
        x.sort(-1, descending=True)[0][:, k - 1 : k],
        torch.sort(x, stable=True).values[:, -k],
        x.topk(x.shape[1])[0].narrow(1, k // 2, 1),
    )


def sampled(logits: torch.Tensor, noise: torch.Tensor, k: int = 5) -> torch.Tensor:
    """Temperature, top-k filter, softmax and a draw by exponential races."""
    logits = logits.float() / 0.7
    values, _ = torch.topk(logits, k)
    chances = torch.softmax(below(logits, values[:, -1:]), -1)
    return torch.argmax(chances / noise, -1)


def nucleus(x: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    """The token that crosses the limit is kept."""
    ordered, places = torch.sort(x, descending=True, stable=True)
    shares = torch.softmax(ordered.float(), -1)
    remove = shares.cumsum(-1) - shares > 0.9
    return x.masked_fill(torch.zeros_like(remove).scatter(-1, places, remove), -INF)


def strict(x: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    """It is not; each row has its limit."""
    ordered, places = torch.sort(x, dim=-1, descending=True, stable=True)
    remove = torch.cumsum(torch.softmax(ordered.float(), -1), -1) > limit
    return x.masked_fill(remove.scatter(-1, places, remove), -INF)


def ascending(x: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    ordered, places = x.sort(dim=-1, stable=True)
    remove = ordered.float().softmax(-1).cumsum(-1) <= 1 - 0.8
    return x.masked_fill(torch.zeros_like(remove).scatter(1, places, remove), -INF)


def probabilities(x: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    """The probabilities themselves are sorted."""
    shares = torch.softmax(x.float(), -1)
    ordered, places = shares.sort(dim=-1, descending=True, stable=True)
    within = ordered.cumsum(dim=-1) - ordered < limit
    kept = torch.where(within, ordered, torch.zeros_like(ordered))
    return torch.zeros_like(within).scatter(1, places, kept > 0)


def rescaled(x: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    """What is kept sums to 1."""
    ordered, places = torch.softmax(x, -1).sort(dim=-1, descending=True)
    kept = torch.where(ordered.cumsum(dim=-1) - ordered < limit, ordered, 0.0)
    return torch.zeros_like(x).scatter(1, places, kept / kept.sum(-1, keepdim=True))


NUCLEI = {
    "nucleus": nucleus,
    "strict": strict,
    "ascending": ascending,
    "probabilities": probabilities,
}


def same(found: Any, want: Any) -> bool:
    """Equal values, NaN included; zeros of both signs are equal."""
    found, want = (v if isinstance(v, tuple) else (v,) for v in (found, want))
    return all(
        f.dtype == w.dtype and f.shape == w.shape and bool(((f == w) | (f != f) & (w != w)).all())
        for f, w in zip(found, want, strict=True)
    )


def main() -> None:
    """See the module."""
    from dvk.composer.codegen import triton as renderer
    from dvk.composer.lowering import nucleus as nucleus_rule
    from dvk.composer.lowering import selections
    from tests.benchmarks.production import Composed
    from tests.composer.triton_programs import nth

    torch.manual_seed(0)
    tall = hard(90).t().contiguous()
    cases = {
        "rows": (lambda x: filters(x, 7), [hard(61)], 1),
        "two bits": (lambda x: filters(x, 2), [hard(61)], 2),
        "bfloat16": (lambda x: filters(x, 61), [hard(61, torch.bfloat16, -30)], 2),
        "float16": (lambda x: filters(x * 3, 7), [hard(61, torch.float16)], 2),
        "columns": (lambda x: below(x, x.topk(7, 0)[0][-1:]), [tall], 2),
        "long": (lambda x: filters(x, 50)[0], [torch.randn(1, 9000).bfloat16()], 2),
        "draw": (sampled, [torch.randn(3, 90).bfloat16(), torch.rand(3, 90) + 0.1], 1),
    }
    limit = torch.linspace(0.1, 0.99, 10)[:, None]
    for number, (name, function) in enumerate(NUCLEI.items()):
        cases[name] = function, [hard(37, least=-30), limit], 1 + number % 2
    for name, (function, args, bits) in cases.items():
        selections.IN_REGISTERS = nucleus_rule.IN_REGISTERS = 1 << 20 if bits == 1 else 1
        program = Composed(function, args, "cpu")
        kinds: dict[str, int] = {}
        for number in program.distinct():
            kinds.setdefault(
                " ".join(nth(number)(k).kind for k in program.kernels.values()), number
            )
        wrong = [f"stays: {p.op}" for p in program.part.users if p.kind == "extern"]
        for kind, number in kinds.items():
            if not same(program.run(nth(number)), function(*args)):
                wrong.append(kind)
        families = [k.family for k in program.kernels.values()]
        offered = {s.kind for k in program.kernels.values() for s in renderer.schedules(k)}
        print(
            json.dumps(
                {"key": name, "wrong": wrong, "families": families, "offered": sorted(offered)}
            )
        )


if __name__ == "__main__":
    main()
