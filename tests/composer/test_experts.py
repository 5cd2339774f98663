"""Loops over experts become grouped products: the forms in which models write them, every schedule, and loops that stay as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk import tasks
from dvk.composer import Plan, applicable, compose
from dvk.composer.capture.export import trace
from dvk.composer.rewrites import experts
from dvk.records import Graph
from tests.benchmarks.production import Composed, error
from tests.composer.programs import capture

TOKENS, WIDTH, EXPERTS, INNER = 24, 32, 4, 48


def rand(*shape: int) -> torch.Tensor:
    return (torch.randn(*shape) * 0.3).half()


def weights() -> list[torch.Tensor]:
    return [
        rand(TOKENS, WIDTH),
        rand(EXPERTS, WIDTH),
        rand(EXPERTS, INNER, WIDTH),
        rand(EXPERTS, INNER, WIDTH),
        rand(EXPERTS, WIDTH, INNER),
    ]


def expert(x: torch.Tensor, gate: Any, up: Any, down: Any) -> torch.Tensor:
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def added(x: torch.Tensor, router: torch.Tensor, *w: torch.Tensor) -> torch.Tensor:
    shares, chosen = torch.topk(torch.softmax(F.linear(x, router).float(), -1), 2, -1)
    shares = (shares / shares.sum(-1, keepdim=True)).to(x.dtype)
    out = torch.zeros_like(x)
    for n in range(EXPERTS):
        token, pick = torch.where(chosen == n)
        out.index_add_(0, token, expert(x[token], *(v[n] for v in w)) * shares[token, pick, None])
    return out


def put(x: torch.Tensor, router: torch.Tensor, *w: torch.Tensor) -> torch.Tensor:
    shares, chosen = torch.topk(x @ router.t(), 2, -1)
    shares = torch.softmax(shares, -1)
    out = x.clone() * 0.5
    for n in range(EXPERTS):
        token, pick = torch.where(chosen == n)
        out[token] += expert(x[token], *(v[n] for v in w)) * shares[token, pick].unsqueeze(-1)
    return out + 1


def multiplied(x: torch.Tensor, router: torch.Tensor, *w: torch.Tensor) -> torch.Tensor:
    """Weights as input × output, and a transposed mask."""
    shares, chosen = torch.topk(x @ router.t(), 2, -1)
    out = torch.zeros_like(x)
    for n in range(EXPERTS):
        pick, token = torch.where((chosen == n).t())
        rows = torch.relu(x[token] @ w[0][n].t()) @ w[2][n].t()
        out.index_add_(0, token, rows * shares[token, pick, None])
    return out


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Mixture(nn.Module):
    """Experts as modules, chosen by a mask of one-hot choices."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        flat = hidden.view(-1, WIDTH)
        shares, chosen = torch.topk(F.softmax(self.router(flat), dim=1, dtype=torch.float), 2)
        shares = (shares / shares.sum(-1, keepdim=True)).to(flat.dtype)
        out = torch.zeros(flat.shape, dtype=flat.dtype, device=flat.device)
        mask = F.one_hot(chosen, num_classes=EXPERTS).permute(2, 1, 0)
        for n in range(EXPERTS):
            pick, token = torch.where(mask[n])
            rows = flat[None, token].reshape(-1, WIDTH)
            made = self.experts[n](rows) * shares[token, pick, None]
            out.index_add_(0, token, made.to(flat.dtype))
        return out.reshape(hidden.shape)


def missing(x: torch.Tensor, router: torch.Tensor, *w: torch.Tensor) -> torch.Tensor:
    """One expert computes nothing."""
    shares, chosen = torch.topk(x @ router.t(), 2, -1)
    out = torch.zeros_like(x)
    for n in range(EXPERTS - 1):
        token, pick = torch.where(chosen == n)
        out.index_add_(0, token, expert(x[token], *(v[n] for v in w)) * shares[token, pick, None])
    return out


def different(x: torch.Tensor, router: torch.Tensor, *w: torch.Tensor) -> torch.Tensor:
    """The experts do not compute the same."""
    shares, chosen = torch.topk(x @ router.t(), 2, -1)
    out = torch.zeros_like(x)
    for n in range(EXPERTS):
        token, pick = torch.where(chosen == n)
        rows = F.linear(x[token], w[0][n])
        rows = torch.relu(rows) if n else torch.tanh(rows)
        out.index_add_(0, token, F.linear(rows, w[2][n]) * shares[token, pick, None])
    return out


