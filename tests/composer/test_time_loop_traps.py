"""Loops over time steps that a short reading would get wrong: they stay as they are, or their kernel gives PyTorch's results."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from dvk.composer import Plan, compose
from dvk.composer.capture.export import trace_module
from dvk.composer.ir.time_scan import TIME_SCAN
from dvk.records import Task
from tests.composer.programs import run_source

HEAD = """\
import torch
from torch import nn
import torch.nn.functional as F


def mix(h, x):
    return torch.lerp(h, x, 0.3)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{init}

{methods}

    def forward(self, x):
{body}
"""


@dataclass(frozen=True)
class Trap:
    """A step's statements in a loop over x [2, 20, 8], with what stands before and after it."""

    step: str
    before: str = ""
    after: str = ""
    result: str = "torch.stack(ys, 1)"
    init: str = "pass"
    methods: str = ""
    stays: bool = True


PLAIN = "h = h * 0.9 + x[:, t]\nys.append(h)"
TRAPS = {
    "shifted states": Trap(
        "y = x[:, t] + 0.5 * a - 0.3 * b\nb = a\na = y\nys.append(y)",
        "a = torch.zeros_like(x[:, 0])\nb = torch.zeros_like(a)",
        stays=False,
    ),
    "swapped states": Trap(
        "a, b = b, a\nys.append(a * x[:, t] + b)", "a, b = x[:, 0], x[:, 1]", stays=False
    ),
    "zeros that are written": Trap(
        "h = h * 0.9 + b[:, t]\nys.append(h)",
        "b = torch.zeros(2, 20, 8)\nb.mul_(x)\nb += x",
        stays=False,
    ),
    "a first state that is written": Trap(
        PLAIN, "h = torch.zeros(2, 8)\nh[:, 0] = 1.0", stays=False
    ),
    "a state that starts at -inf": Trap(
        "h = torch.maximum(h, x[:, t])\nys.append(h)",
        "h = torch.full((2, 8), -float('inf'))",
        stays=False,
    ),
    "an operand written afterwards": Trap(
        "h = h * 0.9 + z[:, t]\nys.append(h)",
        "z = x * 2",
        "z.zero_()",
        "torch.stack(ys, 1), z",
        stays=False,
    ),
    "an input written afterwards": Trap(PLAIN, after="x.zero_()", stays=False),
    "a double state": Trap(
        "h = h + x[:, t].double() * 1e-4\nh = h + 100.0\nh = h - 100.0\nys.append(h.float())",
        "h = torch.zeros(2, 8, dtype=torch.float64)",
    ),
    "double inside": Trap(
        "h = (h.double() + 1e6 * x[:, t].double() - 1e6 * x[:, t].double()).float() + x[:, t]\nys.append(h)"
    ),
    "rounded to bfloat16": Trap(
        "h = (h + 1000 * x[:, t]).bfloat16().float()\nys.append(h - 1000 * x[:, t])"
    ),
    "a list of numbers": Trap(
        "h = h * self.c[t] + x[:, t]\nys.append(h)", init="self.c = [0.9] * 10 + [0.1] * 10"
    ),
    "a branch on a list": Trap(
        "if self.c[t]:\n    h = h * 0.1\nh = h + x[:, t]\nys.append(h)",
        init="self.c = [False] * 10 + [True] * 10",
    ),
    "a permutation": Trap(
        "h = h * 0.9 + x[:, self.c[t]]\nys.append(h)", init="self.c = [0, 1, *range(19, 1, -1)]"
    ),
    "a list of tensors": Trap(
        "h = h * 0.9 + z[t]\nys.append(h)", "z = [x[:, 0]] * 10 + [x[:, 1]] * 10"
    ),
    "a list of modules": Trap(
        "h = self.layers[t](h)",
        result="h",
        init="self.layers = nn.ModuleList([nn.Tanh()] * 10 + [nn.Sigmoid()] * 10)",
    ),
    "an iterator": Trap(
        "h = h * next(it) + x[:, t]\nys.append(h)", "it = iter([0.9] * 10 + [0.1] * 10)"
    ),
    "a list that is emptied": Trap(
        "h = h * it.pop() + x[:, t]\nys.append(h)", "it = [0.9] * 10 + [0.1] * 10"
    ),
    "a method that counts": Trap(
        "h = self.cell(h, x[:, t], n)\nys.append(h)",
        "n = []",
        methods="def cell(self, h, x, n):\n    n.append(1)\n    return h * (0.9 if len(n) < 10 else 0.1) + x",
    ),
    "another name of what is written": Trap(
        "ys.append((S - p) * 1)\np = S\nS += x[:, t]",
        "S = torch.zeros(2, 8)\np = torch.zeros(2, 8)",
    ),
    "a view of what is written": Trap(
        "S += x[:, t]\nys.append(v * 2)\nv = S[:, :4]",
        "S = torch.zeros(2, 8)\nv = torch.zeros(2, 4)",
    ),
    "two names of the results": Trap(
        "h = h * 0.9 + x[:, t]\nout[:, t] = h", "out = b = torch.zeros(2, 20, 8)", result="b * 2"
    ),
    "two names of a state": Trap(
        "S += x[:, t]\nys.append(S * 1.0)",
        "S = c = torch.zeros(2, 8)",
        result="torch.stack(ys, 1), c",
    ),
    "in place by a keyword": Trap(
        "k = F.relu(k, inplace=True) * 0.9\nh = h + k\nys.append(h)",
        "k = x[:, 0] * 1\nr = k",
        result="torch.stack(ys, 1), r",
    ),
    "in place by position": Trap(
        "k = F.relu(k, True) * 0.9\nh = h + k\nys.append(h)",
        "k = x[:, 0] * 1\nr = k",
        result="torch.stack(ys, 1), r",
    ),
    "written by out=": Trap(
        "b = torch.add(b, x[:, t], out=b)\nh = h + b\nys.append(h)",
        "b = torch.zeros(2, 8)\nr = b",
        result="torch.stack(ys, 1), r",
    ),
    "an effect in a branch": Trap(
        PLAIN + "\nif not self.keep:\n    n.insert(0, 1)",
        "n = []",
        result="torch.stack(ys, 1) * len(n)",
        init="self.keep = False",
    ),
    "results in a branch": Trap(
        "h = h * 0.9 + x[:, t]\nif self.training:\n    out[:, t] = h",
        "out = torch.zeros(2, 20, 8)",
        result="out",
    ),
    "a function that computes": Trap("h = mix(h, x[:, t])\nys.append(h)", stays=False),
    "no operand": Trap(
        "h = h * 0.9 + 1", "h = torch.ones(2, 8)", result="h * x[:, 0]", stays=False
    ),
    "no result that is read": Trap("h = h * 0.9 + x[:, t]", result="x * 2"),
}


