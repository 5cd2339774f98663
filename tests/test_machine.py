"""The machine's description, and its cached measurements."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dvk import machine, resources
from dvk.errors import MachineError


def test_fingerprint_names_processor_cores_and_torch() -> None:
    text = machine.fingerprint()
    assert machine.cpu_name() in text and f"{machine.num_cores()} cores" in text
    assert f"torch {machine.version('torch')}" in text


def test_facts_are_plain_and_possible() -> None:
    facts = json.loads(json.dumps(machine.describe()))
    assert 1 <= facts["num_cores"] <= (os.cpu_count() or 1)
    assert facts["memory_bytes"] > 1 << 28
    assert facts["packages"]["torch"] and facts["isa"].count("-") == 1


def test_describing_imports_no_torch() -> None:
    code = (
        "import sys; from dvk import machine; machine.describe(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_core_less_in_the_mask_is_a_core_less() -> None:
    mask = "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])"
    code = f"import os; from dvk import machine; {mask}; print(machine.num_cores())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_hidden_gpus_are_not_named() -> None:
    code = "from dvk import machine; print(machine.gpu_names())"
    for hidden in ("", "-1"):
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": hidden}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
        )
        assert done.stdout.strip() == "()"


def test_measurements_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "new"))
    assert machine.recall("cpu") == {}
    machine.remember("cpu", {"copy_gbps": 12.5})
    assert machine.recall("cpu") == {"copy_gbps": 12.5}
    (tmp_path / "new" / "machine.json").write_text("{torn")
    assert machine.recall("cpu") == {}
    machine.remember("cpu", {"copy_gbps": 13.0})
    assert machine.recall("cpu") == {"copy_gbps": 13.0}


def test_shipped_files_are_found() -> None:
    assert list(resources.resource("skills_db", "seed").glob("*.md"))
    assert list(resources.resource("data", "tasks", "examples").glob("*.py"))
    with pytest.raises(MachineError):
        resources.resource("data", "no_such_thing")


def test_home_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVK_HOME", str(tmp_path))
    assert resources.home() == tmp_path
    monkeypatch.delenv("DVK_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resources.home() == tmp_path / ".dvk"


def test_processes_can_be_confined_to_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-5,7")
    machine.confine(1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-5"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    machine.confine(2)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"
