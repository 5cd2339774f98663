"""Differences on a GPU: where inputs and weights are made, TF32, and indices that kill the process."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
import torch

from dvk.records import Task
from dvk.tasks import load
from dvk.tasks.build import build, build_candidate
from dvk.tasks.trees import named_tensors
from tests.tasks.shrink import shipped, shrunken

pytestmark = pytest.mark.gpu


def write(folder: Path, text: str) -> str:
    path = folder / "model.py"
    path.write_text(dedent(text))
    return str(path)


@pytest.mark.parametrize(
    ("body", "precision"),
    [("nn.Conv2d(3, 4, 3)", "tf32"), ("nn.BatchNorm2d(3)", "fp32"), ("nn.Linear(8, 8)", "fp32")],
)
def test_precision_follows_the_flags(tmp_path: Path, body: str, precision: str) -> None:
    text = f"""
        import torch, torch.nn as nn
        class Model(nn.Module):
            def __init__(self): super().__init__(); self.layer = {body}
            def forward(self, x): return self.layer(x)
        def get_inputs(): return [torch.randn(2, 3, 8, 8)]
    """
    assert load(write(tmp_path, text), device="cuda").precision == precision
    high = text.replace(
        "class Model", "torch.set_float32_matmul_precision('high')\n        class Model"
    )
    assert load(write(tmp_path, high), device="cuda").precision == (
        "fp32" if "Norm" in body else "tf32"
    )


def test_everything_is_on_the_gpu_and_repeatable(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        import numpy, torch, torch.nn as nn
        class Model(nn.Module):
            def __init__(self, scale):
                super().__init__()
                self.linear, self.scale = nn.Linear(16, 16), scale
            def forward(self, x, y, z): return self.linear(x) * self.scale + y + z
        def get_inputs():
            z = torch.from_numpy(numpy.random.rand(8, 16)).float()
            return [torch.randn(8, 16), torch.randn(8, 16, device="cpu"), z]
        def get_init_inputs(): return [torch.rand(16)]
    """,
    )
    task = load(path, device="cuda")
    assert task.num_shape_variants >= 3
    first, second = build(task), build(Task.model_validate(task.model_dump(mode="json")))
    for variant in first.variants:
        a, b = first.inputs(3, variant)[0], second.inputs(3, variant)[0]
        assert all(x.is_cuda and torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert first.model.linear.weight.is_cuda
    assert torch.equal(first.model.linear.weight, second.model.linear.weight)
    model = build_candidate(task.source.replace("class Model(", "class ModelNew("), task, first)
    args, _ = first.inputs(1)
    with torch.no_grad():
        assert torch.equal(model(*args), first.model(*args))


def test_inputs_that_must_be_drawn_on_the_cpu(tmp_path: Path) -> None:
    task = load(
        write(
            tmp_path,
            """
        import torch
        def f(x): return x.exp()
        def get_inputs():
            own = torch.Generator().manual_seed(int(torch.randint(99, ())))
            return [torch.randn(6, 5, generator=own)]
    """,
        ),
        device="cuda",
    )
    built = build(task)
    assert built.inputs(0)[0][0].is_cuda
    assert torch.equal(built.inputs(4)[0][0], built.inputs(4)[0][0])
    assert not torch.equal(built.inputs(4)[0][0], built.inputs(5)[0][0])


def test_an_index_error_ends_the_search_not_the_task(tmp_path: Path) -> None:
    task = load(
        write(
            tmp_path,
            """
        import torch
        def f(x, i): return x[i]
        def get_inputs(): return [torch.rand(8, 3), torch.randint(0, 8, (40,))]
    """,
        ),
        device="cuda",
    )
    assert [variant.name for variant in task.shape_variants] == ["batch+3", "batch*2+1"]


def test_dropout_is_stochastic(tmp_path: Path) -> None:
    task = load(
        write(
            tmp_path,
            """
        import torch
        def f(x): return torch.nn.functional.dropout(x, 0.5)
        def get_inputs(): return [torch.rand(8, 3)]
    """,
        ),
        device="cuda",
    )
    assert task.stochastic


@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.stem)
def test_shipped_modules_run(tmp_path: Path, path: Path) -> None:
    task = load(str(shrunken(path, tmp_path)), device="cuda")
    assert not task.stochastic
    assert task.num_shape_variants >= 3
    built = build(task)
    args, kwargs = built.inputs(1)
    with torch.no_grad():
        assert all(t.is_cuda for _, t in named_tensors(built.model(*args, **kwargs)))