def _source(trap: Trap) -> str:
    def lines(text: str, by: int) -> str:
        return "\n".join(" " * by + line for line in text.splitlines())

    before = f"h = torch.zeros_like(x[:, 0])\nys = []\n{trap.before}\nfor t in range(20):"
    after = f"{trap.after}\nreturn {trap.result}"
    body = "\n".join([lines(before, 8), lines(trap.step, 12), lines(after, 8)])
    return HEAD.format(init=lines(trap.init, 8), methods=lines(trap.methods, 4), body=body)


def _results(module: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        made = module(x.clone())
    return made if isinstance(made, tuple) else (made,)


@pytest.mark.parametrize("name", TRAPS)
@pytest.mark.slow
def test_a_loop_stays_or_is_right(name: str) -> None:
    trap = TRAPS[name]
    source = _source(trap)
    kind = run_source(source, "reference").Model
    file = kind.forward.__code__.co_filename
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    torch.manual_seed(0)
    x = torch.randn(2, 20, 8)
    captured = trace_module(kind(), [x.clone()], ["x"])
    rolls = any(node.op == TIME_SCAN for node in captured.graph.nodes)
    assert rolls != trap.stays
    if not rolls:
        return
    task = Task(id="t", name="t", source=source, entry="Model", kind="module", device="cpu")
    made = run_source(compose(task, captured, Plan(("fuse_pointwise",)), "cpp").source).ModelNew()
    for got, want in zip(_results(made, x), _results(kind(), x), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert made.why(x.clone()) == "the kernels run"


@pytest.mark.parametrize(("width", "rolls"), [(64, True), (2**16, False)])
def test_offsets_have_32_bits(width: int, rolls: bool) -> None:
    source = _source(Trap(PLAIN))
    kind = run_source(source, "reference").Model
    file = kind.forward.__code__.co_filename
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    x = torch.empty(2**11, 20, width, device="meta")
    captured = trace_module(kind(), [x], ["x"])
    assert any(node.op == TIME_SCAN for node in captured.graph.nodes) == rolls
