"""Requests to a KernelGYM server, robust against a full queue, a lost connection, a restart, a slow judge.

`POST /evaluate` waits for the verdict; if the connection is lost meanwhile, the verdict is requested by the task's id. A restarted
server has forgotten the id and gets the request again: equal requests are one task to it.
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from dvk.config import RemoteConfig
from dvk.errors import MachineError, UsageError
from dvk.interop.kernelgym.fields import ENDED, EvaluationResult
from dvk.sandbox.wire import without_surrogates

POLL_S = 1.0
"""Time between two polls for a verdict after its connection was lost."""

SCHEME = "kernelgym:"
ASK_S = 30.0
"""Timeout of requests that are answered at once."""
RETRIES = 5
"""Retries if the server cannot be reached; about 30 s with their pauses."""
LONGEST_PAUSE_S = 30.0
FULL = (429, 502, 503, 504)
"""Statuses to retry: a full queue, and a proxy's answers for a restarting server."""
MAX_BYTES = 64 << 20
"""Maximal bytes of an answer; profiles of KernelGYM's servers have hundreds of rows."""


class RequestRefused(ValueError):
    """The server rejects this request from any client; `field` is the one it objects to."""

    def __init__(self, field: str, message: str):
        super().__init__(message)
        self.field = field


class Client:
    """One server.

    Args:
        judge: `kernelgym:URL`.
        settings: waits, retries, and the variable that holds the token.

    Raises:
        UsageError: not a KernelGYM judge.
    """

    def __init__(self, judge: str, settings: RemoteConfig):
        self.url = url_of(judge)
        self.settings = settings
        self.token = os.environ.get(settings.token_env) or None

    def health(self) -> dict[str, Any]:
        """The server's description of itself, if it would accept requests from this client.

        Raises:
            MachineError, UsageError: as `evaluate`.
        """
        status, answer = self._persist(
            "GET", "/health", None, time.monotonic() + self.settings.timeout_s
        )
        if status != 200 or not isinstance(answer, dict):
            raise MachineError(
                f"the judge at `{self.url}` is unhealthy: {_said(answer, status)}",
                "look at its log, or restart it",
            )
        # Every client gets that answer; a request for an unknown task shows whether the server accepts the token.
        self._persist("GET", "/status/dvk-none", None, time.monotonic() + self.settings.timeout_s)
        return answer

    def evaluate(
        self, request: dict[str, Any], deadline: float | None = None
    ) -> EvaluationResult | None:
        """The result of one request once it has ended; None if the deadline came first.

        Raises:
            MachineError: the server cannot be reached, fails, or does not end within `remote.timeout_s`.
            UsageError: it refuses the token, or does not speak KernelGYM's protocol.
            RequestRefused: it rejects this request.
        """
        until = time.monotonic() + self.settings.timeout_s
        asked_until = until if deadline is None else min(until, deadline)
        known = False
        while time.monotonic() < asked_until:
            if not known:
                try:
                    status, answer = self._persist("POST", "/evaluate", request, asked_until)
                except TimeoutError:  # the request was accepted: poll for its result
                    known = True
                    continue
                if status == 200 and (result := self._result(answer)).status in ENDED:
                    return result
                if status == 422:
                    raise RequestRefused(*_objection(answer))
                if status not in (200, 202):
                    raise MachineError(
                        f"the judge at `{self.url}` failed: {_said(answer, status)}",
                        "look at its log",
                    )
                known = True
            status, answer = self._persist(
                "GET", f"/status/{request['task_id']}", None, asked_until
            )
            if status == 404:  # it was restarted
                known = False
            elif status == 200 and isinstance(answer, dict) and answer.get("status") in ENDED:
                status, found = self._persist(
                    "GET", f"/results/{request['task_id']}", None, asked_until
                )
                if status == 200:
                    return self._result(found)
                if answer["status"] != "completed":  # KernelGYM keeps no results of failed tasks
                    return self._result({**answer, "task_id": request["task_id"]})
                known = False
            else:
                time.sleep(min(POLL_S, max(0.0, asked_until - time.monotonic())))
        if deadline is not None and time.monotonic() < until:
            return None
        problem = f"the judge at `{self.url}` gave no verdict within {self.settings.timeout_s:g} s"
        raise MachineError(
            problem,
            "look at its queue at /health, or wait longer with --set remote.timeout_s=SECONDS",
        )

    def score(self, task: str, entry: str, text: str) -> dict[str, Any]:
        """The body of `dvk serve`'s answer to POST /v1/score.

        Args:
            task: text of the task file.
            entry: the reference's class.
            text: the model's whole answer.

        Raises:
            MachineError, UsageError: as `evaluate`; the task cannot be judged.
        """
        until = time.monotonic() + self.settings.timeout_s
        request = {"task": task, "entry_point": entry, "text": text}
        try:
            status, answer = self._persist("POST", "/v1/score", request, until)
        except TimeoutError:
            status, answer = 504, f"no answer within {self.settings.timeout_s:g} s"
        if status == 200 and isinstance(answer, dict):
            return answer
        if status == 422:
            _, said = _objection(answer)
            raise UsageError(f"the judge at `{self.url}` refuses the task: {said}", "correct it")
        raise MachineError(
            f"the judge at `{self.url}` failed: {_said(answer, status)}", "look at its log"
        )

    # ------------------------------------------------------------ requests

    def _persist(
        self, method: str, path: str, body: dict[str, Any] | None, until: float
    ) -> tuple[int, Any]:
        """Status and decoded body; transient errors are retried: a full queue until `until`, a lost server `retries` times.

        Raises:
            TimeoutError: the server accepted the request and did not answer until `until`.
            MachineError, UsageError: see `evaluate`.
        """
        lost = full = 0
        while True:
            try:
                longest = (
                    until - time.monotonic()
                    if method == "POST"
                    else min(ASK_S, until - time.monotonic())
                )
                status, answer, wait_s = self._once(method, path, body, max(1.0, longest))
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, TimeoutError) and method == "POST":
                    raise
                lost += 1
                if lost > RETRIES or time.monotonic() >= until:
                    problem = f"the judge at `{self.url}` cannot be reached: {error or type(error).__name__}"
                    raise MachineError(
                        problem, "start it (`dvk serve`), or correct --judge kernelgym:URL"
                    ) from None
                wait_s = min(2.0 ** (lost - 1), LONGEST_PAUSE_S)
            else:
                if status in (401, 403):
                    what = "refuses the token" if self.token else "asks for a token"
                    raise UsageError(
                        f"the judge at `{self.url}` {what}", f"export ${self.settings.token_env}"
                    )
                if status == 404 and path in ("/evaluate", "/health", "/v1/score"):
                    server = "`dvk serve`" if path == "/v1/score" else "KernelGYM server"
                    raise UsageError(
                        f"`{self.url}` has no {path}: it is no {server}",
                        "correct --judge kernelgym:URL",
                    )
                if status not in FULL or time.monotonic() >= until:
                    return status, answer
                full += 1
                wait_s = min(wait_s or 2.0**full, LONGEST_PAUSE_S)
            time.sleep(max(0.0, min(wait_s, until - time.monotonic())))

    def _once(
        self, method: str, path: str, body: dict[str, Any] | None, wait_s: float
    ) -> tuple[int, Any, float]:
        """Status, decoded body, and seconds until a retry (0: not given)."""
        headers = {
            "Accept": "application/json",
            **({"Content-Type": "application/json"} if body is not None else {}),
        }
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=wait_s) as answer:
                return answer.status, _decoded(answer.read(MAX_BYTES)), 0.0
        except urllib.error.HTTPError as error:
            with error:
                after = error.headers.get("Retry-After") or ""
                return (
                    error.code,
                    _decoded(error.read(MAX_BYTES)),
                    float(after) if after.isdigit() else 0.0,
                )
        except urllib.error.URLError as error:
            # A failed connection attempt is no accepted request.
            raise ConnectionError(str(error.reason)) from None

    def _result(self, answer: Any) -> EvaluationResult:
        try:
            return EvaluationResult.model_validate(answer)
        except ValidationError as error:
            problem = f"`{self.url}` answers something that is no KernelGYM result: {error.errors()[0]['msg']}"
            raise UsageError(problem, "correct --judge kernelgym:URL") from None


