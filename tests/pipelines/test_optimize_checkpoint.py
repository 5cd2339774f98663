"""`dvk optimize --davinci PATH`: the checkpoint's model proposes, its bundled skills are the library."""

from __future__ import annotations

import json

import pytest

from dvk import resources
from dvk.backbone import nano
from dvk.backbone.hf import write_folder
from dvk.config import Config
from dvk.errors import LibraryError, UsageError
from dvk.interop.davinci.skills import imported
from dvk.pipelines.optimize.checkpoint import with_checkpoint
from dvk.pipelines.optimize.request import OptimizeRequest
from dvk.skills import Library
from tests.cli import warm
from tests.skills.stored_skills import put

MODEL = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(torch.relu(x) * 2 + 1, dim=-1)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
"""


def test_the_checkpoint_is_backbone_and_library(tmp_path):
    (tmp_path / "config.json").touch()
    found = with_checkpoint(OptimizeRequest(spec="m.py"), tmp_path)
    assert found.backbone == f"davinci:{tmp_path}" and found.library is None, (
        "an SFT checkpoint bundles none"
    )
    put(tmp_path / "skill_library.jsonl", "fused_softmax", "other")
    found = with_checkpoint(OptimizeRequest(spec="m.py"), tmp_path)
    assert found.library is not None and found.library.parent == resources.home() / "davinci"
    with Library.open(found.library) as library:
        assert [skill.name for skill in library.list()] == ["fused_softmax", "other"]
    assert (
        with_checkpoint(
            OptimizeRequest(spec="m.py", library=tmp_path / "mine.db"), tmp_path
        ).library
        == tmp_path / "mine.db"
    )
    with pytest.raises(UsageError, match="own backbone"):
        with_checkpoint(OptimizeRequest(spec="m.py", backbone="nano"), tmp_path)


def test_a_library_is_made_once_and_another_content_is_another(tmp_path):
    file = put(tmp_path / "skill_library.jsonl", "one")
    first = imported(file)
    with Library.open(first) as library:
        library.remove("one")
    assert imported(file) == first
    with Library.open(first) as library:
        assert not library.list(), "the removal stays"
    assert imported(put(file, "one", "two")) != first
    assert not [path for path in first.parent.iterdir() if path.suffix != ".db"]
    file.write_text("nothing\n")
    with pytest.raises(LibraryError, match="no skill"):
        imported(file)


@pytest.mark.hand
@pytest.mark.slow
def test_by_one_flag(tmp_path):
    made = nano.fresh(
        ["x = relu(y) * 2\n"] * 20,
        Config(),
        size="tiny",
        vocabulary=300,
        positions=32768,
        device="cpu",
    )
    write_folder(tmp_path / "checkpoint", made.model, made.tokenizer, {})
    put(tmp_path / "checkpoint" / "skill_library.jsonl", "softmax_rows", "relu_fused")
    (tmp_path / "mine.py").write_text(MODEL)
    few = ("schemes=1", "null_scheme=false", "rollouts=1", "turns=1", "policy_tokens=16")
    done = warm.dvk(
        "optimize",
        "mine.py",
        "--davinci",
        "checkpoint",
        "--strategy",
        "refine",
        "--budget-s",
        120,
        "--json",
        "--out",
        "run",
        *(word for one in few for word in ("--set", f"rollout.{one}")),
        cwd=tmp_path,
        exits=1,
    )
    summary = json.loads(done.stdout)
    assert summary["backbone"] == "davinci:checkpoint" and summary["cost"]["answers"] == 2, (
        "a selection and a policy, of random weights"
    )
    said = (tmp_path / "run" / "episodes" / "optimize.jsonl").read_text()
    assert "Optimize the architecture named Model" in said and "softmax_rows" in said
