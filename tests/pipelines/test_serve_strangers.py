"""`dvk serve` runs strangers' references: each process that does is shut in, and one that attacks gets one clean answer."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dvk import backends
from dvk.config import Config, ServeConfig
from dvk.interop.kernelgym import Evaluation, EvaluationResult
from dvk.interop.kernelgym.fields import ENDED
from dvk.pipelines.serve import enclosed
from dvk.pipelines.serve.desk import RequestQueue
from dvk.pipelines.serve.judging import JudgeService
from dvk.sandbox import enclosure

FILES = Path(__file__).parents[1] / "harness" / "files"
CONFIG = Config.model_validate(
    {
        "limits": {
            "memory_bytes": 1 << 30,
            "num_processes": 100,
            "output_bytes": 8192,
            "wall_s": 20,
        },
        "judge": {"candidate_s": 20, "search_s": 0.05, "num_seeds": 1},
    }
)
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
def judging() -> Iterator[JudgeService]:
    with JudgeService(CONFIG, 1, "cpu") as judging:
        yield judging


def answered(judging: JudgeService, request: Evaluation) -> EvaluationResult:
    ended = threading.Event()
    with RequestQueue(ServeConfig(), judging.queue, judging) as queue:
        entry = queue.submit(request, ended.set)
        assert ended.wait(300) and entry.result is not None
    return entry.result


def ask(
    judging: JudgeService, attack: str = "", built: str = "pass", called: str = "pass"
) -> EvaluationResult:
    source = REFERENCE.format(attack=attack, built=built, called=called)
    result = answered(
        judging,
        Evaluation(task_id="a", reference_code=source, kernel_code=CANDIDATE, backend="cpp"),
    )
    assert result.status in ENDED
    return result


def fine(result: EvaluationResult) -> bool:
    return bool(result.compiled and result.correctness)


def peeks(tmp_path: Path) -> tuple[str, list[str]]:
    """A reference's forbidden accesses, and the files that it would leave."""
    (tmp_path / "secret").write_text("secret")
    git = f"{os.getcwd()}/.git"  # names in a folder of Python modules may be listed, contents of hidden files not read
    paths = [
        "/etc/shadow",
        os.path.expanduser("~"),
        "/root",
        "/home",
        "/tmp",
        "/var/log",
        str(tmp_path / "secret"),
        f"{git}/HEAD" if os.path.isdir(git) else git,
    ]
    written = [str(tmp_path / "written"), "/tmp/dvk-written", os.path.expanduser("~/dvk-written")]
    settings = ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"]
    if os.geteuid() == 0:  # its processes are hidden; other users cannot hide any
        settings += [f"/proc/{os.getpid()}/oom_score_adj"]
    return PEEKS.format(
        paths=paths, written=written + settings, pids=[os.getpid(), os.getppid()]
    ), written


needs_landlock = pytest.mark.skipif(not enclosure.works(), reason="this kernel has no Landlock")


@needs_landlock
@pytest.mark.slow
def test_a_reference_reaches_no_more_than_a_candidate(
    judging: JudgeService, tmp_path: Path
) -> None:
    attack, written = peeks(tmp_path)
    result = ask(judging, attack, built="peek()", called="peek()")
    assert fine(result), result.error_message
    assert not any(Path(path).exists() for path in written)


@pytest.mark.slow
def test_candidates_whose_processes_start_otherwise_are_judged(judging: JudgeService) -> None:
    """Triton's interpreter needs a variable before anything is imported; the judge must reach into that process, too."""
    asked = Evaluation(
        task_id="a",
        reference_code=(FILES / "affine.py").read_text(),
        backend="triton",
        kernel_code=(FILES / "good" / "triton_affine.py").read_text(),
    )
    result = answered(judging, asked)
    assert fine(result), result.error_message


@pytest.mark.gpu
@needs_landlock
@pytest.mark.parametrize("contract", ["module", "plan"])
def test_a_reference_reaches_no_more_than_a_candidate_on_a_gpu(
    tmp_path: Path, contract: str
) -> None:
    """And honest candidates are judged and timed there: CUDA works shut in."""
    limits = CONFIG.limits.model_copy(
        update={"memory_bytes": 8 << 30, "num_processes": 512, "wall_s": 120}
    )
    config, why = enclosed(CONFIG.model_copy(update={"limits": limits}))
    assert why is None
    attack, written = peeks(tmp_path)
    reference = (FILES / "affine.py").read_text()
    reference = f"import os, socket\n{attack}\n{reference}"
    asked = {"tier": "search", "contract": contract}
    with JudgeService(config, 1, "cuda") as judging:
        # A plan cannot stand for a candidate that compiles an extension.
        kernels = ("triton_affine", *(["cuda_affine"] if contract == "module" else []))
        for number, kernel in enumerate(kernels):
            code = (FILES / "good" / f"{kernel}.py").read_text()
            result = answered(
                judging,
                Evaluation(
                    task_id=f"a{number}", reference_code=reference, kernel_code=code, dvk=asked
                ),
            )
            assert fine(result), result.error_message
            assert result.kernel_runtime > 0
        eager = ask(judging, attack, built="peek()", called="peek()")
        assert fine(eager), eager.error_message
    assert not any(Path(path).exists() for path in written)


@needs_landlock
def test_a_server_says_where_a_gpu_cannot_be_shut_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it on this machine, CUDA does not start: judging continues as before, and the start reports it."""
    monkeypatch.setattr(backends, "default_device", lambda: "cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    config, why = enclosed(CONFIG)
    assert not config.limits.enclose_gpu and "is not sandboxed" in (why or "")
    monkeypatch.setattr(backends, "default_device", lambda: "cpu")
    assert enclosed(CONFIG) == (CONFIG, None)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["attack", "built", "called"])
@pytest.mark.parametrize(
    "attack",
    [
        "os._exit(0)",
        "os.kill(os.getpid(), 9)",
        "os.kill(os.getppid(), 9)",
        "raise SystemExit(0)",
        "os.killpg(0, 9)",
        "sys.stdout.write('x' * (1 << 24))",
        "kept = [bytearray(b'x' * (64 << 20)) for _ in range(40)]",
    ],
)
def test_one_that_attacks_gets_one_answer_and_the_next_is_judged(
    judging: JudgeService, attack: str, where: str
) -> None:
    result = ask(judging, **{where: attack})
    assert result.error_message or fine(result) == ("stdout" in attack), result
    assert fine(ask(judging))
