"""`dvk verify` through the real command line: exit codes, the table, JSON, batches, run folders."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from dvk import machine
from dvk.config import Config
from dvk.pipelines.verify import MAX_WORKERS, VerifyRequest, _workers
from tests.cli import warm

FILES = Path(__file__).resolve().parents[1] / "harness" / "files"
QUICK = ("--set", "judge.search_s=0.05", "--set", "judge.num_seeds=1")


def dvk(
    *args: object, cwd: Path, exits: int = 0, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    return warm.dvk("verify", *args, cwd=cwd, exits=exits, env=env)


@pytest.mark.slow
def test_all_ok_exits_0_and_prints_a_table(tmp_path):
    done = dvk(
        FILES / "affine.py",
        FILES / "good/torch_affine.py",
        *QUICK,
        "--profile",
        "--out",
        "run",
        cwd=tmp_path,
    )
    assert "torch_affine.py" in done.stdout and "ok" in done.stdout and "speedup" in done.stdout
    assert "a call takes" in done.stdout and "aten::" in done.stdout
    (line,) = (tmp_path / "run" / "verdicts.jsonl").read_text().splitlines()
    assert json.loads(line)["verdict"]["profile"]["device"] == "cpu"
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "done"


@pytest.mark.slow
def test_json_tells_each_candidate_and_exits_1(tmp_path):
    names = ["good/torch_affine", "bad/one_element", "evil/segfault", "bad/not_python"]
    done = dvk(
        FILES / "affine.py",
        *[FILES / f"{n}.py" for n in names],
        "--json",
        "--workers",
        2,
        *QUICK,
        cwd=tmp_path,
        exits=1,
    )
    rows = json.loads(done.stdout)
    assert [row["candidate"] for row in rows] == [str(FILES / f"{n}.py") for n in names]
    assert [row["status"] for row in rows] == ["ok", "mismatch", "launch_error", "rejected"]
    assert {row["mode"] for row in rows} == {"train"}
    good, *rest = rows
    assert 0 < good["speedup_lo"] <= good["speedup"] <= good["speedup_hi"] and good["error"] is None
    assert all(row[key] is None for row in rest for key in ("speedup", "speedup_lo", "speedup_hi"))
    assert all(row["error"] for row in rest)
    (folder,) = (tmp_path / "runs").iterdir()
    assert len((folder / "verdicts.jsonl").read_text().splitlines()) == 4


@pytest.mark.slow
def test_batch_is_resumed_where_it_stopped(tmp_path):
    for name in ("affine", "dropout"):
        (tmp_path / f"{name}.py").write_text((FILES / f"{name}.py").read_text())
    good = (FILES / "good/torch_affine.py").read_text()
    # In eval mode dropout returns its input, which a candidate must not write.
    (tmp_path / "new.py").write_text(
        (FILES / "good/torch_dropout.py").read_text().replace(".add_(1)", " + 1")
    )
    how = ("--eval", "--tier", "smoke")
    lines = [
        {"reference": "affine.py", "source": good, "name": "inline"},
        {"reference": "dropout.py", "candidate": "new.py"},
    ]
    (tmp_path / "jobs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    args = ("--batch", "jobs.jsonl", "--json", *how, "--out", "run")
    rows = json.loads(dvk(*args, cwd=tmp_path).stdout)
    assert [(row["candidate"], row["status"]) for row in rows] == [
        ("inline", "ok"),
        ("new.py", "ok"),
    ]
    # As after a kill: one verdict is missing and the run has not ended.
    verdicts = tmp_path / "run" / "verdicts.jsonl"
    kept = verdicts.read_text().splitlines(keepends=True)[0]
    verdicts.write_text(kept)
    manifest = tmp_path / "run" / "run.json"
    manifest.write_text(manifest.read_text().replace('"done"', '"running"'))
    done = dvk(*args, "--resume", cwd=tmp_path)
    assert [row["mode"] for row in json.loads(done.stdout)] == [
        "eval",
        "eval",
    ]  # one of them from the file
    assert done.stderr.count(": ok") == 1
    assert verdicts.read_text().startswith(kept) and len(verdicts.read_text().splitlines()) == 2
    again = dvk(*args, "--resume", cwd=tmp_path)
    assert len(json.loads(again.stdout)) == 2 and ": ok" not in again.stderr
    assert "--resume" in dvk(*args, cwd=tmp_path, exits=2).stderr


@pytest.mark.slow
def test_local_imports_of_a_reference_are_reloaded(tmp_path):
    inputs = "def get_inputs():\n    return [torch.ones(4, 4)]\n"
    model = "class {}(torch.nn.Module):\n    def forward(self, x):\n        return {}\n"
    (tmp_path / "model.py").write_text(
        "import torch\nfrom ops_here import act\n" + model.format("Model", "act(x)") + inputs
    )
    (tmp_path / "new.py").write_text("import torch\n" + model.format("ModelNew", "x * 2"))

    def verified(factor, exits, *more):
        (tmp_path / "ops_here.py").write_text(f"def act(x):\n    return x * {factor}\n")
        done = dvk(
            "model.py", "new.py", "--json", "--tier", "smoke", *more, cwd=tmp_path, exits=exits
        )
        return json.loads(done.stdout)[0]["status"]

    assert verified(2, 0, "--out", "run") == "ok"
    assert verified(3, 1) == "mismatch", "another run, with the verdicts of earlier days"
    assert verified(3, 1, "--out", "run", "--resume") == "mismatch"


@pytest.mark.slow
def test_plain_functions_with_input_specs(tmp_path):
    (tmp_path / "f.py").write_text(
        "import torch\n\n\ndef gate(x, y):\n    return torch.sigmoid(x) * y\n"
    )
    (tmp_path / "g.py").write_text(
        "import torch\n\n\nclass ModelNew(torch.nn.Module):\n"
        "    def forward(self, x, y):\n        return y / (1 + torch.exp(-x))\n"
    )
    done = dvk(
        "f.py:gate",
        "g.py",
        "--input",
        "x=float32[64,64]",
        "--input",
        "y=float32[64,64]",
        "--tier",
        "smoke",
        "--json",
        cwd=tmp_path,
    )
    assert json.loads(done.stdout)[0]["status"] == "ok"


@pytest.mark.slow
def test_triton_without_a_gpu_is_reported_as_untimed(tmp_path):
    pytest.importorskip("triton")
    done = dvk(
        FILES / "affine.py",
        FILES / "good/triton_affine.py",
        "--device",
        "cpu",
        "--json",
        "--backend",
        "triton",
        cwd=tmp_path,
    )
    (row,) = json.loads(done.stdout)
    assert (
        row["status"] == "ok" and row["speedup"] is None and "interpreter" in row["untimed_reason"]
    )


@pytest.mark.parametrize(
    ("args", "env", "text"),
    [
        ((), {}, "reference"),
        (("affine.py",), {}, "no candidate"),
        (("affine.py", "missing.py"), {}, "missing.py"),
        (("missing.py", "good/torch_affine.py"), {}, "missing.py"),
        (("good/torch_affine.py", "good/torch_affine.py"), {}, "hint"),
        (("affine.py", "good/torch_affine.py", "--backend", "fortran"), {}, "fortran"),
        (("affine.py", "good/torch_affine.py", "--tier", "best"), {}, "best"),
        (("affine.py", "good/torch_affine.py", "--baseline", "magic"), {}, "magic"),
        (("affine.py", "good/torch_affine.py", "--device", "tpu"), {}, "tpu"),
        (("affine.py", "good/torch_affine.py", "--set", "judge.nonsense=1"), {}, "nonsense"),
        (
            ("affine.py", "good/cpp_affine.py", "--backend", "cpp"),
            {"CXX": "no-such-compiler"},
            "g++",
        ),
        (
            ("affine.py", "good/torch_affine.py", "--backend", "cuda"),
            {"CUDA_VISIBLE_DEVICES": "-1"},
            "GPU",
        ),
        (("--batch", "missing.jsonl"), {}, "missing.jsonl"),
    ],
)
@pytest.mark.slow
def test_what_the_user_can_fix_exits_2_with_a_hint(args, env, text, tmp_path):
    placed = [FILES / a if a.endswith(".py") else a for a in args]
    done = dvk(*placed, cwd=tmp_path, exits=2, env=env)
    assert text in done.stderr and "hint:" in done.stderr and done.stdout == ""
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").rglob("verdicts.jsonl"))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{not json", "line 1 is not JSON"),
        ('{"candidate": "x.py"}', "no reference"),
        ('{"reference": "a.py"}', "candidate (a path) or source"),
        ('{"reference": "a.py", "source": "x", "candiate": "y"}', "candiate"),
        ('{"reference": "a.py", "candidate": "gone.py"}', "gone.py"),
        ("", "nothing to verify"),
    ],
)
def test_batch_lines_that_cannot_be_read(line, text, tmp_path):
    (tmp_path / "jobs.jsonl").write_text(line + "\n")
    assert text in dvk("--batch", "jobs.jsonl", cwd=tmp_path, exits=2).stderr


def test_candidates_in_work_are_as_many_as_the_cores_and_no_more_than_there_are(monkeypatch):
    asked = VerifyRequest(jobs=(), name="many")
    monkeypatch.setattr(machine, "num_cores", lambda: 12)
    assert _workers(asked, 100, Config(), {"cpu"}) == 12
    assert _workers(asked, 5, Config(), {"cpu"}) == 5
    assert _workers(replace(asked, workers=3), 100, Config(), {"cpu"}) == 3
    monkeypatch.setattr(machine, "num_cores", lambda: 200)
    assert _workers(asked, 100, Config(), {"cpu", "cuda"}) == MAX_WORKERS
