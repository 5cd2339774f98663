"""KernelGYM's protocol: its results as our verdicts and ours as its results, and a client that survives what servers do."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from dvk.config import Config, RemoteConfig
from dvk.errors import MachineError, UsageError
from dvk.harness.placement import open_session
from dvk.interop.kernelgym import Evaluation, EvaluationResult, client
from dvk.interop.kernelgym.answers import result_of
from dvk.interop.kernelgym.client import Client, RequestRefused
from dvk.interop.kernelgym.readings import NoVerdict, verdict_of
from dvk.interop.kernelgym.remote import as_model
from dvk.records import Candidate, Interval, Status, Task, Timing, Verdict

REFERENCE = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x


def get_inputs():
    return []
"""
TASK = Task(id="t", name="t", source=REFERENCE, entry="Model", kind="module", device="cuda")
NEW = Candidate(source="class ModelNew: ...", backend="triton")
RIGHT = {
    "status": "completed",
    "compiled": True,
    "correctness": True,
    "decoy_kernel": False,
    "reference_runtime": 0.31,
    "kernel_runtime": 0.2,
    "speedup": 1.55,
    "metadata": {"correctness_trials": "(5 / 5)", "gpu_name": "H100"},
}


def bad(status: str, stage: str) -> Verdict:
    return Verdict(status=Status(status), tier="search", stage=stage, error="e")


def ok(**changes: Any) -> Verdict:
    timing = Timing(
        candidate_ms=1.0,
        reference_ms=2.0,
        speedup=Interval(value=2.0, lo=1.9, hi=2.1),
        num_pairs=30,
        seconds=0.1,
        baselines={"compile": Interval(value=1.5, lo=1.4, hi=1.6)},
        baselines_ms={"compile": 1.5},
    )
    return Verdict(
        **{
            "status": Status.OK,
            "tier": "search",
            "stage": "done",
            "timing": timing,
            "num_checks": 11,
            **changes,
        }
    )


# ---------------------------------------------------------------- results and verdicts


def test_a_whole_verdict_comes_back_as_it_was():
    for verdict in (
        ok(),
        Verdict(status=Status.MISMATCH, tier="claim", stage="check", error="worst at [1]"),
    ):
        answer = EvaluationResult.model_validate_json(
            result_of("a", verdict, whole=True).model_dump_json()
        )
        assert verdict_of(answer, "search", 1.0, ours=True) == verdict
    with pytest.raises(NoVerdict, match="unknown baseline"):
        refused = {
            "status": "failed",
            "error_code": "VALIDATION_ERROR",
            "error_message": "unknown baseline",
        }
        verdict_of(EvaluationResult(task_id="a", **refused), "search", 1.0, ours=True)


@pytest.mark.parametrize(
    ("verdict", "wanted"),
    [
        (ok(), ("completed", True, True, False, None)),
        (bad("mismatch", "check"), ("completed", True, False, False, "CORRECTNESS_ERROR")),
        (bad("compile_error", "compile"), ("completed", False, False, False, "COMPILATION_ERROR")),
        (bad("launch_error", "check"), ("completed", True, False, False, "RUNTIME_ERROR")),
        (bad("rejected", "static"), ("completed", False, False, False, "VALIDATION_ERROR")),
        (bad("rejected", "check"), ("completed", True, False, True, "VALIDATION_ERROR")),
        (bad("cheat", "time"), ("completed", True, False, True, "VALIDATION_ERROR")),
        (bad("timeout", "check"), ("timeout", True, False, False, "TIMEOUT_ERROR")),
        (bad("broken_task", "check"), ("failed", False, False, False, "VALIDATION_ERROR")),
    ],
    ids=lambda value: value.status.value if isinstance(value, Verdict) else "",
)
def test_what_the_trainer_prints(verdict, wanted):
    found = result_of("a", verdict)
    assert (
        found.status,
        found.compiled,
        found.correctness,
        found.decoy_kernel,
        found.error_code,
    ) == wanted
    timed = verdict.status is Status.OK
    assert (found.reference_runtime, found.kernel_runtime, found.speedup) == (
        (2.0, 1.0, 2.0) if timed else (-1.0, -1.0, 0.0)
    )
    assert "dvk" not in found.metadata, (
        "what its trainer shows to its model is no place for our records"
    )


def test_speedup_over_the_baseline_that_was_asked_for():
    found = result_of("a", ok(), over="compile")
    assert (found.reference_runtime, found.kernel_runtime, found.speedup) == (1.5, 1.0, 1.5)
    assert result_of("a", ok(), over="graph").speedup == 0.0


