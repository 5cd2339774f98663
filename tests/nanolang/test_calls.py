"""Torch calls of compact texts that cannot be made, told without running anything."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from dvk import nanolang
from dvk.nanolang.lint.calls import HostCalls
from dvk.nanolang.listing.symbolic import Names, symbolic
from dvk.records import Task
from tests.nanolang.compact_cases import rand
from tests.nanolang.compact_programs import Function, captured

GRAPH = captured(Function(lambda x, w: F.linear(x, w).exp()), [rand(4, 6), rand(8, 6)])


@pytest.fixture
def calls() -> HostCalls:
    """A graph of x0 f32[4,6] and x1 f32[8,6]."""
    names = Names(GRAPH.graph)
    found = HostCalls({n.name: n for n in symbolic(GRAPH.graph, names).nodes}, names.values)
    found.listed("x0")
    found.listed("x1")
    return found


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ("F.linear(x0, x1)", (4, 8)),
        ("torch.ops.aten.sum.dim_IntList(x0, [1], True)", (4, 1)),
        ("x0.permute(1, 0)[:, 1:s0]", (6, 3)),
        ("torch.ops.aten.sort.default(x0, 0)[1]", (4, 6)),
        ("torch.cat([x0, x1], 0) * 2.0", (12, 6)),
        ("x0.new_empty((s0, 2*s1))", (4, 12)),
        ("torch.matmul(x0, x1.t()).contiguous()", (4, 8)),
        ("-x0 / 3", (4, 6)),
        ("torch.ops.aten.softmax.int(x0, 1, torch.float64)", (4, 6)),
    ],
)
def test_shapes_of_results_are_known(calls: HostCalls, value: str, shape: tuple[int, ...]) -> None:
    assert calls.assigned("v0", value) is None
    assert calls.shape("v0") == shape
    assert calls.assigned("v0", "lambda: 0") is None
    assert calls.shape("v0") is None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("F.linear(x0)", "missing"),
        ("torch.batch_norm(x0, 1e-05, False)", "must be Tensor, not float"),
        ("torch.matmul(x0, x1)", "8x6|8, 6"),
        ("x0.view(s0, 7)", "invalid for input of size"),
        ("torch.ops.aten.sum.dim_IntList(x0, [2], True)", "out of range"),
        ("x0[0, 0, 0]", "too many indices"),
        ("x0 + x1", "size of tensor|broadcast"),
        ("torch.ops.aten.gelu.default(x0, 'tanh')", "gelu"),
        ("torch.ops.aten.soft_margin_loss.default(x0, x1)", "broadcast|size"),
        ("torch.ops.aten.sort.default(x0, x1)", "Expected a value of type"),
        ("torch.ops.aten.bss.default(x0, x1)", "there is no torch.ops.aten.bss.default"),
        ("torch.ops.aten.add.two(x0, x0)", "there is no"),
    ],
)
def test_a_call_that_does_not_fit_is_reported(calls: HostCalls, value: str, said: str) -> None:
    why = calls.assigned("v0", value)
    assert why is not None and re.search(said, why), why


@pytest.mark.parametrize(
    "value",
    [
        "torch.ops.aten.huber_loss.default(x0, x0, 0, torch.ops.aten.amax.default(x0, [0, 1]))",
        "torch.zeros(s0, 1000)",
        "torch.ones(10**9, 10**9)",
        "w0(x0)",
        "F.linear(v9, x1)",
        "x0.__class__",
        "x0.__reduce__()",
        "F.linear",
        "torch.load('x0')",
        "torch.hub.load('a', 'b')",
        "open('made', 'w')",
        "__import__('os').remove('x')",
        "torch.os.remove('x')",
        "torch.add(x0, x1, out=x0)",
        "x0.to('cuda')",
        "torch.ops.aten.add.out(x0, x0, x0)",
        "torch.ops.load_library('x')",
        "F.linear(*[x0, x1])",
        "F.linear(x0, **{})",
        "[x0 for _ in range(9)]",
        "1 // 0",
        "2**9**9",
        "9" * 4000 + "*x0",
        "x0.numpy()",
        "x0.item()",
        "(",
        "(" * 9000,
        "x0[x0 > 0]",
        "x0.expand(" + "999999999, " * 8 + "4, 6)",
        "F.__builtins__['open']('made')",
        "torch.sum.__call__(x0)",
    ],
)
def test_lint_skips_what_it_cannot_follow_and_runs_none_of_it(
    calls: HostCalls, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    began = time.process_time()
    assert calls.assigned("v0", value) is None
    assert calls.shape("v0") is None
    assert time.process_time() - began < 5 and not list(tmp_path.iterdir())


def test_what_the_rules_of_torch_assert_ends_nothing(
    calls: HostCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Seen in PyTorch 2.11: 'weight' must be 2-D, got 4-D.
    def embedding(weight: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        raise AssertionError("'weight' must be 1-D") if weight.dim() != 1 else KeyError(indices)

    monkeypatch.setattr(F, "embedding", embedding)
    assert calls.assigned("v0", "F.embedding(x0, x1)") == "'weight' must be 1-D"
    assert calls.assigned("v0", "F.embedding(x0[0], x1)") is None and calls.shape("v0") is None


def test_what_is_changed_in_place_is_no_longer_known(calls: HostCalls) -> None:
    assert calls.assigned("z0", "x0.t_()") is None
    assert calls.shape("x0") is None and calls.shape("x1") == (8, 6)
    assert calls.assigned("x1['a", "3']") is None


@pytest.mark.parametrize("backend", ["cpp", "triton"])
def test_such_a_text_is_unreadable(backend: str) -> None:
    task = Task(id="t", name="t", source="def f(): pass", entry="f", kind="function")
    kernel = {
        "cpp": "k0:\n  for (long i = 0; i < s0*s2; ++i) {\n    v1[i] = exp(v0[i]);\n  }",
        "triton": "k0[1, 1]:\n    x = tl.arange(0, pow2(s0*s2))\n    tl.store(v1 + x, tl.exp(tl.load(v0 + x, x < s0*s2)), x < s0*s2)",
    }
    text = f"v0 = F.linear(x0, x1)\n{kernel[backend]}\nreturn v1"
    assert nanolang.assemble(task, GRAPH, text, backend).backend == backend  # type: ignore[arg-type]
    with pytest.raises(nanolang.ParseError, match=r"`v0 = F.linear\(x1, x0, x0\)` cannot be run: "):
        nanolang.assemble(
            task, GRAPH, text.replace("F.linear(x0, x1)", "F.linear(x1, x0, x0)"), backend
        )  # type: ignore[arg-type]
    # A kernel reads what the call really makes.
    with pytest.raises(
        nanolang.ParseError, match=r"kernel k0 reaches `v0\[31\]`, which has 24 elements"
    ):
        nanolang.assemble(task, GRAPH, text.replace("F.linear(x0, x1)", "torch.exp(x0)"), backend)  # type: ignore[arg-type]


def test_hostile_lists_of_calls_do_not_take_long(calls: HostCalls) -> None:
    began = time.process_time()
    for _ in range(2000):
        assert calls.assigned("v0", "torch.matmul(x0, x1.t())") is None
    assert calls.assigned("v1", "torch.cat([" + "v0, " * 15_000 + "v0], 0)") is None
    assert time.process_time() - began < 5
    assert torch.is_tensor(calls.values["v0"]) and calls.values["v0"].is_meta
