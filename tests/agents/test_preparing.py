"""Files → task contexts: in order, with errors in their places, and cached if requested."""

import json
from pathlib import Path

from dvk.agents import TaskContext, preparing
from dvk.agents.preparing import cache_folder, prepare
from dvk.config import Config
from dvk.errors import DvkError

GOOD = """import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * {scale}

def get_inputs():
    return [torch.randn(8, 16)]

def get_init_inputs():
    return []
"""
UNCAPTURED = GOOD.replace("torch.relu(x) * {scale}", "torch.from_numpy(x.numpy() * 2)")


def test_every_file_has_its_finding_in_its_place(tmp_path, monkeypatch):
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "home"))
    texts = {
        "a": "import torch\n",
        "b": GOOD.format(scale=2),
        "c": UNCAPTURED,
        "d": GOOD.format(scale=3),
        "e": "def (",
    }
    paths = []
    for name, text in texts.items():
        paths.append(tmp_path / f"{name}.py")
        paths[-1].write_text(text)
    found = list(prepare(paths, "cpu", "cpp", Config(), workers=2, kept=True))
    assert [type(one) for one in (found[1], found[2], found[3])] == [TaskContext] * 3
    assert isinstance(found[0], DvkError) and isinstance(found[4], DvkError)
    assert [one.task.name for one in found[1:4]] == ["b", "c", "d"]
    assert found[1].captured is not None and found[2].captured is None
    assert found[1].captured.graph.signature() == ("relu", "mul")

    # The cache is trusted: no child runs, or this edit of it would not be seen.
    kept = json.loads(cache_folder(paths[1], "cpu").read_text())
    kept["task"]["stochastic"] = True
    cache_folder(paths[1], "cpu").write_text(json.dumps(kept))
    elsewhere = tmp_path / "elsewhere" / "b.py"
    elsewhere.parent.mkdir()
    elsewhere.write_text(texts["b"])
    again = list(prepare([elsewhere, paths[2]], "cpu", "cpp", Config(), workers=2, kept=True))
    assert again[0].task.stochastic and again[0].task.path == str(Path(elsewhere).resolve())
    assert again[1] == found[2]

    cache_folder(paths[1], "cpu").write_text("half a fi")
    repaired = next(prepare([paths[1]], "cpu", "cpp", Config(), kept=True))
    assert repaired == found[1]


def test_cached_tasks_depend_on_the_current_local_imports(tmp_path, monkeypatch):
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "home"))
    path = tmp_path / "model.py"
    path.write_text("from scales import SCALE\n" + GOOD.format(scale="SCALE"))
    found = []
    for scale in (2, 2, 3):
        (tmp_path / "scales.py").write_text(f"SCALE = {scale}\n")
        found.append(next(prepare([path], "cpu", "cpp", Config(), kept=True)))
    assert found[0] == found[1] and found[0].task.id != found[2].task.id


def test_on_a_gpu_half_of_the_cores_are_left_to_the_judges(monkeypatch):
    """Later tasks would be prepared on all of them while the first ones wait to be judged."""
    asked = []
    monkeypatch.setattr(preparing, "_fresh", lambda *given: asked.append(given[4]) or iter(()))
    monkeypatch.setattr(preparing.machine, "num_cores", lambda: 16)
    for device in ("cuda", "cpu"):
        assert not list(prepare([], device, "triton", Config()))
    assert not list(prepare([], "cuda", "triton", Config(), workers=3))
    assert asked == [8, 16, 3]
