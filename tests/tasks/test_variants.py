"""Which other shapes the judge gets to try, as found on real references."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from dvk.records import Task, TensorSpec
from dvk.tasks import load, variants
from dvk.tasks.build import build

CASES = {
    "row work": (
        "def f(x): return torch.softmax(x, -1)",
        "[torch.rand(8, 12)]",
        ["batch+3", "batch*2+1", "batch=1", "width-1"],
    ),
    "fixed width": (
        "W = torch.rand(12, 5)\ndef f(x): return x @ W",
        "[torch.rand(8, 12)]",
        ["batch+3", "batch*2+1", "batch=1"],
    ),
    "fixed batch": (
        "W = torch.rand(8, 5)\ndef f(x): return W.t() @ x",
        "[torch.rand(8, 12)]",
        ["width-1", "width+3", "width*2+1"],
    ),
    "two inputs, one batch": (
        "def f(x, y): return x + y[:, None]",
        "[torch.rand(8, 12), torch.rand(8)]",
        ["batch+3", "batch*2+1", "batch=1", "width-1"],
    ),
    "labels keep the width": (
        "def f(x, t): return torch.nn.functional.cross_entropy(x, t, reduction='none')",
        "[torch.rand(8, 12), torch.randint(0, 12, (8,))]",
        ["batch+3", "batch*2+1", "batch=1"],
    ),
    "matrix product": (
        "def f(a, b): return a @ b",
        "[torch.rand(8, 6), torch.rand(6, 4)]",
        ["batch+3", "batch*2+1", "batch=1", "width-1"],
    ),
    "square product": (
        "def f(a, b): return a @ b",
        "[torch.rand(6, 6), torch.rand(6, 6)]",
        ["batch+3", "batch*2+1", "batch=1", "width-1"],
    ),
    "indices into the batch": (
        "def f(x, i): return x[i]",
        "[torch.rand(8, 3), torch.randint(0, 8, (40,))]",
        ["batch+3", "batch*2+1"],
    ),
    "vector": ("def f(x): return x.exp()", "[torch.rand(9)]", ["batch+2", "batch*2+1", "batch=1"]),
    "scalar": ("def f(x): return x.exp()", "[torch.rand(())]", []),
    "no other shape": (
        "W = torch.rand(4, 4)\ndef f(x): return (x.view(4, 4) + W)",
        "[torch.rand(4, 4)]",
        [],
    ),
    "NaN for one row": (
        "def f(x): return x.std(0)",
        "[torch.rand(8, 12)]",
        ["batch+3", "batch*2+1", "width-1", "width+3", "width*2+1"],
    ),
}


def write(folder: Path, body: str, inputs: str) -> Task:
    path = folder / "model.py"
    path.write_text(f"import torch\n{body}\ndef get_inputs(): return {inputs}\n")
    return load(str(path))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_found(tmp_path: Path, case: str) -> None:
    body, inputs, expected = CASES[case]
    task = write(tmp_path, body, inputs)
    assert [variant.name for variant in task.shape_variants] == expected


def test_found_variants_run_in_another_process(tmp_path: Path) -> None:
    task = write(tmp_path, *CASES["two inputs, one batch"][:2])
    built = build(Task.model_validate_json(task.model_dump_json()))
    sizes = []
    for name in built.variants:
        args, kwargs = built.inputs(11, name)
        sizes.append(tuple(built.model(*args, **kwargs).shape))
    assert sizes == [(8, 12), (11, 12), (17, 12), (1, 12), (8, 11)]


def test_weights_and_running_statistics_survive_the_search(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        dedent("""
        import torch, torch.nn as nn
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
            def forward(self, x):
                self.seen += x.shape[0]
                if int(self.seen) != x.shape[0]:
                    raise RuntimeError("the buffer was not put back")
                return x * self.seen
        def get_inputs(): return [torch.rand(8, 12)]
    """)
    )
    assert len(load(str(path)).shape_variants) == 4


def test_large_inputs_do_not_grow() -> None:
    spec = TensorSpec(name="x", dtype="float32", shape=(4096, 8192), strides=(8192, 1))
    batch = variants.axes([spec])[0]
    proposed = list(variants.sizes(batch, 128 << 20, enough=False))
    assert proposed == [("batch+3", 4099), ("batch/2+1", 2049), ("batch=1", 1)]


@pytest.mark.parametrize("size", range(2, 40))
def test_proposed_sizes_are_odd_or_one_and_distinct(size: int) -> None:
    spec = TensorSpec(name="x", dtype="float32", shape=(size, size + 1), strides=(size + 1, 1))
    for axis in variants.axes([spec]):
        for num_bytes in (0, 1 << 30):
            proposed = [n for _, n in variants.sizes(axis, num_bytes, enough=False)]
            assert all(n % 2 == 1 and n != axis.size for n in proposed)
            assert len(set(proposed)) == len(proposed) >= 2
