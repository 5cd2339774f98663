"""`dvk export`: what is written installs, and agrees with the original; bad requests leave nothing."""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk.errors import UsageError
from dvk.harness.checking import input_families
from dvk.pipelines.export import ExportRequest, export
from tests.pipelines.proven_runs import FUNCTION, NESTED, NORM, outcome, proven_run, verdict

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent


def made(tmp_path: Path, to: str, name: str, run: Path, **options: Any) -> Path:
    target = tmp_path / "out" / name
    summary = export(ExportRequest(run=run, target=target, to=to, **options))
    assert (
        sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file())
        == summary["files"]
    )
    return target


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
    inputs = loaded(package / "tests", "judge_inputs", monkeypatch)
    call = inputs.draw(1)
    for family in set(input_families.FAMILIES) - set(input_families.ARGUED):
        assert inputs.of_family(call, family, 3, False) is not call, family


@pytest.mark.slow
def test_a_package_passes_its_own_tests(tmp_path: Path) -> None:
    package = made(tmp_path, "python", "norm-gelu", proven_run(tmp_path / "run", NESTED))
    assert "passed" in outcome(package)
    # The tests can fail: another computation in the kernel is noticed.
    drop_in = package / "norm_gelu" / "dropin.py"
    drop_in.write_text(drop_in.read_text().replace("0.7071067811865476f", "0.6071067811865476f", 1))
    with pytest.raises(AssertionError, match="test_agrees_with_the_original"):
        outcome(package)


@pytest.mark.hand
@pytest.mark.slow
def test_functions_and_further_inputs_pass_their_own_tests(tmp_path: Path) -> None:
    run = proven_run(tmp_path / "function", FUNCTION, entry="gated")
    assert "passed" in outcome(made(tmp_path, "python", "gated_unit", run))
    run = proven_run(tmp_path / "several", NORM, calls=((torch.randn(3, 32),),))
    assert "passed" in outcome(made(tmp_path, "python", "norms", run))


@pytest.mark.slow
def test_a_training_step_passes_its_own_tests_with_gradients(tmp_path: Path) -> None:
    run = proven_run(tmp_path / "run", NESTED, train=True)
    package = made(tmp_path, "python", "norm-gelu", run)
    assert "passed" in outcome(package)
    # The tests can fail: another backward is noticed.
    drop_in = package / "norm_gelu" / "dropin.py"
    text = drop_in.read_text()
    name = re.search(r"def _dvk_back\(.*\n(?:.*\n)*?        return \(?(\w+)", text)
    assert name
    wrong = text[: name.start(1)] + f"2 * {name[1]}" + text[name.end(1) :]
    drop_in.write_text(wrong)
    with pytest.raises(AssertionError, match="test_gradients_agree"):
        outcome(package)
    for to in ("hf", "vllm"):
        with pytest.raises(UsageError):
            export(ExportRequest(run=run, target=tmp_path / to, to=to))
        assert not (tmp_path / to).exists()


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


