"""`dvk optimize --backbone` through the real command line: real kernels from a script, a kill, Ctrl-C. A real server: tests/backbone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dvk.records import Episode
from tests.backbone.failing import failing
from tests.cli.model_scripts import QUICK, write
from tests.cli.optimizing import dvk
from tests.python_path import python_path

KERNEL = '''
import ctypes, os, subprocess, tempfile
import torch
import torch.nn as nn

SOURCE = r"""
#include <algorithm>
#include <cmath>
extern "C" void chain(const float* x, const float* y, const float* gain, float* out, long rows, long width, float slope) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < width; c++) {
            float a = x[r * width + c], b = y[r * width + c], z = a * gain[c] + b;
            for (int i = 0; i < STEPS; i++) z = std::min(std::fabs(z - slope * b), 3.0f) + a;
            out[r * width + c] = z * z;
        }
}
"""

def compiled(source):
    folder = tempfile.mkdtemp()
    text, library = os.path.join(folder, "kernel.cpp"), os.path.join(folder, "kernel.so")
    with open(text, "w") as file:
        file.write(source)
    subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", text, "-o", library], check=True)
    return ctypes.CDLL(library)

chain = compiled(SOURCE).chain
chain.argtypes, chain.restype = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 2 + [ctypes.c_float], None

class ModelNew(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.gain = nn.Parameter(torch.linspace(0.5, 1.5, 512))
        self.slope = slope

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        width = self.gain.numel()
        chain(x.data_ptr(), y.data_ptr(), self.gain.data_ptr(), out.data_ptr(), x.numel() // width, width, self.slope)
        return out
'''
SKILL = "fused_elementwise_chain"


def fenced(steps: int) -> str:
    return f"One pass.\n\n```python\n{KERNEL.replace('STEPS', str(steps))}```\n"


OPENING = {"match": "From the skill library", "answer": fenced(11)}
"""With skills, the first attempt leaves a step out."""
CLUELESS = {"match": "", "answer": "I have no idea."}
"""Without, there is none."""
REPAIR = {"match": "judge's findings.*Wrong result", "answer": fenced(12)}
NO_MORE = {"match": "judge's findings", "answer": "I have nothing better."}
SELECT = {
    "match": "Call `select_skills`",
    "answer": '<tool_call>\n{"name": "select_skills", "arguments": {"think": "memory", '
    f'"selected_skills": [{{"name": "{SKILL}", "reason": "one pass"}}]}}}}\n</tool_call>',
}


def start(*args: object, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dvk", "optimize", *map(str, args)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": python_path()},
        start_new_session=True,
    )


def rows(path: Path) -> list[dict[str, Any]]:
    """Complete lines of a file that is being written."""
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def wait(process: subprocess.Popen[str], reached: Any) -> None:
    until = time.monotonic() + 200
    while not reached() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    assert process.poll() is None and reached()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--strategy", "refine"), "--backbone"),
        (("--strategy", "macro"), "--backbone"),
        (("--strategy", "composer", "--backbone", "scripted"), "--strategy auto"),
        (("--backbone", "nonsense"), "nano"),
    ],
)
@pytest.mark.slow
def test_mistakes_exit_2_and_leave_no_run(
    tmp_path: Path, args: tuple[str, ...], words: str
) -> None:
    write(tmp_path)
    done = dvk("chain.py", "--out", "run", *args, cwd=tmp_path, exits=2)
    assert words in done.stderr and "hint:" in done.stderr and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_killed_run_goes_on_without_asking_again(tmp_path: Path) -> None:
    write(tmp_path, SELECT, OPENING, REPAIR, NO_MORE, CLUELESS)
    model = (
        "--backbone",
        "scripted:script.jsonl",
        "--strategy",
        "refine",
        "--budget-s",
        "400",
        *QUICK,
    )
    process = start("chain.py", "--out", "run", *model, cwd=tmp_path)
    turns, answers = tmp_path / "run" / "turns.jsonl", tmp_path / "run" / "answers.jsonl"
    wait(
        process, lambda: len(rows(turns)) == 1 and len(rows(answers)) >= 2
    )  # selected, and the first of two kernels was judged
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before, judged = rows(answers), rows(turns)
    write(tmp_path, REPAIR, NO_MORE, CLUELESS)  # what was answered would be answered otherwise now
    done = dvk("chain.py", "--out", "run", "--resume", "--json", *model, cwd=tmp_path)
    summary = json.loads(done.stdout)

    after = rows(answers)
    assert after[: len(before)] == before and len(after) > len(before)
    assert max(Counter(call["id"] for call in after).values()) == 1, "nothing is asked twice"
    assert rows(turns)[: len(judged)] == judged
    searched = [t["candidate"]["source"] for t in rows(turns) if t["verdict"]["tier"] == "search"]
    assert len(searched) == len(set(searched)) == 2, "nothing is judged twice"

    assert (
        summary["status"] == "faster"
        and summary["proposer"] == summary["backbone"] == "scripted:script.jsonl"
    )
    assert summary["skills"] == [SKILL] and summary["title"] == "scheme 0, rollout 0, turn 2"
    cost = summary["cost"]
    assert (
        cost["prompt_tokens"] == sum(call["prompt_tokens"] for call in after) > 0
        and cost["completion_tokens"] > 0
    )
    assert (
        cost["answers"] == sum(len(call["completions"]) for call in after)
        and cost["judge_s"] > 0
        and cost["usd"] is None
    )
    assert [(row["name"], row["candidates"], row["correct"]) for row in summary["proposers"]] == [
        ("scripted:script.jsonl", 2, 1)
    ]
    told_whole(tmp_path / "run")
    for report in ("report.md", "report.html"):
        text = (tmp_path / "run" / report).read_text()
        assert (
            SKILL in text and "What it cost" in text and f"{cost['prompt_tokens']:,} read" in text
        )
        assert "scripted:script.jsonl found it" in text


def told_whole(run: Path) -> None:
    """The episode can be learnt from: selections, conversations with their feedback, what was judged outside, confirmations."""
    episode = Episode.model_validate_json((run / "episodes" / "optimize.jsonl").read_text())
    outside, *talks = episode.traces
    assert [turn.verdict.tier for turn in outside.turns if turn.verdict] == ["claim"]
    (selected,) = next(
        trace for trace in talks if trace.role == "selection" and trace.turns[0].chosen
    ).turns
    assert (
        selected.chosen == (SKILL,) and "select_skills" in selected.completion and selected.messages
    )
    talk = next(trace for trace in talks if trace.skills == (SKILL,))
    wrong, right, silent = talk.turns
    assert (
        wrong.verdict
        and wrong.verdict.status.value == "mismatch"
        and right.verdict
        and right.verdict.faster
    )
    assert "Wrong result" in right.messages[-1]["content"], "the feedback as it was shown"
    assert (
        silent.malformed
        and silent.finish == "stop"
        and silent.messages[-2]["content"].startswith("One pass.")
    )
    clueless = next(trace for trace in talks if trace.role == "policy" and not trace.skills)
    assert len(clueless.turns) == 3 and all(turn.malformed for turn in clueless.turns)
    assert all(turn.elapsed_s > 0 for trace in talks for turn in trace.turns)


@pytest.mark.hand
@pytest.mark.slow
def test_a_killed_run_of_moves_goes_on_without_asking_again(tmp_path: Path) -> None:
    def move(after: str, kind: str) -> dict[str, str]:
        arguments = {"think": "", "moves": [{"kind": kind, "region": "k0"}]}
        return {
            "match": f"{after}[^\\n]*\n+Call `plan_moves`",
            "answer": json.dumps({"name": "plan_moves", "arguments": arguments}),
        }

    write(
        tmp_path,
        move("None.", "fly"),
        move("refused: `fly`", "flat"),
        move("- `flat`", "serial"),
        CLUELESS,
    )
    model = (
        "--backbone",
        "scripted:script.jsonl",
        "--strategy",
        "macro",
        "--budget-s",
        "400",
        *QUICK,
    )
    process = start("chain.py", "--out", "run", *model, cwd=tmp_path)
    turns, answers = tmp_path / "run" / "turns.jsonl", tmp_path / "run" / "answers.jsonl"
    wait(
        process, lambda: len(rows(turns)) >= 2 and len(rows(answers)) >= 2
    )  # the opening, and the first of a move's programs
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before, judged = rows(answers), rows(turns)
    write(
        tmp_path, move("- `flat`", "serial"), CLUELESS
    )  # what was answered would be answered otherwise now
    done = dvk("chain.py", "--out", "run", "--resume", "--json", *model, cwd=tmp_path)
    summary = json.loads(done.stdout)

    after = rows(answers)
    assert (
        after[: len(before)] == before and max(Counter(call["id"] for call in after).values()) == 1
    ), "nothing is asked twice"
    assert rows(turns)[: len(judged)] == judged
    searched = [t["candidate"] for t in rows(turns) if t["verdict"]["tier"] == "search"]
    assert len({candidate["source"] for candidate in searched}) == len(searched), (
        "nothing is judged twice"
    )
    assert {candidate["title"].partition(":")[0] for candidate in searched} == {
        "fused",
        "flat on k0",
        "serial on k0",
    }
    assert (
        summary["status"] == "faster"
        and summary["proposer"] == "composer"
        and summary["cost"]["malformed"] == 4
    )
    episode = Episode.model_validate_json(
        (tmp_path / "run" / "episodes" / "optimize.jsonl").read_text()
    )
    assert [trace.role for trace in episode.traces] == ["policy", *["selection"] * 6]
    first = episode.traces[1].turns[0]
    assert first.malformed is not None and first.malformed.startswith(
        "`fly` on `k0`: not legal there; legal are "
    )


@pytest.mark.hand
@pytest.mark.slow
def test_both_propose_and_ctrl_c_keeps_what_was_found(tmp_path: Path) -> None:
    write(tmp_path, SELECT, NO_MORE, {"match": "", "answer": fenced(12)})
    process = start(
        "chain.py",
        "--out",
        "run",
        "--json",
        "--backbone",
        "scripted:script.jsonl",
        "--budget-s",
        "600",
        *QUICK,
        cwd=tmp_path,
    )
    turns = tmp_path / "run" / "turns.jsonl"
    wait(process, lambda: len({t["candidate"]["proposer"] for t in rows(turns)}) == 2)
    process.send_signal(signal.SIGINT)
    summary = json.loads(process.communicate(timeout=200)[0])
    assert process.returncode == 0 and summary["status"] == "faster"
    assert [row["name"] for row in summary["proposers"]] == ["composer", "scripted:script.jsonl"]
    assert all(row["correct"] and row["best"] > 1 for row in summary["proposers"])
    assert summary["proposer"] in ("composer", "scripted:script.jsonl")
    text = (tmp_path / "run" / "report.md").read_text()
    assert f"{summary['proposer']} found it; " in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "cap, used",
    [(("--max-requests", "2"), "2 of 2 requests"), (("--max-tokens", "3000"), "of 3000 tokens")],
)
def test_a_cap_ends_the_models_part_and_says_so(
    tmp_path: Path, cap: tuple[str, str], used: str
) -> None:
    write(tmp_path, {"match": "", "answer": "I cannot."})
    model = ("--backbone", "scripted:script.jsonl", "--strategy", "refine", "--budget-s", "300")
    done = dvk("chain.py", "--out", "run", "--json", *cap, *model, *QUICK, cwd=tmp_path, exits=1)
    summary = json.loads(done.stdout)
    assert f"the cap {cap[0]} ended" in summary["reason"] and used in summary["reason"]
    assert summary["warnings"] and cap[0] in summary["warnings"][0]
    cost = summary["cost"]
    assert cost["prompt_tokens"] + cost["completion_tokens"] <= 3000


@pytest.mark.slow
def test_a_module_without_a_graph_is_left_to_the_model(tmp_path: Path) -> None:
    write(tmp_path, {"match": "", "answer": "I cannot."})
    (tmp_path / "branch.py").write_text(
        "import torch\nclass M(torch.nn.Module):\n    def forward(self, x):\n        return torch.from_numpy(x.numpy() + 1)\n"
    )
    done = dvk(
        "branch.py:M",
        "--input",
        "x=float32[64,64]",
        "--out",
        "run",
        "--json",
        "--backbone",
        "scripted:script.jsonl",
        *QUICK,
        cwd=tmp_path,
        exits=1,
    )
    summary = json.loads(done.stdout)
    assert (
        "none of the model's" in summary["reason"]
        and summary["cost"]["answers"] == summary["cost"]["malformed"] > 1
    )
    assert "no operator graph" in done.stderr and "numpy" in done.stderr


@pytest.mark.hand
@pytest.mark.slow
def test_a_server_that_refuses_the_key_keeps_what_the_composer_found(tmp_path: Path) -> None:
    write(tmp_path)
    with failing("401") as url:
        done = dvk(
            "chain.py",
            "--out",
            "run",
            "--json",
            "--backbone",
            "endpoint:m",
            "--set",
            f"backbone.endpoint_url={url}",
            "--budget-s",
            "20",
            *QUICK,
            cwd=tmp_path,
            exits=None,
        )
    summary = json.loads(done.stdout)
    assert (
        done.returncode == (0 if summary["status"] == "faster" else 1)
        and "Traceback" not in done.stderr
    )
    assert (
        summary["num_candidates"] > 0
        and "refuses the key" in summary["warnings"][0]
        and "warning:" in done.stderr
    )
    assert "refuses the key" in (tmp_path / "run" / "report.md").read_text()
