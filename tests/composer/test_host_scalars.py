"""Tensors of the host that a module on a GPU computes with: a scalar attribute or literal, read by kernels and by CUDA graphs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk.composer import Plan, applicable, fuse, write
from dvk.composer.capture.batch import trace_quickly
from dvk.composer.codegen.base import codegen
from dvk.composer.runtime.graph_replay import dvk_host_values
from dvk.records import Task, content_hash
from dvk.search.composer import MEASURED

CASES = {
    "attribute": ("self.scale = HOST(0.5)", "return torch.tanh(x * self.scale + 1)"),
    "one element": ("self.scale = HOST([0.5])[0]", "return torch.tanh(x * self.scale + 1)"),
    "root": ("self.width = HOST(64.0)", "return torch.relu(x / torch.sqrt(self.width) + 1)"),
    "chosen": ("self.low = HOST(0.1)", "return torch.where(x > 0, x, self.low) * 2"),
    "integer": ("self.k = HOST(3)", "return torch.softmax(x / self.k, -1)"),
    "literal": ("pass", "return torch.tanh(x * torch.tensor(0.5) + 1)"),
    "chosen literal": ("pass", "return torch.where(x > 0, x, torch.tensor(0.1)) * 2"),
    "returned": ("self.scale = HOST(0.5)", "return torch.tanh(x * self.scale), self.scale"),
}
SOURCE = """import numpy as np
import torch


def HOST(value):
    return torch.from_numpy(np.array(value, dtype=np.float32 if "." in repr(value) else np.int64))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}


def get_inputs():
    return [torch.randn(64, 256)]
"""


def task_of(name: str) -> Task:
    init, forward = CASES[name]
    text = SOURCE.format(init=init, forward=forward)
    return Task(
        id=content_hash(text), name="t", source=text, entry="Model", kind="module", device="cuda"
    )


def drop_in(name: str, graph: bool = False) -> str:
    task = task_of(name)
    captured = trace_quickly(task)
    chosen = tuple(
        r
        for r in applicable(captured.graph, "cuda", "triton")
        if r not in MEASURED or (graph and r == "cuda_graph")
    )
    composition = fuse(task, captured, chosen)
    first = {k.name: codegen("triton").schedules(k)[0] for k in composition.ordered}
    assert first, "something is fused"
    return write(task, captured, composition, Plan(chosen, first), "triton").source


@pytest.mark.parametrize("name", ["attribute", "root", "chosen", "integer", "returned"])
def test_kernels_read_a_copy_on_the_device_that_follows_the_attribute(name: str) -> None:
    text = drop_in(name)
    (copy,) = re.findall(r"_dvk_make(\d+) = lambda t: t.to\('cuda'\)", text)
    made = re.search(rf"(_c\w+) = dvk_derived\(_dvk_values, {copy}, \((_w_\w+),\), ", text)
    assert made is not None, "it is made again once the attribute changes"
    device, host = made.groups()
    called = [line for line in text.splitlines() if re.match(r"\s+run_k0\(|\s+k0\[", line)]
    assert called and all(device in line and host not in line for line in called)
    if name == "returned":  # the module's own tensor, on the host
        assert re.search(rf"return \(?_t\d+, {host}\b", text)


def test_weights_and_tasks_of_a_cpu_are_read_where_they_are() -> None:
    text = SOURCE.format(
        init="self.w = torch.nn.Parameter(HOST(0.5))", forward="return x * self.w + 1"
    )
    for device, backend in (("cuda", "triton"), ("cpu", "cpp")):
        task = task_of("attribute").model_copy(update={"device": device, "source": text})
        captured = trace_quickly(task)
        chosen = tuple(r for r in applicable(captured.graph, device, backend) if r not in MEASURED)
        composition = fuse(task, captured, chosen)
        first = {k.name: codegen(backend).schedules(k)[0] for k in composition.ordered}
        assert (
            ".to('"
            not in write(task, captured, composition, Plan(chosen, first), backend)
            .source.partition("Generated")[2]
            .partition("def dvk_")[0]
        )


def test_a_graph_keeps_the_scalars_that_where_would_copy_from_the_host() -> None:
    x, low = torch.empty(4, device="meta"), torch.tensor(0.1)
    host = dvk_host_values()
    host.begin(capturing=False)
    with host:
        torch.where(x > 0, x, low)
        torch.where(x > 0, x, 2.0)
    assert [made is not None for made in host.made] == [True], "one value came from the host"
    assert host.made[0].device.type == "meta"


@pytest.mark.gpu
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_drop_ins_with_host_scalars_answer_as_the_module_does(
    name: str, graph: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DVK_STRICT", "1")
    path = tmp_path / "drop_in.py"  # Triton reads the file of a kernel
    path.write_text(drop_in(name, graph))
    space: dict[str, Any] = {"__name__": "drop_in", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), space)
    original, ours = space["Model"]().cuda(), space["ModelNew"]().cuda()
    for number in range(3):
        x = torch.randn(64, 256, device="cuda")
        if number == 2:
            for module in (original, ours):
                for value in vars(module).values():
                    if isinstance(value, torch.Tensor):
                        value.mul_(2)
        with torch.no_grad():
            expected, got = original(x), ours(x)
        torch.testing.assert_close(got, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_cuda_graph_of_the_module_has_its_host_scalars(name: str) -> None:
    from dvk.composer.runtime.graph_replay import dvk_captured

    space: dict[str, Any] = {"__name__": "module"}
    exec(compile(task_of(name).source, "module.py", "exec"), space)
    model = space["Model"]().cuda()
    x = torch.randn(64, 256, device="cuda")
    if name == "returned":
        with pytest.raises(RuntimeError, match="its result is on the CPU"):
            dvk_captured(model, model.forward, (x,), {})
        return
    graph = dvk_captured(model, model.forward, (x,), {})
    y = torch.randn(64, 256, device="cuda")
    with torch.no_grad():
        torch.testing.assert_close(graph(y), model(y))
