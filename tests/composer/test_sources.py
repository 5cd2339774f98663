"""Drop-ins hold the functions' own source, and writing it loads no torch."""

from __future__ import annotations

import ast
import gc
import inspect
import re
import subprocess
import sys
import textwrap
import weakref
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from dvk.composer.runtime import convert, cuda_launch, finite, guards, nano, rebuild, sources


def stripped(source: str) -> str:
    """A function's code without the parts for checkers and readers of dvk: annotations and docstrings."""
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef):
            node.returns = None
    lines = ast.unparse(tree)
    return re.sub(r"^(\s*[\w.]+): .+? = ", r"\1 = ", lines, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "module", [guards, convert, cuda_launch, rebuild, finite], ids=lambda module: module.__name__
)
def test_texts_are_the_functions_own(module: ModuleType) -> None:
    own = {
        n: v
        for n, v in vars(module).items()
        if n.startswith("dvk_") and getattr(v, "__module__", "") == module.__name__
    }
    assert own
    for name, value in own.items():
        text = sources.texts()[name]
        assert stripped(text) == stripped(inspect.getsource(value))
        assert (
            "noqa" not in text
            and "type: ignore" not in text
            and "\n\n" not in text
            and "->" not in text
        )


@pytest.mark.slow
def test_the_search_of_a_module_loads_no_torch() -> None:
    code = "import sys, dvk.pipelines.optimize; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an absent GPU nothing is replayed, but inputs are copied in and results out."""
    stream = SimpleNamespace(wait_stream=lambda _: None)
    stands_in: dict[str, Any] = {
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": nullcontext,
        "graph": nullcontext,
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
    }
    for name, value in stands_in.items():
        monkeypatch.setattr(torch.cuda, name, value)


@pytest.mark.usefixtures("captures")
def test_a_graph_made_under_inference_mode_serves_other_calls() -> None:
    class Module(torch.nn.Module):
        def run(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x, x * 2

    run = Module().run
    with torch.inference_mode():
        guards.dvk_replay(run, (torch.zeros(3),))
    with torch.no_grad():
        taken, _ = guards.dvk_replay(run, (torch.ones(3),))
    assert taken.tolist() == [1, 1, 1]


class Scaled(torch.nn.Module):
    """Stand-in for a drop-in with held weights as `dvk_replay` sees it; `made` are weak references to what its runs held."""

    def __init__(self, held: Any):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(5))
        self.__dict__.update(_dvk_weights=(self.weight,), held=held, made=[])

    def run(self, x: torch.Tensor) -> torch.Tensor:
        scaled = self.held(self.weight)
        self.made.append(weakref.ref(scaled.untyped_storage()))
        return x * scaled


@pytest.mark.usefixtures("captures")
@torch.no_grad()
def test_tensors_read_by_graphs_live_as_long_as_the_graphs() -> None:
    held, x = nano.dvk_held(lambda weight: 3 * weight), torch.ones(5)
    modules = [Scaled(held) for _ in range(20)]
    for module in modules:
        assert torch.equal(guards.dvk_replay(module.run, (x,)), 3 * module.weight)
    assert all(
        len({one() for one in module.made}) == 1 and module.made[-1]() is not None
        for module in modules
    )
    seen = [one for module in modules for one in module.made]
    before, first = modules[0].made[-1], modules[0]
    first.weight.mul_(2)
    assert torch.equal(guards.dvk_replay(first.run, (x,)), 3 * first.weight) and before() is None
    seen += first.made
    del modules, module, first
    gc.collect()
    assert [one for one in seen if one() is not None] == []


@pytest.mark.parametrize("make", [lambda weight: weight, lambda weight: (weight[1:], 2 * weight)])
@torch.no_grad()
def test_views_of_weights_do_not_keep_their_memory(make: Any) -> None:
    weight = torch.rand(5)
    held, memory = nano.dvk_held(make), weakref.ref(weight.untyped_storage())
    assert all(
        map(
            torch.equal,
            torch.utils._pytree.tree_leaves(held(weight)),
            torch.utils._pytree.tree_leaves(make(weight)),
        )
    )
    del weight
    assert memory() is None


@pytest.mark.usefixtures("captures")
@torch.no_grad()
def test_a_dropped_buffer_is_recreated_and_stays_for_other_graphs() -> None:
    held, x = nano.dvk_held(lambda weight: 3 * weight), torch.ones(5)
    mine, other = Scaled(held), Scaled(held)
    other.weight = mine.weight
    other.__dict__["_dvk_weights"] = mine._dvk_weights
    for module in (mine, other):
        guards.dvk_replay(module.run, (x,))
    mine.weight.data.mul_(2)
    guards.dvk_drop(mine)
    assert torch.equal(guards.dvk_replay(mine.run, (x,)), 3 * mine.weight), "its graph, too"
    assert other.made[-1]() is not None and other.made[-1]() is not mine.made[-1]()
    guards.dvk_drop(mine)
    guards.dvk_drop(other)
    assert other.made[-1]() is None is mine.made[-1]()
