"""`dvk optimize` through the real command line: what it prints, leaves on disk and exits with."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.cli.optimizing import CHAIN, QUICK, dvk
from tests.python_path import python_path

KEYS = {"status", "speedup", "speedup_lo", "speedup_hi", "baselines", "best", "run"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("chain")
    (folder / "chain.py").write_text(CHAIN)
    done = dvk("chain.py", "--out", "run", "--json", *QUICK, cwd=folder)
    return folder, json.loads(done.stdout)


def test_json_is_one_object_with_the_promised_keys(finished):
    _, summary = finished
    assert KEYS <= set(summary)
    assert summary["status"] == "faster"
    assert 1 < summary["speedup_lo"] <= summary["speedup"] <= summary["speedup_hi"]
    assert summary["baselines"]["eager"]["ms"] > 0
    assert summary["skills"], "the report names the skills behind the winner"


def test_the_run_folder_is_whole(finished):
    folder, summary = finished
    run = folder / "run"
    assert json.loads((run / "run.json").read_text())["status"] == "done"
    episode = json.loads((run / "episodes" / "optimize.jsonl").read_text())
    turns = episode["traces"][0]["turns"]
    assert len({t["candidate"]["source"] for t in turns}) == summary["num_candidates"]
    assert turns[-1]["verdict"]["tier"] == "claim"
    assert (
        "<html" in (run / "report.html").read_text() and "chain" in (run / "report.md").read_text()
    )


def test_best_is_a_drop_in_that_needs_torch_alone(finished):
    folder, _ = finished
    source = (folder / "run" / "best.py").read_text()
    assert (
        "dvk." not in source.replace("_dvk", "").replace("dvk-", "") or "import dvk" not in source
    )
    spec = importlib.util.spec_from_file_location("best_chain", folder / "run" / "best.py")
    best = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(best)
    old, new = best.Model(0.3), best.ModelNew(0.3)
    new.load_state_dict(old.state_dict())
    inputs = best.get_inputs()
    with torch.no_grad():
        torch.testing.assert_close(new(*inputs), old(*inputs), rtol=1e-4, atol=1e-5)
        odd = [t[:7] for t in inputs]
        assert torch.equal(new(*odd), old(*odd)), "another shape takes the original's path"
    live = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ModuleDict({"inner": old}))
    replaced = best.replace(live)
    assert type(replaced[1]["inner"]) is best.ModelNew and replaced[1]["inner"].gain is old.gain


def test_a_finished_run_resumes_to_the_same_answer_at_once(finished):
    folder, summary = finished
    again = json.loads(
        dvk("chain.py", "--out", "run", "--resume", "--json", *QUICK, cwd=folder).stdout
    )
    assert again == summary


def test_a_finished_run_that_is_asked_for_something_else_says_so(finished):
    folder, _ = finished
    done = dvk(
        "chain.py", "--out", "run", "--resume", "--strategy", "random", *QUICK, cwd=folder, exits=2
    )
    assert "another strategy" in done.stderr and "choose another --out" in done.stderr


def test_a_used_folder_is_refused(finished):
    folder, _ = finished
    done = dvk("chain.py", "--out", "run", *QUICK, cwd=folder, exits=2)
    assert "--resume" in done.stderr


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_was(tmp_path):
    (tmp_path / "chain.py").write_text(CHAIN)
    command = [
        sys.executable,
        "-m",
        "dvk",
        "optimize",
        "chain.py",
        "--out",
        "run",
        *QUICK,
        "--budget-s",
        "60",
    ]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": python_path()},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    turns = tmp_path / "run" / "turns.jsonl"
    until = time.monotonic() + 120
    while (
        not turns.exists() or len(turns.read_text().splitlines()) < 2
    ) and time.monotonic() < until:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = [json.loads(line)["candidate"]["source"] for line in turns.read_text().splitlines()]
    assert len(before) >= 2
    summary = json.loads(
        dvk("chain.py", "--out", "run", "--resume", "--json", *QUICK, cwd=tmp_path).stdout
    )
    after = [json.loads(line) for line in turns.read_text().splitlines()]
    searched = [t["candidate"]["source"] for t in after if t["verdict"]["tier"] == "search"]
    assert searched[: len(before)] == before, "what was judged stays"
    assert len(searched) == len(set(searched)), "nothing is judged twice"
    assert summary["status"] == "faster"


@pytest.mark.slow
def test_ctrl_c_keeps_the_best_so_far(tmp_path):
    (tmp_path / "chain.py").write_text(CHAIN)
    command = [
        sys.executable,
        "-m",
        "dvk",
        "optimize",
        "chain.py",
        "--out",
        "run",
        "--json",
        *QUICK,
        "--budget-s",
        "60",
    ]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": python_path()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    turns = tmp_path / "run" / "turns.jsonl"
    until = time.monotonic() + 120
    while (not turns.exists() or not turns.read_text()) and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    summary = json.loads(out)
    assert summary["status"] == "faster" and Path(tmp_path / summary["best"]).exists()
    assert "Traceback" not in err


@pytest.mark.slow
def test_nothing_faster_exits_1_and_leaves_the_file_alone(tmp_path):
    text = "import torch\ndef f(x):\n    return x @ x\n"
    (tmp_path / "product.py").write_text(text)
    done = dvk(
        "product.py", "--input", "x=float32[256,256]", "--json", *QUICK, cwd=tmp_path, exits=1
    )
    summary = json.loads(done.stdout)
    assert (
        summary["status"] in ("no_speedup", "too_noisy")
        and summary["best"] is None
        and summary["reason"]
    )  # by the machine's load
    assert (tmp_path / "product.py").read_text() == text


@pytest.mark.slow
def test_a_module_that_cannot_be_captured_says_why(tmp_path):
    (tmp_path / "branch.py").write_text(
        "import torch\nclass M(torch.nn.Module):\n    def forward(self, x):\n        return torch.from_numpy(x.numpy() + 1)\n"
    )
    done = dvk(
        "branch.py:M", "--input", "x=float32[64,64]", "--json", *QUICK, cwd=tmp_path, exits=1
    )
    reason = json.loads(done.stdout)["reason"]
    assert "cannot capture" in reason and "branch.py, line 4" in reason and "submodule" in reason


@pytest.mark.slow
def test_a_plain_function_with_input_specs_becomes_faster(tmp_path):
    (tmp_path / "ops.py").write_text(
        "import torch\ndef gate(x, y, scale=2.0):\n"
        "    for _ in range(8):\n        x = (x * scale - y).abs().clamp(max=2.0)\n    return x - y.square() * 0.1\n"
    )
    specs = ("--input", "x=float32[2048,512]", "--input", "y=float32[2048,512]")
    summary = json.loads(dvk("ops.py:gate", *specs, "--json", *QUICK, cwd=tmp_path).stdout)
    assert summary["status"] == "faster" and summary["num_candidates"] > 0
    assert summary["use"] == "from best import gate_new; gate_new(x, y) is gate(x, y)"
    assert "gate_new(x, y)" in (tmp_path / summary["run"] / "report.md").read_text()
    spec = importlib.util.spec_from_file_location("best_gate", tmp_path / summary["best"])
    assert spec is not None and spec.loader is not None
    best = importlib.util.module_from_spec(spec)
    sys.modules["best_gate"] = best
    spec.loader.exec_module(best)
    x, y = torch.randn(2048, 512), torch.randn(2048, 512)
    with torch.no_grad():
        assert torch.allclose(best.gate_new(x, y), best.gate(x, y), atol=1e-4)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("missing.py",), "missing.py"),
        (("chain.py", "--strategy", "nonsense"), "composer"),
        (("chain.py", "--backend", "cuda"), "hint"),
        (("chain.py", "--backend", "triton", "--device", "cpu"), "not timed"),
        (("chain.py", "--device", "gpu"), "cpu or cuda"),
        (("chain.py", "--baseline", "nonsense"), "compile"),
        (("chain.py", "--set", "nonsense=1"), "setting"),
        (("chain.py", "--library", "nowhere.db"), "nowhere.db"),
    ],
)
@pytest.mark.slow
def test_mistakes_exit_2_with_a_hint(tmp_path, args, words):
    (tmp_path / "chain.py").write_text(CHAIN)
    done = dvk(*args, cwd=tmp_path, exits=2)
    assert words in done.stderr and "hint:" in done.stderr
