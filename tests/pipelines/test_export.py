"""`dvk export`: what is written installs, and agrees with the original; bad requests leave nothing."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk.errors import UsageError
from dvk.pipelines.export import ExportRequest, export
from tests.pipelines.proven_runs import FUNCTION, NESTED, NORM, proven_run, verdict


def made(tmp_path: Path, to: str, name: str, run: Path, **options: Any) -> Path:
    target = tmp_path / "out" / name
    summary = export(ExportRequest(run=run, target=target, to=to, **options))
    assert (
        sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file())
        == summary["files"]
    )
    return target


def outcome(package: Path, **environment: str) -> str:
    """Run a package's own tests in place; what pytest prints."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"],
        cwd=package,
        env={
            **os.environ,
            "PYTHONPATH": str(package),
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def loaded(package: Path, module: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package, imported in this process."""
    monkeypatch.syspath_prepend(str(package))
    for name in [n for n in sys.modules if n.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    return importlib.import_module(module)


def test_a_package_has_the_claim_the_drop_in_and_its_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = made(tmp_path, "python", "norm-gelu", proven_run(tmp_path / "run", NESTED))
    told = json.loads((package / "verdict.json").read_text())
    digest = hashlib.sha256((package / "verdict.json").read_bytes()).hexdigest()
    readme = (package / "README.md").read_text()
    assert told["timing"]["claim"]["holds"]
    for fact in (digest, "**2.00×**", "[1.90, 2.10]", "a test"):
        assert fact in readme
    module = loaded(package, "norm_gelu", monkeypatch)
    original = module.Model(24)
    x, y = torch.randn(4, 5, 24), torch.randn(4, 5, 24)
    weights = (original.norm.weight, original.norm.bias, original.scale)
    held = {"scale": original.scale, "norm.weight": weights[0], "norm.bias": weights[1]}
    given = [held[path] for path in module.ModelNew._dvk_paths]
    with torch.no_grad():
        assert module.supports(x, y, *given) and not module.supports(x[:1], y[:1], *given)
        for mine, theirs in zip(module.fused(x, y, *given), original(x, y), strict=True):
            torch.testing.assert_close(mine, theirs)
    assert not module.supports(x, y, *given), "gradients are wanted"


@pytest.mark.slow
def test_a_package_passes_its_own_tests(tmp_path: Path) -> None:
    package = made(tmp_path, "python", "norm-gelu", proven_run(tmp_path / "run", NESTED))
    assert "passed" in outcome(package)
    # The tests can fail: another computation in the kernel is noticed.
    drop_in = package / "norm_gelu" / "dropin.py"
    drop_in.write_text(drop_in.read_text().replace("0.7071067811865476f", "0.6071067811865476f", 1))
    with pytest.raises(AssertionError, match="test_agrees_with_the_original"):
        outcome(package)


@pytest.mark.slow
def test_functions_and_further_inputs_pass_their_own_tests(tmp_path: Path) -> None:
    run = proven_run(tmp_path / "function", FUNCTION, entry="gated")
    assert "passed" in outcome(made(tmp_path, "python", "gated_unit", run))
    run = proven_run(tmp_path / "several", NORM, calls=((torch.randn(3, 32),),))
    assert "passed" in outcome(made(tmp_path, "python", "norms", run))


@pytest.mark.slow
def test_a_package_installs_in_a_fresh_environment(tmp_path: Path) -> None:
    package = made(tmp_path, "python", "norm-gelu", proven_run(tmp_path / "run", NESTED))
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    there = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        capture_output=True,
        text=True,
        check=True,
    )
    # torch, pytest and the build back end are those of this environment: no network.
    Path(there.stdout.strip(), "here.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    subprocess.run(
        [
            python,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
            package,
        ],
        check=True,
    )
    shutil.copytree(package / "tests", tmp_path / "tests")
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "tests"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    timed = subprocess.run(
        [python, package / "benchmarks" / "benchmark.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "median of ratios" in timed.stdout


def refused(tmp_path: Path, target: Path, run: Path, match: str, to: str = "python") -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=match):
        export(ExportRequest(run=run, target=target, to=to))
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written"


def test_bad_requests_leave_nothing(tmp_path: Path) -> None:
    run = proven_run(tmp_path / "run", NORM)
    for name in ("1st", "a b", "class", "torch", "json", "-x", "ü"):
        refused(tmp_path, tmp_path / name, run, "cannot be the package's name")
    refused(tmp_path, tmp_path / "good", tmp_path, "no run")
    refused(tmp_path, tmp_path / "good", tmp_path / "missing", "no run")
    refused(tmp_path, tmp_path / "good", run, "unknown form", to="wheel")
    refused(tmp_path, run, run, "not empty")
    (run / "best.py").write_text((run / "best.py").read_text() + "\n# edited\n")
    refused(tmp_path, tmp_path / "good", run, "not what the run proved")
    (run / "best.py").unlink()
    refused(tmp_path, tmp_path / "good", run, "no proven winner")


def test_a_claim_that_does_not_hold_is_no_proof(tmp_path: Path) -> None:
    run = proven_run(tmp_path / "run", NORM)
    turn = json.loads((run / "turns.jsonl").read_text())
    turn["verdict"] = verdict(holds=False).model_dump(mode="json")
    (run / "turns.jsonl").write_text(json.dumps(turn) + "\n")
    refused(tmp_path, tmp_path / "good", run, "not what the run proved")
    manifest = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**manifest, "command": "eval"}))
    refused(tmp_path, tmp_path / "good", run, "a run of `dvk eval`")
