"""`dvk train --rollouts local` with a real vLLM and the shipped nano: it samples, learns, and survives kills. By hand."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dvk.config import Config, changed
from dvk.pipelines.train import train
from dvk.resources import resource
from dvk.sandbox import proctree
from tests.backbone.vllm_environment import settings, use_little
from tests.pipelines.trainings import CONFIG, metrics, request

pytestmark = [pytest.mark.hand, pytest.mark.slow, pytest.mark.timeout(3000)]

RUN = """
import json, sys
from pathlib import Path
from dvk.config import Config
from dvk.pipelines.train import TrainRequest, train
options = json.loads(sys.argv[1])
for name in ("tasks", "out"):
    options[name] = Path(options[name])
train(TrainRequest(**options), Config.model_validate_json(sys.argv[2]))
"""
NANO = f"nano:{resource('data', 'nano')}"


def config(**more: object) -> Config:
    served = settings().served
    return changed(
        CONFIG,
        {
            "backbone.lora_rank": 8,
            "backbone.dtype": "float32",
            "served.rollouts": "local",
            "served.command": served.command,
            "served.arguments": served.arguments,
            "served.start_s": served.start_s,
            **more,
        },
    )


def until(true: Callable[[], object], seconds: float = 900) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.1)


@pytest.fixture
def killed_at_the_end() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def test_kills_of_server_judge_and_learner_cost_a_step_at_most(
    problems: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    killed_at_the_end: list[subprocess.Popen[bytes]],
) -> None:
    use_little(monkeypatch)
    out = tmp_path / "run"
    asked = request(NANO, problems, out, steps=4)
    options = json.dumps(dataclasses.asdict(asked), default=str)
    process = subprocess.Popen([sys.executable, "-c", RUN, options, config().model_dump_json()])
    killed_at_the_end.append(process)

    def below(text: str) -> list[int]:
        return [pid for pid in proctree.below(process.pid) if text in command_line(pid)]

    def steps() -> int:
        file = out / "metrics.jsonl"
        return len(file.read_text().splitlines()) if file.exists() else 0

    until(steps)
    os.kill(below("api_server")[-1], signal.SIGKILL)
    until(lambda: steps() >= 2)
    (keeper,) = below("dvk.backbone.served.keeper")
    server = proctree.below(keeper)
    judges = [pid for pid in proctree.below(process.pid) if pid != keeper and pid not in server]
    assert len(server) >= 2 and judges
    os.kill(judges[-1], signal.SIGKILL)
    until(lambda: steps() >= 3)
    (keeper,) = below("dvk.backbone.served.keeper")
    everything = proctree.below(process.pid)
    process.kill()
    process.wait()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in everything), 30)
    resumed = dataclasses.replace(asked, resume=True)
    assert train(resumed, config())["steps"] == 4
    rows = metrics(out)
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert sum(row["rows"] for row in rows) > 0
    assert all(row["mismatch_token"] < 1e-3 for row in rows)
    assert not (out / "rollouts" / "weights").exists()


def test_ctrl_c_ends_the_server(
    problems: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    killed_at_the_end: list[subprocess.Popen[bytes]],
) -> None:
    use_little(monkeypatch)
    asked = request(NANO, problems, tmp_path / "run", steps=50)
    options = json.dumps(dataclasses.asdict(asked), default=str)
    process = subprocess.Popen([sys.executable, "-c", RUN, options, config().model_dump_json()])
    killed_at_the_end.append(process)
    until(lambda: (tmp_path / "run" / "metrics.jsonl").exists())
    everything = proctree.below(process.pid)
    process.send_signal(signal.SIGINT)
    process.wait(60)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in everything), 30)
