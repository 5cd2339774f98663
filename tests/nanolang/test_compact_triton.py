"""The compact dialect in Triton: every algorithm in the interpreter, and texts that compile for sm_90 with named sizes."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from dvk.composer import Plan, applicable
from dvk.nanolang import algorithms, variants, write
from dvk.nanolang.text.write import fused
from tests.nanolang.compact_cases import CASES, rand
from tests.nanolang.compact_programs import Function, candidate, captured
from tests.tasks.shrink import shipped

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "import torch\n\ndef entry(*args):\n    raise RuntimeError('the original ran')\n"


@pytest.fixture(scope="module")
def interpreted() -> dict[str, list[str]]:
    """Key → what was wrong: whether to interpret is settled when Triton is imported."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.nanolang.compact_child", "interpret", "2"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {a["key"]: a["wrong"] for a in answers}


@pytest.mark.hand
@pytest.mark.slow
@pytest.mark.timeout(900)  # the child's own limit: the first one waits for all
@pytest.mark.parametrize("name", CASES)
def test_every_algorithm(interpreted: dict[str, list[str]], name: str) -> None:
    assert interpreted[f"case:{name}"] == []


@pytest.mark.hand
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [path.stem for path in shipped()])
def test_shipped_tasks(interpreted: dict[str, list[str]], name: str) -> None:
    from tests.nanolang.compact_child import INTERPRETER_FAILS

    assert interpreted.get(f"task:{name}") == ([] if name not in INTERPRETER_FAILS else None)


COMPILED = {
    "layer_norm": (lambda x, w: F.layer_norm(x, (1500,), w), lambda: [rand(300, 1500), rand(1500)]),
    "softmax": (lambda x: torch.softmax(x, -1), lambda: [rand(6, 30000)]),
    "variance_columns": (lambda x: x.var(0), lambda: [rand(3000, 90)]),
    "bias_gelu": (lambda x, b: F.gelu(x + b), lambda: [rand(330, 700), rand(700)]),
    "transpose": (lambda x, y: torch.relu(x.t()) + y, lambda: [rand(350, 270), rand(270, 350)]),
    "product": (lambda x, w: F.gelu(F.linear(x, w)), lambda: [rand(90, 1100), rand(130, 1100)]),
}


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.slow
def test_texts_compile(name: str) -> None:
    """The kernels as the drop-in defines them: sizes are globals, `cdiv` is the frame's."""
    function, inputs = COMPILED[name]
    args = inputs()
    graph = captured(Function(function), args)
    names = tuple(applicable(graph.graph, "cuda", "triton"))
    (kernel,) = fused(graph, names, "triton").ordered
    for options in algorithms(kernel, "triton").values():
        text = write(graph, Plan(names, {kernel.name: options[0]}), "triton")
        module = candidate(SOURCE, graph, text, "triton", entry="entry")
        made = [value.compiled for value in vars(module).values() if hasattr(value, "compiled")]
        assert made and re.search(
            r"ld\.global|cp\.async",
            "".join(ptx(kernel, options[0].printed()["warps"]) for kernel in made),
        )


def ptx(kernel: Any, warps: int) -> str:
    """A kernel of float pointers, compiled for sm_90 without a GPU."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    aligned = {(n,): [["tt.divisibility", 16]] for n in range(len(kernel.arg_names))}
    source = ASTSource(kernel, signature=dict.fromkeys(kernel.arg_names, "*fp32"), attrs=aligned)
    return str(
        triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps}).asm[
            "ptx"
        ]
    )


def test_a_plan_with_a_graph_says_so() -> None:
    graph = captured(Function(lambda x: torch.softmax(x, -1)), [rand(40, 300)])
    tagged = [
        v for v in variants(graph, "triton", random.Random(0), 12) if "graph replay" in v.tags
    ]
    assert tagged and all(v.text.startswith("graphed\n") for v in tagged)
    made = candidate(SOURCE, graph, tagged[0].text, "triton", entry="entry", device="cuda")
    assert made.ModelNew.forward.__code__.co_names.count("dvk_replay") == 1