def url_of(judge: str) -> str:
    """The base URL in `kernelgym:URL`.

    Raises:
        UsageError: not a KernelGYM judge.
    """
    if judge.startswith("table:"):
        raise UsageError(
            f"`{judge}` holds earlier verdicts, and judges nothing new",
            "leave --judge out; `dvk eval` and `dvk train` take tables",
        )
    url = judge.removeprefix(SCHEME).rstrip("/")
    if (
        not judge.startswith(SCHEME)
        or urlsplit(url).scheme not in ("http", "https")
        or not urlsplit(url).netloc
    ):
        raise UsageError(f"unknown judge: `{judge}`", "write --judge kernelgym:http://HOST:PORT")
    return url


def _decoded(body: bytes) -> Any:
    try:
        return without_surrogates(json.loads(body))
    except ValueError:
        return body[:300].decode(errors="replace")


def _said(answer: Any, status: int) -> str:
    detail = answer.get("detail", answer) if isinstance(answer, dict) else answer
    return f"HTTP {status}: {str(detail)[:300]}"


def _objection(answer: Any) -> tuple[str, str]:
    """Field and message of a 422, in FastAPI's format."""
    detail = answer.get("detail") if isinstance(answer, dict) else None
    first = detail[0] if isinstance(detail, list) and detail and isinstance(detail[0], dict) else {}
    place = first.get("loc")
    return str(place[-1]) if isinstance(place, list) and place else "", str(
        first.get("msg") or detail or answer
    )[:300]
