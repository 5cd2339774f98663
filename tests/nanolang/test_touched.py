"""Triton texts whose kernels leave out elements: of what they return, and of what that depends on."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from dvk import nanolang
from dvk.composer.ir.effects import walk_refs
from dvk.nanolang.lint.live_elements import LiveElements
from dvk.nanolang.lint.reach import access_error
from dvk.nanolang.lint.touched import TouchedElements
from dvk.records import Task
from tests.nanolang.compact_cases import rand
from tests.nanolang.compact_programs import Function, captured

TASK = Task(id="t", name="t", source="def f(): pass", entry="f", kind="function")


def gated(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x[:, 64:128] * torch.sigmoid(x[:, 128:]) + w


ROWS = """\
k0[cdiv(s0, 4)*cdiv(s2, 32), 4]:
    pid = tl.program_id(0)
    xid = pid % cdiv(s2, 32)
    yid = pid // cdiv(s2, 32)
    y = yid * 4 + tl.arange(0, 4)[:, None]
    ymask = y < s0
    x = xid * 32 + tl.arange(0, 32)[None, :]
    xmask = x < s2
    a0 = tl.load(x0 + (y * s1 + x + s2), ymask & xmask)
    a1 = tl.load(x0 + (y * s1 + x + s2 * 2), ymask & xmask)
    a2 = tl.load(x1 + x, xmask)
    tl.store(OUT + (y * s2 + x), a0 * tl.sigmoid(a1) + a2, ymask & xmask)
return OUT"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", None),
        ("yid = pid // cdiv(s2, 32)", "yid = pid", r"kernel k0 never writes `v\d\[32\]`"),
        ("cdiv(s0, 4)*", "cdiv(s0, 8)*", r"kernel k0 never writes `v\d\[512\]`"),
        (
            "(y * s1 + x + s2 * 2)",
            "(y * s1 + x)",
            r"kernel k0 never reads `x0\[128\]`, which the result depends on",
        ),
        (
            "(y * s1 + x + s2), ",
            "(y * s1 + x + s2 * 2), ",
            r"kernel k0 never reads `x0\[64\]`, which",
        ),
        ("x1 + x, xmask", "x1 + x % 32, xmask", r"kernel k0 never reads `x1\[32\]`, which"),
        # Unused elements of x may be read or not, and unknown indices are not checked.
        ("(y * s1 + x + s2), ", "(y * s1 + x + s2 - s2 * (a2 < 9).to(tl.int32)), ", None),
    ],
)
def test_omissions_are_reported(old: str, new: str, said: str | None) -> None:
    graph = captured(Function(gated), [rand(9, 192), rand(64)], ["x0", "x1"])
    text = ROWS.replace("OUT", graph.graph.nodes[-1].name)
    assert old in text
    if "a2 < 9" in new:
        text = text.replace("    a2 = tl.load(x1 + x, xmask)\n", "").replace(
            "    a0 =", "    a2 = tl.load(x1 + x, xmask)\n    a0 ="
        )
    if said is None:
        assert nanolang.assemble(TASK, graph, text.replace(old, new), "triton").backend == "triton"
    else:
        with pytest.raises(nanolang.ParseError, match=said):
            nanolang.assemble(TASK, graph, text.replace(old, new), "triton")


def roll(x: torch.Tensor) -> torch.Tensor:
    return torch.roll(x, 1, 0)


@pytest.mark.parametrize(
    ("function", "shape", "needed"),
    [
        (torch.exp, (4, 6), lambda i: True),
        (lambda x: x[:, 2:4].exp() + 1, (4, 6), lambda i: i % 6 in (2, 3)),
        (lambda x: torch.relu(x)[:, ::2].t().exp(), (4, 6), lambda i: i % 2 == 0),
        (lambda x: x.chunk(3, 1)[1].exp(), (4, 6), lambda i: i % 6 in (2, 3)),
        (lambda x: F.glu(x, 0)[:, :3].exp(), (4, 6), lambda i: i % 6 < 3),
        (lambda x: x.softmax(1).exp(), (4, 6), lambda i: True),
        # The elements before those left out may be computed in part or whole: no finding.
        (lambda x: x.softmax(1)[:2].exp(), (4, 6), lambda i: False),
        (lambda x: roll(x.exp()), (4, 6), lambda i: False),
        (lambda x: F.max_pool2d(x[None], 2).exp(), (5, 5), lambda i: False),
        (lambda x: x.view(2, 2, 6)[1].sum(0), (4, 6), lambda i: i >= 12),
    ],
)
def test_what_must_be_read(
    function: Callable[..., Any], shape: tuple[int, ...], needed: Callable[[int], bool]
) -> None:
    graph = captured(Function(function), [rand(*shape)], ["x0"]).graph
    found = LiveElements(graph).of(next(n.name for n in graph.nodes if n.op == "input"))
    assert found is not None and found.tolist() == [needed(i) for i in range(len(found))]


