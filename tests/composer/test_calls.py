"""Torch calls of a text: what raises without data is told, what composes passes, and nothing that is not known is judged or run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dvk.composer.compact.calls import refused
from dvk.records import Node

NODES = {
    "x0": Node(name="x0", op="input", shape=(6, 8), dtype="float32", strides=(8, 1)),
    "p0": Node(name="p0", op="param", shape=(4, 8), dtype="float32", strides=(8, 1)),
    "x1": Node(name="x1", op="input", shape=(6,), dtype="int64", strides=(1,)),
    "v0": Node(name="v0", op="aten.linear.default", shape=(6, 4), dtype="float32", strides=(4, 1)),
    "v1": Node(name="v1", op="aten.relu.default", shape=(6, 4), dtype="float32", strides=(4, 1)),
}  # fmt: skip
SIZES = {"s0": 6, "s1": 8, "s2": 4}


def said(*lines: str) -> tuple[str, str] | None:
    text = "\n".join(["def run(x0, x1, p0):", *(f"    {line}" for line in lines), "    return v1"])
    run = ast.parse(text).body[0]
    assert isinstance(run, ast.FunctionDef)
    return refused(run, NODES, SIZES)


@pytest.mark.parametrize(("lines", "why", "name"), [
    (("v0 = F.linear(x0, p0, 1.5)",), "raises TypeError: linear(): argument 'bias' (position 3) must be Tensor, not float", "v0"),
    (("v0 = F.linear(p0, x0, p0)",), "raises RuntimeError", "v0"),
    (("v0 = torch.matmul(x0, p0)",), "raises RuntimeError", "v0"),
    (("v0 = torch.matmul(x0, p0.permute(1, 0))", "v1 = v0[:, 0:s2, 0]"), "raises IndexError", "v1"),
    (("v1 = torch.relu(F.linear(x0, p0).transpose(0, 1))",), "has the shape (4, 6), not (6, 4)", "v1"),
    (("v0 = F.linear(x0, p0)", "v1 = v0.view(s0 * s2, 2)"), "raises RuntimeError", "v1"),
    (("v0 = torch.ops.aten.linear.default(x0)",), "raises", "v0"),
    (("z0 = other(x0)", "v0 = F.linear(x0, p0)", "v1 = F.linear(v0, p0)"), "raises RuntimeError", "v1"),
])  # fmt: skip
def test_what_raises_is_told(lines: tuple[str, ...], why: str, name: str) -> None:
    found = said(*lines)
    assert found is not None and why in found[0] and found[1] == name


@pytest.mark.parametrize("lines", [
    ("v0 = F.linear(x0, p0)", "v1 = torch.relu(v0[:, 0:s2]).contiguous()"),
    ("z0 = held(lambda w: w.clone())", "v0 = F.linear(x0, z0(p0))", "v1 = v0 + 1"),
    ("k0[6, 1](x0, v0)", "v1 = torch.empty_like(x0)[:, :4]"),
    ("z0 = strided(x0, (1, 6))", "v1 = z0.nothing_of_this_name(3)"),
    ("z0 = x0.new_empty(s0, dtype=torch.float32)", "v0 = F.linear(x0, p0).to(torch.float32)"),
    ("v1 = x1[0].item() * F.linear(x0, p0)",),
    ("v1 = torch.repeat_interleave(x0, x1, 0)",),
    ("v1 = F.linear(x0, p0) if s0 else None",),
])  # fmt: skip
def test_what_may_work_is_left_alone(lines: tuple[str, ...]) -> None:
    assert said(*lines) is None


def test_nothing_else_is_called(tmp_path: Path) -> None:
    left = tmp_path / "left"
    for call in (f"torch.save(x0, {str(left)!r})", f"open({str(left)!r}, 'w')", f"torch.os.mkdir({str(left)!r})",
                 f"x0.numpy().tofile({str(left)!r})", f"x0.__class__.__base__.__subclasses__()[0]({str(left)!r})",
                 f"torch.hub.os.mkdir({str(left)!r})", f"torch.ops.load_library({str(left)!r})", f"x0.tofile({str(left)!r})"):  # fmt: skip
        assert said(f"v1 = {call}") is None
    assert not left.exists()
