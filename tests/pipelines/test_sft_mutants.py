"""Mutants of captured graphs: their texts compute their graphs, no held-out task is among them, and they are many."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from dvk import nanolang
from dvk.composer import CapturedGraph, Plan
from dvk.composer.capture.batch import trace_quickly
from dvk.nanolang.text.variants import described
from dvk.pipelines.sft.mutants import Mutants
from dvk.taskgen import generate, signature_of, split_of
from dvk.tasks.build import build
from tests.nanolang.compact_programs import CppText, compiled

Pair = tuple[Any, CapturedGraph, CapturedGraph]


def value(operand: Any, values: dict[str, Any]) -> Any:
    if isinstance(operand, dict):
        ((kind, inner),) = operand.items()
        return (
            values[inner]
            if kind == "ref"
            else getattr(torch, inner)
            if kind == "dtype"
            else float(inner)
        )
    return [value(v, values) for v in operand] if isinstance(operand, (list, tuple)) else operand


def interpreted(graph: CapturedGraph, model: torch.nn.Module, args: list[Any]) -> Any:
    """The graph, operator by operator."""
    given, values = iter(args), dict[str, Any]()
    for node in graph.graph.nodes:
        if node.op == "input":
            values[node.name] = next(given)
        elif node.op in ("param", "buffer"):
            values[node.name] = (
                model.get_parameter(node.target)
                if node.op == "param"
                else model.get_buffer(node.target)
            )
        elif node.op == "const":
            values[node.name] = torch.tensor(
                value(node.kwargs["data"], {}), dtype=getattr(torch, node.dtype)
            )
        elif node.op == "getitem":
            values[node.name] = values[node.args[0]["ref"]][node.args[1]]
        else:
            _, name, overload = node.op.split(".")
            operator = getattr(getattr(torch.ops.aten, name), overload)
            values[node.name] = operator(
                *(value(a, values) for a in node.args),
                **{k: value(v, values) for k, v in node.kwargs.items()},
            )
    return values[graph.graph.outputs["ref"]]


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    """(task, its graph, a mutant of it), of small tasks with one result."""
    mutants, found = Mutants(random.Random(3)), []
    for made in generate(11, 16, device="neutral", levels={"fusion": 1.0}):
        task = made.task("cpu")
        graph = trace_quickly(task)
        mutants.see(graph)
        mutant = mutants.of(graph)
        if mutant is not None and "ref" in graph.graph.outputs:
            found.append((task, graph, mutant))
    return found


@pytest.mark.slow
def test_most_graphs_have_mutants_of_their_shapes(pairs: list[Pair]) -> None:
    assert len(pairs) > 11
    for _, graph, mutant in pairs:
        assert [(n.name, n.shape, n.dtype) for n in mutant.graph.nodes] == [
            (n.name, n.shape, n.dtype) for n in graph.graph.nodes
        ]
        assert mutant.graph.nodes != graph.graph.nodes
        assert split_of(signature_of(mutant.graph.signature())) == "train"


def test_texts_compute_what_a_mutant_says(pairs: list[Pair]) -> None:
    texts = []
    for task, _, mutant in pairs[:10]:
        built = build(task)
        args, _ = built.inputs(0)
        text = described(mutant, Plan(nanolang.structures(mutant, "cpp")[0]), "cpp").text
        texts.append((CppText(built.model, mutant, text), args))
    compiled([text for text, _ in texts])
    compared = 0
    for program, args in texts:
        with torch.no_grad():
            wanted = interpreted(program.graph, program.model, args)
        torch.testing.assert_close(
            program.run(*args),
            wanted,
            rtol=2e-2 if wanted.dtype != torch.float32 else 1e-3,
            atol=1e-3,
            equal_nan=True,
        )
        compared += bool(wanted.isfinite().float().mean() > 0.5)
    assert compared > 5
