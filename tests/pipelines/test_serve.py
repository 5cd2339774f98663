"""`dvk serve` as a process on loopback with the real judge, asked by a client that knows only KernelGYM's documented fields."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dvk.sandbox.proctree import descendants
from tests.cli import warm
from tests.pipelines.waiting import wait_for

pytestmark = pytest.mark.slow

FILES = Path(__file__).resolve().parents[1] / "harness" / "files"
AFFINE = (FILES / "affine.py").read_text()
RIGHT, WRONG = (
    (FILES / "good/cpp_affine.py").read_text(),
    (FILES / "bad/one_element.py").read_text(),
)
TOKEN = "open sesame"
DOCUMENTED = {
    "task_id",
    "status",
    "compiled",
    "correctness",
    "decoy_kernel",
    "reference_runtime",
    "kernel_runtime",
    "speedup",
    "metadata",
    "error_message",
    "error_code",
    "submitted_at",
    "completed_at",
    "processing_time",
}
SLOW = "import time\nimport torch\n\ntime.sleep(30)\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"


class Gym:
    """KernelGYM's client as documented: POST /evaluate, GET /status, GET /results, one token."""

    def __init__(self, port: int, token: str | None = TOKEN):
        self.port, self.token = port, token

    def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        if self.token:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        text = body if isinstance(body, (str, bytes)) or body is None else json.dumps(body)
        line.request(method, path, text, {"Content-Type": "application/json", **headers})
        answer = line.getresponse()
        found = json.loads(answer.read() or b"null")
        line.close()
        return answer.status, found, dict(answer.headers)

    def evaluate(
        self, kernel: str, task_id: str, reference: str = AFFINE, **fields: Any
    ) -> dict[str, Any]:
        body = {
            "task_id": task_id,
            "reference_code": reference,
            "kernel_code": kernel,
            "backend": "triton",
            "num_correct_trials": 5,
            "num_perf_trials": 100,
            "timeout": 300,
            "priority": "normal",
            "entry_point": "Model",
            "is_valid": False,
            "verbose_errors": True,
            "enable_profiling": False,
            "detect_decoy_kernel": True,
            "reference_backend": None,
            **fields,
        }
        status, found, _ = self.ask("POST", "/evaluate", body)
        assert status == 200, found
        return found


@contextmanager
def serving(*args: str, token: str = TOKEN) -> Iterator[tuple[subprocess.Popen[str], Gym]]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "dvk",
            "serve",
            "--port",
            "0",
            "--set",
            "judge.search_s=0.05",
            "--set",
            "judge.num_seeds=1",
            *args,
        ],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "DVK_JUDGE_TOKEN": token},
        cwd=warm.ROOT,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        port = re.search(r"serving http://127\.0\.0\.1:(\d+)", line)
        assert port, line + process.stderr.read()
        yield process, Gym(int(port[1]))
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


@pytest.fixture(scope="module")
def gym() -> Iterator[Gym]:
    with serving() as (_, client):
        yield client


# ---------------------------------------------------------------- the round trip


def test_documented_request_and_answer(gym):
    found = gym.evaluate(RIGHT, "right-1", backend="cpp")
    assert set(found) == DOCUMENTED and (found["task_id"], found["status"]) == (
        "right-1",
        "completed",
    )
    assert (
        found["compiled"]
        and found["correctness"]
        and not found["decoy_kernel"]
        and found["error_message"] is None
    )
    # A median of ratios, and medians of times: on a busy machine they differ.
    assert found["reference_runtime"] > 0 and found["kernel_runtime"] > 0 and found["speedup"] > 0
    assert found["metadata"]["correctness_trials"] and found["processing_time"] > 0
    status, state, _ = gym.ask("GET", "/status/right-1")
    assert status == 200 and state["status"] == "completed" and state["progress"] == 1.0
    assert gym.ask("GET", "/results/right-1")[:2] == (200, found)


def test_errors_use_the_same_fields(gym):
    untimed = {"run_performance": False}
    found = gym.evaluate(WRONG, "wrong-1", **untimed)
    assert (found["status"], found["compiled"], found["correctness"]) == ("completed", True, False)
    assert (found["speedup"], found["kernel_runtime"]) == (0.0, -1.0)
    lazy = gym.evaluate((FILES / "good/torch_affine.py").read_text(), "lazy-1", **untimed)
    assert (
        lazy["decoy_kernel"]
        and lazy["speedup"] == 0.0
        and "PyTorch's kernels only" in lazy["error_message"]
    )
    asked = gym.evaluate(
        (FILES / "good/torch_affine.py").read_text(), "lazy-2", detect_decoy_kernel=False, **untimed
    )
    assert asked["correctness"] and not asked["decoy_kernel"]


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        ("", "empty"),
        ("class ModelNew(", "not Python"),
        ("hello", "ModelNew"),
        ("class ModelNew: ...\0", "not Python"),
        ("class ModelNew: '\ud800'", "Unicode"),
        ("class ModelNew: ...", "nn.Module"),
        ("import nosuchthing\nclass ModelNew: ...", "nosuchthing"),
        ("# " + "x" * (5 << 20), "MiB"),
    ],
    ids=["empty", "syntax", "prose", "nul", "surrogate", "no module", "import", "long"],
)
def test_malformed_source_is_a_verdict(gym, kernel, text):
    found = gym.evaluate(kernel, "malformed", force_refresh=True, run_performance=False)
    assert (found["status"], found["compiled"], found["correctness"]) == ("completed", False, False)
    assert text in found["error_message"] and found["error_code"] in (
        "VALIDATION_ERROR",
        "COMPILATION_ERROR",
    )


