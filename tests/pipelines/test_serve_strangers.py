"""`dvk serve` runs strangers' references: each process that does is shut in, and one that attacks gets one clean answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dvk.config import Config
from dvk.harness.kernelgym import Evaluation, Result
from dvk.harness.kernelgym.fields import ENDED
from dvk.pipelines.serve.judging import Judging
from dvk.sandbox import enclosure

CONFIG = Config.model_validate({
    "limits": {"memory_bytes": 1 << 30, "num_processes": 100, "output_bytes": 8192, "wall_s": 20},
    "judge": {"candidate_s": 20, "search_s": 0.05, "num_seeds": 1},
})
REFERENCE = """
import os, signal, socket, sys, time
import torch
import torch.nn as nn
{attack}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {built}

    def forward(self, x):
        {called}
        return torch.softmax(x, -1)

def get_inputs():
    return [torch.randn(64, 256)]

def get_init_inputs():
    return []
"""
CANDIDATE = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, -1)\n"
PEEKS = """
def peek():
    found = []
    for path in {paths!r}:
        try:
            os.listdir(path) if os.path.isdir(path) else open(path).close()
            found.append(path)
        except OSError:
            pass
    for family in (socket.AF_INET, socket.AF_INET6, 16, 17, 40):
        try:
            socket.socket(family, socket.SOCK_RAW if family in (16, 17) else socket.SOCK_STREAM)
            found.append(f"family {{family}}")
        except OSError:
            pass
    for path in {written!r}:
        try:
            open(path, "a").close()
            found.append("wrote " + path)
        except OSError:
            pass
    for pid in {pids!r}:
        for what in ("environ", "mem", "root/etc/passwd"):
            try:
                open(f"/proc/{{pid}}/{{what}}").close()
                found.append(f"{{what}} of {{pid}}")
            except OSError:
                pass
        try:
            os.kill(pid, 0)
            found.append(f"signal to {{pid}}")
        except OSError:
            pass
    if found:
        raise RuntimeError(f"it reached {{found}}")
peek()
"""


@pytest.fixture(scope="module")
def judging() -> Iterator[Judging]:
    with Judging(CONFIG, 1, "cpu") as judging:
        yield judging


def ask(judging: Judging, attack: str = "", built: str = "pass", called: str = "pass") -> Result:
    source = REFERENCE.format(attack=attack, built=built, called=called)
    result = judging.answer(Evaluation(task_id="a", reference_code=source, kernel_code=CANDIDATE, backend="cpp"), 0)
    assert result.status in ENDED
    return result


def fine(result: Result) -> bool:
    return bool(result.compiled and result.correctness)


@pytest.mark.skipif(not enclosure.works(), reason="this kernel has no Landlock")
def test_a_reference_reaches_no_more_than_a_candidate(judging: Judging, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    paths = ["/etc/shadow", os.path.expanduser("~"), "/root", "/home", "/tmp", "/var/log", str(tmp_path / "secret"), f"{os.getcwd()}/.git"]
    written = [str(tmp_path / "written"), "/tmp/dvk-written", os.path.expanduser("~/dvk-written")]
    attack = PEEKS.format(paths=paths, written=written, pids=[os.getpid(), os.getppid()])
    result = ask(judging, attack, built="peek()", called="peek()")
    assert fine(result), result.error_message
    assert not any(Path(path).exists() for path in written)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["attack", "built", "called"])
@pytest.mark.parametrize("attack", [
    "os._exit(0)", "os.kill(os.getpid(), 9)", "os.kill(os.getppid(), 9)", "raise SystemExit(0)", "os.killpg(0, 9)",
    "sys.stdout.write('x' * (1 << 24))",
    "kept = [bytearray(b'x' * (64 << 20)) for _ in range(40)]",
])  # fmt: skip
def test_one_that_attacks_gets_one_answer_and_the_next_is_judged(judging: Judging, attack: str, where: str) -> None:
    result = ask(judging, **{where: attack})
    assert result.error_message or fine(result) == ("stdout" in attack), result
    assert fine(ask(judging))
