"""Child process of test_compact_triton.py: every case under every Triton algorithm, and variants of the shipped tasks.

Prints one JSON object a line, as triton_child does. `interpret` runs in Triton's interpreter, `gpu` on a GPU.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from typing import Any

import torch

from dvk.composer import Plan, applicable
from dvk.nanolang import algorithms, variants, write
from dvk.nanolang.text.write import fused
from tests.composer.programs import differences, run_source
from tests.nanolang.compact_cases import CASES
from tests.nanolang.compact_programs import Function, candidate, captured
from tests.tasks.shrink import shipped, shrink

DEVICE = "cuda" if sys.argv[1:2] == ["gpu"] else "cpu"
COUNT = int(sys.argv[2]) if sys.argv[1:2] in (["gpu"], ["interpret"]) and len(sys.argv) > 2 else 2
SOURCE = "import torch\n\ndef entry(*args):\n    raise RuntimeError('the original ran')\n"
INTERPRETER_FAILS = {"chain_min_max_gamma"}
"""Triton 3.9's interpreter cannot `|` a scalar comparison with a vector one; on a GPU it works."""


def report(key: str, check: Callable[[], list[str]]) -> None:
    try:
        wrong = check()
    except Exception as error:  # noqa: BLE001 - any failure of generated code belongs to its case
        wrong = [f"{type(error).__name__}: {error}"[:500]]
    print(json.dumps({"key": key, "wrong": wrong}), flush=True)


def run_case(name: str) -> list[str]:
    function, inputs = CASES[name]
    torch.manual_seed(3)
    args = [a.to(DEVICE) for a in inputs()]
    graph = captured(Function(function), args)
    names = tuple(applicable(graph.graph, "cuda", "triton"))
    names = tuple(n for n in names if n != "cuda_graph")
    want = function(*args)
    wrong, seen = [], set()
    if name.startswith("product_") and not any(
        kernel.family == "product" for kernel in fused(graph, names, "triton").ordered
    ):
        wrong.append("no kernel is a product")
    for kernel in fused(graph, names, "triton").ordered:
        found = algorithms(kernel, "triton")
        if len(found) < 3 and kernel.family != "product":
            wrong.append(f"{kernel.summary} has only {list(found)}")
        for algorithm, options in found.items():
            for option in options[:2]:
                text = write(graph, Plan(names, {kernel.name: option}), "triton")
                if text in seen:
                    continue
                seen.add(text)
                got = run_text(graph, text, args)
                scale = 30 if name.endswith("_far") else 3
                wrong += [f"{algorithm} {option}: {d}" for d in differences(got, want, scale=scale)]
    return wrong


def run_text(graph: Any, text: str, args: list[Any]) -> Any:
    """Call the text's `run` without guards; its arguments are the graph's inputs."""
    module = candidate(SOURCE, graph, text, "triton", entry="entry")
    with torch.no_grad():
        return module.dvk_program(*args)


def run_task(source: str, name: str) -> list[str]:
    namespace = run_source(source, name)
    torch.manual_seed(0)
    init = namespace.get_init_inputs()
    model = namespace.Model(*init).to(DEVICE)
    args = [a.to(DEVICE) if isinstance(a, torch.Tensor) else a for a in namespace.get_inputs()]
    if DEVICE == "cpu" and any(t.dtype is torch.bfloat16 for t in [*args, *model.parameters()]):
        return []  # the interpreter computes bfloat16 wrongly
    graph = captured(model, args)
    wrong = []
    for variant in variants(graph, "triton", random.Random(len(source)), COUNT):
        if DEVICE == "cpu" and "graph replay" in variant.tags:
            continue
        new = (
            candidate(source, graph, variant.text, "triton", device=DEVICE)
            .ModelNew(*init)
            .to(DEVICE)
        )
        new.load_state_dict(model.state_dict())
        with torch.no_grad():
            torch.manual_seed(1)
            got = new(*args)
            torch.manual_seed(1)
            want = model(*args)
        wrong += [f"{variant.tags}: {d}" for d in differences(got, want, scale=3)]
        if new._dvk_ready is not True:
            wrong.append(f"{variant.tags}: the original ran")
    return wrong


if __name__ == "__main__":
    for case in CASES:
        report(f"case:{case}", lambda case=case: run_case(case))  # type: ignore[misc]
    for path in shipped():
        if DEVICE == "cpu" and path.stem in INTERPRETER_FAILS:
            continue
        report(f"task:{path.stem}", lambda path=path: run_task(shrink(path.read_text()), path.stem))  # type: ignore[misc]
