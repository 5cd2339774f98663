"""`dvk explain`: which calls have kernels, why another has none, and one message for what it cannot read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.cli import warm
from tests.composer.programs import drop_in

SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)

    def forward(self, x, scale=2.0):
        return self.drop(torch.tanh(self.norm(x)) * scale)


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def best(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explained") / "best.py"
    path.write_text(drop_in(SOURCE, torch.randn(4, 8))[2].source, encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_call_that_runs_the_kernels_and_one_that_does_not(best: Path) -> None:
    report = json.loads(warm.dvk("explain", best, "--eval", "--json", cwd=best.parent).stdout)
    assert report["runs"] == report["call"]["runs"] == "kernels" and not report["call"]["reasons"]
    assert report["programs"] == [{"x": "float32[4,8]"}]
    assert report["guards"]["modules"]["norm"]["eps"] == "1e-05"
    other = ("explain", best, "--input", "x=float32[7,8]")
    told = warm.dvk(*other, cwd=best.parent, exits=1).stdout
    assert "kernels exist for\n  x=float32[4,8]\n" in told and "drop (torch.Dropout): " in told
    assert "the call with x=float32[7,8] runs the original\n  x is float32[7,8]" in told
    assert "`drop` is in train mode; the kernels were made for eval mode" in told


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (None, (), "no such file"),
        ("x = 1\n", (), "is no drop-in"),
        ("class ModelNew(\n", (), "ModelNew"),
        ("def f(", (), "is no drop-in"),
        ("class ModelNew:\n    pass\n", (), "ModelNew"),
        ("class ModelNew(Nothing):\n    pass\n", (), "Nothing"),
        ("", ("--input", "nonsense"), "has no name"),
        ("", ("--device", "tpu"), "unknown device"),
        ("", ("--input", "y=float32[4,8]"), "y"),
        ("older", (), "written by an older dvk"),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_explained_is_one_message(
    best: Path, tmp_path: Path, text: str | None, options: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "mine.py"
    if text is not None:
        held = best.read_text(encoding="utf-8")
        path.write_text(
            held.replace("dvk_why", "dvk_told") if text == "older" else text or held,
            encoding="utf-8",
        )
    done = warm.dvk("explain", path, *options, cwd=tmp_path, exits=2)
    assert message in done.stderr and done.stderr.count("error:") == 1 and not done.stdout
    assert "Traceback" not in done.stderr
