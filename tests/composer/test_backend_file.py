"""A back end in one file (`torch_backend.py`) works in every command that names one, and nowhere by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from dvk import backends
from dvk.composer.codegen.base import codegen
from dvk.errors import UsageError
from tests.cli import warm
from tests.composer.programs import drop_in

FILE = Path(__file__).with_name("torch_backend.py")
NAME = f"{FILE}:Torch"
MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(32))

    def forward(self, x, mask):
        y = torch.softmax(torch.where(mask, x, -1.0) * self.gain, dim=-1)
        return torch.nn.functional.gelu(y - x.mean(dim=1, keepdim=True)), y.amax(dim=0)


def get_inputs():
    return [torch.randn(48, 32), torch.rand(48, 32) < 0.5]


def get_init_inputs():
    return []
"""


def test_its_kernels_compute_what_the_module_does() -> None:
    backends.add(NAME)
    inputs = torch.randn(48, 32), torch.rand(48, 32) < 0.5
    module, original, made = drop_in(
        MODEL, *inputs, recipes=("fuse_pointwise", "fuse_rowwise"), backend=NAME
    )
    assert made.backend == NAME and "def run_k0(" in made.source
    model = module.ModelNew().eval()
    model.load_state_dict(original.state_dict())
    with torch.no_grad():
        assert model._dvk_fits(*inputs)
        torch.testing.assert_close(model(*inputs), original(*inputs))


def test_a_name_in_a_data_file_makes_no_code_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')")
    with pytest.raises(UsageError, match="unknown backend"):
        backends.get(f"{tmp_path}/evil.py:Evil")
    assert not marker.exists()


def test_what_is_no_back_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("class Plain:\n    pass\n")
    with pytest.raises(UsageError, match="is no back end"):
        backends.add(f"{tmp_path}/plain.py:Plain")
    assert codegen("cpp").has_families


@pytest.mark.slow
def test_optimize_and_verify_take_it(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    env = {"DVK_HOME": str(tmp_path / "home")}
    words = (
        "optimize",
        "model.py",
        "--backend",
        NAME,
        "--budget-s",
        "5",
        "--own-kernels",
        "--out",
        "run",
        "--json",
    )
    done = warm.dvk(*words, cwd=tmp_path, exits=None, env=env)
    assert done.returncode in (0, 1), done.stderr
    episode = json.loads(
        next((tmp_path / "run" / "episodes").glob("*.jsonl")).read_text().splitlines()[0]
    )
    verdicts = [
        turn["verdict"]
        for trace in episode["traces"]
        for turn in trace["turns"]
        if turn["candidate"]["backend"] == NAME
    ]
    assert any(verdict["status"] == "ok" for verdict in verdicts)
