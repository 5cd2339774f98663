"""Every judging process can import what the user's interpreter can; no more of those folders is readable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dvk.errors import TaskError
from dvk.harness.session.judge_session import JudgeSession
from dvk.records import Candidate, Status
from dvk.sandbox import importable
from dvk.tasks import load
from tests.harness.conftest import QUICK

ROOT = Path(__file__).resolve().parents[2]
ACT = "import torch\ndef act(x):\n    return x * 2\n"
REFERENCE = """
import sys
import torch
import torch.nn as nn
{lines}

class Model(nn.Module):
    def forward(self, x):
        return {call}

def get_inputs():
    return [torch.ones(4, 4)]
"""
CANDIDATE = "import torch.nn as nn\n{lines}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return {call}\n"


def far(tmp_path: Path) -> Path:
    """A folder that is not below the model's."""
    folder = tmp_path / "far" / "lib"
    folder.mkdir(parents=True)
    (folder / "far_act.py").write_text(ACT)
    return folder


def model(tmp_path: Path, lines: str, call: str = "act(x)") -> Path:
    path = tmp_path / "model" / "model.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(REFERENCE.format(lines=lines, call=call))
    return path


HOW = (
    "sys.path.append(r'{}')",
    "sys.path.insert(0, r'{}')",
    "sys.path.append('far/lib')",
    "sys.path.append('../far/lib')",
)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.slow
def test_a_folder_that_the_file_puts_on_its_path_goes_with_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    folder = far(tmp_path)
    monkeypatch.chdir(tmp_path)
    task = load(str(model(tmp_path, how.format(folder) + "\nfrom far_act import act")))
    assert task.folders == (str(folder),)
    source = CANDIDATE.format(lines="from far_act import act", call="act(x)")
    with JudgeSession(task, QUICK) as session:
        verdict = session.judge(Candidate(source=source, backend="cpp"), "smoke")
    assert verdict is not None and verdict.status is Status.OK, verdict


CASE = """import torch
import torch.nn as nn
import sys
sys.path.append("lib")
from mylib_far import act


class Model(nn.Module):
    def forward(self, x):
        return act(x).softmax(-1)


def get_inputs():
    return [torch.randn(64, 512)]


def get_init_inputs():
    return []
"""


def test_a_relative_folder_is_resolved_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "mylib_far.py").write_text(ACT)
    (tmp_path / "model.py").write_text(CASE)
    task = load(str(tmp_path / "model.py"))
    assert task.folders == (str(tmp_path / "lib"),)
    source = CANDIDATE.format(lines="from mylib_far import act", call="act(x).softmax(-1)")
    with JudgeSession(task, QUICK) as session:
        verdict = session.judge(Candidate(source=source, backend="cpp"), "smoke")
    assert verdict is not None and verdict.status is Status.OK, verdict


def test_only_the_folder_is_shown(tmp_path: Path) -> None:
    folder = far(tmp_path)
    (folder / ".env").write_text("TOKEN=1")
    (folder.parent / "other").write_text("other")
    (folder / "runs" / "mine").mkdir(parents=True)
    for name in ("run.json", "best.py"):
        (folder / "runs" / "mine" / name).write_text("{}")
    task = load(str(model(tmp_path, f"sys.path.append(r'{folder}')\nfrom far_act import act")))
    tries = f"[r'{folder}/.env', r'{folder.parent}/other', r'{folder}/runs/mine/run.json', r'{folder}/runs/mine/best.py']"
    peeks = f"from far_act import act\nfor path in {tries}:\n    try: open(path)\n"
    peeks += "    except PermissionError: continue\n    raise RuntimeError(path)"
    with JudgeSession(task, QUICK) as session:
        verdict = session.judge(
            Candidate(source=CANDIDATE.format(lines=peeks, call="act(x)"), backend="cpp"), "smoke"
        )
    assert verdict is not None
    if "landlock" in verdict.isolation:
        assert verdict.status is Status.OK, verdict


def test_a_private_folder_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files directly in a home folder cannot be readable without the rest of it."""
    assert (
        importable.refused(os.path.expanduser("~"))
        and importable.refused("/tmp")
        and not importable.refused(str(tmp_path))
    )
    home = Path("/tmp") / "far_act_of_home.py"
    home.write_text(ACT)
    try:
        with pytest.raises(TaskError) as error:
            load(str(model(tmp_path, "sys.path.append('/tmp')\nfrom far_act_of_home import act")))
    finally:
        home.unlink()
    assert "`/tmp`" in error.value.message and "separate folder" in error.value.hint


PROGRAM = """
import json, sys
from dvk.harness.session.judge_session import JudgeSession
from dvk.records import Candidate
from dvk.tasks import load
from tests.harness.conftest import QUICK
task = load(sys.argv[1])
with JudgeSession(task, QUICK) as court:
    verdicts = [court.judge(Candidate(source=open(path).read(), backend="cpp"), "search") for path in sys.argv[2:]]
print(json.dumps([[v.status, v.error] for v in verdicts]))
"""
FINDER = """
import importlib.util, sys
MAPPING = {{"editable_act": r"{folder}/editable_act"}}
class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname in MAPPING:
            return importlib.util.spec_from_file_location(fullname, MAPPING[fullname] + "/__init__.py")
sys.meta_path.append(_EditableFinder)
"""


@pytest.mark.slow
def test_what_the_interpreter_imports_is_importable(tmp_path: Path) -> None:
    """PYTHONPATH, absolute and relative, with a namespace package and a zipped egg; .pth files of a site folder, and finders."""
    places = {
        name: tmp_path / name
        for name in ("target", "relative", "site", "by_pth", "project/src", "start")
    }
    for folder in places.values():
        folder.mkdir(parents=True)
    (places["target"] / "space" / "inner").mkdir(parents=True)
    for file in (
        "target/target_act.py",
        "target/space/inner/act.py",
        "relative/relative_act.py",
        "by_pth/pth_act.py",
    ):
        (tmp_path / file).write_text(ACT)
    (places["project/src"] / "editable_act").mkdir()
    (places["project/src"] / "editable_act" / "__init__.py").write_text(ACT)
    with zipfile.ZipFile(tmp_path / "egg_act.egg", "w") as egg:
        egg.writestr("egg_act.py", ACT)
    (places["start"] / "sitecustomize.py").write_text(
        f"import site\nsite.addsitedir(r'{places['site']}')\n"
    )
    (places["site"] / "one.pth").write_text(f"{places['by_pth']}\n")
    (places["site"] / "__editable___act_finder.py").write_text(
        FINDER.format(folder=places["project/src"])
    )
    (places["site"] / "two.pth").write_text("import __editable___act_finder\n")
    modules = (
        "target_act",
        "space.inner.act",
        "relative_act",
        "egg_act",
        "pth_act",
        "editable_act",
    )
    lines = "\n".join(
        f"from {name} import act as act{number}" for number, name in enumerate(modules)
    )
    call = "act0(act1(act2(act3(act4(act5(x))))))"
    candidate = tmp_path / "candidate.py"
    candidate.write_text(CANDIDATE.format(lines=lines, call=call))
    path = [places["start"], places["target"], "relative", tmp_path / "egg_act.egg", ROOT]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "DVK_HOME": str(tmp_path / "home"),
    }
    command = [sys.executable, "-c", PROGRAM, str(model(tmp_path, lines, call)), str(candidate)]
    done = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [["ok", None]]
