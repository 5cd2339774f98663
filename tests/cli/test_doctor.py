"""`dvk doctor` reports what is so, keeps stdout for the result, and always ends well."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dvk import machine
from dvk.cli.doctor import report_lines
from dvk.config import Config
from dvk.pipelines import doctor as pipeline
from dvk.pipelines.doctor import examine
from tests.cli import warm


def doctor(*args: str, home: Path) -> subprocess.CompletedProcess[str]:
    return warm.dvk("doctor", *args, cwd=warm.ROOT, env={"DVK_HOME": str(home)})


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("home")
    done = doctor("--json", home=home)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "test_home": home}


def test_facts(report: dict[str, Any]) -> None:
    assert report["machine"]["fingerprint"] == machine.fingerprint()
    assert report["machine"]["packages"]["torch"] == machine.version("torch")
    assert report["target"]["cpu"]["cores"] == machine.num_cores()
    assert report["target"]["gpu"]["sms"] > 0
    assert (
        0.5 < report["machine"]["copy_gbps"] < 10_000
        and 0.5 < report["machine"]["read_gbps"] < 10_000
    )
    assert (
        1 < report["machine"]["gflops"]["fp32"] < 1e6 and 0 < report["machine"]["launch_us"] < 1000
    )
    assert set(report["backends"]) == {"cpp", "triton", "cuda"}
    assert report["isolation"]["cpu"]["layers"] and isinstance(
        report["isolation"]["machine"]["open"], list
    )
    for answer in report["backends"].values():
        assert answer["works"] is (answer["error"] is None)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_compiler_really_ran(report: dict[str, Any]) -> None:
    compiler = report["compiler"]
    assert compiler["works"] and compiler["version"][0].isdigit()
    assert 1 <= compiler["num_threads"] and 0 < compiler["compile_s"] < 60
    assert report["backends"]["cpp"]["works"]


def test_triton_ran_in_the_interpreter(report: dict[str, Any]) -> None:
    if machine.version("triton") is None:
        pytest.skip("needs triton")
    assert report["triton"]["interpreter"]["works"]


def test_without_a_gpu_it_says_so(report: dict[str, Any]) -> None:
    if machine.gpu_names():
        pytest.skip("there is a GPU")
    assert not report["cuda"]["works"] and report["cuda"]["error"]
    assert not report["backends"]["cuda"]["works"]


@pytest.mark.gpu
def test_with_a_gpu_it_measures(report: dict[str, Any]) -> None:
    assert report["cuda"]["works"] and report["cuda"]["gpus"][0]["name"] == machine.gpu_names()[0]
    assert 50 < report["cuda"]["copy_gbps"] < 50_000 and 50 < report["cuda"]["read_gbps"] < 50_000
    rates = report["cuda"]["gflops"]
    assert (
        1000 < rates["fp32"] < rates["bf16"] < 1e8
        and 0.5 < report["cuda"]["launch_us"] <= report["cuda"]["sync_us"]
    )
    assert report["triton"]["gpu"]["works"] and report["driver"]


def test_measurements_are_kept_and_the_library_is_not_built(report: dict[str, Any]) -> None:
    kept = json.loads((report["test_home"] / "machine.json").read_text())
    facts = kept[machine.fingerprint()]
    assert (
        facts["copy_gbps"] == report["machine"]["copy_gbps"]
        and facts["gflops"] == report["machine"]["gflops"]
    )
    assert not report["library"]["exists"] and not (report["test_home"] / "skills.db").exists()


@pytest.mark.slow
def test_what_is_missing_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiler and a home folder that cannot be made: both are reported, neither is an error."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "file" / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(
        pipeline, "CPU_COPY_BYTES", 1 << 20
    )  # how fast it is has been measured above
    monkeypatch.setattr(pipeline, "CPU_MATMUL", 64)
    found = examine()
    assert not found["compiler"]["works"] and found["compiler"]["error"] == "no C++ compiler found"
    assert not found["backends"]["cpp"]["works"] and "g++" in found["backends"]["cpp"]["error"]
    assert found["saved"] is None
    text = "\n".join(report_lines(found))
    assert "measurements not kept" in text and "no C++ compiler found" in text


def test_the_report_for_people_says_it_all(report: dict[str, Any]) -> None:
    text = "\n".join(report_lines(report))
    for word in (
        machine.cpu_name(),
        "g++",
        "nvcc",
        "triton, interpreter",
        "backends",
        report["library"]["path"],
    ):
        assert word in text
    assert "None" not in text


def flat(tree: dict, prefix: str = "") -> dict:
    """Settings by dotted key; a setting may itself be a table."""
    found: dict = {}
    for name, value in tree.items():
        key = prefix + name
        whole = not isinstance(value, dict) or key in ("rewards.weights", "collect.favoured")
        found.update({key: value} if whole else flat(value, key + "."))
    return found


def test_settings_lists_every_key(tmp_path: Path) -> None:
    rows = json.loads(doctor("--settings", "--json", home=tmp_path).stdout)
    plain = doctor("--settings", home=tmp_path).stdout
    values = {row["key"]: row["default"] for row in rows}
    assert values == flat(Config().model_dump(mode="json"))
    for row in rows:
        assert row["key"] in plain and row["reason"] in plain
