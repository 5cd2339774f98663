"""What travels inside drop-ins is the functions' own source, and to write it no torch is loaded."""

from __future__ import annotations

import inspect
import subprocess
import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from dvk.composer import carried, cuda_launch, embedded
from dvk.composer.compact import frame


@pytest.mark.parametrize("module", [embedded, cuda_launch, frame], ids=lambda module: module.__name__)
def test_texts_are_the_functions_own(module: ModuleType) -> None:
    functions = {name: value for name, value in vars(module).items() if inspect.isfunction(value) and name.startswith("dvk_")}
    assert functions
    for name, function in functions.items():
        assert carried.texts()[name] == inspect.getsource(function)


def test_the_search_of_a_module_loads_no_torch() -> None:
    code = "import sys, dvk.pipelines.optimize; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_graph_made_under_inference_mode_serves_other_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that is not there: nothing is replayed, but inputs are copied in and results out."""
    stream = SimpleNamespace(wait_stream=lambda _: None)
    stands_in: dict[str, Any] = {
        "Stream": lambda: stream, "current_stream": lambda: stream, "stream": nullcontext, "graph": nullcontext,
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None)}  # fmt: skip
    for name, value in stands_in.items():
        monkeypatch.setattr(torch.cuda, name, value)

    class Module(torch.nn.Module):
        def run(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x, x * 2

    run = Module().run
    with torch.inference_mode():
        embedded.dvk_replay(run, (torch.zeros(3),))
    with torch.no_grad():
        taken, _ = embedded.dvk_replay(run, (torch.ones(3),))
    assert taken.tolist() == [1, 1, 1]