@pytest.mark.parametrize(
    "reference", ["", "class Model(", "\ud800", "raise SystemExit", "import os\nos._exit(3)"]
)
def test_a_malformed_reference_is_a_failed_task(gym, reference):
    found = gym.evaluate(RIGHT, "no-reference", reference, force_refresh=True)
    assert (
        found["status"] == "failed"
        and found["error_code"] == "VALIDATION_ERROR"
        and "reference" in found["error_message"]
    )
    assert gym.ask("GET", "/status/no-reference")[1]["error_message"] == found["error_message"]
    assert gym.ask("GET", "/health")[1]["status"] == "healthy", "that is not the server's fault"


def test_who_is_not_let_in_and_what_is_not_a_request(gym):
    assert gym.ask("GET", "/status/nobody")[0] == gym.ask("GET", "/results/nobody")[0] == 404
    for token in (None, "wrong", "ŝ"):
        header: Any = {"Authorization": f"Bearer {token}".encode()} if token else {}
        assert Gym(gym.port, None).ask("POST", "/evaluate", {}, **header)[0] == 401
    basic = base64.b64encode(f"trainer:{TOKEN}".encode()).decode()
    assert (
        Gym(gym.port, None).ask("GET", "/status/nobody", Authorization=f"Basic {basic}")[0] == 404
    )
    assert Gym(gym.port, None).ask("GET", "/health")[1]["status"] == "healthy"
    body = {"task_id": "a", "reference_code": "", "kernel_code": ""}
    changes = [
        {"task_id": "x" * 101},
        {"workflow": "kernel_simple"},
        {"entry_point": "a b"},
        {"timeout": 1},
    ]
    for wrong in (*[{**body, **change} for change in changes], {}, [], "{", b'"\xed\xa0\x80"'):
        status, found, _ = gym.ask("POST", "/evaluate", wrong)
        assert status == 422 and found["detail"], wrong
    assert gym.ask("POST", "/evaluate", **{"Content-Length": str(9 << 20)})[0] == 413
    assert (
        Gym(gym.port, None).ask("POST", "/evaluate", **{"Content-Length": str(9 << 20)})[0] == 401
    ), "before anything is read"


def test_what_this_machine_lacks_is_no_fault_of_the_server(gym):
    asked = {"tier": "smoke", "device": "cuda"}
    found = gym.evaluate(RIGHT, "lacks-1", backend="cpp", dvk=asked)
    if found["status"] == "failed":  # there is no GPU
        assert "no cuda" in found["error_message"] and gym.ask("GET", "/health")[0] == 200


def test_dvk_verify_has_it_judge(gym, tmp_path):
    args = [
        FILES / "affine.py",
        FILES / "good/cpp_affine.py",
        FILES / "bad/one_element.py",
        "--json",
        "--out",
        "run",
        "--tier",
        "smoke",
    ]
    there = ("--judge", f"kernelgym:http://127.0.0.1:{gym.port}")
    done = warm.dvk("verify", *args, *there, cwd=tmp_path, exits=1, env={"DVK_JUDGE_TOKEN": TOKEN})
    first, second = json.loads(done.stdout)
    assert (
        first["status"] == "ok"
        and first["num_checks"] > 1
        and first["isolation"]
        and first["tolerance"]
    ), "the whole verdict came"
    assert second["status"] == "mismatch" and "off by more" in second["error"]
    for token, more, text in (("wrong", (), "token"), (TOKEN, ("--device", "cuda"), "no cuda")):
        refused = warm.dvk(
            "verify",
            *args[:2],
            *there,
            *more,
            "--out",
            "other",
            cwd=tmp_path,
            exits=2,
            env={"DVK_JUDGE_TOKEN": token},
        )
        assert text in refused.stderr and not (tmp_path / "other").exists()