def test_what_its_server_does_not_prove_is_not_claimed():
    found = verdict_of(EvaluationResult(task_id="a", **RIGHT), "search", 3.0)
    assert (
        found.status is Status.OK
        and found.timing.speedup.value == 1.55
        and not found.timing.speedup.known
        and not found.faster
    )
    assert (
        str(found.timing.speedup) == "1.55× [unknown]"
        and found.num_checks == 5
        and found.machine == "H100"
    )
    assert "no interval" in found.health[0] and found.coverage is None and found.tolerance is None
    assert verdict_of(EvaluationResult(task_id="a", **RIGHT), "smoke", 3.0).timing is None
    assert verdict_of(
        EvaluationResult(task_id="a", **{**RIGHT, "speedup": 0}), "search", 3.0
    ).untimed_reason


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        (
            {
                "correctness": False,
                "metadata": {"correctness_issue": "Output mismatch", "max_difference": ["0.5"]},
            },
            "mismatch",
            "0.5",
        ),
        (
            {"correctness": False, "metadata": {"runtime_error": "illegal access"}},
            "launch_error",
            "illegal access",
        ),
        (
            {"compiled": False, "correctness": False, "metadata": {"compilation_error": "line 3"}},
            "compile_error",
            "line 3",
        ),
        ({"decoy_kernel": True}, "cheat", "decoy"),
        ({"status": "timeout"}, "timeout", "longer"),
        (
            {"status": "failed", "error_code": "SYNTAX_ERROR", "error_message": "invalid syntax"},
            "rejected",
            "invalid syntax",
        ),
    ],
)
def test_its_failures(changes, status, text):
    found = verdict_of(EvaluationResult(task_id="a", **{**RIGHT, **changes}), "search", 1.0)
    assert found.status.value == status and text in found.error and found.timing is None


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "failed", "error_code": "SYSTEM_ERROR", "error_message": "no worker"},
        {"status": "cancelled"},
        {
            "status": "failed",
            "error_code": "VALIDATION_ERROR",
            "error_message": "reference: no class Model",
        },
    ],
)
def test_a_server_at_fault_says_nothing_of_the_candidate(changes):
    with pytest.raises(NoVerdict):
        verdict_of(EvaluationResult(task_id="a", **{**RIGHT, **changes}), "search", 1.0)


def test_an_entry_of_another_name_travels_as_model():
    source, entry = as_model(
        TASK.model_copy(update={"source": REFERENCE.replace("Model", "Head"), "entry": "Head"})
    )
    assert entry == "Model" and "class Model(Head)" in source
    function = {
        "source": "def f(x): return x\n\n\ndef get_inputs(): ...\n",
        "entry": "f",
        "kind": "function",
    }
    source, entry = as_model(TASK.model_copy(update=function))
    space: dict[str, Any] = {}
    exec(source, space)
    assert space["Model"]()(3) == 3
    with pytest.raises(UsageError, match="get_inputs"):
        as_model(TASK.model_copy(update={"source": "class Model: ..."}))


# ---------------------------------------------------------------- the client