def touch(
    head: str, body: str, tensors: dict[str, int | None], sizes: dict[str, int] | None = None
) -> TouchedElements:
    touched = TouchedElements()
    touched.by(head, textwrap.dedent(body).split("\n"), sizes or {}, tensors)
    return touched


def test_all_programs_and_steps_count() -> None:
    body = "    x = tl.program_id(0)\n    for r in range(0, 7, 2):\n        tl.store(v0 + x * 10 + r, tl.load(x0 + r * 3 + x))"
    touched = touch("3, 1", body, {"x0": 40, "v0": 40})
    stored, loaded = touched.stored["v0"], touched.loaded["x0"]
    assert stored is not None and np.flatnonzero(stored).tolist() == [
        x * 10 + r for x in range(3) for r in (0, 2, 4, 6)
    ]
    assert loaded is not None and set(np.flatnonzero(loaded)) == {
        r * 3 + x for x in range(3) for r in (0, 2, 4, 6)
    }


@pytest.mark.parametrize(
    ("masked", "said"),
    [("x < 300", "reaches `x0[100]`, which has 100 elements"), ("x < 100", None)],
)
def test_an_out_of_bounds_access_of_one_program_is_reported(masked: str, said: str | None) -> None:
    body = f"    x = tl.program_id(0) * 64 + tl.arange(0, 64)\n    tl.store(v0 + x, tl.load(x0 + x, {masked}), x < 100)"
    tensors: dict[str, int | None] = {"x0": 100, "v0": 100}
    assert access_error("30, 1", body.split("\n"), {}, tensors) is None, (
        "three programs that are masked or stay inside"
    )
    assert TouchedElements().by("30, 1", body.split("\n"), {}, tensors) == said


@pytest.mark.parametrize(
    "body",
    [
        "    tl.store(v0 + tl.load(x0), 1.0)",
        "    for r in range(tl.load(x0)):\n        tl.store(v0 + r, 1.0)",
        "    while 1:\n        pass",
        "    tl.atomic_add(v0 + tl.arange(0, 8), 1.0)",
        "    for r in range(0, 100000):\n        tl.store(v0, 1.0)",
        "    x = (",
        "    p = v0 if x0 else v1\n    tl.store(p, 1.0)",
    ],
)
@pytest.mark.slow
def test_what_is_not_known_is_left_alone(body: str) -> None:
    assert touch("9, 1", body, {"x0": 8, "v0": 8}).stored.get("v0") is None


@pytest.mark.parametrize(
    "body",
    [
        "x = tl.arange(0, 1 << 40)",
        "x = tl.program_id(0) + tl.arange(0, 1048576)[:, None]\n"
        + "y = x + tl.arange(0, 1048576)[None, :]\n" * 999,
        "x = tl.program_id(0) + tl.arange(0, 32)\n" + "y = x * 1 + x // 3 % 5\n" * 2000,
        "x = " + "+".join(["x"] * 15_000),
        "\n".join("    " * n + f"for n{n} in range(9):" for n in range(18)) + " x = 1",
    ],
)
@pytest.mark.slow
def test_hostile_texts_neither_fail_nor_take_long(body: str) -> None:
    began = time.process_time()
    touch("65536, 1", textwrap.indent(body, "    ") + "\n    tl.store(v0, 1.0)", {"v0": 8})
    assert time.process_time() - began < 5


KEPT = """\
k0[1, 1]:
    y = tl.arange(0, 4)[:, None]
    x = tl.arange(0, 8)[None, :]
    a0 = tl.exp(tl.load(x0 + (y * 8 + x)))
    tl.store(v0 + (y * 8 + x), a0)
    tl.store(OUT + (y * 8 + x), a0 + 1)
k1[1, 1]:
    y = tl.arange(0, 4)
    tl.store(LAST + y, tl.load(v0 + y * 8) * 2)
return OUT, LAST"""
HALVES = """\
k0[1, 1]:
    x = tl.arange(0, 32)
    tl.store(OUT + x, tl.load(x0 + x))
MORE
return OUT"""
SECOND = "k1[1, 1]:\n    x = tl.arange(0, 32)\n    "


