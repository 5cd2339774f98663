"""`POST /v1/score` of `dvk serve` as a process, and the scorer that asks it."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dvk.config import Config
from dvk.environments import trl
from dvk.environments.over_http import HttpScorer
from dvk.errors import MachineError, UsageError
from dvk.interop import harbor
from dvk.interop.kernelgym import Evaluation
from dvk.pipelines.serve import scoring
from dvk.pipelines.serve.judging import JudgeService
from tests.cli import warm
from tests.environments.answers import RIGHT, TASK, WRONG

TOKEN = "open sesame"


SETTINGS = """
[judge]
search_s = 0.05
num_seeds = 1
[rewards.weights]
correctness = 1.0
format = 0.2
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server that answers this token's bearers only."""
    config = tmp_path_factory.mktemp("served") / "settings.toml"
    config.write_text(SETTINGS)
    words = ["serve", "--port", "0", "--device", "cpu", "--workers", "1", "--config", str(config)]
    process = subprocess.Popen(
        [sys.executable, "-m", "dvk", *words],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "DVK_JUDGE_TOKEN": TOKEN},
        cwd=warm.ROOT,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"serving (http://127\.0\.0\.1:\d+)", line)
        assert found, line + process.stderr.read()
        yield found[1]
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


@pytest.fixture
def scorer(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpScorer]:
    monkeypatch.setenv("DVK_JUDGE_TOKEN", TOKEN)
    asking = HttpScorer(server)
    yield asking
    asking.close()


def raw(server: str, body: Any, token: str = TOKEN) -> tuple[int, Any]:
    line = http.client.HTTPConnection(server.removeprefix("http://"), timeout=60)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    line.request("POST", "/v1/score", json.dumps(body), headers)
    answer = line.getresponse()
    return answer.status, json.loads(answer.read())


@pytest.mark.slow
def test_answers_are_scored_as_on_this_machine(scorer: HttpScorer, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(TASK)
    right, wrong, silent = scorer.score_all(
        [(TASK, RIGHT), (tmp_path / "task.py", WRONG), (TASK, "I cannot.")]
    )
    assert (right.reward, right.right, right.terms["correctness"]) == (1.0, True, 1.0)
    assert right.verdict is not None and right.speedup is not None and right.speedup > 0
    assert (wrong.reward, wrong.right) == (0.0, False) and "Wrong result" in wrong.feedback
    assert silent.reward == -0.2 and silent.verdict is None and silent.malformed is not None


def test_a_repeated_answer_is_one_evaluation(scorer: HttpScorer, server: str) -> None:
    """A client whose connection broke sends its answer again."""
    text = RIGHT.replace("I fuse it.", "I fuse it well.").replace("* 2 + 1", "* 2 + 1.0")
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: scorer.score(TASK, text).verdict, range(4)))
    assert found[0] is not None and found == found[:1] * 4


def test_adapters_ask_the_server(
    server: str, scorer: HttpScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dvk.environments._scorers", {})
    monkeypatch.setenv("DVK_SCORE_URL", server)
    assert trl.kernel_reward([RIGHT, WRONG], task=[TASK, TASK]) == [1.0, 0.0]


def test_what_cannot_be_scored(server: str, scorer: HttpScorer) -> None:
    with pytest.raises(UsageError, match="refuses the task"):
        scorer.score(TASK.replace("torch.randn(64, 64)", "1 / 0"), RIGHT)
    assert raw(server, {"task": TASK, "text": RIGHT}, "wrong")[0] == 401
    for body in ({"task": TASK}, {"task": TASK, "text": 1}, {"task": TASK, "text": "", "path": 1}):
        assert raw(server, body)[0] == 422
    status, found = raw(server, {"task": TASK, "text": "\ud800"})
    assert status == 422 or found["malformed"]


def test_a_lost_server_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dvk.interop.kernelgym.client.RETRIES", 0)
    with pytest.raises(MachineError, match="cannot be reached"):
        HttpScorer("http://127.0.0.1:9").score(TASK, RIGHT)
    with pytest.raises(UsageError):
        HttpScorer("127.0.0.1")


def test_the_script_in_harbors_boxes_writes_the_reward(server: str, tmp_path: Path) -> None:
    """With the standard library of any Python: `-I -S` has no other packages."""
    script = Path(harbor.__file__).with_name("score.py")
    (tmp_path / "task.py").write_text(TASK)

    def run(answer: str | None, url: str = server) -> tuple[int, str, Any]:
        if answer is not None:
            (tmp_path / "answer.py").write_text(answer)
        words = [tmp_path / "task.py", tmp_path / "answer.py", tmp_path / "logs"]
        done = subprocess.run(
            [sys.executable, "-I", "-S", script, *words],
            capture_output=True,
            text=True,
            env={"DVK_SCORE_URL": url, "DVK_JUDGE_TOKEN": TOKEN},
        )
        reward = tmp_path / "logs" / "reward.json"
        found = json.loads(reward.read_text()) if reward.exists() else None
        reward.unlink(missing_ok=True)
        return done.returncode, done.stdout + done.stderr, found

    code = RIGHT.partition("```python\n")[2].removesuffix("```\n")
    ended, said, found = run(None)
    assert (ended, found["reward"], found["right"]) == (0, -0.2, 0.0)
    ended, said, found = run(code)
    assert ended == 0 and "Correct on" in said
    assert (found["reward"], found["right"], found["term_correctness"]) == (1.0, 1.0, 1.0)
    assert found["speedup"] > 0
    ended, said, found = run(code, "")
    assert (ended, found) == (1, None) and "DVK_SCORE_URL" in said
    ended, said, found = run(code, f"{server}/nowhere")
    assert (ended, found) == (1, None) and "404" in said


def test_an_answer_is_timed_on_the_servers_device_whatever_it_is_written_in() -> None:
    """A model that answers in C++ is not rewarded for being faster than the reference on a CPU."""
    cpp = RIGHT.replace(
        "import torch\n", "import torch\nfrom torch.utils.cpp_extension import load_inline\n"
    )
    service = JudgeService(Config(), 1, "cuda")
    service.devices = ("cuda", "cpu")
    asked = scoring.evaluation(scoring.TaskAnswer(task=TASK, text=cpp), service)
    assert isinstance(asked, Evaluation) and asked.dvk is not None
    assert service._place(asked, asked.dvk)[1] == "cuda"
