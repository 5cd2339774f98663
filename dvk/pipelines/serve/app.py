"""The four endpoints of KernelGYM's server that its trainer uses, and one that scores answers, over a `RequestQueue`.

    POST /evaluate      Evaluation → 200 Result, when it has ended
    POST /v1/score      a task and a model's answer → 200 its reward, terms, feedback and verdict; see scoring.py
    GET  /status/{id}   200 {task_id, status, progress, queue_position, …} | 404
    GET  /results/{id}  200 Result | 202 not ended yet | 404
    GET  /health        200 | 503, without a token

401 wrong token · 403 guarded, see below · 409 the id is in use for another request · 413 too large · 422 not a request · 429 the queue is
full, with Retry-After · 503 stopping. A candidate or reference that is no program is a result, not an error.

The token comes as `Authorization: Bearer TOKEN`, or as the password of HTTP Basic: a client that takes only a URL, as its trainer does,
uses `http://any:TOKEN@HOST:PORT`.

Without a token, loopback alone keeps others out, but web pages in a browser of this machine are on loopback, too. The app is then guarded:
it refuses a browser's requests for a page, recognised by the Origin header or, after DNS rebinding, by the Host header.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

import dvk
from dvk import machine
from dvk.agents.scored import Scored
from dvk.errors import DvkError, MachineError
from dvk.interop.kernelgym import Evaluation, EvaluationResult
from dvk.interop.kernelgym.fields import ENDED
from dvk.pipelines.serve import scoring
from dvk.pipelines.serve.addresses import local
from dvk.pipelines.serve.desk import QueueClosed, QueueEntry, QueueFull, RequestQueue, TaskIdTaken
from dvk.pipelines.serve.judging import JudgeService
from dvk.pipelines.serve.scoring import TaskAnswer

BODY_BYTES = 8 << 20
"""Largest request: two source texts of the largest size that is judged."""
RETRY_S = 2
"""Retry time in the response to a request that finds the queue full."""


def application(
    queue: RequestQueue, judging: JudgeService, token: str | None, guarded: bool = False
) -> FastAPI:
    """The app.

    Args:
        queue: takes the requests.
        judging: gives the devices and back ends.
        token: the required token; None admits every client.
        guarded: only programs of this machine are admitted.
    """
    app = FastAPI(title="dvk serve", version=dvk.__version__, docs_url=None, redoc_url=None)
    _add_gate(app, token, guarded)
    app.exception_handler(RequestValidationError)(unreadable)
    _add_requests(app, queue)
    _add_scores(app, queue, judging)
    _add_health(app, queue, judging)
    return app


def _add_gate(app: FastAPI, token: str | None, guarded: bool) -> None:
    @app.middleware("http")
    async def gate(
        request: Request, following: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        """Checks before the body is read: the client's token, and the body's size."""
        header, length = (
            request.headers.get("Authorization", ""),
            request.headers.get("Content-Length", ""),
        )
        if guarded and (
            "Origin" in request.headers or not local(named(request.headers.get("Host", "")))
        ):
            how = "ask by http://127.0.0.1 and from no web page, or start the server with a token"
            return JSONResponse(
                {"detail": f"without a token only programs of this machine are answered: {how}"},
                403,
            )
        known = token is None or secrets.compare_digest(shown(header).encode(), token.encode())
        if not known and request.url.path != "/health":
            return JSONResponse(
                {"detail": "the token is missing or wrong"}, 401, {"WWW-Authenticate": "Bearer"}
            )
        if request.method == "POST" and not length.isdigit():
            return JSONResponse({"detail": "say the Content-Length"}, 411)
        if length.isdigit() and int(length) > BODY_BYTES:
            return JSONResponse({"detail": f"larger than {BODY_BYTES} bytes"}, 413)
        return await following(request)


async def unreadable(_: Request, error: RequestValidationError) -> JSONResponse:
    """As FastAPI does, without the input: JSON may be unable to hold it, and it may be megabytes."""
    wrong = [
        {
            "loc": [str(part) for part in one["loc"]],
            "msg": _ascii(str(one["msg"])),
            "type": one["type"],
        }
        for one in error.errors()
    ]
    return JSONResponse({"detail": wrong}, 422)


def _add_requests(app: FastAPI, queue: RequestQueue) -> None:
    @app.post("/evaluate")
    async def evaluate(request: Evaluation) -> JSONResponse:
        result = await _ended(queue, request)
        stopped = result.status == "failed" and queue.closed
        return JSONResponse(_plain(result.model_dump()), 503 if stopped else 200)

    @app.get("/status/{task_id}")
    async def status(task_id: str) -> JSONResponse:
        return JSONResponse(_plain(_status(_found(queue, task_id), queue)))

    @app.get("/results/{task_id}")
    async def results(task_id: str) -> JSONResponse:
        entry = _found(queue, task_id)
        if entry.result is None:
            return JSONResponse(_plain(_status(entry, queue)), 202)
        return JSONResponse(_plain(entry.result.model_dump()))


def _add_scores(app: FastAPI, queue: RequestQueue, judging: JudgeService) -> None:
    @app.post("/v1/score")
    async def score(request: TaskAnswer) -> JSONResponse:
        asked = await asyncio.to_thread(scoring.evaluation, request, judging)
        if isinstance(asked, Scored):
            return JSONResponse(_plain(scoring.response(asked)))
        result = await _ended(queue, asked)
        if result.status == "failed" and queue.closed:
            raise HTTPException(503, "the server is stopping")
        try:
            found = scoring.scored_result(request, result, judging)
        except DvkError as error:
            code = 500 if isinstance(error, MachineError) else 422
            raise HTTPException(code, _ascii(f"{error.message} ({error.hint})")) from None
        return JSONResponse(_plain(scoring.response(found)))


async def _ended(queue: RequestQueue, request: Evaluation) -> EvaluationResult:
    """The result of a request, when it has ended."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    try:
        entry = queue.submit(request, lambda: _call(loop, ended.set))
    except QueueFull:
        raise HTTPException(
            429,
            f"the queue is full ({queue.settings.queue} wait): come again",
            {"Retry-After": str(RETRY_S)},
        ) from None
    except TaskIdTaken:
        raise HTTPException(
            409,
            f"`{_ascii(request.task_id)}` is in work for another request: choose another task_id",
        ) from None
    except QueueClosed:
        raise HTTPException(503, "the server is stopping") from None
    await ended.wait()
    assert entry.result is not None, "it has ended"
    return entry.result