@pytest.mark.slow
def test_a_layer_loads_with_hugging_face_kernels(tmp_path: Path) -> None:
    pytest.importorskip("kernels")
    folder = made(
        tmp_path, "hf", "norm-gelu", proven_run(tmp_path / "run", NESTED), repo_id="me/norm-gelu"
    )
    done = subprocess.run(
        [sys.executable, HERE / "exported_layer.py", folder, "NormGelu"],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert (found["eager"], found["fullgraph"], found["other shape"]) == (1, 1, 0)
    assert found["namespace"] == f"{found['id']}.fused.default"


@pytest.mark.slow
def test_layers_pass_their_own_tests(tmp_path: Path) -> None:
    run = proven_run(tmp_path / "triton", NESTED, backend="triton")
    assert "passed" in outcome(made(tmp_path, "hf", "norm-gelu", run), TRITON_INTERPRET="1")
    run = proven_run(tmp_path / "function", FUNCTION, entry="gated")
    assert "passed" in outcome(made(tmp_path, "hf", "gated-unit", run))


def test_a_layer_keeps_the_rules_of_its_hub(tmp_path: Path) -> None:
    run = proven_run(tmp_path / "run", NESTED)
    folder = made(tmp_path, "hf", "norm-gelu", run, license="mit", repo_id="me/norm-gelu")
    build = tomllib.loads((folder / "build.toml").read_text())
    assert build["general"] == {
        "name": "norm-gelu",
        "version": 1,
        "edition": 5,
        "license": "mit",
        "backends": ["cpu"],
        "hub": {"repo-id": "me/norm-gelu"},
    }
    variant = folder / "build" / "torch-cpu"
    metadata = json.loads((variant / "metadata.json").read_text())
    assert metadata["digest"]["files"] == {
        path.name: base64.b64encode(hashlib.sha256(path.read_bytes()).digest()).decode()
        for path in variant.iterdir()
        if path.name != "metadata.json"
    }
    assert metadata["id"] in (variant / "_ops.py").read_text()
    (layer,) = [
        n
        for n in ast.parse((variant / "layers.py").read_text()).body
        if isinstance(n, ast.ClassDef)
    ]
    methods = [node.name for node in layer.body if isinstance(node, ast.FunctionDef)]
    held = [node.target.id for node in layer.body if isinstance(node, ast.AnnAssign)]
    variables = [node.targets[0].id for node in layer.body if isinstance(node, ast.Assign)]
    assert (layer.name, methods, sorted(held)) == ("NormGelu", ["forward"], ["norm", "scale"])
    assert variables == ["has_backward", "can_torch_compile"]
    for path in variant.glob("*.py"):
        assert " dvk." not in path.read_text().replace("by dvk.", "") or path.name == "dropin.py"
    card = (folder / "CARD.md").read_text()
    assert hashlib.sha256((folder / "verdict.json").read_bytes()).hexdigest() in card


STATEFUL = NORM.replace(
    "    def forward(self, x):\n",
    "        self.register_buffer('calls', torch.zeros(1))\n\n    def forward(self, x):\n        self.calls.add_(1)\n",
)


def test_what_no_layer_can_hold_is_refused(tmp_path: Path) -> None:
    line = proven_run(tmp_path / "line", NORM, line="torch.compile")
    (line / "best.py").write_text("import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n")
    turn = json.loads((line / "turns.jsonl").read_text())
    turn["candidate"]["source"] = (line / "best.py").read_text()
    (line / "turns.jsonl").write_text(json.dumps(turn) + "\n")
    refused(
        tmp_path,
        tmp_path / "good",
        line,
        "no kernels that the composer wrote .it is torch.compile",
        to="hf",
    )
    state = proven_run(tmp_path / "state", STATEFUL)
    refused(tmp_path, tmp_path / "good", state, "writes weights or buffers", to="hf")
    # Training steps and programs for ranges of sizes have more methods, and conditions that read sizes.
    for more, match in (
        ("    def _dvk_step(self, x):\n        pass\n\n", "a training step"),
        (
            "    def _dvk_fits_2(self, x):\n        return (n := x.shape[0]) > 1\n\n",
            "a range of sizes",
        ),
    ):
        changed = proven_run(tmp_path / match, NORM)
        turn = json.loads((changed / "turns.jsonl").read_text())
        head = "    def _dvk_run(self"
        turn["candidate"]["source"] = turn["candidate"]["source"].replace(head, more + head)
        (changed / "best.py").write_text(turn["candidate"]["source"])
        (changed / "turns.jsonl").write_text(json.dumps(turn) + "\n")
        refused(tmp_path, tmp_path / "good", changed, match, to="hf")
    run = proven_run(tmp_path / "run", NORM)
    refused(tmp_path, tmp_path / "Good_Name", run, "no name of a kernel", to="hf")
    refused(tmp_path, tmp_path / "good", run, "no version of a kernel", to="hf", version="1.2")
    refused(tmp_path, tmp_path / "good", run, "no repository", to="hf", repo_id="owner-missing")
    refused(tmp_path, tmp_path / "good", run, "no name of a license", to="hf", license='"\n')


def refused(
    tmp_path: Path, target: Path, run: Path, match: str, to: str = "python", **options: Any
) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=match):
        export(ExportRequest(run=run, target=target, to=to, **options))
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