def seen(x: torch.Tensor, router: torch.Tensor, *w: torch.Tensor) -> Any:
    """The number of an expert's tokens is needed outside."""
    shares, chosen = torch.topk(x @ router.t(), 2, -1)
    out, last = torch.zeros_like(x), x
    for n in range(EXPERTS):
        token, pick = torch.where(chosen == n)
        last = expert(x[token], *(v[n] for v in w)) * shares[token, pick, None]
        out.index_add_(0, token, last)
    return out, last.sum()


def summed(value: Callable[..., Any], start: Callable[..., Any] = torch.zeros_like) -> Any:
    """A loop whose experts set their rows of the result to `value(result, x, weight, share, gate, token)`."""

    def loop(x: torch.Tensor, router: torch.Tensor, *w: torch.Tensor) -> torch.Tensor:
        shares, chosen = torch.topk(x @ router.t(), 2, -1)
        gate, square, out = x.sum(-1), w[2] @ w[0], start(x)
        for n in range(EXPERTS):
            token, pick = torch.where(chosen == n)
            out[token] = value(out, x, square[n], shares[token, pick, None], gate, token)
        return out

    return loop


def scaled(out: Any, x: Any, w: Any, share: Any, gate: Any, token: Any) -> Any:
    return torch.add(out[token], F.linear(x[token], w) * share, alpha=0.5)


def old_read_twice(out: Any, x: Any, w: Any, share: Any, gate: Any, token: Any) -> Any:
    old = out[token]
    return old + torch.tanh(old) * F.linear(x[token], w)


def wider(out: Any, x: Any, w: Any, share: Any, gate: Any, token: Any) -> Any:
    return out[token] + (F.linear(x[token], w) * share).half()


def gated(out: Any, x: Any, w: Any, share: Any, gate: Any, token: Any) -> Any:
    return out[token] + F.linear(x[token], w) * gate.unsqueeze(1)[token]


def narrow(out: Any, x: Any, w: Any, share: Any, gate: Any, token: Any) -> Any:
    """The value broadcasts over the columns of the result."""
    return out[token] + torch.tanh(share)


LOOPS: dict[str, Callable[..., Any]] = {"added": added, "put": put, "multiplied": multiplied}


def waits(graph: Graph | None) -> bool:
    """Some number of rows is read from the device."""
    assert graph is not None
    return any("where.default" in n.op and len(n.args) == 1 for n in graph.nodes) or any(
        n.shape is None and n.dtype is not None for n in graph.nodes
    )


@pytest.mark.parametrize("name", [*LOOPS, "modules"])
@pytest.mark.slow
def test_no_loop_waits_for_the_device(name: str) -> None:
    model = Mixture() if name == "modules" else LOOPS[name]
    args = [torch.randn(2, 12, WIDTH)] if name == "modules" else weights()
    graph = capture(model, *args).graph
    assert waits(graph)
    assert not waits(experts.rewrite(graph, "cuda"))
    names = applicable(graph, "cuda", "triton")
    assert {"grouped_experts", "own_gathers", "own_matmul"} <= set(names)
    assert "grouped_experts" not in applicable(graph, "cuda", "cuda")


@pytest.mark.parametrize("loop", [missing, different, seen])
@pytest.mark.slow
def test_other_loops_stay(loop: Callable[..., Any]) -> None:
    assert experts.rewrite(capture(loop, *weights()).graph, "cuda") is None


