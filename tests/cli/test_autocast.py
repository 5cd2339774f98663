"""`--autocast` through the real command line: what is judged is a call under autocast, of the original and of the candidate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from dvk import tasks
from dvk.composer import Plan, compose
from dvk.composer.capture import export
from tests.cli import warm
from tests.composer.programs import usual

SOURCE = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm, self.line = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return F.gelu(self.line(self.norm(x))) + x


def get_inputs():
    return [torch.randn(32, 16)]
"""
ASKS = SOURCE.replace("Model(", "ModelNew(").replace(
    "        return",
    "        if not torch.is_autocast_enabled('cpu'):\n            raise RuntimeError('without autocast')\n        return",
    1,
)
QUICK = ("--set", "judge.search_s=0.05", "--set", "judge.num_seeds=1")
UNDER = ("--autocast", "bfloat16")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and its drop-in for calls under autocast."""
    place = tmp_path_factory.mktemp("autocast")
    (place / "model.py").write_text(SOURCE)
    (place / "asks.py").write_text(ASKS)
    task = tasks.load(str(place / "model.py"), autocast="bfloat16")
    assert task.precision == "half" and task.outputs[0].dtype == "float32"
    captured = export.trace(task)
    new = compose(task, captured, Plan(usual(captured.graph)), "cpp")
    (place / "best.py").write_text(new.source)
    return place


@pytest.mark.slow
def test_both_sides_are_called_under_autocast(folder: Path) -> None:
    call = ("verify", "model.py", "best.py", "asks.py", "--json", *QUICK)
    rows = json.loads(warm.dvk(*call, *UNDER, cwd=folder).stdout)
    assert [row["status"] for row in rows] == ["ok", "ok"], rows
    _, asks = json.loads(warm.dvk(*call, cwd=folder, exits=1).stdout)
    assert asks["status"] == "launch_error" and "without autocast" in asks["error"]


@pytest.mark.slow
def test_what_explain_says(folder: Path) -> None:
    found = json.loads(warm.dvk("explain", "best.py", "--json", cwd=folder).stdout)
    assert found["guards"]["autocast"] == "bfloat16" and found["call"]["runs"] == "kernels"
    told = warm.dvk("explain", "best.py", cwd=folder).stdout
    assert "on cpu, under autocast to bfloat16, without gradients" in told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--autocast", "float64"), "unsupported autocast `float64`"),
        ((*UNDER, "--backbone", "nano"), "drop the language model"),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_done_under_autocast(
    folder: Path, options: tuple[str, ...], said: str
) -> None:
    done = warm.dvk("optimize", "model.py", "--out", "run", *options, cwd=folder, exits=2)
    assert said in done.stderr and not (folder / "run").exists()


@pytest.mark.slow
def test_a_search_under_autocast(tmp_path: Path) -> None:
    import dvk
    from tests.composer.programs import run_source

    model = run_source(SOURCE.replace("32, 16)", "512, 64)").replace("=16", "=64")).Model().eval()
    x = torch.randn(512, 64)
    how = {"optimize.confirm": False, "judge.search_s": 0.05}
    with torch.autocast("cpu", torch.bfloat16):
        found = dvk.optimize(
            model, x, budget_s=3, own_kernels=True, out=tmp_path / "run", settings=how
        )
    turns = (tmp_path / "run" / "turns.jsonl").read_text().splitlines()
    first = json.loads(turns[0])
    assert first["verdict"]["status"] == "ok", first["verdict"]
    assert "_dvk_under = torch.bfloat16" in first["candidate"]["source"]
    assert json.loads((tmp_path / "run" / "task.jsonl").read_text())["autocast"] == "bfloat16"
    # Nothing is confirmed: the best is kept for a caller that proves it.
    assert {json.loads(turn)["verdict"]["tier"] for turn in turns} == {"search"}
    kept = found.summary["unproven"]
    assert not found.faster and (kept is None or "_dvk_under" in Path(kept).read_text())