def test_without_a_token_no_web_page_is_let_in(tmp_path):
    with serving(token="") as (_, gym):

        def asked(**headers: str) -> int:
            return Gym(gym.port, None).ask("GET", "/status/nobody", **headers)[0]

        for host in ("127.0.0.1:1", "127.9.9.9", "localhost", "LOCALHOST:8", "[::1]:5"):
            assert asked(Host=host) == 404, host
        for host in (
            "evil.example:10907",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "192.168.0.1",
            "[::2]:5",
            "::1",
            "",
        ):
            assert asked(Host=host) == 403, host
        assert asked(Origin="http://evil.example") == asked(Origin="null") == 403
        status, found, _ = Gym(gym.port, None).ask("POST", "/evaluate", {}, Host="evil.example")
        assert status == 403 and "token" in found["detail"]
        there = ("--judge", f"kernelgym:http://127.0.0.1:{gym.port}")
        args = [
            FILES / "affine.py",
            FILES / "good/cpp_affine.py",
            "--json",
            "--out",
            "run",
            "--tier",
            "smoke",
        ]
        done = warm.dvk("verify", *args, *there, cwd=tmp_path, env={"DVK_JUDGE_TOKEN": ""})
        assert json.loads(done.stdout)[0]["status"] == "ok"
    with serving("--no-token", token="") as (_, gym):
        assert (
            Gym(gym.port, None).ask(
                "GET", "/status/nobody", Host="judge.example", Origin="http://page.example"
            )[0]
            == 404
        )


# ---------------------------------------------------------------- when it ends


def test_ctrl_c_answers_waiting_clients_and_leaves_no_process():
    with serving("--workers", "1", "--queue", "1") as (process, gym):
        answers: list[tuple[int, Any]] = []

        def ask(name: str) -> None:
            body = {
                "task_id": name,
                "reference_code": AFFINE,
                "kernel_code": SLOW,
                "backend": "cpp",
            }
            answers.append(gym.ask("POST", "/evaluate", body)[:2])

        threads = [threading.Thread(target=ask, args=(name,)) for name in ("one", "two")]
        threads[0].start()
        wait_for(lambda: gym.ask("GET", "/health")[1]["queue"]["processing"] == 1)
        threads[1].start()
        wait_for(lambda: gym.ask("GET", "/health")[1]["queue"]["waiting"] == 1)
        assert (
            gym.ask("GET", "/results/two")[0] == 202
            and gym.ask("GET", "/status/two")[1]["queue_position"] == 0
        )
        body = {"task_id": "three", "reference_code": AFFINE, "kernel_code": SLOW}
        status, found, headers = gym.ask("POST", "/evaluate", body)
        assert status == 429 and "full" in found["detail"] and int(headers["retry-after"]) > 0
        assert gym.ask("POST", "/evaluate", {**body, "task_id": "one"})[0] == 409
        children = wait_for(lambda: descendants(process.pid))
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        for thread in threads:
            thread.join(10)
        assert [status for status, _ in answers] == [503, 503] and all(
            "stopped" in found["error_message"] for _, found in answers
        )
        wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def test_a_killed_server_takes_its_children_along_and_its_client_goes_on_with_the_next(tmp_path):
    with serving() as (process, gym):
        process_args = ("--port", str(gym.port))
        client = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "dvk",
                "verify",
                str(FILES / "affine.py"),
                str(FILES / "good/cpp_affine.py"),
                "--json",
                "--tier",
                "smoke",
                "--judge",
                f"kernelgym:http://127.0.0.1:{gym.port}",
                "--out",
                str(tmp_path / "run"),
            ],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "DVK_JUDGE_TOKEN": TOKEN},
            cwd=warm.ROOT,
        )
        wait_for(lambda: gym.ask("GET", "/health")[1]["queue"]["processing"] == 1)
        children = wait_for(lambda: descendants(process.pid))
        process.kill()
        wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
    with serving(*process_args):
        out, _ = client.communicate(timeout=60)
    assert json.loads(out)[0]["status"] == "ok"


# ---------------------------------------------------------------- on a GPU

SOFTMAX = """\
import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, y, width, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * width + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < width
    v = tl.load(x + i, mask=mask, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + i, e / tl.sum(e, 0), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""

LAZY = """\
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
"""
GIVEN = """

def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(4096, 512, device="cuda")]
"""


@pytest.mark.gpu
def test_a_triton_candidate_as_its_trainer_sends_it(gym):
    reference = LAZY.replace("ModelNew", "Model") + GIVEN
    found = gym.evaluate(SOFTMAX, "gpu-1", reference, enable_profiling=True)
    assert found["status"] == "completed" and found["correctness"] and not found["decoy_kernel"], (
        found["error_message"]
    )
    assert found["reference_runtime"] > 0 and found["speedup"] > 0
    assert gym.evaluate(LAZY, "gpu-2", reference)["decoy_kernel"]
