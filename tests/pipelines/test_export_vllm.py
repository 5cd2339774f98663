"""`dvk export --to vllm`: a plugin with the kernels as an implementation of one of vLLM's operators."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dvk.errors import UsageError
from dvk.pipelines.export import ExportRequest, export
from dvk.pipelines.export.vllm_operators import OPERATORS, parse
from tests.pipelines.proven_runs import NESTED, NORM, outcome, proven_run
from tests.pipelines.vllm_modules import MODULES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def plugin(tmp_path: Path, name: str, source: str, op: str | None) -> Path:
    target = tmp_path / f"dvk-{name}"
    run = proven_run(tmp_path / name, source)
    export(ExportRequest(run=run, target=target, to="vllm", op=op))
    return target


def test_a_plugin_names_its_entry_point_and_its_calls(tmp_path: Path) -> None:
    package = plugin(tmp_path, "rms", *MODULES["rms"])
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == {
        "vllm.general_plugins": {"dvk_rms": "dvk_rms.plugin:register"}
    }
    text = (package / "dvk_rms" / "plugin.py").read_text()
    assert "epsilon == 1e-06 and variance_size is None and" in text
    readme = (package / "README.md").read_text()
    assert '{"ir_op_priority": {"rms_norm": ["dvk_rms", "native"]}}' in readme
    assert "`x float32[6, 32]`" in readme.partition("## In vLLM")[2]


@pytest.mark.slow
def test_bad_operators_are_refused(tmp_path: Path) -> None:
    run = proven_run(tmp_path / "run", NORM)
    before = sorted(tmp_path.rglob("*"))
    for op, match in (
        (None, "which of vLLM's operators"),
        ("rms_norm", "needs the values that your module computes with: epsilon"),
        ("rms_norm(eps=1e-6)", "needs the values"),
        ("rms_norm(epsilon=open('x'))", "cannot read --op"),
        ("rms_norm(", "cannot read --op"),
        ("softmax", "takes no implementation of `softmax`"),
        ("silu_and_mul", "computes from x, the module from x, weight"),
        ("fused_add_rms_norm(epsilon=1e-6)", "x, x_residual, weight, the module from x, weight"),
    ):
        with pytest.raises(UsageError, match=match):
            export(ExportRequest(run=run, target=tmp_path / "good", to="vllm", op=op))
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written"
    nested = proven_run(tmp_path / "nested", NESTED)
    with pytest.raises(UsageError, match="the module from x, y, "):
        export(
            ExportRequest(
                run=nested, target=tmp_path / "good", to="vllm", op="rms_norm(epsilon=1.0)"
            )
        )


def test_every_operator_reads_its_constants() -> None:
    for name, operator in OPERATORS.items():
        given = ", ".join(f"{one}=1" for one in operator.constants)
        assert parse(f"{name}({given})") == (operator, dict.fromkeys(operator.constants, 1))
        names = [part.split("=")[0].strip() for part in operator.parameters.split(",")]
        assert set(operator.tensors) - set(names) <= {t for t in operator.tensors if "self." in t}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_a_plugin_agrees_with_vllm(tmp_path: Path, name: str) -> None:
    pytest.importorskip("vllm")
    package = plugin(tmp_path, name, *MODULES[name])
    assert "passed" in outcome(package / "tests", PYTHONPATH=str(package))
