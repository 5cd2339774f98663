"""A network by its blocks: each operator's block, eager time by block, and the winner's kernels for each."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from dvk.agents import TaskContext
from dvk.composer import Plan, applicable, compose
from dvk.composer.capture.blocks import block_of
from dvk.composer.capture.export import CapturedGraph, trace
from dvk.config import Limits
from dvk.harness.profiling.blocks import WHOLE, block_times, measured
from dvk.pipelines.optimize import blocks
from dvk.records import Task, Turn
from tests.pipelines.pages import write
from tests.pipelines.searches import BEST, SUMMARY, episode, turns

SOURCE = """
import os
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(16), nn.Linear(16, 16)
    def forward(self, x):
        return x + torch.tanh(self.up(self.norm(x)) * 2)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.head = nn.Sequential(nn.Linear(16, 8), nn.ReLU())
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x.exp()).log_softmax(-1)
def get_inputs():
    return [torch.randn(32, 16)]
"""
NAMES = ["blocks.0", "blocks.1", "blocks.2", "head"]
TIMES = {"blocks.0": 2.0, "blocks.1": 3.0, "blocks.2": 2.0, "head": 1.0, WHOLE: 10.0}


def task(source: str = SOURCE) -> Task:
    return Task(id="t", name="t", source=source, entry="Model", kind="module")


@pytest.fixture(scope="module")
def captured() -> CapturedGraph:
    return trace(task())


def won(captured: CapturedGraph, proposer: str = "composer") -> Turn:
    made = compose(task(), captured, Plan(tuple(applicable(captured.graph, "cpu", "cpp"))), "cpp")
    return Turn(candidate=made.model_copy(update={"proposer": proposer}))


def test_whose_an_operator_is() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 8)
    model = nn.Module()
    model.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model.head = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    model.stages = nn.ModuleList([nn.Sequential(nn.ModuleList([nn.Linear(8, 8)]))])
    model.last = nn.Linear(8, 8)
    paths = [
        "encoder.layers.1.self_attn",
        "encoder.layers.1@1",
        "encoder",
        "head.0",
        "stages.0.0.0",
        "last",
        "gone.0",
        "",
    ]
    assert [block_of(path, model) for path in paths] == [
        "encoder.layers.1",
        "encoder.layers.1",
        "encoder",
        "head",
        "stages.0",
        "",
        "",
        "",
    ]


def test_alike_blocks_are_one_row_and_all_is_counted_once(captured: CapturedGraph) -> None:
    assert blocks.names(captured) == NAMES
    told = blocks.rows(TaskContext(task(), captured, "cpp"), won(captured), TIMES)
    assert [(row["name"], row["count"], row["operators"]) for row in told] == [
        ("blocks.0", 3, 15),
        ("head", 1, 2),
        (blocks.REST, 1, 2),
    ]
    assert [(row["ms"], row["share"]) for row in told] == [(7.0, 0.7), (1.0, 0.1), (2.0, 0.2)]
    groups = blocks.fuse(task(), captured, won(captured).candidate.recipes).part.schedule  # type: ignore[union-attr]
    every_time = [
        step for step in groups if getattr(step, "op", "") != "derived"
    ]  # values derived from weights alone are computed once
    assert sum(row["kernels"] + row["calls"] for row in told) == len(every_time) < len(
        groups
    ) and all(row["kernels"] for row in told[:2])
    assert 0 < told[0]["bytes_after"] < told[0]["bytes"]


@pytest.mark.slow
def test_what_is_not_known_is_left_open(captured: CapturedGraph) -> None:
    told = blocks.rows(TaskContext(task(), captured, "cpp"), won(captured, "nano"), {})
    assert len(told) == 3 and all(
        row[key] is None
        for row in told
        for key in ("ms", "share", "kernels", "calls", "bytes_after")
    )
    assert blocks.rows(TaskContext(task(), None, "cpp"), None, {}) == []
    lone = trace(task(SOURCE.replace("range(3)", "range(0)")))
    assert blocks.names(lone) == [] == blocks.rows(TaskContext(task(), lone, "cpp"), None, {})


def test_time_is_where_it_is_spent() -> None:
    class Power(nn.Module):
        def __init__(self, times: int):
            super().__init__()
            self.times = times

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(self.times):
                x = torch.tanh(x @ x)
            return x

    model = nn.Sequential(Power(40), Power(2))
    found = measured(model, [torch.rand(128, 128)], {}, ["0", "1"])
    assert found["0"] > 4 * found["1"] > 0 and found["0"] + found["1"] <= found[WHOLE] * 1.2
    nested = measured(
        nn.Sequential(nn.Sequential(Power(40))), [torch.rand(128, 128)], {}, ["0", "0.0"]
    )
    assert 0 < nested["0"] < 0.5 * nested["0.0"]


def test_a_list_whose_layers_are_called_one_by_one_has_their_time() -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(256, 256) for _ in range(3)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    found = measured(Listed(), [torch.randn(512, 256)], {}, ["layers"])
    assert 0.5 * found[WHOLE] < found["layers"] <= found[WHOLE]


def test_blocks_are_timed_in_a_child() -> None:
    found = block_times(task(), NAMES, Limits(wall_s=120.0))
    assert list(found) == [*NAMES, WHOLE] and all(ms > 0 for ms in found.values())
    assert (
        block_times(task(SOURCE.replace("x.exp()", "os._exit(3)")), NAMES, Limits(wall_s=120.0))
        == {}
    )


def test_the_report_has_them(captured: CapturedGraph, tmp_path: Path) -> None:
    told = blocks.rows(TaskContext(task(), captured, "cpp"), won(captured), TIMES)
    page, text = write(tmp_path, episode(turns()), SUMMARY | {"blocks": told}, BEST)
    first = page.table("Block")[1]
    assert (
        first[:4] == ["blocks.0 and 2 alike", "7 ms", "70.0 %", "15"]
        and "kernels" in first[4]
        and " → " in first[5]
    )
    line = next(line for line in text.splitlines() if "blocks.0 and 2 alike" in line)
    assert all(cell in line for cell in first)