def test_blocks_hold_all_pairs_in_the_worst_case() -> None:
    for pairs, count in ((2, 8), (48, 4), (8192, 8), (32768, 128)):
        length = experts.block_length(pairs, count)
        least = min(count, pairs)
        blocks = (pairs - least) // length + least
        # All experts but one have one pair; the other has the rest.
        assert least - 1 + -(-(pairs - least + 1) // length) <= blocks
        assert blocks * length < 2 * pairs + count * length


def evaluated(graph: Graph, held: dict[str, Any]) -> Any:
    """What a graph computes, each operator by PyTorch."""

    def given(value: Any) -> Any:
        if isinstance(value, dict) and len(value) == 1:
            (kind, name), *_ = value.items()
            known = {"ref": values, "dtype": {name: getattr(torch, str(name), None)}}
            return "cpu" if kind == "device" else known[kind][name]
        return [given(v) for v in value] if isinstance(value, (list, tuple)) else value

    values: dict[str, Any] = {}
    for node in graph.nodes:
        args = [given(a) for a in node.args]
        if node.op in ("input", "param"):
            values[node.name] = held[node.target or node.name]
        elif node.op == "derived":
            values[node.name] = eval(node.kwargs["make"], {"torch": torch})(*args)
        elif node.op == "getitem":
            values[node.name] = args[0][args[1]]
        else:
            _, packet, overload = node.op.split(".")
            operator = getattr(getattr(torch.ops.aten, packet), overload)
            kwargs = {k: given(v) for k, v in node.kwargs.items() if k != "layout"}
            values[node.name] = operator(*args, **kwargs)
    return given(graph.outputs)


@pytest.mark.parametrize("name", [*LOOPS, "modules"])
@pytest.mark.slow
def test_grouped_products_agree_with_the_loop(name: str) -> None:
    if name == "modules":
        model: Any = Mixture()
        args, held = [torch.randn(2, 12, WIDTH)], dict(model.named_parameters())
    else:
        model, args, held = LOOPS[name], [w.float() for w in weights()], {}
    graph = experts.rewrite(capture(model, *args).graph, "cuda")
    assert graph is not None
    with torch.no_grad():
        found = evaluated(graph, held | {f"x{n}": arg for n, arg in enumerate(args)})
        torch.testing.assert_close(found, model(*args))


@pytest.mark.parametrize("value", [scaled, old_read_twice, narrow])
@pytest.mark.slow
def test_other_sums_stay(value: Callable[..., Any]) -> None:
    assert (
        experts.rewrite(capture(summed(value, torch.ones_like), *weights()).graph, "cuda") is None
    )


@pytest.mark.parametrize("value", [wider, gated])
@pytest.mark.slow
def test_sums_agree_in_value_and_type(value: Callable[..., Any]) -> None:
    model, args = summed(value), [w.float() for w in weights()]
    graph = experts.rewrite(capture(model, *args).graph, "cuda")
    assert graph is not None
    found = evaluated(graph, {f"x{n}": arg for n, arg in enumerate(args)})
    torch.testing.assert_close(found, model(*args))


@pytest.mark.gpu
@pytest.mark.parametrize("name", LOOPS)
def test_kernels_of_experts_agree_with_the_loop_on_a_gpu(name: str) -> None:
    args = [w.cuda() for w in weights()]
    want = LOOPS[name](*(w.float() for w in args))
    made = Composed(LOOPS[name], args, "cuda")
    assert not [p.op for p in made.part.users if p.kind == "extern" and "where" in p.op]
    run, _ = made.tuned(3, float("inf"))
    assert error(run(*args), want) < 2e-3


SOURCE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(4, 16, 16))

    def forward(self, x, scores):
        share, chosen = torch.topk(scores, 2)
        out = torch.zeros_like(x)
        for n in range(4):
            token, pick = torch.where(chosen == n)
            out.index_add_(0, token, x[token] @ self.weights[n] * share[token, pick, None])
        return torch.relu(out)


def get_inputs():
    return [torch.randn(8, 16), torch.randn(8, 4)]
"""


@pytest.mark.slow
def test_rows_and_experts_out_of_range_have_no_number() -> None:
    """In products whose operands are read at limited indices."""
    made = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.composer.gathered_child"],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert made.returncode == 0, made.stderr[-2000:]
    for line in made.stdout.splitlines():
        wrong, missing = json.loads(line)
        assert wrong < 1e-3
        assert missing == [5, *range(32, 48)]
    assert len(made.stdout.splitlines()) == 3


@pytest.mark.slow
def test_a_loop_that_waits_is_not_replayed(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(SOURCE, encoding="utf-8")
    task = tasks.load(str(file))
    captured = trace(task)
    task = task.model_copy(update={"device": "cuda"})
    names = tuple(applicable(captured.graph, "cuda", "triton"))
    assert {"grouped_experts", "cuda_graph"} <= set(names)
    without = tuple(name for name in names if name != "grouped_experts")
    for recipes, replayed in ((names, True), (without, False)):
        made = compose(task, captured, Plan(recipes), "triton")
        assert ("torch.cuda.CUDAGraph()" in made.source) is replayed