def _add_health(app: FastAPI, queue: RequestQueue, judging: JudgeService) -> None:
    began = time.time()

    @app.get("/health")
    async def health() -> JSONResponse:
        well = queue.failed is None and not queue.closed
        return JSONResponse(
            {
                "status": "healthy" if well else "unhealthy",
                "reason": queue.failed or ("stopping" if queue.closed else None),
                "timestamp": datetime.now(timezone.utc).isoformat(),
                "uptime": round(time.time() - began, 1),
                "dvk": dvk.__version__,
                "devices": list(judging.devices),
                "gpus": list(machine.gpu_names()),
                "workers": queue.num_workers,
                "queue": {
                    "waiting": queue.num_waiting,
                    "processing": queue.num_judged,
                    "capacity": queue.settings.queue,
                    "ended": queue.num_ended,
                },
            },
            200 if well else 503,
        )


def named(header: str) -> str:
    """The name or address in a Host header, without port and brackets; empty if it is malformed."""
    match = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:]+))(?::\d*)?", header.strip().lower())
    return match[1] or match[2] if match else ""


def shown(header: str) -> str:
    """The token in an Authorization header; empty if there is none."""
    kind, _, value = header.strip().partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


def _found(queue: RequestQueue, task_id: str) -> QueueEntry:
    entry = queue.find(task_id)
    if entry is None:
        raise HTTPException(
            404, f"no task `{_ascii(task_id[:100])}`: it was never sent, or is forgotten"
        )
    return entry


def _status(entry: QueueEntry, queue: RequestQueue) -> dict[str, Any]:
    """The fields that the documented client polls, and one that its server leaves out: why a task failed."""
    result = entry.result
    return {
        "task_id": entry.request.task_id,
        "status": entry.state,
        "progress": 1.0 if entry.state in ENDED else 0.0,
        "estimated_completion": None,
        "queue_position": queue.position(entry),
        "assigned_device": None,
        "error_message": result.error_message if result else None,
        "error_code": result.error_code if result else None,
    }


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


def _plain(value: Any) -> Any:
    """Remove values that JSON in UTF-8 cannot hold: lone surrogates, which a candidate may print, infinities and NaN."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()
