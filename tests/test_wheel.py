"""Installed from a built wheel, away from the checkout, everything still works: seeds, examples, every command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOP = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout by the build backend of this environment."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=TOP,
        check=True,
    )
    (built,) = out.glob("*.whl")
    return built


class Installed:
    """dvk from the wheel alone; its dependencies come from the running environment, its folder from nowhere near."""

    def __init__(self, wheel: Path, folder: Path):
        self.site, self.folder = folder / "site", folder / "elsewhere"
        self.folder.mkdir()
        pip = [
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-index",
            "--target",
            str(self.site),
            str(wheel),
        ]
        subprocess.run([sys.executable, *pip], check=True)
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self.env = {**environ, "PYTHONPATH": str(self.site), "DVK_HOME": str(folder / "home")}

    def python(self, code: str) -> str:
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=True
        ).stdout

    def dvk(self, *args: str, exits: tuple[int, ...] = (0,)) -> str:
        command = [str(self.site / "bin" / "dvk"), *args]  # the entry point that pip wrote
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True
        )
        # A traceback ends with 1 too, as an honest negative does.
        clean = done.returncode in exits and "Traceback" not in done.stderr
        assert clean, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(wheel, tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def example(installed: Installed) -> Path:
    code = "from dvk.resources import resource; print(resource('data', 'tasks', 'examples'))"
    return Path(installed.python(code).strip()) / "layernorm_gelu_residual.py"


def test_the_wheel_holds_what_it_should(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    sources = [
        path
        for folder in ("data", "skills_db")
        for path in (TOP / folder).rglob("*")
        if path.is_file()
    ]
    sources += [path for path in (TOP / "tests" / "kernels").rglob("*") if path.is_file()]
    shipped = {
        path.relative_to(TOP).as_posix().removeprefix("tests/")
        for path in sources
        if "__pycache__" not in path.parts
    }
    assert shipped <= {name.removeprefix("dvk/_data/") for name in names}
    assert not [
        name for name in names if "__pycache__" in name or name.endswith((".pyc", ".so", ".db"))
    ]
    assert any(name.endswith("licenses/LICENSE") for name in names)
    pages = (TOP / "dvk" / "pipelines" / "report" / "pages").iterdir()
    assert {path.relative_to(TOP).as_posix() for path in pages} <= set(names)
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"dvk", "dvk_kernels.py"}  # the latter for verifiers


def test_it_is_the_wheel_that_runs(installed: Installed) -> None:
    assert installed.python("import dvk; print(dvk.__file__)").startswith(str(installed.site))
    assert not list(Path(installed.site).rglob("pyproject.toml"))


def test_skills(installed: Installed) -> None:
    hits = json.loads(installed.dvk("skills", "search", "softmax", "--json"))
    assert hits and {"name", "score", "description"} <= set(hits[0])
    num_seeds = len(list((TOP / "skills_db" / "seed").glob("*.md")))
    assert len(json.loads(installed.dvk("skills", "list", "--json"))) == num_seeds


def test_doctor(installed: Installed) -> None:
    report = json.loads(installed.dvk("doctor", "--json"))
    assert report["commit"] is None and report["backends"]["cpp"]["works"]


def test_verify(installed: Installed, example: Path) -> None:
    """The reference under the candidate's name agrees with itself; a wrong one is found out and ends with 1."""
    same, wrong = installed.folder / "same.py", installed.folder / "wrong.py"
    same.write_text(example.read_text() + "\n\nModelNew = Model\n")
    forward = "    def forward(self, *args):\n        return super().forward(*args) + 1\n"
    wrong.write_text(example.read_text() + f"\n\nclass ModelNew(Model):\n{forward}")
    verdicts = json.loads(
        installed.dvk("verify", str(example), str(same), str(wrong), "--json", exits=(1,))
    )
    assert [verdict["status"] for verdict in verdicts] == ["ok", "mismatch"]
    assert verdicts[0]["speedup_lo"] <= verdicts[0]["speedup"] <= verdicts[0]["speedup_hi"]


def test_optimize(installed: Installed, example: Path) -> None:
    assert example.is_relative_to(installed.site)
    args = ("optimize", str(example), "--budget-s", "15", "--own-kernels", "--out", "run", "--json")
    result = json.loads(installed.dvk(*args, exits=(0, 1)))
    assert result["status"] in ("faster", "no_speedup", "too_noisy", "no_verdict")
    assert (installed.folder / "run" / "report.html").is_file()
    if result["status"] == "faster":
        (verdict,) = json.loads(installed.dvk("verify", str(example), result["best"], "--json"))
        assert verdict["status"] == "ok" and verdict["speedup"] > 0