class Server:
    """A KernelGYM server of the documented shape; `behave(number, method, path, body)` → (HTTP status, body) or None to drop the line."""

    def __init__(self, behave: Callable[[int, str, str, dict[str, Any]], tuple[int, Any] | None]):
        self.seen: list[tuple[str, str, dict[str, Any], str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer("GET")

            def do_POST(self) -> None:
                self.answer("POST")

            def answer(self, method: str) -> None:
                body = json.loads(
                    self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}"
                )
                if self.path == "/status/dvk-none":
                    found: tuple[int, Any] | None = (404, {})
                elif self.path == "/health":
                    found = 200, {"status": "healthy"}
                else:
                    outer.seen.append(
                        (method, self.path, body, self.headers.get("Authorization", ""))
                    )
                    found = behave(len(outer.seen), method, self.path, body)
                if found is None:
                    self.connection.close()
                    return
                text = json.dumps(found[1]).encode()
                self.send_response(found[0])
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.judge = f"kernelgym:http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(
            target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def config(self, **settings: Any) -> Config:
        return Config(remote=RemoteConfig(**{"judge": self.judge, "timeout_s": 20.0, **settings}))

    def client(self, **settings: Any) -> Client:
        return Client(self.judge, self.config(**settings).remote)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    monkeypatch.setattr(client, "POLL_S", 0.01)
    made: list[Server] = []

    def start(behave: Callable[..., Any]) -> Server:
        made.append(Server(behave))
        return made[-1]

    yield start
    for one in made:
        one.http.shutdown()
        one.http.server_close()


ASK = {"task_id": "a1"}


def test_the_request_has_the_documented_fields_and_the_answer_is_a_verdict(server, monkeypatch):
    monkeypatch.setenv("DVK_JUDGE_TOKEN", "sesame")
    gym = server(lambda number, method, path, body: (200, {"task_id": body["task_id"], **RIGHT}))
    with open_session(TASK, gym.config()) as court:
        found = court.judge(NEW, "search", ("compile",))
    ((method, path, body, shown),) = gym.seen
    assert (method, path, shown) == ("POST", "/evaluate", "Bearer sesame")
    assert (
        Evaluation.model_validate(body).reference_backend == "torch_compile" and "dvk" not in body
    )
    assert (
        body["reference_code"] == REFERENCE
        and body["kernel_code"] == NEW.source
        and body["entry_point"] == "Model"
    )
    assert found.status is Status.OK and found.timing.speedup.value == 1.55


def test_what_only_dvk_serve_gives_is_not_asked_of_others(server):
    gym = server(lambda *_: (200, RIGHT))
    for task, tier in (
        (TASK, "claim"),
        (TASK.model_copy(update={"input_specs": ("x=float32[3]",)}), "search"),
    ):
        with pytest.raises(UsageError, match="dvk serve"):
            open_session(task, gym.config()).judge(NEW, tier)
    assert not gym.seen


@pytest.mark.slow
def test_a_full_queue_is_waited_for_and_a_lost_line_is_followed_up(server):
    def behave(number, method, path, body):
        if number == 1:
            return 429, {"detail": "full"}
        if number == 2:
            return None  # taken, then the line is lost
        return 200, {"task_id": "a1", **RIGHT}

    gym = server(behave)
    began = time.monotonic()
    assert gym.client().evaluate(ASK).speedup == 1.55
    assert [path for _, path, _, _ in gym.seen] == [
        "/evaluate"
    ] * 3 and 1.5 < time.monotonic() - began < 10


def test_one_that_answers_later_is_polled_and_one_that_forgot_is_asked_again(server):
    answers = iter(
        [
            (202, {"task_id": "a1", "status": "pending"}),
            (200, {"status": "processing"}),
            (404, {"detail": "no task"}),
            (200, {"task_id": "a1", "status": "processing"}),
            (200, {"status": "completed"}),
            (200, {"task_id": "a1", **RIGHT}),
        ]
    )
    gym = server(lambda *_: next(answers))
    assert gym.client().evaluate(ASK).correctness
    paths = [path for _, path, _, _ in gym.seen]
    assert paths == [
        "/evaluate",
        "/status/a1",
        "/status/a1",
        "/evaluate",
        "/status/a1",
        "/results/a1",
    ]


def test_failures_are_reported_even_without_a_result_file(server):
    answers = iter(
        [(202, {"task_id": "a1", "status": "pending"}), (200, {"status": "timeout"}), (404, {})]
    )
    assert server(lambda *_: next(answers)).client().evaluate(ASK).status == "timeout"


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        ((401, {"detail": "no"}), UsageError, "token"),
        ((404, {}), UsageError, "no KernelGYM server"),
        ((500, {"detail": "boom"}), MachineError, "boom"),
        ((200, [1, 2]), UsageError, "no KernelGYM result"),
        (
            (422, {"detail": [{"loc": ["body", "kernel_code"], "msg": "long"}]}),
            RequestRefused,
            "long",
        ),
    ],
)
def test_what_cannot_pass_by_itself_is_said(server, answer, error, text):
    gym = server(lambda *_: answer)
    with pytest.raises(error, match=text):
        gym.client().evaluate(ASK)
    assert len(gym.seen) == 1


def test_a_candidate_that_the_server_does_not_take_is_rejected(server):
    gym = server(
        lambda *_: (422, {"detail": [{"loc": ["body", "kernel_code"], "msg": "too long"}]})
    )
    assert open_session(TASK, gym.config()).judge(NEW).status is Status.REJECTED


def test_waiting_ends(server):
    gym = server(lambda *_: (202, {"task_id": "a1", "status": "pending"}))
    assert gym.client().evaluate(ASK, deadline=time.monotonic() + 0.1) is None
    with pytest.raises(MachineError, match="no verdict within"):
        gym.client(timeout_s=0.1).evaluate(ASK)


@pytest.mark.parametrize(
    "judge", ["http://here", "kernelgym:", "kernelgym:here", "kernelgym:ftp://here", "ray://x"]
)
def test_not_a_judge(judge):
    with pytest.raises(UsageError, match="unknown judge"):
        open_session(TASK, Config(remote=RemoteConfig(judge=judge)))


def test_no_server(monkeypatch):
    monkeypatch.setattr(client, "RETRIES", 0)
    with pytest.raises(MachineError, match="cannot be reached"):
        open_session(TASK, Config(remote=RemoteConfig(judge="kernelgym:http://127.0.0.1:1"))).judge(
            NEW
        )
