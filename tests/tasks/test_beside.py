"""Files next to a task's file that it imports are part of the task: its id depends on them, and they import if the folder cannot be
read."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import torch

from dvk.harness.session.judge_session import JudgeSession
from dvk.records import Candidate, Status, Task, content_hash
from dvk.tasks import load
from dvk.tasks.build import build
from tests.harness.conftest import QUICK

MODEL = "import torch\n{}\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        {}return act(x)\n"
INPUTS = "def get_inputs():\n    return [torch.ones(4, 4)]\n"
TWICE = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"
PEEKS = """import os
try:
    os.listdir({!r})
except PermissionError:
    pass
else:
    raise RuntimeError("it can read the folder")
"""


def write(
    folder: Path,
    factor: int,
    line: str = "from ops_here import act",
    name: str = "ops_here.py",
    lazy: bool = False,
) -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"def act(x):\n    return x * {factor}\n")
    path = folder / "model.py"
    path.write_text((MODEL.format("", f"{line}; ") if lazy else MODEL.format(line, "")) + INPUTS)
    return path


def value(task: Task) -> float:
    return float(build(task).model(torch.ones(1)))


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    ("line", "name"),
    [("from ops_here import act", "ops_here.py"), ("from pack.inner import act", "pack/inner.py")],
)
@pytest.mark.slow
def test_the_id_covers_local_imports(tmp_path: Path, line: str, name: str, lazy: bool) -> None:
    first, second, third = (
        load(str(write(tmp_path, factor, line, name, lazy))) for factor in (2, 3, 2)
    )
    assert first.id == third.id != second.id
    assert third.beside == ((name, (tmp_path / name).read_text()),)


@pytest.mark.parametrize("installed", ["venv/lib/python3/site-packages", ".cache/compiled"])
def test_what_is_not_imported_or_installed_changes_no_id(tmp_path: Path, installed: str) -> None:
    line = f"import sys; sys.path.append(r'{tmp_path}/{installed}'); from ops_there import act"
    path = write(tmp_path, 2, line, f"{installed}/ops_there.py")
    (tmp_path / "other.py").write_text("")
    task = load(str(path))
    assert task.beside == () and task.id == content_hash(
        path.read_text(), "Model", "init", "False None cpu"
    )


def test_a_module_without_a_file_does_no_harm(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "ops.zip", "w") as ops:
        ops.writestr("zipped.py", "def act(x):\n    return x * 2\n")
    line = f"import sys; sys.path.append(r'{tmp_path}/ops.zip'); from zipped import act"
    assert load(str(write(tmp_path, 2, line))).beside == ()


def test_what_was_examined_is_built_whatever_became_of_the_folder(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    tasks = [
        load(str(write(folder, factor))) for folder, factor in ((one, 2), (other, 3), (one, 5))
    ]
    assert [value(task) for task in [*tasks, tasks[0]]] == [2, 3, 5, 2]


def test_candidates_run_next_to_a_folder_that_they_cannot_read(tmp_path: Path) -> None:
    """The next task of the same judge session has another text under the same name."""
    with JudgeSession(load(str(write(tmp_path, 2))), QUICK) as session:
        first = session.judge(Candidate(source=TWICE, backend="cpp"), "smoke")
        assert first is not None and first.status is Status.OK, first
        if "landlock" in first.isolation and str(tmp_path).startswith("/tmp/"):
            peeking = session.judge(
                Candidate(source=PEEKS.format(str(tmp_path)) + TWICE, backend="cpp"), "smoke"
            )
            assert peeking is not None and peeking.status is Status.OK, peeking
        session.switch_task(load(str(write(tmp_path, 3))))
        second = session.judge(Candidate(source=TWICE, backend="cpp"), "smoke")
    assert second is not None and second.status is Status.MISMATCH, second
