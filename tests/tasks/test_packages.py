"""Files that are modules of a package: named in every way, examined, and written as a drop-in that imports what they import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dvk import tasks
from dvk.errors import TaskError
from dvk.tasks import naming, packages

LAYERS = """\
import torch
from torch import nn

from .nn.deep import twice


class Scale(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return twice(x) * self.weight
"""
MODEL = """\
from torch import nn
from .layers import Scale


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale()

    def forward(self, x):
        return (self.scale(x) * x).sigmoid()
"""
INNER = """\
from torch import nn
from ..layers import (
    Scale,
)
from . import deep; from . deep import twice as again


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale()

    def forward(self, x):
        return again(deep.twice(self.scale(x)))
"""
INPUT = ["x=float32[4,8]"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the package `gates`; the inner one has no __init__.py."""
    inside = tmp_path / "gates" / "nn"
    inside.mkdir(parents=True)
    (tmp_path / "gates" / "__init__.py").write_text("from .model import Gate\n")
    (tmp_path / "gates" / "layers.py").write_text(LAYERS)
    (tmp_path / "gates" / "model.py").write_text(MODEL)
    (inside / "deep.py").write_text("def twice(x):\n    return x * 2 + 1\n")
    (inside / "inner.py").write_text(INNER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_way_to_name_a_class(project: Path) -> None:
    model = Path("gates/model.py")
    assert naming.split("gates/model.py") == naming.split("gates.model") == (model, None)
    assert (
        naming.split("gates.model:Gate") == naming.split("gates/model.py:Gate") == (model, "Gate")
    )
    assert naming.split("gates:Gate") == (Path("gates/__init__.py"), "Gate") and naming.split(
        "gates"
    )[0] == Path("gates/__init__.py")
    assert naming.stem(Path("gates/__init__.py")) == "gates" and naming.stem(model) == "model"
    assert naming.split("json.decoder:JSONDecoder")[0].name == "decoder.py", (
        "where Python imports from"
    )
    assert naming.split("missing.py:Gate") == (Path("missing.py"), "Gate")
    for wrong in ("gates.missing:Gate", "gates.model:3", "gates.model:"):
        with pytest.raises(TaskError) as caught:
            naming.split(wrong)
        assert "gates" in caught.value.message and caught.value.hint


@pytest.mark.parametrize(
    ("source", "package", "expected"),
    [
        ("from .a import b", "p", "from p.a import b"),
        ("from . import b, c", "p.q", "from p.q import b, c"),
        ("from ..a.b import (\n    c,\n)\nx = 1", "p.q", "from p.a.b import (\n    c,\n)\nx = 1"),
        ("é = 1; from .. import b", "p.q", "é = 1; from p import b"),
        (
            "if 1:\n    from . a import *\nfrom torch import nn",
            "p",
            "if 1:\n    from p.a import *\nfrom torch import nn",
        ),
        ("from \\\n  .a import b", "p", "from p.a import b"),
        ("from .a import b\nnot python(", "p", "from .a import b\nnot python("),
    ],
)
def test_relative_imports_are_written_absolutely(source: str, package: str, expected: str) -> None:
    assert packages.absolute(source, package) == expected


def test_which_package(project: Path) -> None:
    assert packages.package_of(project / "gates" / "model.py", "") == "gates"
    assert packages.package_of(project / "gates" / "nn" / "inner.py", "") == ""
    assert packages.package_of(project / "gates" / "nn" / "inner.py", INNER) == "gates.nn"
    assert packages.base_of(project / "gates" / "nn" / "inner.py", "gates.nn") == project.resolve()
    (project / "my-models").mkdir()
    with pytest.raises(TaskError, match="cannot be a package"):
        packages.package_of(project / "my-models" / "a.py", "from .b import c")


def test_files_of_a_package_are_examined(project: Path) -> None:
    task = tasks.load("gates.model:Gate", inputs=INPUT)
    assert (task.name, task.package) == (
        "model:Gate",
        "gates",
    ) and "from gates.layers import Scale" in task.source
    assert {name for name, _ in task.beside} == {
        "gates/__init__.py",
        "gates/layers.py",
        "gates/model.py",
        "gates/nn/deep.py",
    }
    inner = tasks.load("gates/nn/inner.py", inputs=INPUT)
    assert inner.package == "gates.nn" and "gates/nn/deep.py" in dict(inner.beside)
    (project / "gates" / "layers.py").write_text(LAYERS + "\n# changed\n")
    assert tasks.load("gates.model:Gate", inputs=INPUT).id != task.id, (
        "what it imports is a part of it"
    )


@pytest.mark.slow
def test_a_search_in_a_package_ends_with_a_drop_in_that_imports_it(project: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "dvk",
        "optimize",
        "gates.model:Gate",
        "--input",
        "x=float32[2048,8]",
        "--device",
        "cpu",
        "--own-kernels",
        "--budget-s",
        "3",
        "--out",
        "run",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=project, timeout=300)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    turns = (project / "run" / "turns.jsonl").read_text()
    assert '"status":"ok"' in turns and "launch_error" not in turns and "compile_error" not in turns