@pytest.mark.parametrize(
    ("function", "text"),
    [
        # Kept in registers, and read in part by another kernel.
        (lambda x, y: ((a := x.exp()) + 1, a[:, 0] * 2), KEPT),
        # The other half is written through an alias, by an assignment, through a pointer, or where it cannot be followed.
        *(
            (lambda x, y: torch.cat([x, y]), HALVES.replace("MORE", more))
            for more in (
                f"z0 = OUT[4:]\n{SECOND}tl.store(z0 + x, tl.load(x1 + x))",
                "OUT[4:] = x1",
                f"{SECOND}p = OUT + 32\n    tl.store(p + x, tl.load(x1 + x))",
                f"{SECOND}p = OUT + 32\n    if s0 > 1:\n        tl.store(p + x, tl.load(x1 + x))",
            )
        ),
        # The reads are unknown, or their values unused.
        *(
            (
                function,
                f"k0[1, 1]:\n    x = tl.arange(0, 32)\n    a0 = {value}\n    tl.store(OUT + x, a0)\nreturn OUT",
            )
            for function, value in (
                (lambda x, y: x + y, "tl.load(x0 + x) + (tl.load(x1 + x) if s0 > 2 else 0.0)"),
                (
                    lambda x, y: x.pow(0) + y[:, :1],
                    "1.0 + tl.load(x1 + x // 8 * 8) + 0.0 * tl.load(x0 + x // 8)",
                ),
                (
                    lambda x, y: torch.lerp(x, y, 0.0) + y[:, :1],
                    "tl.load(x0 + x) + tl.load(x1 + x // 8 * 8)",
                ),
                (
                    lambda x, y: torch.zeros_like(x.softmax(1)) + x[:, :1],
                    "tl.load(x0 + x // 8 * 8)",
                ),
                (
                    lambda x, y: x * torch.tril(torch.ones(4, 8)),
                    "tl.load(x0 + x, x % 8 <= x // 8, 0.0)",
                ),
            )
        ),
    ],
)
@pytest.mark.slow
def test_right_texts_are_left_alone(function: Callable[..., Any], text: str) -> None:
    graph = captured(Function(function), [rand(4, 8), rand(4, 8)], ["x0", "x1"])
    outputs: list[str] = []
    walk_refs(graph.graph.outputs, outputs.append)
    text = text.replace("OUT", outputs[0]).replace("LAST", outputs[-1])
    assert nanolang.assemble(TASK, graph, text, "triton").backend == "triton"


@pytest.mark.parametrize(
    "text",
    [
        "k0[1, 32]:\n    for r in range(4096):\n        y = "
        + "+".join(["1"] * 8000)
        + "\n    tl.store(v0, 1.0)\nreturn v0",
        "z0 = empty(f32, 1073741824)\nk0[1, 32]:\n    x = tl.arange(0, 131072)\n"
        "    tl.store(z0 + x * 4096, 1.0)\n    tl.store(v0, 1.0)\nreturn v0",
        "k0[1, 32]:\n    x = tl.arange(0, 8192)\n    y = x[None, :]\n"
        "    tl.load(x0 + x[:, None] // 8192, y >= 0)\n    tl.store(v0, 1.0)\nreturn v0",
        "\n".join(
            f"k{n}[1, 32]:\n    for r in range(4096):\n        y = r + 1\n" for n in range(60)
        )
        + "\nreturn x0",
        "z0 = empty(f32, 4)\nk0[1, 1]:\n    tl.store(z0 + tl.arange(0, 4), 1.0)\nz0 = empty(f32, s0, s1)\n"
        "k1[1, 1]:\n    tl.store(z0 + tl.arange(0, 8), 1.0)\n    tl.store(v0, 1.0)\nreturn v0",
        "".join(
            f"k{n}[4096, 32]:\n    x = tl.program_id(0) * 1024 + tl.arange(0, 1024)\n    y = x * 3 + 1\n    z = y - x\n"
            for n in range(150)
        )
        + "return x0",
    ],
)
@pytest.mark.slow
def test_costs_are_bounded_for_a_whole_text(text: str) -> None:
    graph = captured(Function(torch.exp), [rand(4, 8)], ["x0"])
    began = time.process_time()
    with suppress(nanolang.ParseError):
        nanolang.assemble(TASK, graph, text, "triton")
    assert time.process_time() - began < 5
